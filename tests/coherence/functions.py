"""Small functions with known mistakes, for the tests of the engine's parts."""

from __future__ import annotations

import torch


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
