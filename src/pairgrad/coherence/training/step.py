"""A training step that was taped, and its loss computed again as a function of the tensors that training differentiates it by."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.function import Function

from pairgrad.coherence.subject.autocast import Autocast
from pairgrad.coherence.subject.subject import generators_restored, set_rng_state
from pairgrad.ground._torch_private import pytree


class Replay:
    """The loss of one training step, as a function of the tensors that training differentiates it by.

    Attributes:
        leaves: these tensors as they were in the step: copies that require a gradient.
        names: what they are called.
        value: the loss of the step.
        functions: the custom Functions on the way to it.
        draws: whether it draws random numbers, which it puts back itself.
        as_recorded: tensors are laid out in memory as they were in the step.
    """

    as_recorded = True

    def __init__(self, step: Step) -> None:
        self.draws = any(call.random is not None for call in step.calls)
        self.leaves = tuple(step.sources[slot].copy.detach().clone().requires_grad_() for slot in step.leaves)
        self.names, self.value = step.names(), step.value.item()
        self.functions: tuple[type[Function], ...] = tuple(dict.fromkeys(f for call in step.calls for f in call.functions))
        self._step = step

    def __call__(self, *leaves: torch.Tensor) -> torch.Tensor:
        """The loss at other values of the leaves, with its graph: custom backwards, grad mode, autocast and random numbers are those of the step."""
        if len(leaves) != len(self.leaves):
            raise TypeError(f"leaves must be {len(self.leaves)} tensors, as replay.leaves are, got {len(leaves)}")
        return self._step.run(leaves)


@dataclass(eq=False)
class Group:
    """Tensors that share memory."""

    members: list[Seen] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)  # slots of those that come from elsewhere
    edited: bool = False


@dataclass(eq=False)
class Seen:
    """A tensor that a tape has met: which slot it has, what memory it shares, and its version then."""

    tensor: weakref.ref[torch.Tensor]
    slot: int
    group: Group
    version: int | None


@dataclass(frozen=True)
class Slot:
    """Stands for a tensor in recorded arguments: the slot from which it is taken on replay."""

    slot: int


@dataclass(frozen=True, eq=False)
class Source:
    """A tensor from elsewhere, as it was when it was met."""

    copy: torch.Tensor
    leaf: bool  # whether the loss is a function of it
    kind: str

    @staticmethod
    def of(tensor: torch.Tensor) -> Source:
        with torch.inference_mode(False), torch.no_grad():
            copy = tensor.detach().clone()
        kind = "parameter" if isinstance(tensor, torch.nn.Parameter) else "tensor"
        return Source(copy, tensor.requires_grad, kind)


@dataclass(frozen=True, eq=False)
class Call:
    """One recorded call: what was called with what, which slots it fills, and what it touched."""

    func: Callable[..., Any]
    flat: list[Any]
    structure: Any
    outputs: tuple[tuple[int, int], ...]  # place in the flat result, and slot
    inputs: frozenset[Group]
    touched: frozenset[Group]  # results, and what was edited
    altered: frozenset[int]  # slots of the sources that are edited or marked
    grad: bool
    autocast: tuple[Any, ...]
    random: tuple[Any, ...] | None  # if it draws random numbers
    functions: tuple[type[Function], ...]

    def slots(self) -> set[int]:
        return {kept.slot for kept in self.flat if isinstance(kept, Slot)} | {slot for _, slot in self.outputs}

    def run(self, tensors: dict[int, torch.Tensor]) -> None:
        flat = [tensors[kept.slot] if isinstance(kept, Slot) else kept.clone_state() if is_seeded(kept) else kept for kept in self.flat]
        args, kwargs = pytree.tree_unflatten(flat, self.structure)
        if self.random is not None:
            set_rng_state(self.random)
        with torch.set_grad_enabled(self.grad):
            results = pytree.tree_leaves(self.func(*args, **kwargs))
        for place, slot in self.outputs:
            tensors[slot] = results[place]


class Step:
    """A tape that has ended with a loss."""

    def __init__(self, calls: tuple[Call, ...], root: int, sources: dict[int, Source], value: torch.Tensor) -> None:
        self.calls, self.root, self.sources, self.value = calls, root, sources, value
        self.leaves = tuple(slot for slot, source in sources.items() if source.leaf)
        self.reached = self.leaves  # those that get a gradient
        self._altered = frozenset(slot for call in calls for slot in call.altered)
        self._random = any(call.random is not None for call in calls)
        self._expected: dict[int, torch.Tensor] = {}  # gradients that the step got, by leaf
        self._awaited: dict[int, torch.Tensor] = {}  # leaves that have none yet
        self._room = 0
        self._last: list[set[int]] = []  # what no later call needs
        later = {root}
        for call in reversed(calls):
            self._last.append(call.slots() - later)
            later |= call.slots()
        self._last.reverse()

    def names(self) -> tuple[str, ...]:
        sources = [self.sources[slot] for slot in self.leaves]
        return tuple(f"{source.kind} {i} {tuple(source.copy.shape)}" for i, source in enumerate(sources))

    def run(self, leaves: tuple[torch.Tensor, ...]) -> torch.Tensor:
        tensors = {slot: source.copy.clone() if slot in self._altered else source.copy for slot, source in self.sources.items()}
        for slot, source in self.sources.items():
            if source.leaf:  # one that gets no gradient may be differentiated by on the way
                tensors[slot] = source.copy.detach().requires_grad_()
        for slot, leaf in zip(self.leaves, leaves, strict=True):
            tensors[slot] = leaf.view_as(leaf) if slot in self._altered else leaf  # a hook goes to the view: the leaf may come again
        with generators_restored() if self._random else contextlib.nullcontext(), Autocast() as autocast:
            for call, last in zip(self.calls, self._last, strict=True):
                autocast.become(call.autocast)
                call.run(tensors)
                for slot in last:
                    del tensors[slot]
        return tensors[self.root]

    # Whether it is what the step did

    def expect(self, seen: Iterable[Seen], room: int) -> None:
        """Before the backward: notes which leaves will get their first gradient by it, as far as there is room to keep these."""
        if _ranks() > 1:  # gradients will be those of all ranks together
            return
        leaves = set(self.leaves)
        for entry in seen:
            tensor = entry.tensor()
            if entry.slot in leaves and tensor is not None and tensor.grad is None:
                self._awaited[entry.slot] = tensor
        self._room = room

    def look(self, inputs: tuple[torch.Tensor, ...], result: Any) -> None:
        """After the backward: keeps these gradients."""
        found = dict(zip(map(id, inputs), result, strict=True)) if result is not None else {}
        for slot, leaf in self._awaited.items():
            gradient = found.get(id(leaf)) if found else leaf.grad
            size = 0 if gradient is None else gradient.numel() * gradient.element_size()
            if gradient is not None and size <= self._room:
                self._expected[slot] = gradient.detach().clone()
                self._room -= size
        self._awaited = {}

    def difference(self, replay: Replay) -> str:
        """In what the replay differs from the step; empty: in nothing that shows."""
        leaves = tuple(leaf.detach().clone().requires_grad_() for leaf in replay.leaves)
        try:
            with generators_restored(), torch.enable_grad():
                value = replay(*leaves)
                if not _same(value, self.value):
                    return (
                        f"the replayed loss is {value.item()!r}, the step had {self.value.item()!r}: something it depends on was not seen"
                    )
                gradients = torch.autograd.grad(value, leaves, allow_unused=True)
        except Exception as error:
            return f"the replay raised {type(error).__name__}: {error}"
        self.reached = tuple(slot for slot, gradient in zip(self.leaves, gradients, strict=True) if gradient is not None)
        for slot, name, gradient in zip(self.leaves, replay.names, gradients, strict=True):
            expected = self._expected.get(slot)
            if expected is not None and (off := _distance(gradient, expected)) > 0:
                return (
                    f"the replayed gradient of {name} is off by {off:.1e} of its size from the one that the step got: "
                    "something that it went through, such as a hook, was not seen"
                )
        return ""


def _same(value: torch.Tensor, other: torch.Tensor) -> bool:
    return value.dtype == other.dtype and bool(((value == other) | (value.isnan() & other.isnan())).all())


def _distance(gradient: torch.Tensor | None, expected: torch.Tensor) -> float:
    """Of two gradients, over the size of the second; zero if it is what kernels that add up in another order every time may make of it."""
    gradient = torch.zeros_like(expected) if gradient is None else gradient
    noise = math.sqrt(torch.finfo(expected.dtype).eps)
    gradient, expected = gradient.detach().to_dense().double(), expected.to_dense().double()
    if torch.equal(gradient.isfinite(), expected.isfinite()):
        gradient, expected = (torch.nan_to_num(tensor, 0.0, 0.0, 0.0) for tensor in (gradient, expected))
    off = float((gradient - expected).norm()) / (float(expected.norm()) or 1.0)
    return off if off > noise else 0.0


def is_seeded(value: Any) -> bool:
    """Whether a value is a generator of random numbers other than the global one."""
    return isinstance(value, torch.Generator) and value is not torch.default_generator


def _ranks() -> int:
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
