"""Small functions with known mistakes, for the tests of the engine's parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable


def points(*shape, seed=0, dtype=torch.float64):
    """Normal numbers, the same for all dtypes up to rounding."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def doubles(*values, grad=False):
    return torch.tensor(values, dtype=torch.float64, requires_grad=grad)


class Square(torch.autograd.Function):
    """x^2 with its derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad


def sine_with(factor, *, name="Sine"):
    """sin(x) whose backward is multiplied by factor(x)."""

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output * x.cos() * factor(x)

    Sine.__name__ = Sine.__qualname__ = name
    return Sine


class Round(torch.autograd.Function):
    """The nearest integer, with the gradient of the identity."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class Window(torch.autograd.Function):
    """The sign, with the gradient of a clamp."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (x.abs() < 1)


def saved_intermediate(x):
    """exp(sin(x)) whose backward is right, and whose second derivative takes a saved tensor for a constant."""
    return _SavedIntermediate.apply(x)


class _SavedIntermediate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.slope = x.cos() * x.sin().exp()
        return x.sin().exp()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.slope


def function(forward: Callable[..., Any], backward: Callable[..., Any], *, once: bool = True) -> Callable[..., Any]:
    """An elementwise function of one tensor with a backward of its own."""

    class Custom(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return forward(x)

    def supply(ctx: Any, grad_output: torch.Tensor) -> torch.Tensor:
        return backward(ctx.saved_tensors[0], grad_output)

    Custom.backward = staticmethod(once_differentiable(supply) if once else supply)  # type: ignore[assignment]
    return Custom.apply


def vector(*numbers: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype)
