"""The command line: in a process of its own, as a user runs it, or in this one, where torch is loaded already."""

from __future__ import annotations

import os
import subprocess
import sys

from typer.testing import CliRunner, Result

from pairgrad.cli.app import app


def pairgrad(*arguments: str, columns: int = 120) -> subprocess.CompletedProcess[str]:
    """Run `pairgrad ARGUMENTS` in a new process."""
    return subprocess.run(
        [sys.executable, "-c", "from pairgrad.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": str(columns)},
        check=False,
    )


def invoke(*arguments: str, columns: int = 120) -> Result:
    """Run `pairgrad ARGUMENTS` here; an exception that the command does not explain is raised."""
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(app, arguments, catch_exceptions=False)
