"""What a report says beyond the defect: the custom backwards it comes from, whether it is a matter of length, and what it does to training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import Function

import pairgrad as pg
from pairgrad.coherence import Finding, Report
from tests.coherence.functions import points, saved_intermediate, sine_with

D = torch.float64
Wrong = sine_with(lambda x: 1.01, name="Wrong")


def looked_at(fn: Any, inputs: Any, **options: Any) -> Report:
    return pg.audit(fn, inputs, **({"effort": "glance", "second_order": False} | options))


def of_kind(report: Report, kind: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.kind == kind]


def nodes(fn: Any, inputs: Any, **options: Any) -> dict[str, Finding]:
    return {finding.where.split(" (")[0]: finding for finding in of_kind(looked_at(fn, inputs, **options), "node")}


def square_with(slope: Any) -> Any:
    """The sum of squares, with a gradient that is a function of x."""

    class Squares(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.square().sum()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * slope(ctx.saved_tensors[0])

    return Squares.apply


class Two(Function):
    """Sine and cosine, with a gradient that is wrong for the cosine."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx, a, b):
        (x,) = ctx.saved_tensors
        return a * x.cos() - 1.5 * b * x.sin()


class Handed(Function):
    """A gradient computed beforehand: the value does not depend on the argument."""

    @staticmethod
    def forward(ctx, x):
        return torch.zeros_like(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_a_wrong_backward_is_a_warning_with_its_place_and_its_own_size() -> None:
    (finding,) = nodes(lambda x: Wrong.apply(x).sum() + x.exp().sum(), points(3)).values()
    assert finding.severity == "warning"
    assert finding.where.startswith("Wrong (")
    assert "functions.py:" in finding.where
    assert finding.numbers["relative"] == pytest.approx(0.01, rel=1e-4)
    assert (finding.numbers["visits"], finding.numbers["incoherent_visits"], finding.numbers["verdict"]) == (1, 1, "incoherent")
    assert finding.text.startswith("audited alone: incoherent, by 0.01 of the gradient")
    assert finding.text.endswith(", at 1 of 1 visits looked at")


def test_a_backward_that_is_wrong_at_one_of_its_visits_says_so() -> None:
    part = sine_with(lambda x: torch.where(x > 2, 1.1, 1.0), name="Part").apply
    finding = nodes(lambda x: (part(x) + part(x + 5)).sum(), points(3).clamp(-1, 1))["Part"]
    assert (finding.numbers["visits"], finding.numbers["incoherent_visits"]) == (2, 1)
    assert finding.text.endswith(", at 1 of 2 visits looked at")


@pytest.mark.parametrize(("output", "severity"), [(0, "note"), (1, "warning")])
def test_a_backward_is_judged_by_the_outputs_that_are_used(output: int, severity: str) -> None:
    found = nodes(lambda x: Two.apply(x)[output].sum() + Wrong.apply(x).sum(), points(3))
    assert (found["Two"].severity, found["Wrong"].severity) == (severity, "warning")


def test_a_gradient_handed_on_cannot_be_judged_alone() -> None:
    finding = nodes(lambda x: Handed.apply(x).sum() + x.sin().sum(), points(3))["Handed"]
    assert finding.severity == "note"
    assert "cannot be judged alone" in finding.text


def test_the_backward_that_was_audited_itself_is_not_accused_twice() -> None:
    (finding,) = nodes(Wrong.apply, points(3)).values()
    assert (finding.severity, finding.text) == ("note", "this is the custom backward that was audited")


def test_a_wrong_second_derivative_is_traced_to_its_backward() -> None:
    report = looked_at(lambda x: saved_intermediate(x).sum(), points(3), second_order=True)
    (finding,) = of_kind(report, "node")
    assert finding.severity == "warning"
    assert finding.numbers["relative"] == pytest.approx(1, rel=1e-3)
    assert not {"scaling", "field", "fork"} & {finding.kind for finding in report.findings}


def test_a_defect_elsewhere_on_a_domain_is_traced_to_its_backward() -> None:
    part = sine_with(lambda x: torch.where(x > 2, 1.01, 1.0), name="Part").apply
    report = looked_at(lambda x: part(x) + 1, torch.tensor(1.0, dtype=D), domain=(0.5, 3))
    (finding,) = of_kind(report, "node")
    assert (finding.severity, finding.where.split(" ")[0]) == ("warning", "Part")
    assert not {"scaling", "field", "fork"} & {finding.kind for finding in report.findings}


def test_nothing_is_looked_for_where_nothing_is_wrong_or_it_is_not_wanted() -> None:
    kinds = {"node", "scaling", "field", "fork"}
    fn = lambda x: Wrong.apply(x).sum()  # noqa: E731
    assert kinds & {finding.kind for finding in looked_at(fn, points(3)).findings} == kinds
    for report in (
        looked_at(lambda x: sine_with(lambda x: 1.0).apply(x).sum(), points(3)),
        looked_at(fn, points(3), tolerance=0.1),
        looked_at(fn, points(3), consequences=False),
    ):
        assert not kinds & {finding.kind for finding in report.findings}
        assert report.picture is None


@pytest.mark.parametrize(
    ("factor", "words"),
    [(1.5, "1.5"), (1 + 1e-5, "(1 + 1e-05)"), (1 - 2e-5, "(1 - 2e-05)"), (1 - 2e-3, "0.998"), (-0.5, "-0.5")],
)
def test_one_factor_for_everything_is_measured_and_told(factor: float, words: str) -> None:
    report = looked_at(square_with(lambda x: 2 * factor * x), points(3))
    (finding,) = of_kind(report, "scaling")
    assert finding.numbers["factor"] == pytest.approx(factor, abs=1e-9)
    assert finding.numbers["residual"] < 1e-9
    assert finding.numbers["method"] == "forward"
    assert finding.text.startswith(f"the supplied gradient is {words} times the true gradient")


def test_rows_have_factors_of_their_own() -> None:
    rows = torch.tensor([[1.0], [2.0], [0.5]], dtype=D)
    (finding,) = of_kind(looked_at(square_with(lambda x: 2 * x * rows), points(3, 4)), "scaling")
    assert finding.numbers["sample_factor_min"] == pytest.approx(0.5)
    assert finding.numbers["sample_factor_max"] == pytest.approx(2.0)
    assert finding.numbers["sample_residual_median"] < 1e-9
    assert finding.numbers["residual"] > 0.1
    assert "row by row of input 0, 0.5 to 2 times" in finding.text
    for shape in ((1, 4), (3, 4)):
        (even,) = of_kind(looked_at(square_with(lambda x: 4 * x), points(*shape)), "scaling")
        assert "row by row" not in even.text


@pytest.mark.parametrize("size", [1.0, 2000.0])
def test_an_opaque_forward_is_measured_by_differences(size: float) -> None:
    class Opaque(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return torch.from_numpy(np.asarray(np.sin(x.detach().numpy() / size).sum() * np.exp(y.detach().numpy()).sum()))

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            return 1.5 * grad * (x / size).cos() / size * y.exp().sum(), 1.5 * grad * (x / size).sin().sum() * y.exp()

    report = looked_at(Opaque.apply, (points(1, 2) * size, points(2, seed=1)))
    (finding,) = of_kind(report, "scaling")
    assert finding.numbers["method"] == "coordinates"
    assert finding.numbers["factor"] == pytest.approx(1.5, rel=1e-6)
    assert finding.numbers["residual"] <= 1e-6
    assert 0 < finding.numbers["error"] < 1e-6


def test_a_scaled_gradient_is_still_the_gradient_of_something() -> None:
    (finding,) = of_kind(looked_at(square_with(lambda x: 3 * x), points(3)), "field")
    assert (finding.severity, finding.numbers["significant"]) == ("note", False)
    assert finding.numbers["antisymmetry"] <= finding.numbers["antisymmetry_error"]


def test_a_field_that_turns_is_the_gradient_of_nothing() -> None:
    turned = square_with(lambda x: 2 * x + 0.5 * torch.stack([-x[1], x[0]]))
    (finding,) = of_kind(looked_at(turned, torch.tensor([1.0, 0.5], dtype=D)), "field")
    assert (finding.severity, finding.numbers["significant"]) == ("warning", True)
    assert finding.numbers["antisymmetry"] == pytest.approx(2**0.5, rel=1e-6)
    assert abs(finding.numbers["circulation"]) > finding.numbers["circulation_error"]
    assert 0 < finding.numbers["not_a_gradient"] <= 0.5 / 2
    assert "is the gradient of no function" in finding.text
    assert "of the update is no gradient of anything" in finding.text


def test_training_with_both_gradients_is_told_with_its_first_update_and_its_end() -> None:
    report = looked_at(square_with(lambda x: 3 * x), points(3))
    (finding,) = of_kind(report, "fork")
    assert finding.numbers["update"] == pytest.approx(0.5)
    assert finding.numbers["rescaled"] < 1e-9
    assert 0 < finding.numbers["distance"] < 1
    assert f"after {finding.numbers['steps']} updates" in finding.text
    assert finding.numbers["optimizer"] in finding.text


@pytest.mark.parametrize(
    ("fn", "inputs", "kinds"),
    [
        (lambda x: Wrong.apply(x).sum(), points(1), {"fork"}),
        (Wrong.apply, points(3), set()),
        (lambda x: (Wrong.apply(x).sum(), x.prod()), points(3), set()),
        (lambda x, y: (Wrong.apply(x) * y).sum(), (points(1), points(1)), {"field", "fork"}),
    ],
    ids=["one number", "several outputs", "two outputs", "two numbers"],
)
def test_a_field_needs_a_loss_of_two_numbers_and_training_a_loss(fn: Any, inputs: Any, kinds: set[str]) -> None:
    report = looked_at(fn, inputs)
    assert {finding.kind for finding in report.findings} & {"field", "fork"} == kinds
