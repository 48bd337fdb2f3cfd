"""SIGKILL at random moments while checkpoints are written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
DRILL = Path(__file__).with_name("drill.py")


@pytest.mark.parametrize("kills", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_no_kill_leaves_a_damaged_checkpoint_or_a_lock(kills: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(DRILL), str(tmp_path / "run"), str(kills)], capture_output=True, text=True, timeout=1100, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["interrupted"], "the kills hit no save, and so tried nothing"
    assert (found["left"], found["hidden"]) == (2, 0), found
