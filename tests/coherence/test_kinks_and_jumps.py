"""Values with kinks, jumps and steps: what they are called, where they are, and that a defect beside one of them is still a defect."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import Finding, Report
from tests.coherence.functions import Round, Window, doubles, points, sine_with

D = torch.float64
ONE = torch.tensor(0.75, dtype=D)


def looked_at(fn: Any, inputs: Any = None, **options: Any) -> Report:
    return pg.audit(fn, inputs, **({"effort": "glance", "second_order": False, "consequences": False} | options))


def of_kind(report: Report, kind: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.kind == kind]


# Kinks ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (torch.abs, torch.tensor(0.0, dtype=D)),
        (lambda x: torch.maximum(x, x**3), torch.tensor(0.0, dtype=D)),
        (lambda x: x.relu().sum(), doubles(0.0, 1.0, -2.0)),
        (torch.relu, torch.tensor(0.0)),
    ],
    ids=["abs", "maximum", "one of three", "float32"],
)
def test_a_state_on_a_kink_passes_and_is_called_a_kink(fn: Any, x: torch.Tensor) -> None:
    report = looked_at(fn, x)
    assert (report.verdict, report.passed) == ("kink", True), str(report)
    (kink,) = of_kind(report, "kink")
    assert (kink.severity, kink.where) == ("note", "input 0")
    assert kink.text == "the gradient leaps at the inputs, the value does not"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_kink_on_a_domain_is_located_with_the_height_of_its_leap(dtype: torch.dtype) -> None:
    report = looked_at(lambda x: x.sin() + 0.01 * (x - 0.7).abs(), domain=(0.2, 1.3), dtype=dtype)
    assert report.verdict == "kink"
    (kink,) = of_kind(report, "kink")
    assert kink.numbers["at"] == pytest.approx(0.7, abs=2 * kink.numbers["width"])
    assert kink.numbers["width"] < 100 * torch.finfo(dtype).eps ** 0.5 / 10
    assert kink.numbers["size"] == pytest.approx(0.02, rel=0.01)
    assert "the gradient leaps at 0.7" in kink.text
    assert [region.verdict for region in report.regions["input 0"]] == ["coherent"]


def test_a_kink_between_two_arguments_is_met_on_a_sweep_of_both() -> None:
    report = looked_at(lambda x: (x[0] - x[1]).abs() + x.sin().sum(), doubles(0.3, 1.0), domain=(-1, 1), effort="quick")
    assert report.verdict == "kink"
    assert any("on a sweep" in kink.text for kink in of_kind(report, "kink"))


def test_a_bend_is_neither_a_kink_nor_a_jump() -> None:
    report = looked_at(lambda x: x.sin() + 1e-3 * (x - 0.7).clamp_min(0) ** 2, domain=(0.2, 1.3))
    assert report.verdict == "coherent"
    assert not report.findings


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_a_defect_on_one_side_of_a_kink_is_found(side: float) -> None:
    report = looked_at(sine_with(lambda x: torch.where(side * (x - 0.75) > 0, 1.001, 1.0)).apply, ONE)
    assert report.verdict == "incoherent"
    assert report.defect == pytest.approx(1e-3, rel=1e-4)
    assert "at a place near the inputs" in of_kind(report, "defect")[0].text


# Jumps ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 1e-6), (torch.float32, 1e-2)])
def test_a_jump_is_located_and_its_size_measured(dtype: torch.dtype, size: float) -> None:
    report = looked_at(lambda x: x.sin() + size * (x > 0.7), domain=(0.2, 1.3), dtype=dtype)
    assert (report.verdict, report.passed) == ("jump", False)
    (jump,) = of_kind(report, "jump")
    assert jump.severity == "warning"
    assert jump.numbers["at"] == pytest.approx(0.7, abs=2 * jump.numbers["width"])
    assert jump.numbers["width"] < 100 * torch.finfo(dtype).eps ** 0.5 / 10
    assert jump.numbers["size"] == pytest.approx(size, rel=0.01)
    assert f"the value leaps by {size:.3g} at 0.7" in jump.text
    assert [region.verdict for region in report.regions["input 0"]] == ["coherent"]


def test_two_jumps_are_two_findings() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 0.01 * (x > 0.5) + 0.02 * (x > 1.1)

    report = looked_at(fn, domain=(0.2, 1.3))
    assert [(round(jump.numbers["at"], 6), round(jump.numbers["size"], 6)) for jump in of_kind(report, "jump")] == [
        (0.5, 0.01),
        (1.1, 0.02),
    ]


def test_what_leaps_is_a_combination_where_there_are_several_outputs() -> None:
    report = looked_at(lambda x: torch.stack([x.sin() + 0.5 * (x > 0.7), x.cos()]), domain=(0.2, 1.3))
    assert of_kind(report, "jump")[0].text.startswith("a random combination of the outputs leaps by")


# Values rounded more coarsely than their dtype --------------------------------------------------------------------------


@pytest.mark.parametrize(("inside", "limits"), [(torch.float32, (1e-8, 1e-4)), (torch.bfloat16, (1e-3, 0.25))])
def test_lower_precision_inside_is_coherent_with_the_limit_of_that_precision(inside: torch.dtype, limits: tuple[float, float]) -> None:
    report = looked_at(lambda x: x.sin().to(inside).double(), ONE)
    assert report.passed, str(report)
    assert limits[0] < report.limit < limits[1]
    wrong = sine_with(lambda x: 2.0).apply
    assert looked_at(lambda x: wrong(x).to(inside).double(), ONE).verdict in ("incoherent", "straight-through-like")


@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (torch.special.ndtr, torch.tensor(-5.5)),
        (lambda x: (1 + 2.0**-52 * x) - 1, torch.tensor(0.25, dtype=D)),
        (lambda x: (1 + 2.0**-52 * x) - 1, doubles(0.25, 0.3)),
        (lambda x: 1 + torch.erf(x), torch.tensor(-6.0, dtype=D)),
    ],
    ids=["tail of ndtr", "below the rounding of 1", "two such numbers", "1 + erf"],
)
def test_a_value_lost_in_rounding_is_inconclusive(fn: Any, x: torch.Tensor) -> None:
    report = looked_at(fn, x)
    assert report.verdict == "inconclusive", str(report)
    (finding,) = of_kind(report, "unresolved")
    assert (finding.severity, finding.where) == ("warning", "input 0")
    assert "nothing can be said here" in finding.text


# Straight-through estimators --------------------------------------------------------------------------------------------


class Twice(Round):
    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output


def quantised_loss(x: torch.Tensor) -> torch.Tensor:
    return (Round.apply(x) * 1.5 - 1).square().mean()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fn", [Round.apply, Window.apply, quantised_loss], ids=["round", "window", "loss"])
def test_straight_through_estimators_are_recognised(fn: Any, seed: int) -> None:
    report = looked_at(fn, 2 * points(12, seed=seed), seed=seed)
    assert report.verdict == "straight-through-like", str(report)
    (finding,) = of_kind(report, "straight-through")
    lengths, residuals = finding.numbers["lengths"], finding.numbers["residuals"]
    assert len(lengths) == len(residuals) > 1
    assert lengths == sorted(lengths)
    assert min(residuals) < 0.2
    assert f"{residuals[-1]:.2g} at {lengths[-1]:g} times the size of the argument" in finding.text


def test_one_number_between_two_steps_is_enough_to_recognise_one() -> None:
    """The derivative of a rounded number is zero, and over many steps its gradient is off by nothing."""
    report = looked_at(Round.apply, torch.tensor(0.3, dtype=D))
    assert report.verdict == "straight-through-like"
    assert report.defect == math.inf
    residuals = of_kind(report, "straight-through")[0].numbers["residuals"]
    assert residuals[-1] < 0.01 < residuals[0]


@pytest.mark.parametrize(
    "fn",
    [Twice.apply, sine_with(lambda x: 1.1).apply, sine_with(lambda x: 0 * x).apply, sine_with(lambda x: 30.0).apply],
    ids=["twice the step", "factor", "no gradient", "far too large"],
)
def test_a_mistake_is_not_taken_for_a_straight_through_estimator(fn: Any) -> None:
    report = looked_at(fn, 2 * points(12))
    assert report.verdict == "incoherent", str(report)
    assert not of_kind(report, "straight-through")


def test_a_quantiser_that_raises_far_away_is_still_recognised() -> None:
    def nearby(x: torch.Tensor) -> torch.Tensor:
        if (x - 0.3).abs() > 5:
            raise ValueError("too far")
        return Round.apply(x)

    assert looked_at(nearby, torch.tensor(0.3, dtype=D)).verdict == "straight-through-like"
