"""Names and texts of others reach no terminal, log, page or code host in a form that it would obey."""

from __future__ import annotations

import io
import json
import re
import warnings

import pytest
import torch
from rich.table import Table
from rich.text import Text
from torch.autograd import Function

import pairgrad as pg
from pairgrad.cli import Console
from pairgrad.coherence.report.annotations import annotations, code_quality, failure_annotation
from pairgrad.testing.session import Session

EVIL = "bad\x1b[31m\n::error::</script><b>[/red]\u202e\r##[error]"
SHOWN = r"bad\x1b[31m\n::error::</script><b>[/red]\u202e\r\x23#[error]"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


def forward(ctx, x):
    ctx.save_for_backward(x)
    return x.square()


def backward(ctx, grad):
    return 3 * ctx.saved_tensors[0] * grad


Bad = type(EVIL, (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward), "__module__": __name__})


def loss(**arguments):
    return Bad.apply(arguments[EVIL]).sum()


loss.__name__ = loss.__qualname__ = EVIL
INPUTS = {EVIL: torch.tensor([1.0, 2.0], dtype=torch.float64)}


@pytest.fixture(scope="module")
def report():
    return pg.audit(loss, INPUTS, effort="quick")


@pytest.fixture(scope="module")
def run():
    x = INPUTS[EVIL].clone().requires_grad_()
    with pg.record() as recording:
        loss(**{EVIL: x}).backward()
    return recording.audit()


def safe(text):
    """Nothing but line feeds is hidden in it, and no line is a command."""
    assert not RAW.search(text), RAW.findall(text)
    assert not re.search(r"^\s*::|##\[", text, re.MULTILINE)
    return text


def test_text_reports(report, run):
    assert not report.passed
    assert SHOWN in safe(str(report))
    assert SHOWN in safe(report.summary)
    safe(report.explain())
    assert SHOWN in safe(str(run))
    safe(run.explain())
    sweep = pg.sweep(lambda x, **_: Bad.apply(x).sum(), dtype=[torch.float64], shape=[(2,)], **{EVIL: ["a", EVIL]}, effort="quick")
    safe(str(sweep))
    with pytest.raises(AssertionError) as error:
        pg.assert_coherent(loss, INPUTS, effort="quick")
    safe(str(error.value))


@pytest.mark.parametrize("space", [" ", ""])
def test_no_line_of_an_explanation_begins_with_a_command(space):
    """Wherever the text is folded."""
    command = f"{space}::error::pwned"
    for length in range(60, 101):
        Named = type("x" * length + command, (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})
        with pg.record() as recording:
            Named.apply(INPUTS[EVIL].clone().requires_grad_()).sum().backward()
        assert "pwned" in safe(recording.audit().explain())
        if length in (90, 92):
            assert "pwned" in safe(pg.audit(Named.apply, INPUTS[EVIL], effort="quick").explain())


def test_pages(report, run, tmp_path):
    for number, each in enumerate((report, run)):
        page = each.to_html(tmp_path / f"{number}.html").read_text(encoding="utf-8")
        assert not RAW.search(page.replace("\t", ""))
        assert "</script><b>" not in page
        data = page.partition('id="data">')[2].partition("</script>")[0]
        assert str(type(each).from_dict(json.loads(data))) == str(each)


def test_code_hosts(report, run):
    lines = [*annotations(report, "a.py:3"), *annotations(run), failure_annotation(EVIL, EVIL, f"{EVIL}.py:2")]
    assert len(lines) >= 3
    for line in lines:
        assert line.startswith(("::error ", "::warning "))
        assert "\n" not in line
        assert not RAW.search(line)
    for entry in code_quality(report):
        safe(entry["description"])


@pytest.mark.parametrize("terminal", [False, True])
def test_consoles(report, terminal):
    """Markup is text, too; styles of our own still work."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=200, color_system="standard" if terminal else None)
    console.print(EVIL)
    console.print(str(report), soft_wrap=True)
    assert SHOWN in safe(file.getvalue())
    console.print("bold", style="bold")
    assert ("\x1b[1mbold\x1b[0m" in file.getvalue()) is terminal


@pytest.mark.parametrize("width", [40, 80])
def test_escapes_take_room_before_text_is_laid_out(width):
    """Nothing is cut off, in a line and in a table."""
    name = "run-\udcff\udcfe" * 2
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system="standard")
    console.print(f"pairgrad evaluate {name}/last")
    console.print(Text(f"pairgrad evaluate {name}/last", style="red"))
    table = Table("name", box=None)
    table.add_row(f"{name}/last")
    table.add_row(Text(f"{name}/last", style="red"))
    console.print(table)
    text = console.file.getvalue()
    assert "".join(re.sub("\x1b\\[[0-9]*m", "", text).split()).count(r"run-\udcff\udcferun-\udcff\udcfe/last") == 4
    assert text.count("\x1b[31m") == text.count("last\x1b[0m") == 2 or width == 40


def test_monitors(tmp_path):
    scalars = {}
    path = tmp_path / "coherence.csv"
    with (
        pg.CoherenceMonitor(every=1, csv=path, log=lambda given, _: scalars.update(given), share=1.0) as monitor,
        warnings.catch_warnings(record=True) as seen,
    ):
        warnings.simplefilter("always")
        loss(**{EVIL: INPUTS[EVIL].clone().requires_grad_()}).backward()
        monitor.step()
    assert [safe(str(warning.message)) for warning in seen]
    assert [name for name in scalars if SHOWN in safe(name)]
    assert SHOWN in safe(path.read_text())
    assert len(path.read_text().splitlines()) == 2


def test_sessions_of_tests():
    session = Session()
    with session.recording(EVIL):
        loss(**{EVIL: INPUTS[EVIL].clone().requires_grad_()}).backward()
    found = session.check(EVIL, loss, INPUTS, effort="quick")
    session.errors.append(EVIL)
    session.finish()
    safe(found.said)
    lines = session.lines()
    assert len(lines) > 3
    assert not [line for line in lines if "\n" in safe(line)]
