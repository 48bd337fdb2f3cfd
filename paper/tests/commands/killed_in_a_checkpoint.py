"""`python -m pairgrad` whose first process kills itself once, when the files of a checkpoint are written and it has not got its name yet."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from pairgrad.cli import main

FROM = 10  # updates


def rename(source: str | Path, target: str | Path, plain: Callable[[str | Path, str | Path], None] = os.rename) -> None:
    temporary, checkpoint = Path(source), Path(target)
    killed = checkpoint.parent.parent.parent / "killed"
    written = temporary.name.endswith(".partial") and checkpoint.name.startswith("step-")
    if os.environ["RANK"] == "0" and written and int(checkpoint.name.split("-")[1]) >= FROM and not killed.exists():
        killed.write_text(temporary.name)
        os.kill(os.getpid(), signal.SIGKILL)
    plain(source, target)


if __name__ == "__main__":
    os.rename = rename
    sys.argv[0] = "pairgrad"
    main()
