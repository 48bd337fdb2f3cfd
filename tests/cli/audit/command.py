"""`pairgrad audit` in this process."""

from __future__ import annotations

from typer.testing import CliRunner

from pairgrad.cli.app import app

QUICK = ("--inputs", "randn(2)", "--effort", "quick", "--no-second-order", "--no-consequences")


def audit(*arguments, **env):
    done = CliRunner(env={"COLUMNS": "300", **env}).invoke(app, ["audit", *map(str, arguments)], catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


def quick(*arguments, **env):
    return audit(*arguments, *QUICK[2:], **env)
