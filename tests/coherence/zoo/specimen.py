"""What an entry of the zoo is: one kind of mistake, as a pair of functions, one right and one broken. And how its inputs are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

Interval = tuple[float, float]
DOUBLE, SINGLE = (torch.float64,), (torch.float32,)


@dataclass(frozen=True)
class Specimen:
    """A pair of functions with nearly the same forward, one with the right backward and one with a broken one.

    Attributes:
        name: unique, lower case with hyphens.
        kind: the kind of mistake, in a few words.
        right: makes the right function: called anew for every audit, so that a module with state starts fresh.
        broken: makes the broken one, likewise.
        inputs: (seed, dtype) -> arguments; tensors to be differentiated have requires_grad=True, other arguments do not.
        defect: how large the mistake is, over the size of the gradient, at the inputs or, with a `domain`, where it is largest: a rough figure, for the reader.
        dtypes: in which dtypes the broken one is broken. The right one is right in float64 and float32.
        domain: one interval (low, high), or None, for each argument, where the mistake is only met in a part of it. The arguments lie in it.
        constraints: the `constraints` that the audit is given, one for each argument, where the function is defined on a part of its space alone.
        options: further arguments that the audit is given.
        note: what is wrong, in a sentence.
    """

    name: str
    kind: str
    right: Callable[[], Callable[..., Any]]
    broken: Callable[[], Callable[..., Any]]
    inputs: Callable[[int, torch.dtype], tuple[Any, ...]]
    defect: float
    dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32)
    domain: tuple[Interval | None, ...] | None = None
    constraints: tuple[str | None, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def uniform(seed, dtype, shape, low, high, grad=True):
    """A tensor drawn uniformly from (low, high), the same for all dtypes up to rounding."""
    draw = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (low + (high - low) * draw).to(dtype).requires_grad_(grad)


def as_stored(tensor):
    """A tensor as a kernel reads it that takes it for contiguous: the numbers that follow each other in its memory, and zeros past its end."""
    stored = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    flat = tensor.new_zeros(tensor.numel())
    readable = min(tensor.numel(), stored)
    flat[:readable] = tensor.as_strided((readable,), (1,))
    return flat.reshape(tensor.shape)


def save_inputs(ctx, inputs, output):
    """The setup_context of custom ops whose backward starts from the inputs alone."""
    ctx.save_for_backward(*inputs)
