"""Declared intent: a mismatch between value and gradient that is wanted, so that audits pass it, and say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pairgrad.ground.checks import one_of

INTENTS = (
    "straight-through",
    "clamped-straight-through",
    "implicit-reparameterization",
    "gradient-cap",
    "reversal",
    "scaling",
    "preconditioned",
    "overwrites-input",
)
_MARK = "__pairgrad_intent__"

_T = TypeVar("_T")


def intended(kind: str) -> Callable[[_T], _T]:
    """Declares that a function, a module class or an autograd.Function is not meant to have the derivative of its value as its gradient.

    The declaration changes nothing in the function. An audit still measures and prints the mismatch; it passes only if what it measures is what was declared:

    - `"straight-through"`: the value moves in steps or is flat, and the gradient ignores that;
    - `"clamped-straight-through"`: the value is clamped, and the gradient passes as if it were not; where the value moves, the gradient is right;
    - `"reversal"`: the gradient is a negative multiple of the derivative, the same for all arguments; `"scaling"`: a positive one;
    - `"preconditioned"`: the gradient of each argument has a positive scalar product with the derivative;
    - `"gradient-cap"`: the gradient is nowhere longer than the derivative of the value, and points into its half-space;
    - `"implicit-reparameterization"`: the function draws random numbers, and its gradient is that of the distribution, not of the draw;
    - `"overwrites-input"`: the function edits its arguments in place, to save memory. Its gradient is judged like any other.

    What is not declared is not excused: edits in place, results that change from call to call, a gradient that depends on the layout or the last bits of
    grad_output.

    Examples:
        >>> import torch, pairgrad as pg
        >>> @pg.intended("straight-through")
        ... class Round(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x.round()
        ...
        ...     @staticmethod
        ...     def backward(ctx, grad_output):
        ...         return grad_output
        >>> report = pg.audit(Round.apply, torch.tensor([0.3, 1.7], dtype=torch.float64))
        >>> report.verdict.value, report.passed, report.intent
        ('straight-through-like', True, 'straight-through')
    """
    one_of("kind", kind, INTENTS)

    def mark(target: _T) -> _T:
        setattr(target, _MARK, kind)
        return target

    return mark


def intent_of(fn: Any) -> str | None:
    """The declared intent of a callable: its own, that of its class, or of the Function whose `apply` it is."""
    for candidate in (fn, getattr(fn, "__self__", None), getattr(fn, "__func__", None), getattr(fn, "func", None), type(fn)):
        kind = getattr(candidate, _MARK, None)
        if isinstance(kind, str):
            return kind
    return None
