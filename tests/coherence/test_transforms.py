"""Forward mode, vmap and values without a gradient: what an audit says of the rules that a function has besides its backward."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

import pairgrad as pg
from tests.coherence.zoo.ours.transforms_and_precision import centred, centred_inputs
from tests.coherence.zoo.reported.transforms import cubic, detached_jvp

X, Y = torch.linspace(0.4, 1.9, 5, dtype=torch.float64), torch.linspace(1.7, 0.6, 5, dtype=torch.float64)


def square(*, backward=2.0, jvp=2.0):
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return backward * ctx.saved_tensors[0] * grad

        @staticmethod
        def jvp(ctx, along):
            return jvp * ctx.saved_tensors[0] * along

    return Square.apply


def alarms(report):
    return [finding for finding in report.findings if finding.severity == "alarm"]


def test_a_right_jvp_and_vmap_rule_are_right_to_a_stated_limit():
    report = pg.audit(cubic(second=True), (X, Y))
    assert report.passed, str(report)
    assert report.checks["forward mode"] == report.checks["vmap"] == "right"
    said = [finding for finding in report.findings if "forward mode agrees" in finding.text]
    assert said, str(report)
    assert said[0].numbers["limit"] < 1e-11


@pytest.mark.parametrize("size", [1e-2, 1e-5, 1e-8])
def test_a_wrong_jvp_has_its_size(size):
    report = pg.audit(square(jvp=2 * (1 + size)), X[:1])
    assert report.verdict == "transformed", str(report)
    assert report.defect == pytest.approx(size, rel=0.05)
    assert not report.passed
    assert "forward mode WRONG" in report.summary
    assert report.checks["first order"] == "right"


def test_what_can_be_switched_off_is_not_looked_at():
    report = pg.audit(square(jvp=3.0), X, transforms=False)
    assert report.passed, str(report)
    assert "forward mode" not in report.checks


def test_of_a_wrong_backward_and_a_right_jvp_the_backward_is_accused():
    report = pg.audit(square(backward=2.02), X, consequences=False)
    assert report.verdict == "incoherent", str(report)
    assert report.checks["forward mode"] == "right"
    assert any("the mistake is in the backward alone" in finding.text for finding in report.findings), str(report)


def test_a_jvp_with_the_mistake_of_the_backward_is_wrong_too():
    report = pg.audit(square(backward=2.02, jvp=2.02), X, consequences=False)
    assert report.checks["first order"] == report.checks["forward mode"] == "wrong", str(report)


def test_a_function_without_rules_refuses_and_passes():
    class Plain(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0].exp()

    report = pg.audit(Plain.apply, X)
    assert report.passed, str(report)
    assert report.checks["forward mode"] == report.checks["vmap"] == "refused"


def test_a_jvp_that_cannot_be_differentiated_is_named():
    report = pg.audit(detached_jvp(detached=True), X)
    (alarm,) = alarms(report)
    assert "reverse over forward mode" in alarm.text, str(report)


def test_a_kink_at_the_input_accuses_no_rule():
    class Absolute(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x.abs()

        @staticmethod
        def backward(ctx, grad):
            return torch.where(ctx.saved_tensors[0] >= 0, grad, -grad)

        @staticmethod
        def jvp(ctx, along):
            return torch.where(ctx.saved_tensors[0] > 0, along, -along)

    report = pg.audit(Absolute.apply, torch.zeros(1, dtype=torch.float64))
    assert not alarms(report), str(report)


def test_a_wrong_vmap_rule_fails():
    (x,) = centred_inputs(0, torch.float64)
    report = pg.audit(centred(counts_from_the_end=False), x)
    assert report.verdict == "transformed", str(report)
    assert report.checks["vmap"] == "wrong"
    assert pg.audit(centred(counts_from_the_end=True), x).checks["vmap"] == "right"


def test_a_faster_value_without_a_gradient_is_seen():
    def value(x):
        return square()(x) if torch.is_grad_enabled() else x * x * 1.001

    report = pg.audit(value, X)
    assert report.verdict == "transformed", str(report)
    (alarm,) = alarms(report)
    assert "torch.no_grad" in alarm.text
    assert report.defect == pytest.approx(1e-3, rel=0.01)


def test_torch_functions_are_tried_with_full_effort():
    """torch.linalg.det: a known fault of torch 2.11 to 2.13 (pytorch issue 196696); sin is right."""
    matrix = torch.tensor([[2.7, 1.0], [1.0, 4.4]], dtype=torch.float64)
    assert pg.audit(torch.sin, X).checks["forward mode"] == "not judged"
    assert pg.audit(torch.sin, X, effort="thorough").checks["forward mode"] == "right"
    if torch.__version__.startswith(("2.11", "2.12", "2.13")):
        report = pg.audit(torch.linalg.det, matrix, effort="thorough")
        assert report.verdict == "transformed", str(report)
        assert "reverse over forward mode" in alarms(report)[0].text


def test_parameters_of_a_module_are_held_fixed():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(5, 3, dtype=torch.float64)

        def forward(self, x):
            return square()(self.linear(x))

    report = pg.audit(Layer(), X)
    assert report.passed, str(report)
    assert report.checks["forward mode"] == "right"


def test_forward_mode_of_jax_is_that_of_its_rule():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)

    def made(value=1.0, slope=1.0):
        @jax.custom_jvp
        def sine(x):
            return jax.numpy.sin(x)

        @sine.defjvp
        def rule(primals, tangents):
            return value * sine(*primals), slope * jax.numpy.cos(*primals) * tangents[0]

        return pg.coherence.from_jax(sine)

    right, wrong, other = (pg.audit(made(*factors), X, effort="quick") for factors in ((), (1.0, 1.001), (1.001, 1.0)))
    assert right.checks["forward mode"] == "right", str(right)
    assert wrong.checks["first order"] == wrong.checks["forward mode"] == "wrong", str(wrong)
    assert other.checks["no grad"] == "wrong", str(other)
