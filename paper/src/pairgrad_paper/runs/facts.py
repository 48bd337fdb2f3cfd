"""What a result may depend on besides the recipe: versions, the device, the state of the source, the command."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import torch

from pairgrad import __version__
from pairgrad.ground import machine

_SECONDS = 10.0  # for git, which may have to wait for a network disk
_PACKAGE = Path(__file__).resolve().parents[2]


def environment(device: str | torch.device = "cpu", *, hostname: bool = False) -> dict[str, Any]:
    """Facts in JSON's types: `versions`, `device`, `cpu`, `source` (the git revision, None outside a checkout) and `command`.

    Args:
        device: on which the run computes.
        hostname: add the name of the machine, which is left out otherwise.
    """
    computer = machine()
    facts: dict[str, Any] = {
        "versions": {
            "pairgrad": __version__,
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "python": platform.python_version(),
        },
        "device": _device(torch.device(device)),
        "cpu": {
            "model": computer["CPU"],
            "instruction_set": computer["instruction set used by torch"],
            "threads": torch.get_num_threads(),
            "system": computer["system"],
        },
        "source": source_revision(),
        "command": list(sys.argv),
    }
    if hostname:
        facts["hostname"] = socket.gethostname()
    return facts


def source_revision(folder: Path = _PACKAGE) -> dict[str, Any] | None:
    """The commit of the git checkout that has `folder` under version control, and whether its files differ from it; None if there is none."""
    if not _git(folder, "ls-files", "--", "."):  # an environment inside another checkout is not part of it
        return None
    revision, changes = _git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain", "--", ".")
    if not revision or changes is None:
        return None
    return {"revision": revision, "changed": bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints, None if it fails or is not there."""
    # The variables that git sets for its hooks name another checkout.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {"GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], env=variables, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _device(device: torch.device) -> dict[str, Any]:
    if device.type == "cuda":
        return {"type": "cuda", "name": torch.cuda.get_device_name(device), "count": torch.cuda.device_count(), "cuda": torch.version.cuda}
    return {"type": device.type, "name": machine()["CPU"] if device.type == "cpu" else device.type, "count": 1}
