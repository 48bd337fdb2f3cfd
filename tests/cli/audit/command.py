"""`pairgrad audit` in this process."""

from __future__ import annotations

from tests.cli.command import invoke

QUICK = ("--inputs", "randn(2)", "--effort", "quick", "--no-second-order", "--no-consequences")


def audit(*arguments, **env):
    done = invoke("audit", *map(str, arguments), columns=300, **env)
    return done.exit_code, done.stdout, done.stderr


def quick(*arguments, **env):
    return audit(*arguments, *QUICK[2:], **env)
