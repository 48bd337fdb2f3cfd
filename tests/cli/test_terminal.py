"""What commands print can be read without colour in 80 columns, on a terminal and in a file.

The rule: no line is longer than 80 columns unless a word of it fills half of them (a path, an address), nothing is cut off with an ellipsis, and there are no
escapes.
Help pages are in `test_pages`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import Result

from pairgrad.cli import explained

from .command import invoke

WIDTH = 80
FILE = {"NO_COLOR": "1"}
# A terminal for rich that can move no cursor and has no colours.
TERMINAL = {**FILE, "TERM": "dumb", "TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "0"}
LOSSES = """
import torch

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 3 * x.clamp(max=2) ** 2

def off(x):
    return Cube.apply(x).sum()

def right(x):
    return (x**3).sum()
"""
CHEAP = {
    "contents": (),
    "realizations": ("realizations",),
    "recipes": ("train",),
    "plan": ("plan", "--classes", "1e7", "--dim", "512", "--ranks", "64", "--batch", "8192"),
    "plan that does not fit": ("plan", "--classes", "1e9", "--dim", "512", "--ranks", "8", "--batch", "8192", "--memory", "1G"),
    "prove": ("prove", "--dim", "64"),
    "table": ("tables", "--only", "parity", "--output", "."),
    "tables from records": ("tables", "--only", "captured-audit", "--only", "fork-summary", "--only", "task-complete", "--output", "."),
}


def unreadable(text: str) -> list[str]:
    """Lines that break the rule."""
    return [
        line for line in text.splitlines() if re.search("\x1b|…", line) or (len(line) > WIDTH and max(map(len, line.split())) < WIDTH // 2)
    ]


def printed(environment: dict[str, str], *arguments: str) -> Result:
    return invoke(*arguments, columns=WIDTH, **environment)


def test_the_rule_has_teeth() -> None:
    path = "/a/directory/that/has/a/very/long/name/indeed/and/then/some/more/of/it/report.html"
    assert unreadable(f"Written to {path} and nowhere else\n{'a table of words ' * 4}\n") == []
    assert len(unreadable(f"{'words ' * 20}\n\x1b[1mbold\x1b[0m\n--optio…  cut\n")) == 3


@pytest.mark.parametrize("environment", [FILE, TERMINAL], ids=["file", "terminal"])
@pytest.mark.parametrize("name", CHEAP)
def test_cheap_commands(name: str, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "prove" and environment is FILE:
        pytest.skip("proven once: it prints the same on a terminal")
    monkeypatch.chdir(tmp_path)
    done = printed(environment, *CHEAP[name])
    assert len(done.stdout) > 200
    assert unreadable(done.output) == []


@pytest.mark.slow
def test_a_dry_run() -> None:
    done = printed(TERMINAL, "train", "digits-lt", "--dry-run")
    assert done.exit_code == 0
    assert unreadable(done.output) == []


@pytest.mark.slow
def test_audits(tmp_path: Path) -> None:
    """Folded on a terminal. In a file a finding is one line, so that a search finds it whole."""
    (tmp_path / "losses.py").write_text(LOSSES)
    arguments = (
        "audit",
        f"{tmp_path}/losses.py:off",
        f"{tmp_path}/losses.py:right",
        "--inputs",
        "uniform(1, 3, (4,))",
        "--effort",
        "quick",
    )
    shown, stored = (printed(environment, *arguments) for environment in (TERMINAL, FILE))
    assert unreadable(shown.output) == []
    assert all("[" in line or line.startswith("  ") for line in unreadable(stored.output))
    assert len(re.findall(r"^  - \[alarm\] input 0: .* lines$", stored.output, re.MULTILINE)) == 1


def test_names_of_files_cannot_move_the_cursor_or_give_commands(tmp_path, monkeypatch):
    """Escape sequences and lines that a code host would obey, in the messages of commands, of audits and of tracebacks."""
    monkeypatch.chdir(tmp_path)
    name = "a\x1b[31m\n::error::b\u202e"
    (tmp_path / f"{name}.py").write_text(f"def f(x):\n    raise RuntimeError({name!r})\n")
    for arguments in (
        ("certify", f"{name}.pt"),
        ("certify", f"{name}.pt", "--debug"),
        ("audit", f"{name}.py:f", "--inputs", "randn(2)", "--traceback", "--effort", "quick"),
        ("audit", "losses:f", "--html", f"{name}"),
        ("plan", "--classes", "10", "--dim", "8", "--ranks", "2", "--json", f"{name}/missing/plan.txt/"),
    ):
        done = invoke(*arguments)
        shown = done.stdout + done.stderr
        assert "a\\x1b[31m" in shown or "plan" in arguments, shown
        assert not [character for character in "\x1b\u202e" if character in shown], repr(shown)
        assert not [line for line in shown.splitlines() if line.lstrip().startswith("::")], shown


LINE = "x\nPASS all is well"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("certify", f"{LINE}.pt"), "x\\nPASS all is well.pt"),
        (("certify", f"{LINE}.pt", "--debug"), "Traceback"),
        (
            ("plan", "--classes", "10", "--dim", "8", "--ranks", "2", "--batch", "8", "--json", f"{LINE}.json"),
            "Written to x\\nPASS all is well.json",
        ),
        (("evaluate", LINE), "x\\nPASS all is well"),
        (("audit", f"{LINE}.py:f"), "no such file: x\\nPASS all is well.py"),
        (("audit", f"{LINE}:f"), "audit: x\\nPASS all is well has no 'f'"),
        (("audit", "raises.py:f", "--inputs", "randn(2)"), "f raised x\\nPASS all is well: x PASS all is well"),
        (("audit", "raises.py:f", "--inputs", "randn(2)", "--traceback"), "Traceback"),
        (("audit", "raises.py:f", "--inputs", f"@'{LINE}.npy'"), "\n    @'x PASS all is well.npy'\n    ^\n"),
        (("audit", "raises.py:f", "--html", f"{LINE}.txt"), "got x\\nPASS all is well.txt"),
        (("audit", f"{LINE}/good.py:f", "--inputs", "randn("), "\n    randn(\n          ^\n"),
        (
            ("audit", f"{LINE}/good.py:f"),
            'f(x) needs inputs, for example:\n    pairgrad audit x\\nPASS all is well/good.py:f --inputs "x=randn(8)"\n',
        ),
        (
            ("audit", f"{LINE}/good.py:f", "--inputs", "randn(2)", "--effort", "quick", "--json", f"{LINE}.json"),
            "Written: x\\nPASS all is well.json",
        ),
    ],
    ids=lambda value: "-".join(value).replace(LINE, "x") if isinstance(value, tuple) else "",
)
def test_a_name_cannot_pass_for_a_line_of_ours(arguments, shown, tmp_path, monkeypatch):
    """Names of files and of exceptions with a line feed: they stay in the line that tells of them, and what is laid out stays so."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / LINE).mkdir()
    (tmp_path / LINE / "good.py").write_text("def f(x):\n    return (x**2).sum()\n")
    (tmp_path / "raises.py").write_text(f"def f(x):\n    raise type({LINE!r}, (Exception,), {{}})({LINE!r})\n")
    done = invoke(*arguments, columns=300)
    assert shown in done.output
    assert not [line for line in done.output.splitlines() if line.startswith("PASS all")]


def test_data_on_standard_output_hold_names_as_they_are_and_no_commands():
    done = invoke("audit", "##[error]x.py:f", "--format", "json")
    assert json.loads(done.stdout)["target"] == "##[error]x.py:f"
    assert "##[" not in done.output


@pytest.mark.parametrize("words", ["", "\n", "no room\nfor it"])
def test_too_little_memory_is_a_mistake_with_or_without_words(words, tmp_path, monkeypatch):
    """Python's MemoryError has none."""

    def read(path):
        raise MemoryError(words)

    (tmp_path / "state.pt").write_bytes(b"")
    monkeypatch.setattr("pairgrad.cli.certify.load", read)
    done = invoke("certify", str(tmp_path / "state.pt"))
    assert done.exit_code == 2
    assert (
        f"not enough memory for what was asked: {words.partition(chr(10))[0] or 'out of memory'}; choose smaller numbers\n" in done.stderr
    )


def test_too_little_memory_for_a_file_names_it(capsys):
    with pytest.raises(typer.Exit), explained("certify", reads=Path("state.pt")):
        raise MemoryError
    assert "not enough memory to read state.pt: out of memory;" in capsys.readouterr().err
