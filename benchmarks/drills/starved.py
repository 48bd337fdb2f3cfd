"""`python -m pairgrad`, after the number of an update in which the second process gets no more memory; a file `starved` in the output says when."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

import torch

from pairgrad.cli import main
from pairgrad_paper.training import Trainer

if __name__ == "__main__":
    at, update = int(sys.argv.pop(1)), Trainer.update
    output = Path(sys.argv[sys.argv.index("--output") + 1])

    def starving(self: Trainer, batch: Any) -> Any:
        if os.environ["RANK"] == "1" and self.step == at:
            output.mkdir(exist_ok=True)
            (output / "starved").touch()
            resource.setrlimit(resource.RLIMIT_AS, (1 << 20, resource.RLIM_INFINITY))  # less than it has: no more comes
            torch.zeros(1 << 28)
        return update(self, batch)

    Trainer.update = starving
    sys.argv[0] = "pairgrad"
    main()
