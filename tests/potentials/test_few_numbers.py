"""Tensors of few numbers on the CPU, which are not computed by torch: the same results, and nothing that follows torch's operations misses them."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import pairgrad as pg

DTYPES = (torch.float64, torch.float32)
ONE_POINT = ("value", "slope", "curvature", "complement", "deficit", "legendre", "concentration")
TWO_POINT = ("difference", "secant", "bregman")
MANY = 2**14 + 2**10


def arguments(name: str, dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(dim)
    if name == "concentration":
        return (torch.rand(MANY, dtype=dtype, generator=generator),)
    x = (10 ** (16 * torch.rand(MANY, dtype=torch.float64, generator=generator) - 8)).to(dtype)
    x[:5] = torch.tensor([0.0, torch.inf, torch.nan, 1e-30, dim])
    return (x,) if name in ONE_POINT else (x, x.roll(7) if name == "secant" else x * 1.25)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [2, 3, 16, 64, 4096])
@pytest.mark.parametrize("name", ONE_POINT + TWO_POINT)
def test_bits_do_not_depend_on_how_many_there_are(name: str, dim: int, dtype: torch.dtype) -> None:
    method, tensors = getattr(pg.potential(dim), name), arguments(name, dim, dtype)
    whole = method(*tensors)
    for start, stop in ((0, 7), (5, 1005), (MANY - 64, MANY)):
        part = method(*(t[start:stop] for t in tensors))
        assert part.dtype == dtype
        torch.testing.assert_close(part, whole[start:stop], rtol=0, atol=0, equal_nan=True)
    column = method(*(t[:40].reshape(10, 4).t() for t in tensors))
    torch.testing.assert_close(column, whole[:40].reshape(10, 4).t(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ONE_POINT + TWO_POINT)
def test_a_single_number_keeps_shape_and_dtype(name: str, dtype: torch.dtype) -> None:
    for shape in ((), (1,), (1, 1, 1)):
        result = getattr(pg.potential(5), name)(*(torch.full(shape, 0.5, dtype=dtype) for _ in range(1 + (name in TWO_POINT))))
        assert (result.shape, result.dtype) == (shape, dtype)


@pytest.mark.parametrize("count", [1, 6])
def test_a_trace_holds_operations_and_not_their_results(count: int) -> None:
    pot = pg.potential(16)
    before, after = torch.full((count,), 2.0), torch.full((count,), 9.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit
        recorded = torch.jit.trace(lambda x: pot.deficit(x), before, check_trace=False)
    for traced in (make_fx(lambda x: pot.deficit(x))(before), recorded):
        torch.testing.assert_close(traced(after), pot.deficit(after))


@pytest.mark.parametrize("count", [1, 6])
def test_results_are_new_memory(count: int) -> None:
    x = torch.full((count,), 3.0, dtype=torch.float64)
    for name in ONE_POINT[:-1]:
        getattr(pg.potential(8), name)(x).fill_(7.0)
        assert (x == 3).all()


@pytest.mark.parametrize("count", [1, 6])
def test_derivatives_of_all_orders_and_ways(count: int) -> None:
    pot = pg.potential(8)
    x = torch.linspace(0.5, 9.0, count, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(pot.legendre, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(pot.legendre, x)
    pairs = torch.func.vmap(torch.func.grad(lambda t: pot.deficit(t)))(x.detach()), pot.complement(x.detach())
    torch.testing.assert_close(*pairs, rtol=1e-14, atol=0)
