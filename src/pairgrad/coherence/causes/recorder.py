"""Which visits of custom backwards are kept, and copies of what they were about: an even draw from all of them, in bounded memory.

Whether a visit is kept is decided before its forward, so that one that is not costs a few microseconds and no copy.
"""

from __future__ import annotations

import copy
import math
import random
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.autograd.function import Function

from pairgrad.coherence.causes.nodes import (
    Interception,
    Visit,
    copied,
    copied_bytes,
    is_compiled,
    is_generated,
    is_wrapped,
    location_of,
    name_of,
    received,
    version_of,
)
from pairgrad.coherence.subject.autocast import autocast_state
from pairgrad.coherence.subject.backward import is_custom
from pairgrad.coherence.subject.subject import rng_state, same_rng
from pairgrad.ground._torch_private import current_backward, is_collective, maybe_current_level, operator_metadata, pytree, sparse_parts
from pairgrad.ground.checks import describe, integer_at_least
from pairgrad.ground.devices import autocast_types

UNBOUNDED = 2**62
_PRUNED = 1024  # visits under way at which those that are over are forgotten


def visits(run: Callable[[], object], limit: int = 8) -> list[Visit]:
    """Calls `run`, which makes a forward and a backward, and returns the custom nodes whose backward ran, in the order in which they did.

    The results of `run` keep their bits. Nodes of torch itself are left out, except for operators made with torch.library. Nodes inside a region compiled
    by torch.compile, and those made by torch.func transforms, are not seen.

    Args:
        run: called once, without arguments.
        limit: how many visits to keep of each function: the first half of them the earliest, the others drawn evenly from all that follow, always the
            same ones in the same run.
    """
    if not callable(run):
        raise TypeError(f"run must be a callable without arguments that makes a forward and a backward, got {describe(run)}")
    limit = integer_at_least("limit", limit, 1)
    with Recorder(limit, first=(limit + 1) // 2) as recorder:
        run()
    return recorder.visits()


class Draw:
    """Places for `limit` of many: the first `first` for the earliest, the others for an even draw from all that follow, skip by skip (Li's algorithm L)."""

    def __init__(self, limit: int, first: int = 0, seed: int = 0) -> None:
        self.limit, self.first, self.seen = limit, first, 0
        self.random = random.Random(seed)
        self._weight, self.next = 1.0, limit  # the number of the next one that gets a place, after the first `limit`
        self._skip()

    def place(self) -> int | None:
        """Where the next one goes, in place of what is there; None: nowhere."""
        index = self.seen
        self.seen = index + 1
        if index < self.limit:
            return index
        if index < self.next:
            return None
        self.next += 1
        self._skip()
        return self.random.randrange(self.first, self.limit)

    def state(self) -> tuple[Any, ...]:
        """To go back to, with `undo`."""
        used = self.seen >= self.limit and self.seen >= self.next
        return self.seen, self._weight, self.next, self.random.getstate() if used else None

    def undo(self, state: tuple[Any, ...]) -> None:
        """As if the last one had not come."""
        self.seen, self._weight, self.next, numbers = state
        if numbers is not None:
            self.random.setstate(numbers)

    def shrink(self, limit: int) -> None:
        """Goes on with fewer places, for an even draw from those drawn so far."""
        self.limit, self.first = limit, min(self.first, limit)
        if limit > self.first and self.seen > limit:
            self._weight = self.random.betavariate(limit - self.first, self.seen - limit + 1)
        self.next = max(self.seen, limit)
        self._skip()

    def _skip(self) -> None:
        if self.limit <= self.first:
            self.next = UNBOUNDED
            return
        self._weight *= math.exp(math.log(1.0 - self.random.random()) / (self.limit - self.first))
        self.next += int(math.log(1.0 - self.random.random()) / math.log1p(-self._weight)) if self._weight < 1 else 0


def key_of(function: type[Function]) -> str:
    """The same for classes that are made anew from the same code."""
    return f"{function.__module__}.{function.__qualname__} {location_of(function)}"


class Kept:
    """One function: how often it was met, and the visits that are kept of it."""

    def __init__(self, function: type[Function], key: str, limit: int, first: int, seed: int) -> None:
        self.key = key
        self.name, self.location = name_of(function), location_of(function)
        self.draw = Draw(limit, first, seed)
        self.backwards = 0  # how often its backward ran
        self.visits: dict[int, tuple[int, int, Taken]] = {}  # by place: number of the backward, order among all
        self.largest = 0  # bytes that one visit takes
        self.refused = 0  # visits drawn that did not fit
        self.trouble = ""  # what kept a visit from being kept

    def thin_out(self) -> None:
        """Halves the places, and lets go of visits at random."""
        self.draw.shrink(max(1, min(self.draw.limit, len(self.visits)) // 2))
        places = sorted(self.visits)
        self.draw.random.shuffle(places)
        self.visits = {new: self.visits[old] for new, old in enumerate(places[: self.draw.limit])}


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Taken:
    """Copies of what a node was given, before its forward ran, and then of what its backward got and returned."""

    kept: Kept
    place: int
    function: type[Function]
    arguments: Any
    size: int
    before: Any
    whole: bool  # whether what the backward gets and returns is kept too
    edited: tuple[int, ...] = ()
    cotangents: tuple[Any, ...] = ()
    gradients: tuple[Any, ...] = ()
    done: bool = False
    extra: Any = None
    autocast: tuple[Any, ...] | None = None
    random: tuple[Any, Any] = (None, None)
    detached: tuple[int, ...] = ()
    watched: list[tuple[int, torch.Tensor, bool, int | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if any(map(torch.is_autocast_enabled, autocast_types())):
            self.autocast = autocast_state()
        given, self.arguments = self.arguments, []
        for i, argument in enumerate(given):
            if isinstance(argument, torch.Tensor):
                self.arguments.append(copied(argument))
                self.watched.append((i, argument, argument.requires_grad, version_of(argument)))
            else:
                self.arguments.append(argument if isinstance(argument, _PLAIN) else pytree.tree_map(_copy, argument))
        if self.whole:
            self.random = rng_state(), None

    def look(self) -> None:
        """Notes which arguments ask for a gradient and which the forward edited, and lets go of them."""
        self.random = _if_drawn(self.random[0]), None
        for i, argument, asking, version in self.watched:
            if asking:
                self.arguments[i].requires_grad_()
            if asking and not argument.requires_grad:
                self.detached = (*self.detached, i)
            if version_of(argument) != version:
                self.edited = (*self.edited, i)
        self.watched = []

    def differentiated_by(self, needed: Iterable[bool]) -> None:
        """Which arguments the node sends gradients to is known to its context; the flag of a tensor may have changed since."""
        for argument, needs in zip(self.arguments, needed, strict=False):
            if isinstance(argument, torch.Tensor) and (argument.is_floating_point() or argument.is_complex()):
                argument.requires_grad_(needs)

    def visit(self) -> Visit:
        arguments: Any = tuple(self.arguments)
        cotangents, gradients, keywords = self.cotangents, self.gradients, ()
        if is_generated(self.function):  # torch appends what it needs itself to the arguments of the operator
            lists = self.extra
            if lists is not None and arguments and type(arguments[-1]) is type(lists):
                given = len(arguments)
                arguments = pytree.tree_unflatten(list(arguments[:-1]), lists.input_spec)
                gradients = pytree.tree_unflatten(list(gradients[: given - 1]), lists.input_spec) if gradients else ()
                cotangents = pytree.tree_unflatten(list(cotangents), lists.output_spec) if cotangents else ()
            keywords = tuple(getattr(arguments[-1], "keyword_only_args", {}).items())
            arguments, gradients = arguments[:-1], gradients[:-1]
        return Visit(
            self.function,
            self.kept.name,
            self.kept.location,
            arguments,
            cotangents,
            gradients,
            self.edited,
            keywords,
            self.autocast,
            self.random,
            self.detached,
        )


def _if_drawn(before: Any) -> Any:
    """A state of the generators, if numbers were drawn since."""
    return None if before is None or same_rng(before, rng_state()) else before


_recording: weakref.WeakSet[Recorder] = weakref.WeakSet()  # recorders of runs, which are not to see what audits call


@contextmanager
def recordings_paused() -> Iterator[None]:
    """Nothing is recorded of any run meanwhile."""
    running = [recorder for recorder in _recording if recorder._active]
    for recorder in running:
        recorder._active = False
    try:
        yield
    finally:
        for recorder in running:
            recorder._active = True


_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)  # that nobody can change
_REACHED = torch.ones(())  # stands for a cotangent that is not zero


class Recorder(Interception):
    """Keeps visits while it is entered; entered again, it goes on.

    Args:
        limit: how many of each function.
        first: that many of them are the earliest.
        whole: that many of them with what the backward got and returned; the others only with what the forward was given.
        memory: bytes that copies may take. If they do not suffice, fewer visits are kept, of the function that takes most.
        seed: of the draw.
        of_run: whether it is to see nothing of what audits call.
    """

    def __init__(
        self, limit: int, *, first: int = 0, whole: int = UNBOUNDED, memory: int = UNBOUNDED, seed: int = 0, of_run: bool = False
    ) -> None:
        super().__init__()
        if of_run:
            _recording.add(self)
        self._limit, self._first, self._whole, self._memory, self._seed = limit, first, whole, memory, seed
        self._lock = threading.Lock()  # backward runs in one thread per device
        self.left_out: set[tuple[str, str | None]] = set()  # names and locations of functions that are not to be recorded
        self.clear()

    def pause(self, paused: bool) -> None:
        """While it is paused, methods go straight to what they stand around."""
        self._active = not paused

    def clear(self) -> None:
        """Forgets every visit."""
        self._of_class: dict[type[Function], Kept] = {}
        self.functions: dict[str, Kept] = {}
        self.compiled = 0  # calls of regions compiled by torch.compile
        self.collectives: set[str] = set()  # names of operators of torch.distributed
        self._bytes = 0  # at most this many are held
        self._under_way: list[weakref.ref[Taken]] = []  # between forward and backward
        self.passes = 0  # backward passes with a custom node in them
        self._pass = -1
        self._order = 0

    def visits(self) -> list[Visit]:
        entries = sorted((entry for kept in self.functions.values() for entry in kept.visits.values()), key=lambda entry: entry[1])
        return [taken.visit() for _, _, taken in entries]

    def _identify(self, function: type[Function]) -> Kept:
        """Classes made anew from the same code are one function."""
        with self._lock:
            key = key_of(function)
            if key not in self.functions:
                self.functions[key] = Kept(function, key, self._limit, self._first, self._seed)
            if len(self._of_class) >= 64:  # classes made anew at every step must not live on here
                self._of_class.clear()
            self._of_class[function] = found = self.functions[key]
            return found

    def covers(self, function: type[Function]) -> bool:
        return is_custom(function) or is_compiled(function) or is_collective(function)

    def remember(self, function: type[Function], ctx: Any, arguments: tuple[Any, ...]) -> Any:
        """A `Taken` if the visit is kept; None if it is passed by, or the `Kept` of its function where it is not known yet whether a backward will come."""
        kept = self._of_class.get(function)
        if kept is None:
            if not is_custom(function):
                self._pass_by(function)
                return None
            kept = self._identify(function)
        if ctx is not None and not ctx.next_functions:  # no backward will come
            return None
        draw, taken = kept.draw, None
        if draw.limit <= draw.seen < draw.next:  # passed by, as most are
            draw.seen += 1
        else:
            taken = self._drawn(kept, function, arguments)
        return kept if ctx is None and taken is None else taken

    def _pass_by(self, function: type[Function]) -> None:
        """A node that is counted, and not recorded."""
        if is_compiled(function):
            self.compiled += 1
        else:
            self.collectives.add(name_of(function))

    def _drawn(self, kept: Kept, function: type[Function], arguments: tuple[Any, ...]) -> Taken | None:
        before = kept.draw.state()
        place = kept.draw.place()
        if place is None or (self.left_out and (kept.name, kept.location) in self.left_out):
            return None
        try:
            return self._take(kept, place, function, arguments, before)
        except Exception as error:  # the run goes on, whatever happens to its recording
            kept.trouble = f"its arguments cannot be kept: {type(error).__name__}: {error}"
            return None

    def _take(self, kept: Kept, place: int, function: type[Function], arguments: tuple[Any, ...], before: Any) -> Taken | None:
        if torch.compiler.is_compiling():  # torch.export, with tensors that hold no numbers
            return None
        size = _bytes(arguments)
        wanted = size if place >= self._whole else 3 * size  # cotangents and gradients are about as large
        if self._bytes + wanted > self._memory and not self._make_room(kept, wanted):
            return None
        taken = Taken(kept, place, function, arguments, wanted, before, place < self._whole)
        self._bytes += wanted
        self._under_way.append(weakref.ref(taken))
        if len(self._under_way) >= _PRUNED:
            self._bytes = self.held()
        return taken

    def set_up(self, memory: Any, ctx: Any) -> Any:
        """Forwards without a context are drawn before it is known whether a backward will come."""
        if isinstance(memory, Taken):
            if ctx.next_functions:
                return memory
            memory.kept.draw.undo(memory.before)
        elif not ctx.next_functions:
            memory.draw.seen -= 1
        return None

    def held(self) -> int:
        """Bytes of all copies."""
        self._under_way = [reference for reference in self._under_way if (taken := reference()) is not None and not taken.done]
        waiting = sum(taken.size for reference in self._under_way if (taken := reference()) is not None)
        return waiting + sum(taken.size for kept in self.functions.values() for _, _, taken in kept.visits.values())

    def _make_room(self, wanting: Kept, size: int) -> bool:
        """Whether there is room for `size` bytes, after thinning out whoever holds most."""
        with self._lock:
            wanting.largest = max(wanting.largest, size)
            self._bytes = self.held()
            while self._bytes + size > self._memory:
                holding = [kept for kept in self.functions.values() if len(kept.visits) > 1]
                if not holding:
                    wanting.refused += 1
                    return False
                max(holding, key=lambda kept: sum(taken.size for _, _, taken in kept.visits.values())).thin_out()
                self._bytes = self.held()
            return True

    def forwarded(self, memory: Any) -> None:
        if isinstance(memory, Taken):
            memory.look()

    def backward(self, function: type[Function], ctx: Any, memory: Any, original: Callable[..., Any], grads: tuple[Any, ...]) -> Any:
        current = current_backward()
        if current != self._pass:
            self._pass = current
            self.passes += 1
        kept = self._of_class.get(function)
        if kept is None and memory is not None:
            kept = self._identify(function)
        if kept is None or (maybe_current_level() is not None and any(map(is_wrapped, grads))):
            return original(ctx, *grads)
        with self._lock:
            number = kept.backwards
            kept.backwards = number + 1
        if memory is None or memory.done:  # passed by; a second backward through one graph is no visit of its own
            return original(ctx, *grads)
        self._guarded(memory, self._before, memory, ctx, received(function, grads))
        result = original(ctx, *grads)
        self._guarded(memory, self._after, kept, memory, number, ctx, result)
        return result

    def _guarded(self, memory: Taken, do: Callable[..., None], *args: Any) -> None:
        """The run goes on, whatever happens to its recording."""
        try:
            do(*args)
        except Exception as error:
            memory.done, memory.kept.trouble = True, f"its gradients cannot be kept: {type(error).__name__}: {error}"

    def _before(self, memory: Taken, ctx: Any, grads: tuple[Any, ...]) -> None:
        memory.differentiated_by(getattr(ctx, "needs_input_grad", ()))
        if memory.whole:
            memory.cotangents, memory.random = _detached(grads), (memory.random[0], rng_state())
        elif len(grads) > 1:
            memory.cotangents = tuple(_REACHED if is_reached(grad) else None for grad in grads)

    def _after(self, kept: Kept, memory: Taken, number: int, ctx: Any, result: Any) -> None:
        if memory.done:
            return
        if memory.whole:
            memory.random = memory.random[0], _if_drawn(memory.random[1])
            memory.gradients = _detached(result if isinstance(result, tuple) else (result,))
            size = _bytes(memory.arguments) + _bytes(memory.cotangents) + _bytes(memory.gradients)
            if size > memory.size and self._bytes + size - memory.size > self._memory:
                memory.cotangents, memory.gradients, size = (), (), _bytes(memory.arguments)
            self._bytes, memory.size = self._bytes + size - memory.size, size
        with self._lock:
            memory.done, memory.extra = True, operator_metadata(ctx)
            order, self._order = self._order, self._order + 1
            if memory.place < kept.draw.limit:  # there may be fewer places by now
                kept.visits[memory.place] = number, order, memory


def is_reached(grad: Any) -> bool:
    """Whether a gradient came back to an output; the zeros that torch puts in its place do not count."""
    return any(bool((part != 0).any()) for part in pytree.tree_leaves(grad) if isinstance(part, torch.Tensor))


def _bytes(values: Iterable[Any]) -> int:
    total = 0
    for value in values:
        if isinstance(value, torch.Tensor):
            parts = sparse_parts(value) if value.layout == torch.sparse_coo else (value,)
            total += sum(map(copied_bytes, parts))
        elif isinstance(value, torch.nn.Module):
            total += _bytes((*value.parameters(), *value.buffers()))
        elif not isinstance(value, _PLAIN):
            total += sum(leaf.nbytes for leaf in pytree.tree_leaves(value) if isinstance(leaf, (torch.Tensor, np.ndarray)))
    return total


def _detached(values: tuple[Any, ...]) -> Any:
    if any(isinstance(value, (list, tuple, dict)) for value in values):
        return pytree.tree_map(_copy, values)
    return tuple(map(_copy, values))


def _copy(value: Any) -> Any:
    """Of what a call may change: the run must not see what audits do to it."""
    if isinstance(value, torch.Tensor):
        return copied(value)
    if isinstance(value, torch.Generator):
        return value.clone_state()
    if isinstance(value, (np.ndarray, torch.nn.Module)):
        return copy.deepcopy(value)
    return value
