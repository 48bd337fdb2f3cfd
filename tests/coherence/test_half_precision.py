"""In half precision, a gradient has to be as good as its dtype allows: beside float64, and beside torch's own operations."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import pairgrad as pg
from tests.coherence.zoo.ours.transforms_and_precision import biased, saturated

HALF = (torch.bfloat16, torch.float16)
GENERATOR = torch.Generator().manual_seed(0)
MANY = torch.randn(50, 100, generator=GENERATOR)


def unit(dtype):
    return torch.finfo(dtype).eps / 2


def audited(fn, inputs, **options):
    return pg.audit(fn, inputs, effort="quick", consequences=False, **options)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_bias_of_half_a_unit_of_rounding_is_seen_over_many_elements(dtype, sign):
    report = audited(biased(1 + sign * unit(dtype) / 2), MANY.to(dtype))
    assert report.verdict == "incoherent", str(report)
    assert report.defect == pytest.approx(unit(dtype) / 2, rel=0.1)
    assert "biased" in report.findings[0].text
    assert report.checks["half precision"] == "wrong"


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(
    "fn",
    [
        F.gelu,
        torch.tanh,
        lambda x: x.softmax(-1),
        lambda x: F.layer_norm(x, (100,)),
        lambda x: F.cross_entropy(x, torch.arange(50)),
        lambda x: (x * x).mean(),
        lambda x: F.normalize(x, dim=-1),
        lambda x: x / 3,
    ],
    ids=["gelu", "tanh", "softmax", "layer_norm", "cross_entropy", "mean", "normalize", "third"],
)
def test_torch_functions_pass_with_a_limit(fn, dtype):
    report = audited(fn, MANY.to(dtype))
    assert report.passed, str(report)
    assert report.limit < 40 * unit(dtype)


def test_a_bias_that_the_value_has_too_is_coherent():
    """1.003 is rounded to 1 in bfloat16, forward and backward: 0.77 units of rounding."""
    report = audited(lambda x: x * torch.tensor(1.003, dtype=x.dtype), MANY.bfloat16())
    assert report.passed, str(report)


def test_a_function_that_seeds_its_own_random_numbers_passes():
    def dropped(x):
        torch.manual_seed(0)
        return F.dropout(x, 0.3)

    report = audited(dropped, MANY.bfloat16())
    assert report.passed, str(report)


def test_what_is_lost_to_saturation_is_an_error_unless_the_reference_loses_it_too():
    x = torch.full((8, 8), 8.0).bfloat16()
    assert "off by 1 of the one in float64" in str(audited(saturated(rounded=True), x))
    assert audited(saturated(rounded=False), x).passed
    assert audited(saturated(rounded=True), x, reference=torch.sigmoid).passed


def test_a_sum_in_half_precision_is_worse_than_the_reference():
    class Summed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            total = torch.zeros_like(weight)
            for row, g in zip(x, grad, strict=True):
                total += row[:, None] * g[None]
            return grad @ weight.mT, total

    inputs = torch.randn(96, 4, generator=GENERATOR).bfloat16(), torch.randn(4, 3, generator=GENERATOR).bfloat16()
    report = audited(Summed.apply, inputs, reference=torch.matmul, second_order=False)
    assert [(finding.kind, finding.where) for finding in report.findings if finding.severity == "alarm"] == [("precision", "input 1")]
    assert "the reference has" in report.findings[0].text


@pytest.mark.parametrize("error", [TypeError, KeyError])  # what libraries raise that look the dtype up in a table
def test_a_function_that_does_not_take_float64_is_judged_by_its_reference_alone(error):
    def kernel(x):
        if x.dtype == torch.float64:
            raise error("float64 is not supported")
        return biased(1.0)(x)

    report = audited(kernel, MANY.bfloat16())
    assert any("float64 is not supported" in why for why in report.left_out), str(report)
    assert audited(kernel, MANY.bfloat16(), reference=torch.sin).checks["half precision"] == "right"


def test_a_defect_that_only_float64_shows_is_named_if_the_dtype_could_hold_it():
    report = audited(biased(1.0), MANY[:2].bfloat16())
    assert report.passed, str(report)

    class Off(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, grad):
            return 1.2 * grad * ctx.saved_tensors[0].cos()

    report = audited(Off.apply, MANY[:2].bfloat16())
    assert report.verdict == "incoherent", str(report)


def test_the_second_derivative_is_judged_in_float64():
    net = torch.nn.Sequential(torch.nn.Linear(100, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).bfloat16()
    report = audited(net, MANY[:4].bfloat16())
    assert report.passed, str(report)
    assert report.checks["second order"] == "right"


def test_a_reference_that_is_not_callable_is_refused():
    with pytest.raises(TypeError, match="reference must be a callable"):
        pg.audit(torch.sin, MANY.bfloat16(), reference=3)
