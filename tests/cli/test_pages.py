"""Help pages, completion, exit codes and tracebacks: what every command has."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from pairgrad.cli import exit_codes
from pairgrad.cli.app import app
from pairgrad.cli.pages import Page

from .command import invoke, pairgrad

ROOT = get_command(app)
COMMANDS: dict[str, Page] = ROOT.commands  # type: ignore[attr-defined]


def test_all_commands_of_the_design_are_there() -> None:
    assert set(COMMANDS) >= {
        *("demo", "tables", "figures", "prove", "certify", "audit", "train", "fork", "evaluate", "bench", "report", "plan", "doctor"),
    }


def test_without_arguments_the_first_page_is_shown() -> None:
    bare = invoke(columns=80)
    assert bare.exit_code == 0
    assert bare.stdout == invoke("--help", columns=80).stdout
    for name, command in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(command.short_help)}$", bare.stdout, re.MULTILINE), name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_fits_80_columns_and_says_what_is_needed(name: str) -> None:
    page = invoke(name, "--help", columns=80).stdout
    assert max(map(len, page.splitlines())) <= 80
    assert "…" not in page
    assert "\x1b" not in page
    assert "--debug" in page
    assert "\nExamples:\n" in page
    for code, words in COMMANDS[name].codes.items():
        assert re.search(rf"^  {code} +{re.escape(words.split()[0])}", page, re.MULTILINE)
    undocumented = [param.name for param in COMMANDS[name].params if not getattr(param, "help", None) and param.name != "help"]
    assert not undocumented
    assert not re.findall(r"<(?:str|int|path|float|bool|list)\b[^>]*>", page), "a metavar is missing"


EXAMPLES = [typed for command in COMMANDS.values() for typed, _ in command.examples]


@pytest.mark.parametrize("typed", EXAMPLES)
def test_examples_can_be_typed(typed: str) -> None:
    """They are parsed, not run: an option that is gone or renamed is an error here."""
    words = shlex.split(typed)
    words = words[words.index("pairgrad") + 1 :]
    COMMANDS[words[0]].make_context(words[0], words[1:])


def test_an_example_that_is_wrong_is_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        COMMANDS["train"].make_context("train", ["digits-lt", "--realisation", "arfr"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], "train"),
        (["train", "digits"], "digits-lt"),
        (["train", "digits-lt", "--realization", "pai"], "paired"),
        (["tables", "--only", "ratio"], "ratio-fidelity"),
        (["figures", "--only", "value"], "value-and-slope"),
        (["doctor", "--com"], "--compile"),
    ],
)
def test_the_shell_completes(words: list[str], expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What bash asks for when Tab is pressed, asked here."""
    monkeypatch.setenv("_PAIRGRAD_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", shlex.join(["pairgrad", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    with pytest.raises(SystemExit):
        app(prog_name="pairgrad")
    assert expected in capsys.readouterr().out.split()


class TestMistakes:
    def test_a_sentence_and_no_traceback(self) -> None:
        done = invoke("tables", "--only", "nothing")
        assert done.exit_code == exit_codes.MISTAKE
        assert done.stderr.startswith("pairgrad tables: no table is called 'nothing'")
        assert "Traceback" not in done.stderr

    def test_debug_shows_the_traceback_and_then_the_sentence(self) -> None:
        done = invoke("tables", "--only", "nothing", "--debug")
        assert done.exit_code == exit_codes.MISTAKE
        assert done.stderr.startswith("Traceback")
        assert "pairgrad tables: no table is called 'nothing'" in done.stderr.splitlines()[-1]

    def test_debug_by_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PAIRGRAD_DEBUG", "1")
        assert invoke("tables", "--only", "nothing").stderr.startswith("Traceback")

    def test_debug_ends_with_its_command(self) -> None:
        invoke("tables", "--only", "nothing", "--debug")
        assert "Traceback" not in invoke("tables", "--only", "nothing").stderr

    def test_the_nearest_command_is_suggested(self) -> None:
        done = invoke("tran")
        assert done.exit_code == exit_codes.MISTAKE
        assert "Did you mean 'train'?" in done.stderr


def test_a_bug_has_a_code_of_its_own() -> None:
    """A traceback, who to tell, and no code that a command uses for an answer."""
    code = (
        "import pairgrad_paper.commands.tables\n"
        "def broken(*_): raise KeyError('a bug')\n"
        "pairgrad_paper.commands.tables.run = broken\n"
        "import sys; sys.argv = ['pairgrad', 'tables']\n"
        "from pairgrad.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == exit_codes.BUG
    assert "KeyError: 'a bug'" in done.stderr
    assert "pairgrad doctor" in done.stderr.splitlines()[-1]
    answers = [command.codes for command in COMMANDS.values()]
    assert all(codes[exit_codes.BUG] == exit_codes.GENERAL[exit_codes.BUG] for codes in answers)


WITHOUT = "import importlib.metadata; importlib.metadata.entry_points = lambda group: (); "


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "80"})


@pytest.mark.parametrize(
    "name", ["demo", "train", "evaluate", "fork", "frozen", "states", "collect", "tables", "figures", "report", "times"]
)
def test_without_the_paper_s_experiments_a_command_says_how_to_get_them(name: str) -> None:
    done = _run(f"{WITHOUT}import sys; sys.argv = ['pairgrad', '{name}', '--help']; from pairgrad.cli import main; main()")
    assert done.returncode == exit_codes.MISTAKE
    assert done.stderr == f"pairgrad {name}: this command comes with the paper's experiments: pip install pairgrad-paper\n"


def test_without_the_paper_s_experiments_the_others_are_there() -> None:
    done = _run(f"{WITHOUT}import sys; sys.argv = ['pairgrad']; from pairgrad.cli import main; main()")
    assert done.returncode == 0
    assert re.findall(r"^  (\w+)  ", done.stdout, re.MULTILINE) == ["doctor", "audit", "plan", "prove", "certify", "bench", "realizations"]


def test_commands_that_cannot_be_loaded_do_not_take_the_others_along() -> None:
    broken = "from importlib.metadata import EntryPoint; import importlib.metadata; "
    broken += "importlib.metadata.entry_points = lambda group: [EntryPoint('x', 'no_such_module:COMMANDS', group)] * (group == 'pairgrad.commands'); "
    done = _run(f"{broken}import sys; sys.argv = ['pairgrad', 'realizations']; from pairgrad.cli import main; main()")
    assert done.returncode == 0
    assert "the commands of x cannot be loaded (ModuleNotFoundError: No module named 'no_such_module')" in done.stderr
    assert "paired" in done.stdout


def test_an_interrupt_is_130() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    other = typer.Typer()
    other.command()(interrupted)
    with pytest.raises(SystemExit) as ended:
        other(args=[])
    assert ended.value.code == exit_codes.INTERRUPTED


def test_version() -> None:
    import pairgrad as package

    assert pairgrad("--version").stdout.strip() == package.__version__


def test_the_page_of_the_documentation_is_up_to_date() -> None:
    from docs.command_line import page

    there = Path(__file__).parents[2] / "docs" / "command-line.md"
    assert there.read_text(encoding="utf-8") == page(), "run: make command-line"
