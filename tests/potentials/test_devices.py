"""Nothing looks at the data: every kernel runs on the meta device, which has none, and on CUDA where there is one."""

from __future__ import annotations

import pytest
import torch

import pairgrad as pg

NAMES = ("paired", "arfr", "original", "consistent", "log-miller", "log-bessel", "scott")


def run_all(pot: pg.Potential, x: torch.Tensor) -> list[torch.Tensor]:
    one = [getattr(pot, q)(x) for q in ("value", "slope", "curvature", "complement")]
    two = [pot.difference(x, x + 1), pot.secant(x, x + 1), *pot.pair(x)]
    return one + two + ([pot.concentration(x / 100)] if pot.invertible else [])


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow), torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_meta(name: str, dtype: torch.dtype) -> None:
    x = torch.zeros(3, 5, dtype=dtype, device="meta", requires_grad=True)
    for result in run_all(pg.potential(12, name), x):
        assert result.device.type == "meta"
        assert result.dtype == dtype
        (gradient,) = torch.autograd.grad(result.sum(), x, retain_graph=True)
        assert gradient.shape == x.shape


def test_two_devices_are_an_error_that_names_them() -> None:
    with pytest.raises(ValueError, match="a and b must be on one device, got a on cpu and b on meta"):
        pg.potential(12).difference(torch.ones(3), torch.ones(3, device="meta"))


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_a_device_agrees_with_the_cpu(name: str, device: torch.device) -> None:
    x = 30 * torch.rand(257, dtype=torch.float64)
    pot = pg.potential(12, name)
    for got, want in zip(run_all(pot, x.to(device)), run_all(pot, x), strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=1e-13, atol=1e-14)
