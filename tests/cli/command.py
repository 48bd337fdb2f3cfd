"""The command line: in a process of its own, as a user runs it, or in this one, where torch is loaded already."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

from typer import testing
from typer.testing import CliRunner, Result

from pairgrad.cli.app import app

_BUILT = testing.__dict__  # a runner builds all commands anew for each call, which is most of the time of a short one: here once
_BUILT["_get_command"] = functools.cache(_BUILT["_get_command"])


def pairgrad(*arguments: str, columns: int = 120) -> subprocess.CompletedProcess[str]:
    """Run `pairgrad ARGUMENTS` in a new process."""
    return subprocess.run(
        [sys.executable, "-c", "from pairgrad.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": str(columns)},
        check=False,
    )


def invoke(*arguments: str, columns: int = 120, **environment: str) -> Result:
    """Run `pairgrad ARGUMENTS` here; an exception that the command does not explain is raised."""
    return CliRunner(env={"COLUMNS": str(columns), **environment}).invoke(app, arguments, catch_exceptions=False)
