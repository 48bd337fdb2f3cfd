"""Derivatives by extrapolated differences: what is beside each audit, and has nothing of pairgrad in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

STEPS = 9  # steps of a tableau, each half as long as the one before
DIRECTIONS = 4
FIRST = 2.0**-4  # of the size of the arguments


class Call:
    """A function at its arguments: what of them is differentiated, and the outputs for other numbers there.

    `fn` gets copies, because it may edit its arguments, and the same random numbers in every call.
    """

    def __init__(self, fn: Callable[..., Any], inputs: Any) -> None:
        self.fn = fn
        self.tree = (
            ((), dict(inputs)) if isinstance(inputs, dict) else (tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,), {})
        )
        found: list[torch.Tensor] = []
        walk(self.tree, lambda t: found.append(t) or t)
        floating = [t for t in found if t.is_floating_point() and t.numel()]
        self.tensors = [t for t in floating if t.requires_grad] or floating

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """The floating-point outputs, with these in place of the differentiated arguments."""
        torch.manual_seed(0)
        by_id = {id(old): new for old, new in zip(self.tensors, tensors, strict=True)}
        arguments, keywords = walk(self.tree, lambda t: by_id.get(id(t), t).clone())
        found: list[torch.Tensor] = []
        walk(self.fn(*arguments, **keywords), lambda t: found.append(t) or t)
        return [t for t in found if t.is_floating_point()]

    def leaves(self) -> list[torch.Tensor]:
        """Copies of the differentiated arguments that require a gradient."""
        return [t.detach().clone().requires_grad_() for t in self.tensors]

    def step(self) -> None:
        """A forward and a backward."""
        made = [o for o in self(*self.leaves()) if o.requires_grad]
        torch.autograd.backward(made, [torch.ones_like(o) for o in made])


def walk(tree: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same tree with its tensors changed."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, (tuple, list)):
        made = [walk(part, change) for part in tree]
        return made if isinstance(tree, list) else tuple(made)
    return {k: walk(v, change) for k, v in tree.items()} if isinstance(tree, dict) else tree


def compare(fn: Callable[..., Any], inputs: Any, seed: int = 1) -> dict[str, Any]:
    """The supplied gradient along random directions, beside differences of the value extrapolated to step 0 (Ridders), in the dtype of the inputs.

    Returns the direction that is off most: "supplied", "true", "error" (of the latter), "relative" (their distance over the length that the gradient has in
    a random direction), and "agrees": True, False, or None where the differences have too few digits.
    """
    call = Call(fn, inputs)
    if not call.tensors:
        raise ValueError("no floating-point tensor among the inputs")
    draws = torch.Generator().manual_seed(seed)

    def drawn(like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.shape, generator=draws, dtype=torch.float64).to(like)

    leaves = call.leaves()
    made = call(*leaves)
    cotangents = [drawn(o) for o in made]
    asked = [(o, u) for o, u in zip(made, cotangents, strict=True) if o.requires_grad]
    if not asked:
        raise ValueError("no output requires a gradient")
    supplied_by = torch.autograd.grad([o for o, _ in asked], leaves, [u for _, u in asked], allow_unused=True)
    gradients = [torch.zeros_like(leaf) if g is None else g.detach().to_dense() for g, leaf in zip(supplied_by, leaves, strict=True)]

    def value(shift: float, direction: list[torch.Tensor]) -> float:
        with torch.no_grad():
            made = call(*(t.detach() + shift * v for t, v in zip(call.tensors, direction, strict=True)))
        return math.fsum(_dot(o, u) for o, u in zip(made, cotangents, strict=True))

    eps = max(torch.finfo(t.dtype).eps for t in (*call.tensors, *made))
    worst: dict[str, Any] = {}
    numbers = list(range(len(call.tensors)))
    groups = [[i] for i in numbers] if len(numbers) <= 4 else [numbers]
    for group in groups:
        for _ in range(DIRECTIONS):
            direction = [drawn(t) * _size(t) if i in group else torch.zeros_like(t) for i, t in enumerate(call.tensors)]
            supplied = math.fsum(_dot(g, v) for g, v in zip(gradients, direction, strict=True))
            typical = math.sqrt(math.fsum(_dot(g.square(), v.square()) for g, v in zip(gradients, direction, strict=True)))
            true, error = _extrapolated(lambda h, direction=direction: value(h, direction), eps)
            scale = max(typical, abs(true), 1e-300)
            row = {"supplied": supplied, "true": true, "error": error, "relative": abs(supplied - true) / scale, "resolved": error / scale}
            if not worst or _rank(row) > _rank(worst):
                worst = row
    single = any(t.dtype != torch.float64 for t in call.tensors)
    floor = 2e-2 if single else 1e-5
    off = worst["relative"]
    if not math.isfinite(off):
        worst["agrees"] = None
    elif off > floor and off > 10 * worst["resolved"]:
        worst["agrees"] = False
    else:
        worst["agrees"] = True if worst["resolved"] < floor and off <= floor else None
    return worst


def _rank(row: dict[str, Any]) -> tuple[bool, float]:
    """A difference that its own error does not explain comes first."""
    off = row["relative"]
    return (math.isfinite(off) and off > 10 * row["resolved"], off if math.isfinite(off) else -1.0)


def _extrapolated(value: Callable[[float], float], eps: float) -> tuple[float, float]:
    """The derivative at 0, and its error by the neighbours in the tableau, not below the rounding of the values."""
    best, error = math.nan, math.inf
    previous: list[float] = []
    for k in range(STEPS + 8):
        h = FIRST * 2.0**-k
        high, low = value(h), value(-h)
        row = [(high - low) / (2 * h)]
        for j, above in enumerate(previous):
            row.append(row[j] + (row[j] - above) / (4.0 ** (j + 1) - 1))
        for j in range(1, len(row)):
            off = max(abs(row[j] - row[j - 1]), abs(row[j] - previous[j - 1])) + eps * (abs(high) + abs(low)) / h
            if off < error:
                best, error = row[j], off
        previous = row
    return best, error


def _dot(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first.double() * second.double()).sum())


def _size(tensor: torch.Tensor) -> float:
    """The root mean square of the elements; 1 where all are zero."""
    return float(tensor.detach().double().square().mean().sqrt()) or 1.0
