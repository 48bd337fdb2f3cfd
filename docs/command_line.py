"""The page docs/command-line.md: `python -m docs.command_line docs/command-line.md`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from typer.main import get_command

from pairgrad.cli.app import app
from pairgrad.cli.exit_codes import GENERAL
from pairgrad.ground.files import write_atomically

_HEAD = """\
# Command line

<!-- Written by `make command-line`; a test compares it with the commands. -->

`pip install 'pairgrad[cli]'` brings the command, `pip install pairgrad-paper` the commands of the paper's experiments (`demo`, `train`, `tables` ...);
`pairgrad doctor` says what is there. Every page below is what a command prints with `--help`.

```sh
pairgrad                        # the first page
pairgrad --install-completion   # commands, options, recipes, tables and realizations, completed by bash, zsh, fish and PowerShell
pairgrad train digits-lt --debug
```

## Mistakes, bugs and exit codes

A mistake in a command, in its files or in what is installed ends with exit code 2 and a sentence that says what to do. `--debug`, or the environment variable
`PAIRGRAD_DEBUG=1`, shows the traceback before it. What pairgrad did not expect ends with its traceback and exit code 70, which no command uses for an answer.
"""


def page() -> str:
    """The whole of it."""
    root: Any = get_command(app)
    commands = root.commands
    lines = [_HEAD, "| command | exit code | meaning |\n|---|---|---|"]
    lines += [f"| all, but for what follows | {code} | {words} |" for code, words in GENERAL.items()]
    lines += [
        f"| `{name}` | {code} | {words} |"
        for name, command in commands.items()
        for code, words in command.codes.items()
        if GENERAL.get(code) != words
    ]
    lines += ["\n## The first page\n", _block(root, "pairgrad")]
    for name, command in commands.items():
        lines += [f"\n## pairgrad {name}\n", _block(command, f"pairgrad {name}")]
    return "\n".join(lines) + "\n"


def _block(command: Any, name: str) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    context.terminal_width = 78  # as on a terminal of 80 columns
    return f"```text\n{command.get_help(context).rstrip()}\n```"


if __name__ == "__main__":
    write_atomically(Path(sys.argv[1]), page())
