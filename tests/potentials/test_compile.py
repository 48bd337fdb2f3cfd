"""torch.compile(fullgraph=True): forward and first backward agree with eager, for every realization that trains."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import pairgrad as pg

# Compiled code may evaluate the same formula with other roundings: twice the documented accuracy between the two, and twice that again for sums
# of several quantities. Gradients contain the curvature and secants' quotients, whose documented accuracy is coarser.
FLOAT64, FLOAT32 = 4 * 1.2e-15, 4 * 4e-7


# A compiler that has not seen a formula before takes half a minute to generate its code. One graph has its code generated in the ordinary tests; the
# others are captured, differentiated and run, which is where a formula can go wrong, and generated in the slow ones.
both_backends = pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])


def agree(function: Callable[..., torch.Tensor], *tensors: torch.Tensor, backend: str = "inductor") -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    inputs = [t.clone().requires_grad_() for t in tensors]
    tol = FLOAT64 if tensors[0].dtype == torch.float64 else FLOAT32
    got, want = compiled(*inputs), function(*inputs)
    torch.testing.assert_close(got, want, rtol=tol, atol=0)
    for g, w in zip(torch.autograd.grad(got.sum(), inputs), torch.autograd.grad(want.sum(), inputs), strict=True):
        torch.testing.assert_close(g, w, rtol=8 * tol, atol=0)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("dim", "dtype", "whole"),
    [
        (512, torch.float32, False),
        *(pytest.param(d, t, True, marks=pytest.mark.slow) for d, t in ((512, torch.float32), (64, torch.float64))),
    ],
)
def test_paired_everything_in_one_graph(dim: int, dtype: torch.dtype, whole: bool) -> None:
    """With the secant, whose derivative is a sum of curvatures, a minute of a compiler's time that has not seen it before."""
    pot = pg.potential(dim)

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        value, slope = pot.pair(a)
        rest = pot.secant(a, b) * 0.5 if whole else 0
        return value + slope * pot.complement(b) + pot.difference(a, b) + rest

    scale = dim / 2
    agree(function, (scale * (0.2 + torch.rand(33))).to(dtype), (scale * (1.5 + torch.rand(33))).to(dtype))


@both_backends
@pytest.mark.parametrize(("dim", "dtype"), [(12, torch.float32), pytest.param(2, torch.float64, marks=pytest.mark.slow)])
def test_paired_with_order_shift(dim: int, dtype: torch.dtype, backend: str) -> None:
    pot = pg.potential(dim)
    assert pot.formulas(dtype).shift > 0
    a, b = (1 + 3 * torch.rand(33)).to(dtype), (5 + 9 * torch.rand(33)).to(dtype)
    agree(lambda a, b: pot.value(a) + pot.difference(a, b), a, b, backend=backend)


@both_backends
@pytest.mark.parametrize("name", ["arfr", "scott", "original", "consistent", "log-miller", "log-bessel"])
def test_the_other_realizations(name: str, backend: str) -> None:
    pot = pg.potential(6, name)
    agree(pot.value, 1 + 3 * torch.rand(33, dtype=torch.float64), backend=backend)


@both_backends
def test_concentration(backend: str) -> None:
    pot = pg.potential(512)
    agree(pot.concentration, 0.1 + 0.8 * torch.rand(33), backend=backend)


def test_two_dimensions_in_one_function_do_not_mix() -> None:
    torch._dynamo.reset()

    @torch.compile(fullgraph=True)
    def value(pot: pg.Potential, x: torch.Tensor) -> torch.Tensor:
        return pot.value(x)

    x = 10 + torch.rand(8, dtype=torch.float64)
    for dim in (64, 66, 64):
        torch.testing.assert_close(value(pg.potential(dim), x), pg.potential(dim).value(x), rtol=FLOAT64, atol=0)


def test_original_and_consistent_report_equal_bits_when_compiled() -> None:
    x = 1 + 40 * torch.rand(64, dtype=torch.float64)
    values = []
    for name in ("original", "consistent"):
        torch._dynamo.reset()
        values.append(torch.compile(pg.potential(8, name).value, fullgraph=True)(x))
    assert torch.equal(*values)


@both_backends
@pytest.mark.parametrize("name", ["paired", "arfr"])
def test_two_point_functions_compile_without_a_graph_too(name: str, backend: str) -> None:
    pot = pg.potential(512, name)
    a, b = 100 * torch.rand(33), 100 * torch.rand(33)
    for function in (pot.difference, pot.secant):
        torch._dynamo.reset()
        with torch.no_grad():
            torch.testing.assert_close(torch.compile(function, fullgraph=True, backend=backend)(a, b), function(a, b), rtol=FLOAT32, atol=0)
