"""Outlier exposure against its formula at fifty digits, and the batches and values it must not stumble over."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

from pairgrad.losses import OutlierExposure

# Per row: exp, sum, log, mean and a subtraction of logits relative to their largest: at most about ten roundings of the spread of the row.
ROUNDINGS = 10


def truth(row: list[float]) -> tuple[float, list[float]]:
    """log sum exp z - mean z, and its gradient softmax(z) - 1 / K."""
    with mpmath.workdps(50):
        z = [mpmath.mpf(v) for v in row]
        total = sum(mpmath.exp(v - max(z)) for v in z)
        loss = mpmath.log(total) + max(z) - sum(z) / len(z)
        return float(loss), [float(mpmath.exp(v - max(z)) / total - mpmath.mpf(1) / len(z)) for v in z]


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients(dtype: torch.dtype, offset: float) -> None:
    """A common offset of the logits costs nothing."""
    logits = (4 * torch.randn(7, 12, dtype=torch.float64) + offset).to(dtype).requires_grad_()
    losses = OutlierExposure(reduction="none")(logits)
    assert losses.shape == (7,)
    assert losses.dtype == dtype
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    unit = torch.finfo(dtype).eps / 2
    for row, got, got_gradient in zip(logits.tolist(), losses.tolist(), gradient.tolist(), strict=True):
        want, want_gradient = truth(row)
        spread = max(row) - min(row)
        assert got == pytest.approx(want, rel=0, abs=ROUNDINGS * unit * spread), row
        assert got_gradient == pytest.approx(want_gradient, rel=0, abs=ROUNDINGS * unit), row


def test_reductions() -> None:
    logits = torch.randn(6, 5, dtype=torch.float64)
    single = OutlierExposure(reduction="none")(logits)
    torch.testing.assert_close(OutlierExposure(reduction="sum")(logits), single.sum())
    torch.testing.assert_close(OutlierExposure()(logits), single.sum() / 6)


def test_equal_logits_are_the_minimum() -> None:
    logits = torch.full((2, 9), 3.5, dtype=torch.float64, requires_grad=True)
    loss = OutlierExposure()(logits)
    assert loss.item() == pytest.approx(math.log(9), rel=1e-15)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.abs().max() < 1e-16


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_no_outliers_give_zero_with_a_graph(reduction: str) -> None:
    logits = torch.zeros(0, 5, requires_grad=True)
    loss = OutlierExposure(reduction)(logits)
    assert loss.item() == 0
    loss.backward()
    assert logits.grad is not None
    assert logits.grad.shape == (0, 5)


def test_no_outliers_leave_the_gradients_of_a_network_finite() -> None:
    layer = torch.nn.Linear(3, 5)
    (layer(torch.ones(2, 3)).sum() + OutlierExposure()(layer(torch.ones(0, 3)))).backward()
    assert layer.weight.grad is not None
    assert torch.equal(layer.weight.grad, torch.full((5, 3), 2.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    """3000 rows of float16 losses would overflow as a sum."""
    logits = (30 * torch.randn(3000, 4)).to(dtype).requires_grad_()
    loss = OutlierExposure("sum")(logits)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, OutlierExposure("sum")(logits.float()))
    assert loss > 70_000
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.dtype == dtype


def test_autocast_changes_nothing() -> None:
    logits = torch.randn(6, 5)
    plain = OutlierExposure()(logits)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(OutlierExposure()(logits), plain)


def test_second_derivatives() -> None:
    logits = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(OutlierExposure(), logits)
    assert torch.autograd.gradgradcheck(OutlierExposure(), logits)


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (3, 0)])
def test_shape_errors(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"logits must have shape \(batch, num_classes\), got a float32 tensor of shape"):
        OutlierExposure()(torch.zeros(shape))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_values_that_are_not_finite(value: float) -> None:
    with pytest.raises(ValueError, match="logits must be finite, got NaN or infinity"):
        OutlierExposure()(torch.tensor([[0.0, value]]))


def test_other_errors() -> None:
    with pytest.raises(ValueError, match="reduction must be one of 'mean', 'sum', 'none', got 'avg'"):
        OutlierExposure("avg")
    with pytest.raises(TypeError, match="logits must have dtype float32 or float64"):
        OutlierExposure()(torch.zeros(2, 3, dtype=torch.int64))
    assert repr(OutlierExposure("sum")) == "OutlierExposure(reduction='sum')"
