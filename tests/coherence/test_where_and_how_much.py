"""Where a defect is, how large it is with which error, and down to which size one would have been seen."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import Finding, Report
from tests.coherence.functions import doubles, points, sine_with

D = torch.float64
X = torch.tensor(0.7, dtype=D)
wrong = sine_with(lambda x: 1.01, name="Wrong").apply


def looked_at(fn: Any, inputs: Any, **options: Any) -> Report:
    return pg.audit(fn, inputs, **({"effort": "quick", "second_order": False, "consequences": False} | options))


def alarms(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity == "alarm"]


@pytest.mark.parametrize("size", [1e-1, 1e-2, -1e-2, 1e-6, 1e-10, -1e-10])
def test_a_defect_is_measured_within_its_error(size: float) -> None:
    """|supplied - true| / |true|."""
    report = looked_at(sine_with(lambda x: 1 + size).apply, X)
    expected = abs(size)
    assert abs(report.defect - expected) <= report.defect_error < 1e-3 * expected + 1e-13
    (finding,) = alarms(report)
    assert (finding.kind, finding.where) == ("defect", "input 0")
    assert finding.numbers["relative"] == report.defect
    assert finding.numbers["error"] == report.defect_error
    assert finding.numbers["absolute"] == pytest.approx(abs(size) * math.cos(0.7), rel=1e-3, abs=1e-13)
    assert f"off by {report.defect:.3g} of the true one (± {report.defect_error:.1g}) at the inputs" in finding.text


@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 1e-6), (torch.float32, 1e-2), (torch.float16, 0.5)])
@pytest.mark.parametrize("count", [2, 50])
def test_a_factor_is_measured_as_that_factor_for_tensors_too(count: int, dtype: torch.dtype, size: float) -> None:
    report = looked_at(sine_with(lambda x: 1 + size).apply, points(count, dtype=dtype), effort="standard")
    assert abs(report.defect - size) <= report.defect_error
    (finding,) = alarms(report)
    assert finding.numbers["defective_lines"] <= finding.numbers["lines"]
    states = [state for state in report.states if state.argument == "input 0"]
    assert len(states) == finding.numbers["lines"]
    assert sum(state.verdict == "incoherent" for state in states) == finding.numbers["defective_lines"]


def test_the_absolute_size_is_in_units_of_the_gradient() -> None:
    for unit in (1000.0, 2.0**-20):
        report = looked_at(lambda x, unit=unit: wrong(x / unit), X * unit)
        assert report.defect == pytest.approx(0.01, rel=1e-5)
        assert alarms(report)[0].numbers["absolute"] == pytest.approx(0.01 * math.cos(0.7) / unit, rel=1e-5)


@pytest.mark.parametrize(
    ("fn", "limits"),
    [
        (torch.sin, (1e-13, 2e-12)),
        (lambda x: x.sin().float().double(), (1e-7, 1e-4)),
        (lambda x: x.sin() + 1e-9 * (1e9 * x.detach()).sin(), (1e-9, 1e-5)),
    ],
    ids=["exact", "single inside", "noise"],
)
def test_the_limit_is_the_size_from_which_a_defect_is_seen(fn: Any, limits: tuple[float, float]) -> None:
    limit = looked_at(fn, X).limit
    assert limits[0] < limit < limits[1]

    def off_by(size: float) -> Any:
        class Off(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return fn(x)

            @staticmethod
            def backward(ctx, grad_output):
                return grad_output * ctx.saved_tensors[0].cos() * (1 + size)

        return Off.apply

    assert looked_at(off_by(0.01 * limit), X).passed
    assert looked_at(off_by(4 * limit), X).verdict == "incoherent"


def test_noise_is_not_a_defect() -> None:
    """Of the value, and of the gradient: a millionth, far finer than any segment. Neither of them moves with it."""
    noisy_value = looked_at(lambda x: x.sin() + 1e-6 * (1e9 * x.detach()).sin(), points(20), effort="standard")
    noisy_gradient = looked_at(sine_with(lambda x: 1 + 1e-6 * (1e9 * x).sin()).apply, points(20), effort="standard")
    for report in (noisy_value, noisy_gradient):
        assert report.verdict == "coherent", str(report)
        assert 1e-8 < report.limit < 1e-2


def test_a_rate_of_false_alarms_and_the_number_of_tests_are_told() -> None:
    report = looked_at(torch.sin, X)
    assert report.false_alarm_rate == 1e-3
    assert 0 < report.tests < report.evaluations
    assert report.typical_limit <= report.limit


def test_the_tolerance_is_held_against_the_size() -> None:
    fn = sine_with(lambda x: 1.01).apply
    for tolerance, severity in ((0.0099, "alarm"), (0.0101, "note")):
        report = looked_at(fn, X, tolerance=tolerance)
        assert [finding.severity for finding in report.findings if finding.kind == "defect"] == [severity]
        assert report.passed == (severity == "note")
        assert report.defect == pytest.approx(0.01, rel=1e-5)


def test_a_missing_gradient_is_an_alarm_whatever_the_tolerance() -> None:
    report = looked_at(lambda x, y: x.sin() + 0 * y + y.detach().sin(), (points(3), points(3, seed=1)), tolerance=0.99)
    (finding,) = alarms(report)
    assert (finding.kind, finding.where) == ("no-gradient", "input 1")
    assert finding.text == "the value depends on it, but the supplied gradient is zero (the inputs)"


def test_the_argument_is_named_and_the_others_are_not() -> None:
    report = looked_at(
        lambda a, b, c: a.cos().sum() + wrong(b).sum() + c.exp().sum(), {"a": points(3), "b": points(2), "c": points(3, seed=1)}
    )
    assert [finding.where for finding in alarms(report)] == ["b"]
    assert report.defect == pytest.approx(0.01, rel=1e-4)


def test_two_wrong_arguments_have_findings_of_their_own_sizes() -> None:
    other = sine_with(lambda x: 1.1).apply
    report = looked_at(lambda x, y: wrong(x).sum() + other(y).sum(), (points(3), points(3, seed=1)))
    sizes = {finding.where: finding.numbers["relative"] for finding in alarms(report)}
    assert sizes == {"input 0": pytest.approx(0.01, rel=1e-4), "input 1": pytest.approx(0.1, rel=1e-4)}
    assert report.defect == sizes["input 1"]


def test_the_output_is_named() -> None:
    report = looked_at(lambda x: (x.cos(), wrong(x), x.exp()), points(3))
    through = {finding.where: finding.numbers["relative"] for finding in alarms(report) if "through output" in finding.where}
    assert through == {"all tensors, through output 1": pytest.approx(0.01, rel=1e-4)}


def test_of_many_tensors_a_group_is_named() -> None:
    tensors = tuple(points(2, seed=i) for i in range(14))
    report = looked_at(lambda *t: sum(a.sin().sum() for a in t[:-1]) + wrong(t[-1]).sum(), tensors, effort="glance")
    assert [finding.where for finding in alarms(report)] == ["input 1 and 1 more"]


@pytest.mark.parametrize(("count", "place"), [(4, 0), (4, 3), (60, 59)])
def test_one_wrong_coordinate_is_enough(count: int, place: int) -> None:
    factor = torch.ones(count, dtype=D)
    factor[place] = 1.001
    for seed in range(2):
        report = looked_at(sine_with(lambda x: factor).apply, points(count) + 0.5, seed=seed)
        assert report.verdict == "incoherent", str(report)


def test_a_defect_that_vanishes_at_the_state_is_found_beside_it() -> None:
    report = looked_at(sine_with(lambda x: 1 + 1e-4 * (x - 0.7)).apply, X)
    assert report.verdict == "incoherent"
    assert "a place near the inputs" in alarms(report)[0].text


def test_states_of_a_domain_are_named() -> None:
    fn = sine_with(lambda x: torch.where(x > 2, 1.001, 1.0)).apply
    report = looked_at(fn, torch.tensor(1.0, dtype=D), domain=(0.5, 3), effort="glance")
    assert {state.state for state in report.states if state.verdict == "incoherent"} >= {
        f"input 0 = {state.at:.6g}" for state in report.states if (state.at or 0) > 2.1
    }
    assert any(state.state.startswith("state 0 of the domain") or "near state 0 of the domain" in state.state for state in report.states)
    assert " at input 0 = " in alarms(report)[0].text


def test_findings_come_gravest_first() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return wrong(x) + 0.01 * (x > 0.5) + 0.1 * (x - 1).abs() + 0 * torch.rand(1, dtype=D).squeeze()

    report = looked_at(fn, X, domain=(0.2, 1.3), effort="glance")
    ranks = [("alarm", "warning", "note").index(finding.severity) for finding in report.findings]
    assert ranks == sorted(ranks)
    assert set(ranks) == {0, 1, 2}


@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (lambda x: x.log(), doubles(-1.0, 2.0)),
        (lambda x: (x * 1e200).exp(), doubles(1.0, 2.0)),
    ],
    ids=["NaN", "infinity"],
)
def test_a_state_that_is_not_finite_is_said_to_be(fn: Any, x: torch.Tensor) -> None:
    report = looked_at(fn, x)
    assert report.verdict == "inconclusive"
    (finding,) = report.findings
    assert (finding.kind, finding.severity, finding.where) == ("unresolved", "warning", "input 0")
    assert "not finite here (NaN or infinity), or the function raises next to it" in finding.text


@pytest.mark.parametrize("error", [ValueError, ArithmeticError, IndexError, RuntimeError, AssertionError])
def test_a_function_may_raise_away_from_the_state(error: type[Exception]) -> None:
    def bounded(x: torch.Tensor) -> torch.Tensor:
        if x > 0.75:
            raise error("too far")
        return x.sin()

    assert looked_at(bounded, X).verdict == "coherent"


def test_other_errors_away_from_the_state_come_through() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        if x > 0.75:
            raise KeyError("a mistake")
        return x.sin()

    with pytest.raises(KeyError, match="a mistake"):
        looked_at(broken, X)


@pytest.mark.parametrize("there", [lambda x: x[:1].sin(), lambda x: (x.sin(), x.cos()), lambda x: x.sin()[None]])
def test_outputs_of_another_number_or_shape_are_another_function(there: Any) -> None:
    """Also where they could be multiplied with the cotangent all the same."""
    assert looked_at(lambda x: x.sin() if x.sum() < 2.1 else there(5 * x), doubles(1.0, 1.0)).verdict == "coherent"


def test_the_coarsest_dtype_decides() -> None:
    assert looked_at(lambda x: x.double().sin(), X.float()).dtype == "float32"
    report = looked_at(lambda x, y: (x.double() * y).sin(), (X.bfloat16(), X))
    assert (report.dtype, report.passed) == ("bfloat16", True)


def test_more_effort_looks_along_more_lines() -> None:
    reports = [looked_at(torch.sin, points(8), effort=effort) for effort in ("glance", "quick", "standard", "thorough")]
    for before, after in itertools.pairwise(reports):
        assert len(before.states) < len(after.states)
        assert before.evaluations < after.evaluations
    assert [report.effort for report in reports] == ["glance", "quick", "standard", "thorough"]
