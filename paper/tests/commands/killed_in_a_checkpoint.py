"""`python -m pairgrad` whose first process kills itself once, when the files of a checkpoint are written and it has not got its name yet."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from pairgrad.cli import main
from pairgrad_paper.runs import checkpoint

FROM = 10  # updates


def _put(temporary: Path, target: Path, put: Callable[[Path, Path], Path] = checkpoint._put) -> Path:
    run = target.parent.parent
    if os.environ["RANK"] == "0" and int(target.name.split("-")[1]) >= FROM and not (run.parent / "killed").exists():
        (run.parent / "killed").write_text(temporary.name)
        os.kill(os.getpid(), signal.SIGKILL)
    return put(temporary, target)


if __name__ == "__main__":
    checkpoint._put = _put
    sys.argv[0] = "pairgrad"
    main()
