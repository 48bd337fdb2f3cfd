"""Calls of a function with other tensors in the places of its differentiated arguments, and the comparison of what comes back."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pairgrad.coherence.measure.path import random_cotangent
from pairgrad.coherence.measure.structure import norm
from pairgrad.coherence.subject.subject import FLOATING, Point, arguments_of, generators_restored, supplied
from pairgrad.ground._torch_private import pytree

_SEED = 0  # of cotangents, and of what a function draws itself


@dataclass(frozen=True, eq=False)
class Result:
    """Outputs and the gradients of the arguments, detached, with the names of the arguments."""

    outputs: Point
    gradients: Point
    names: tuple[str, ...]

    def parts(self) -> list[tuple[str, torch.Tensor]]:
        single = len(self.outputs) == 1
        outputs = [("the value" if single else f"output {i}", output) for i, output in enumerate(self.outputs)]
        return outputs + [(f"the gradient of {name}", gradient) for name, gradient in zip(self.names, self.gradients, strict=True)]


class Call:
    """A function and its arguments in one dtype.

    Attributes:
        fn: a module is copied into the dtype.
        tensors: the arguments that are differentiated, detached copies: those that require a gradient, or all floating-point ones if none does.
        names: of these: "input 0", or a keyword.
    """

    def __init__(self, fn: Callable[..., Any], inputs: Any, dtype: torch.dtype) -> None:
        self.fn = copy.deepcopy(fn).to(dtype) if isinstance(fn, torch.nn.Module) else fn
        args, kwargs = arguments_of(inputs)
        paths, self._structure = pytree.tree_flatten_with_path((args, kwargs))
        flat = [leaf for _, leaf in paths]
        floating = [i for i, leaf in enumerate(flat) if isinstance(leaf, torch.Tensor) and leaf.dtype in FLOATING]
        self._places = [i for i in floating if flat[i].requires_grad] or floating
        self._flat = [_copied(leaf, dtype) for leaf in flat]
        self.names = tuple(_name(paths[i][0]) for i in self._places)
        self.tensors: Point = tuple(self._flat[i] for i in self._places)

    def outputs(self, tensors: Sequence[torch.Tensor], fn: Callable[..., Any] | None = None) -> Point:
        """All floating-point outputs, with the graph that hangs on `tensors`. What the function draws is always the same."""
        flat = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in self._flat]
        for place, tensor in zip(self._places, tensors, strict=True):
            flat[place] = tensor
        args, kwargs = pytree.tree_unflatten(flat, self._structure)
        result = (self.fn if fn is None else fn)(*args, **kwargs)
        return tuple(leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.dtype in FLOATING)

    def graph(self, tensors: Sequence[torch.Tensor], fn: Callable[..., Any] | None = None) -> tuple[Point, Point]:
        """Outputs with their graph, and the leaves they hang on, laid out in memory as `tensors` are."""
        leaves = tuple(tensor.detach().requires_grad_() for tensor in tensors)
        with torch.enable_grad(), seeded():
            return self.outputs(leaves, fn), leaves

    def result(
        self, tensors: Sequence[torch.Tensor], cotangent: Sequence[torch.Tensor] | None = None, fn: Callable[..., Any] | None = None
    ) -> Result:
        """Forward and backward; without a cotangent, with random ones that depend on nothing but the shapes."""
        outputs, leaves = self.graph(tensors, fn)
        weights = cotangents(outputs) if cotangent is None else tuple(cotangent)
        with seeded():
            gradients = supplied(outputs, leaves, weights, copy=cotangent is None)
        return Result(tuple(output.detach().clone() for output in outputs), tuple(g.clone() for g in gradients), self.names)

    def broadcast(self, shapes: Sequence[Sequence[int]]) -> Point:
        """The elements of the tensors, repeated or left out until they fill other shapes."""
        if len(shapes) != len(self.tensors):
            raise ValueError(f"broadcasts must have one shape for each of {', '.join(self.names)}, got {shapes!r}")
        return tuple(_filled(tensor, tuple(shape)) for tensor, shape in zip(self.tensors, shapes, strict=True))


def cotangents(outputs: Sequence[torch.Tensor]) -> Point:
    """Weights of the outputs, the same in every call."""
    return random_cotangent(outputs, torch.Generator().manual_seed(_SEED))


@contextlib.contextmanager
def seeded() -> Iterator[None]:
    """The same random numbers in every call, and the generators as they were in the end."""
    with generators_restored():
        torch.manual_seed(_SEED)
        yield


def _copied(leaf: Any, dtype: torch.dtype) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.detach().clone().to(dtype) if leaf.dtype in FLOATING else leaf.detach().clone()


def _name(path: tuple[Any, ...]) -> str:
    _, first, *rest = path
    key = f"input {first.idx}" if isinstance(first, pytree.SequenceKey) else str(first.key)
    return key + pytree.keystr(tuple(rest))


def _filled(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return tensor.reshape(-1)[torch.arange(count) % tensor.numel()].reshape(shape)


def difference(got: Result, expected: Result, slack: float) -> str:
    """Where two results that are equal on paper differ by more than `slack` of the size of the tensor; empty if nowhere."""
    lines = []
    for (name, g), (_, e) in zip(got.parts(), expected.parts(), strict=True):
        if g.shape != e.shape:
            lines.append(f"{name} has shape {tuple(g.shape)} instead of {tuple(e.shape)}")
            continue
        size = norm([e.nan_to_num(0.0, 0.0, 0.0)])
        lines += _apart(name, g, e, torch.full_like(e, slack * size, dtype=torch.float64))
    return "\n".join(lines)


def departure(got: Result, expected: Result, relative: float, absolute: float) -> str:
    """Where a result is further from a reference than that, element by element; empty if nowhere."""
    lines = []
    for (name, g), (_, e) in zip(got.parts(), expected.parts(), strict=True):
        lines += _apart(name, g, e, absolute + relative * e.double().abs())
    return "\n".join(lines)


def _apart(name: str, got: torch.Tensor, expected: torch.Tensor, allowed: torch.Tensor) -> list[str]:
    g, e = got.double(), expected.double()
    off = (g - e).abs()
    same = (g == e) | (g.isnan() & e.isnan())
    bad = ~same & ~((off <= allowed) & off.isfinite())  # neither NaN nor infinity is near anything else
    if not bad.any():
        return []
    excess = torch.where(bad, (off / allowed).nan_to_num(torch.inf, torch.inf), -1.0)
    worst = int(excess.argmax())
    place = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), bad.shape))
    where = f" at element {list(place)}" if place else ""
    numbers = f"{g.flatten()[worst].item():.17g} instead of {e.flatten()[worst].item():.17g}"
    return [
        f"{name} is {numbers}{where}: off by {off.flatten()[worst].item():.3g} where {allowed.flatten()[worst].item():.3g} is allowed, "
        f"and off at {int(bad.sum())} of {bad.numel()} elements"
    ]
