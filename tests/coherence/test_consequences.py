"""Where a gradient comes from and what it does, rule by rule: on nodes, readings and results that are made up, or small enough to know."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import Function

import pairgrad as pg
from pairgrad.coherence import Finding, Report, Verdict, consequences
from pairgrad.coherence.consequences import (
    Consistent,
    NodeVerdict,
    alone,
    consistent_gradient,
    field_findings,
    fork_findings,
    node_findings,
    nodes,
    scaling_findings,
)
from pairgrad.coherence.differences import Difference
from pairgrad.coherence.explore import Observation
from pairgrad.coherence.nodes import Visit
from pairgrad.coherence.path import Line, Path, Straight
from pairgrad.coherence.subject import Subject
from tests.coherence.functions import Round, doubles, sine_with
from tests.coherence.readings import panel_of, seen

D = torch.float64
Sine = sine_with(lambda x: 1.5)


def _line(subject: Subject, *directions: torch.Tensor, cotangent: torch.Tensor | None = None) -> Line:
    curves = tuple(Straight(tensor, direction) for tensor, direction in zip(subject.tensors, directions, strict=True))
    (output,) = subject.outputs
    return Line(subject, Path(curves), (torch.ones_like(output) if cotangent is None else cotangent,))


def _at(line: Line, *, middle: float = 0.0, order: int = 1) -> Observation:
    return seen("incoherent", line=line, panel=panel_of(defect=0.5), middle=middle, order=order)


def _report(verdict: Verdict = Verdict.COHERENT, *, passed: bool | None = None, defect: float = 0.0) -> Report:
    passed = verdict is Verdict.COHERENT if passed is None else passed
    return Report("node", verdict, passed, None, 1e-12, 1e-12, defect, 1e-13, (), ())


def _visit(function: Any = Sine, *cotangents: Any, location: str | None = "here.py:3", arguments: tuple[Any, ...] = ()) -> Visit:
    return Visit(function, function.__name__, location, arguments, cotangents, ())


GOOD, BAD = _report(), _report(Verdict.INCOHERENT, defect=0.25)
Declared = pg.intended("straight-through")(type("Declared", (Round,), {}))


# Custom Functions, one by one -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "reports", "constant", "declared", "coherent"),
    [
        (Sine, (GOOD, GOOD), False, None, True),
        (Sine, (GOOD, BAD), False, None, False),
        (Sine, (), True, None, True),
        (Sine, (BAD,), True, None, True),
        (Declared, (GOOD,), False, "straight-through", False),
        (Declared, (GOOD,), True, "straight-through", False),
        (Declared, (GOOD, BAD), False, None, False),
    ],
)
def test_a_node_is_coherent_declared_or_neither(
    function: Any, reports: tuple[Report, ...], constant: bool, declared: str | None, coherent: bool
) -> None:
    verdict = NodeVerdict(_visit(function), reports, constant)
    assert (verdict.declared, verdict.coherent) == (declared, coherent)
    assert NodeVerdict(_visit(), ()).constant is False


class Asked:
    """Stands for the audit of a node: keeps what it is asked for, and answers from a list."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[Any, tuple[Any, ...], str | None]] = []

    def __call__(self, fn: Any, arguments: Any, intent: str | None) -> Report:
        self.calls.append((fn, arguments, intent))
        answer = self.answers.pop(0) if self.answers else GOOD
        if isinstance(answer, type):
            raise answer
        return answer


def _three_times(x: torch.Tensor) -> torch.Tensor:
    return Sine.apply(x) + Sine.apply(2 * x) + Sine.apply(4 * x)


def test_two_visits_of_each_function_are_audited_at_the_worst_state() -> None:
    """At 1 + 0.5 · 2 = 2 the three visits are at 2, 4 and 8. A backward meets the last one first."""
    with Subject(_three_times, doubles(1.0)) as subject:
        line, asked = _line(subject, doubles(2.0), cotangent=doubles(3.0)), Asked(GOOD, BAD)
        (found,) = nodes(subject, _at(line, middle=0.5), asked)
    places = [arguments[0].item() for _, arguments, _ in asked.calls]
    assert len(set(places)) == 2
    assert set(places) <= {2.0, 4.0, 8.0}
    assert found.reports == (GOOD, BAD)
    assert not found.constant
    assert found.visit.arguments[0].item() == places[0]
    assert found.visit.cotangents[0].item() == 3.0
    assert [intent for _, _, intent in asked.calls] == [None, None]


def test_a_second_derivative_has_the_cotangent_among_its_arguments_and_nodes_are_met_with_ones() -> None:
    with Subject(Sine.apply, doubles(1.0, 2.0)) as subject:
        curves = (Straight(doubles(1.0, 2.0), doubles(1.0, 0.0)), Straight(doubles(5.0, 5.0), doubles(0.0, 0.0)))
        line = Line(SimpleNamespace(), Path(curves), (doubles(7.0, 7.0),))  # pyright: ignore[reportArgumentType]
        (found,) = nodes(subject, _at(line, middle=0.25, order=2), Asked())
    assert found.visit.arguments[0].tolist() == [1.25, 2.0]
    assert found.visit.cotangents[0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("error", [TypeError, ValueError, RuntimeError])
def test_a_visit_that_cannot_be_audited_alone_is_left_out(error: type[Exception]) -> None:
    with Subject(_three_times, doubles(1.0)) as subject:
        worst = _at(_line(subject, doubles(1.0)))
        (found,) = nodes(subject, worst, Asked(error, BAD))
        assert found.reports == (BAD,)
        assert nodes(subject, worst, Asked(error, error)) == []


def test_other_errors_of_an_audit_come_through() -> None:
    with Subject(Sine.apply, doubles(1.0)) as subject, pytest.raises(KeyError):
        nodes(subject, _at(_line(subject, doubles(1.0))), Asked(KeyError))


class Handed(Function):
    """A gradient computed beforehand: the value does not depend on the argument."""

    @staticmethod
    def forward(ctx, x):
        return torch.zeros_like(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_a_node_whose_value_is_constant_is_not_audited() -> None:
    asked = Asked()
    with Subject(lambda x: Handed.apply(x) + Sine.apply(x) + Handed.apply(2 * x), doubles(1.0)) as subject:
        found = {verdict.visit.name: verdict for verdict in nodes(subject, _at(_line(subject, doubles(1.0))), asked)}
    assert (found["Handed"].constant, found["Handed"].reports) == (True, ())
    assert (found["Sine"].constant, found["Sine"].reports) == (False, (GOOD,))
    assert len(asked.calls) == 1


def test_a_node_that_is_constant_at_one_visit_is_not_audited_at_a_later_one() -> None:
    """A step at 100 is not seen from 1, and is from 50."""
    step, calls = _functions_of(lambda x: (x > 100).double()), 0
    for places in ((1.0, 50.0), (50.0, 1.0)):
        asked = Asked()
        with Subject(lambda x, places=places: sum(step.apply(place * x) for place in places), doubles(1.0)) as subject:
            (found,) = nodes(subject, _at(_line(subject, doubles(1.0))), asked)
        assert found.constant
        assert len(found.reports) == len(asked.calls)
        calls += len(asked.calls)
    assert calls == 1


def _functions_of(forward: Any) -> Any:
    class Made(Function):
        @staticmethod
        def forward(ctx, x):
            return forward(x)

        @staticmethod
        def backward(ctx, *grads):
            return grads[0]

    return Made


@pytest.mark.parametrize(
    ("forward", "constant"),
    [
        (lambda x: x.sin(), False),
        (lambda x: torch.ones_like(x), True),
        (lambda x: x.sign(), False),  # seen where the argument changes its sign
        (lambda x: (x / 4).floor().clamp(min=0.0), False),  # and where it grows
        (lambda x: (torch.ones_like(x), x.sin()), False),
        (lambda x: x.round() * 0 + 2, True),
    ],
    ids=["smooth", "constant", "sign", "steps", "two outputs", "flat"],
)
def test_a_value_is_constant_if_moving_the_arguments_far_changes_no_bit(forward: Any, constant: bool) -> None:
    asked = Asked()
    found = alone(_visit(_functions_of(forward), torch.ones(1), arguments=(doubles(1.0).requires_grad_(),)), asked)
    assert (found is None) is constant
    assert len(asked.calls) == (0 if constant else 1)


@pytest.mark.parametrize(
    ("cotangents", "outputs"),
    [
        ((1.0, 1.0, 1.0), (2.0, 3.0, 4.0)),
        ((None, 1.0, 0.0), (3.0,)),
        ((1.0, None, 1.0), (2.0, 4.0)),
        ((None, None, 0.0), (2.0, 3.0, 4.0)),
    ],
)
def test_a_node_is_audited_with_the_outputs_that_a_gradient_came_back_to(
    cotangents: tuple[float | None, ...], outputs: tuple[float, ...]
) -> None:
    function = _functions_of(lambda x: (2 * x, 3 * x, 4 * x))
    came, asked = [None if c is None else doubles(c) for c in cotangents], Asked()
    assert alone(_visit(function, *came, arguments=(doubles(1.0).requires_grad_(),)), asked) is GOOD
    ((fn, arguments, _),) = asked.calls
    assert tuple(output.item() for output in fn(*arguments)) == outputs


def test_a_single_output_is_audited_as_it_is() -> None:
    asked = Asked()
    alone(_visit(Declared, doubles(1.0), arguments=(doubles(1.0).requires_grad_(),)), asked)
    ((fn, _, intent),) = asked.calls
    assert fn == Declared.apply
    assert intent == "straight-through"


# What is said of them ---------------------------------------------------------------------------------------------------


def _said(*verdicts: NodeVerdict, name: str = "loss") -> list[Finding]:
    subject: Any = SimpleNamespace(name=name)
    return node_findings(subject, verdicts)


def test_an_incoherent_node_is_a_warning_with_its_worst_visit() -> None:
    worse = _report(Verdict.INCOHERENT, defect=0.5)
    (finding,) = _said(NodeVerdict(_visit(), (BAD, GOOD, worse, BAD)))
    assert (finding.severity, finding.where) == ("warning", "Sine (here.py:3)")
    assert finding.text == f"{worse.headline} alone, at 3 of 4 visits looked at"
    numbers = {"location": "here.py:3", "visits": 4, "incoherent_visits": 3, "relative": 0.5, "verdict": "incoherent"}
    assert finding.numbers == numbers


def test_coherent_and_declared_nodes_are_notes() -> None:
    good, declared = _said(NodeVerdict(_visit(location=None), (GOOD,)), NodeVerdict(_visit(Declared), (_report(passed=True), GOOD)))
    assert (good.severity, good.where, good.text) == ("note", "Sine", f"{GOOD.headline} alone")
    assert good.numbers == {"location": None, "visits": 1, "incoherent_visits": 0, "verdict": "coherent"}
    assert declared.severity == "note"
    assert declared.text == f"{GOOD.headline} alone, as declared: straight-through"


def test_a_coherent_node_is_told_by_its_first_visit() -> None:
    first = _report(Verdict.KINK, passed=True)
    (finding,) = _said(NodeVerdict(_visit(), (first, GOOD)))
    assert finding.numbers["verdict"] == "kink"


def test_a_constant_node_cannot_be_judged() -> None:
    (finding,) = _said(NodeVerdict(_visit(), (BAD,), constant=True), name="Sine.apply")
    assert finding.severity == "note"
    assert "cannot be judged alone" in finding.text
    assert finding.numbers == {"location": "here.py:3"}


def test_the_node_that_was_audited_itself_is_not_told_twice() -> None:
    itself = NodeVerdict(_visit(), (BAD,))
    (finding,) = _said(itself, name="Sine.apply")
    assert (finding.severity, finding.text) == ("note", "this is the custom backward that was audited")
    assert finding.numbers == {"location": "here.py:3", "visits": 1, "incoherent_visits": 1}
    assert [finding.severity for finding in _said(itself, NodeVerdict(_visit(Declared), (GOOD,)), name="Sine.apply")] == ["warning", "note"]
    assert [finding.severity for finding in _said(itself, name="other")] == ["warning"]


# The consistent gradient ------------------------------------------------------------------------------------------------


def _confirmed(slope: float, *, defect: float = 1.0, panel: bool = True, difference: float | None = 0.0, fn: Any = Sine.apply) -> str:
    """How the gradient of a sine at 0, of slope 2 along the line, is had if a segment says that its slope is this: within
    2 (1e-6 / 0.5 + 1e-7) = 4.2e-6, and within a tenth of the defect.
    """
    with Subject(fn, doubles(0.0)) as subject:
        line = _line(subject, doubles(2.0))
        said = panel_of(defect=defect, slope=slope) if panel else None
        found = consistent_gradient(subject, seen("incoherent", line=line, panel=said, difference=difference))
    assert found is not None
    assert found.supplied[0].item() == 1.5
    assert found.gradient[0].item() == pytest.approx(1.0, rel=1e-9)
    if found.method == "forward":
        assert said is not None
        assert found.error == said.limit
    return found.method


@pytest.mark.parametrize(
    ("slope", "defect", "method"),
    [
        (2.0, 1.0, "forward"),
        (2.0 + 4.1e-6, 1.0, "forward"),
        (2.0 - 4.1e-6, 1.0, "forward"),
        (2.0 + 4.3e-6, 1.0, "differences"),
        (2.0 - 4.3e-6, 1.0, "differences"),
        (2.0 + 1e-6, 1.1e-5, "forward"),
        (2.0 + 1e-6, -1.1e-5, "forward"),
        (2.0 + 1e-6, 0.9e-5, "differences"),
        (2.0 - 1e-6, -0.9e-5, "differences"),
        (1.0, 1.0, "differences"),
    ],
)
def test_the_differentiated_forward_is_taken_where_the_value_confirms_it(slope: float, defect: float, method: str) -> None:
    assert _confirmed(slope, defect=defect) == method


def test_a_single_method_confirms_nothing() -> None:
    assert _confirmed(2.0, panel=False) == "differences"
    assert _confirmed(2.0, difference=None) == "differences"


class Opaque(Function):
    """A sine of numbers that autograd cannot follow, with 1.5 times its gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(np.sin(x.detach().numpy()))

    @staticmethod
    def backward(ctx, grad):
        return 1.5 * grad * ctx.saved_tensors[0].cos()


def test_a_forward_that_cannot_be_differentiated_is_measured() -> None:
    assert _confirmed(2.0, fn=Opaque.apply) == "differences"


def test_a_slope_that_is_not_finite_confirms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a forward body that raises when it is differentiated."""
    with Subject(lambda x: x.sqrt(), doubles(0.0)) as subject:
        infinite = seen("incoherent", line=_line(subject, doubles(1.0)), panel=panel_of(defect=math.inf, slope=1.0, allowance=math.inf))
        assert not consequences._forward_confirmed(subject, infinite)

    def refuses(*_: Any) -> None:
        raise RuntimeError

    with Subject(Sine.apply, doubles(0.0)) as subject:
        right = seen("incoherent", line=_line(subject, doubles(2.0)), panel=panel_of(defect=1.0, slope=2.0))
        assert consequences._forward_confirmed(subject, right)
        monkeypatch.setattr(subject, "pull", refuses)
        assert not consequences._forward_confirmed(subject, right)


def test_the_slope_is_taken_over_all_arguments_at_the_middle_of_the_reading() -> None:
    """d/dt of sin(t) + 3 sin(2 t) at t = 0.5."""
    with Subject(lambda x, y: Sine.apply(x) + 3 * Sine.apply(y), (doubles(0.0), doubles(0.0))) as subject:
        line = _line(subject, doubles(1.0), doubles(2.0))
        slope = math.cos(0.5) + 6 * math.cos(1.0)
        for off, confirmed in ((0.0, True), (1e-3, False)):
            reading = seen("incoherent", line=line, panel=panel_of(defect=1.0, slope=slope + off), middle=0.5)
            assert consequences._forward_confirmed(subject, reading) is confirmed


@pytest.mark.parametrize(("first", "second", "measured"), [(48, 48, True), (48, 49, False), (96, 1, False)])
def test_at_most_ninety_six_coordinates_are_measured(first: int, second: int, measured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Consistent((), (), "differences", 0.0)
    monkeypatch.setattr(consequences, "_measured", lambda *_: found)
    with Subject(lambda x, y: x.sum() + y.sum(), (torch.ones(first, dtype=D), torch.ones(second, dtype=D))) as subject:
        line = _line(subject, *(torch.ones_like(tensor) for tensor in subject.tensors))
        assert consistent_gradient(subject, seen("incoherent", line=line)) is (found if measured else None)


def _product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """3 x_0 x_1 + sin y, with twice the gradient."""
    value = 3 * x[0, 0] * x[0, 1] + y.sin()
    return 2 * value - value.detach()


def test_differences_along_every_coordinate_give_the_gradient_and_its_error() -> None:
    with Subject(_product, (torch.tensor([[0.5, 2000.0]], dtype=D), torch.tensor(0.25, dtype=D))) as subject:
        cotangent = (torch.ones((), dtype=D),)
        supplied = subject.pull(subject.tensors, cotangent).gradients
        found = consequences._measured(subject, cotangent, supplied)
    assert found is not None
    assert found.method == "differences"
    assert found.supplied is supplied
    assert found.gradient[0][0].tolist() == pytest.approx([6000.0, 1.5], rel=1e-6)
    assert found.gradient[1].item() == pytest.approx(math.cos(0.25), rel=1e-6)
    assert 0 < found.error < 1e-9


class Told:
    """Stands for the differences of a line: defects and allowances that are known, by the order of calls."""

    def __init__(self, *answers: tuple[float, float] | None) -> None:
        self.answers = list(answers)
        self.lines: list[Line] = []

    def __call__(self, line: Line, middle: float, half: float, noise: float) -> Difference | None:
        """Along short segments around the state, without further noise."""
        assert 0 < half < 0.5
        assert middle == noise == 0
        self.lines.append(line)
        answer = self.answers.pop(0)
        return None if answer is None else Difference(middle, *answer, 1.0)


def _made_of(monkeypatch: pytest.MonkeyPatch, *answers: tuple[float, float] | None, fn: Any = None) -> tuple[Consistent | None, list[Line]]:
    """The gradient of 4 x_0 + 8 x_1 at (3, 0.3): the steps are 2 and 1/4, so both of the supplied derivatives along them are known."""
    told = Told(*answers)
    monkeypatch.setattr(consequences, "difference", told)
    with Subject(fn or (lambda x: (x * doubles(4.0, 8.0)).sum()), doubles(3.0, 0.3)) as subject:
        return consequences._measured(subject, (torch.ones((), dtype=D),), (doubles(0.0, 0.0),)), told.lines


def test_the_difference_with_the_smallest_allowance_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """(8 - 2) / 2 = 3 and (2 - 1) / (1/4) = 4, with errors of 0.5 / 2 and 0.25 / (1/4): sqrt(1/16 + 1) / 5 of the gradient."""
    found, lines = _made_of(monkeypatch, (2.0, 0.5), (9.0, 0.75), (9.0, 0.5), (1.0, 0.25))
    assert found is not None
    assert found.gradient[0].tolist() == [3.0, 4.0]
    assert found.error == pytest.approx(math.sqrt(1 / 16 + 1) / 5, rel=1e-15)
    assert [line.path.velocity(0.0)[0].tolist() for line in lines[::2]] == [[2.0, 0.0], [0.0, 0.25]]


def test_the_error_of_a_small_gradient_is_relative_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """(8 - 7.25) / 2 = 3/8 and (2 - 15/8) / (1/4) = 1/2, with an error of 5/8 in each."""
    found, _ = _made_of(monkeypatch, (7.25, 1.25), (0.0, 9.0), (1.875, 0.15625), (0.0, 9.0))
    assert found is not None
    assert found.gradient[0].tolist() == [0.375, 0.5]
    assert found.error == pytest.approx(math.sqrt(2), rel=1e-15)


def test_a_gradient_of_zero_has_no_relative_error(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = _made_of(monkeypatch, (8.0, 0.5), (8.0, 0.75), (2.0, 0.5), (2.0, 0.25))
    assert found is not None
    assert found.gradient[0].tolist() == [0.0, 0.0]
    assert found.error == math.inf


def test_one_length_without_an_answer_is_enough_and_none_is_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = _made_of(monkeypatch, None, (2.0, 0.5), (1.0, 0.25), None)
    assert found is not None
    assert found.gradient[0].tolist() == [3.0, 4.0]
    assert _made_of(monkeypatch, None, None)[0] is None


def test_a_value_that_is_not_finite_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _made_of(monkeypatch, fn=lambda x: (x - x.max()).log().sum())[0] is None


# Scaling ----------------------------------------------------------------------------------------------------------------


def _scaling(*pairs: tuple[torch.Tensor, torch.Tensor]) -> Finding:
    """Of supplied and consistent gradients of tensors of their shapes."""
    subject: Any = SimpleNamespace(tensors=tuple(s for s, _ in pairs), names=tuple(f"t{i}" for i in range(len(pairs))))
    (finding,) = scaling_findings(subject, Consistent(tuple(s for s, _ in pairs), tuple(c for _, c in pairs), "forward", 0.125))
    return finding


def test_one_factor_for_everything() -> None:
    finding = _scaling((doubles(2.0, 4.0), doubles(1.0, 2.0)))
    assert finding.text == "the supplied gradient is 2 times the consistent one, up to 0 of its length"
    assert finding.numbers == {"factor": 2.0, "residual": 0.0, "method": "forward", "error": 0.125}


def test_rows_of_the_first_batched_tensor_have_factors_of_their_own() -> None:
    single = torch.ones(1, 2, dtype=D)
    consistent = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=D)
    supplied = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0]], dtype=D)
    other = torch.ones(2, 2, dtype=D)
    finding = _scaling((doubles(1.0, 1.0), doubles(1.0, 1.0)), (single, single), (supplied, consistent), (other, other))
    assert finding.numbers["sample_factor_min"] == pytest.approx(0.5)
    assert finding.numbers["sample_factor_max"] == pytest.approx(3.0)
    assert finding.numbers["sample_residual_median"] == 0.0
    assert finding.text.endswith("; row by row of t2 0.5 to 3 times, up to 0 (median)")


def test_two_rows_are_a_batch_and_one_is_none() -> None:
    two, one = torch.ones(2, 3, dtype=D), torch.ones(1, 3, dtype=D)
    assert "row by row of t0 2 to 2 times" in _scaling((2 * two, two)).text
    assert "row by row" not in _scaling((2 * one, one)).text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (1 + 1e-5, "(1 + 1e-05)"),
        (1 - 2e-5, "(1 - 2e-05)"),
        (1 + 0.9e-3, "(1 + 0.0009)"),
        (1 + 1.1e-3, "1.0011"),
        (1 - 1.1e-3, "0.9989"),
        (1.5, "1.5"),
        (-1e-5, "-1e-05"),
    ],
)
def test_a_factor_near_one_is_told_by_its_distance(value: float, text: str) -> None:
    assert consequences._factor(value) == text


# The field --------------------------------------------------------------------------------------------------------------


def _field(
    monkeypatch: pytest.MonkeyPatch, *, curl: bool = False, loop: bool = False, fn: Any = torch.sum, inputs: Any = None, error: Any = None
) -> list[Finding]:
    def antisymmetry(*_: Any, **__: Any) -> Any:
        if error is not None:
            raise error
        return SimpleNamespace(norm=0.5, norm_error=0.01, share=0.125, significant=curl)

    def circulation(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(work=3.0, error=0.25, lower_bound_relative=0.75, radius=2.0, significant=loop)

    monkeypatch.setattr(consequences, "antisymmetry", antisymmetry)
    monkeypatch.setattr(consequences, "circulation", circulation)
    with Subject(fn, doubles(1.0, 2.0) if inputs is None else inputs) as subject:
        return field_findings(subject, 0)


NUMBERS = {
    "antisymmetry": 0.5,
    "antisymmetry_error": 0.01,
    "antisymmetry_share": 0.125,
    "circulation": 3.0,
    "circulation_error": 0.25,
    "not_a_gradient": 0.75,
}


@pytest.mark.parametrize(("curl", "loop"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_field_is_no_gradient_if_its_curl_or_a_loop_says_so(monkeypatch: pytest.MonkeyPatch, curl: bool, loop: bool) -> None:
    (finding,) = _field(monkeypatch, curl=curl, loop=loop)
    assert finding.severity == ("warning" if curl or loop else "note")
    assert finding.numbers == NUMBERS | {"significant": curl or loop}
    assert ("is the gradient of no function" in finding.text) is (curl or loop)
    assert ("around a loop of radius 2 at least 0.75 of the update" in finding.text) is loop


def test_a_field_is_looked_at_for_one_number_of_several_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _field(monkeypatch, inputs=doubles(1.0)) == []
    assert _field(monkeypatch, fn=torch.sin) == []
    assert _field(monkeypatch, fn=lambda x: (x.sum(), x.prod())) == []
    assert _field(monkeypatch, fn=lambda x: (x.sin(), x.prod())) == []
    assert len(_field(monkeypatch, fn=lambda x, y: (x * y).sum(), inputs=(doubles(1.0), doubles(2.0)))) == 1


@pytest.mark.parametrize("error", [ValueError, RuntimeError])
def test_a_field_that_cannot_be_measured_is_not_told_of(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    assert _field(monkeypatch, error=error) == []
    with pytest.raises(KeyError):
        _field(monkeypatch, error=KeyError)


# The fork ---------------------------------------------------------------------------------------------------------------


def _fork(monkeypatch: pytest.MonkeyPatch, *, fn: Any = torch.sum, one_step: bool = True, error: Any = None) -> list[Finding]:
    def fork(*_: Any, steps: int, parameters: Any) -> Any:
        if error is not None:
            raise error
        step = {"gradient": 0.5, "update": 0.25, "rescaled": 0.125} if one_step else {}
        return SimpleNamespace(one_step=step, steps=7, distance=doubles(0.0, 0.5, 0.75), optimizer="SGD")

    monkeypatch.setattr(consequences, "fork", fork)
    with Subject(fn, doubles(1.0, 2.0)) as subject:
        return fork_findings(subject, None)


def test_a_fork_is_told_with_its_first_update_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = _fork(monkeypatch)
    assert finding.text == (
        "from the same start, the first update differs by 0.25 (0.12 after the best rescaling), "
        "and after 7 updates (SGD) the parameters are 0.75 of their length apart"
    )
    assert finding.numbers == {"steps": 7, "distance": 0.75, "gradient": 0.5, "update": 0.25, "rescaled": 0.125, "optimizer": "SGD"}


def test_only_a_loss_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _fork(monkeypatch, fn=torch.sin) == []
    assert _fork(monkeypatch, fn=lambda x: (x.sum(), x.prod())) == []
    assert _fork(monkeypatch, fn=lambda x: (x.sin(), x.prod())) == []
    assert _fork(monkeypatch, one_step=False) == []


@pytest.mark.parametrize("error", [ValueError, RuntimeError])
def test_a_fork_that_cannot_be_made_is_not_told_of(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    assert _fork(monkeypatch, error=error) == []
    with pytest.raises(KeyError):
        _fork(monkeypatch, error=KeyError)
