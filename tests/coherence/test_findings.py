"""Findings and verdicts as words and as data: what each says, that every kind has a remedy, and that results cannot be edited."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import Box, Finding, LogRange, Report, Verdict
from tests.coherence.functions import sine_with


def test_a_finding_says_how_grave_it_is_and_where() -> None:
    assert str(Finding("defect", "alarm", "the gradient is off", "x")) == "[alarm] x: the gradient is off"
    assert str(Finding("note", "note", "nothing to say")) == "[note] nothing to say"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("defect", "differentiate the value that is computed"),
        ("second-order", "save inputs and outputs only"),
        ("not-linear", "multiply by grad_output"),
        ("not-reentrant", "work on a copy"),
        ("edits", "out-of-place"),
        ("nondeterministic", "use_deterministic_algorithms"),
        ("no-gradient", "without requires_grad"),
        ("non-finite", "mask the argument"),
        ("undefined", "treat None as zeros"),
        ("rounds", "in its own dtype"),
        ("layout", ".contiguous()"),
        ("size", "compute in float32"),
        ("rough", "as a formula"),
        ("at-state", "one of the sides"),
        ("jump", "make the formulas meet"),
        ("straight-through", "intended('straight-through')"),
        ("unresolved", "float64"),
    ],
)
def test_every_alarm_and_warning_has_causes_and_a_remedy(kind: str, words: str) -> None:
    finding = Finding(kind, "alarm", "")
    assert finding.causes
    assert all(finding.causes)
    assert words in finding.remedy


def test_what_only_informs_has_none() -> None:
    assert (Finding("region", "note", "").causes, Finding("region", "note", "").remedy) == ((), "")


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_has_a_meaning_of_its_own(verdict: Verdict) -> None:
    report = Report("f", verdict, False, None, 1e-12, 1e-12, 0.0, 0.0, (), ())
    assert report.meaning in report.explain().replace("\n", " ")
    others = [Report("f", other, False, None, 1e-12, 1e-12, 0.0, 0.0, (), ()).meaning for other in Verdict if other != verdict]
    assert report.meaning not in others


@pytest.fixture(scope="module")
def report() -> Report:
    fn = sine_with(lambda x: 1.01).apply
    return pg.audit(fn, torch.tensor(0.7, dtype=torch.float64), domain=(0.5, 1.5), effort="glance", consequences=False)


def test_results_and_intervals_cannot_be_edited(report: Report) -> None:
    parts: list[Any] = [
        report,
        report.findings[0],
        report.states[0],
        report.curves[0],
        report.regions["input 0"][0],
        Box(0, 1),
        LogRange(1, 2),
    ]
    for part in parts:
        name = dataclasses.fields(part)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
            setattr(part, name, None)


def test_intervals_and_findings_are_equal_by_content() -> None:
    assert Box(0, 1) == Box(0.0, 1.0) != Box(0, 2)
    assert LogRange(1, 2) == LogRange(1, 2) != LogRange(1, 3)
    assert Finding("a", "note", "b") == Finding("a", "note", "b") != Finding("a", "note", "c")


def test_an_inconclusive_verdict_names_the_argument_and_the_reason() -> None:
    x = torch.tensor([0.3, 0.7], dtype=torch.float64)
    nothing = pg.audit(lambda x: 0 * x.sum(), x)
    assert nothing.verdicts[0].text.startswith("input 0: neither the value nor the gradient depends on it"), str(nothing)

    class Jagged(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, y)
            return x.sin() + y.sin()

        @staticmethod
        def backward(ctx: Any, *grad_outputs: torch.Tensor) -> Any:
            (x, y), (grad,) = ctx.saved_tensors, grad_outputs
            return grad * x.cos(), grad * (torch.sin(y + 1e-11) - torch.sin(y)) / 1e-11

    rough = pg.audit(Jagged.apply, (x, x.flip(0)), tolerance=0.01, consequences=False)
    assert rough.verdict == "inconclusive", str(rough)
    assert rough.verdicts[0].text.startswith("input 1: the gradient is jagged"), str(rough)

    def slow(x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        return x.sin()

    stopped = pg.audit(slow, x, seconds=0.1)
    assert not stopped.complete
    assert stopped.summary.splitlines()[1].startswith("time was up"), str(stopped)


def test_directions_are_counted_only_where_some_are_right(report: Report) -> None:
    (finding,) = [finding for finding in report.findings if finding.kind == "defect"]
    assert finding.numbers["lines"] == finding.numbers["defective_lines"]
    assert "directions" not in finding.text
