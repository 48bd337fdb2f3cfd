"""The gradient that belongs to a forward: custom backwards put aside, and their forward bodies differentiated instead.

A node y = f(x) whose backward supplies some b(x, u) gets u^T f'(x) in its place, by running the body of its forward again with autograd switched on. The
values do not change, only what is sent back. A body that leaves autograd on the way (numpy, `.data`, a kernel of its own) cannot be differentiated like
this: some such bodies raise, others give a gradient that misses what was hidden. Finite differences tell.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch.autograd.function import Function, FunctionCtx

from pairgrad.coherence.causes.nodes import (
    Interception,
    cloned,
    has_setup,
    is_generated,
    location_of,
    name_of,
    received,
    version_of,
)
from pairgrad.coherence.subject.autocast import Autocast, autocast_state
from pairgrad.coherence.subject.backward import is_custom
from pairgrad.coherence.subject.subject import generators_restored, rng_state, same_rng, set_rng_state
from pairgrad.ground.checks import describe

_REMEDY = "compare with finite differences, or pass an implementation of the same function made of torch operations"


class OpaqueForward(RuntimeError):
    """The forward body of a Function cannot be differentiated."""


@contextlib.contextmanager
def differentiated_forward(functions: Collection[type] | None = None) -> Iterator[None]:
    """Inside, custom Functions send back the derivative of their own forward body instead of what their backward says.

    Forward and backward both have to run inside. The body runs once more in each backward: on copies of the arguments as they were before the call, with the
    random numbers and the autocast of the first run, and with a context that goes nowhere. Functions applied inside a body are differentiated likewise.
    Higher derivatives and torch.func.grad, vjp and jacrev work too; torch.func.vmap over a Function does not, and raises. A body without a graph
    from its arguments to an output raises `OpaqueForward`, also where the derivative is truly zero (a comparison): autograd cannot tell the two apart.

    Args:
        functions: which ones; None: all outside torch. Operators made with torch.library are left alone, their body being opaque to autograd.
    """
    with _Forwards(None if functions is None else _checked(functions)):
        yield


def _checked(functions: Collection[type]) -> frozenset[type]:
    if isinstance(functions, type) or not isinstance(functions, Collection):
        raise TypeError(
            f"functions must be a collection of subclasses of torch.autograd.Function, got {describe(functions)}: wrap it in a list"
        )
    for function in functions:
        if not (isinstance(function, type) and issubclass(function, Function)):
            raise TypeError(
                f"functions must hold subclasses of torch.autograd.Function, got {describe(function)}: pass the class, not its apply"
            )
        if is_generated(function):
            raise ValueError(
                f"functions must not hold the Function of a torch.library operator, got {name_of(function)}: its body is opaque to autograd"
            )
    return frozenset(functions)


class _Forwards(Interception):
    """Replaces the backward of what it covers by the derivative of the forward body."""

    def __init__(self, functions: frozenset[type] | None) -> None:
        super().__init__()
        self._functions = functions

    def covers(self, function: type[Function]) -> bool:
        if self._functions is None:
            return is_custom(function) and not is_generated(function)
        return function in self._functions

    def remember(self, function: type[Function], ctx: Any, arguments: tuple[Any, ...]) -> _Run:
        return _Run(arguments)

    def forwarded(self, memory: _Run) -> None:
        memory.finished()

    def transformed(self, function: type[Function], inputs: tuple[Any, ...]) -> _Transformed:
        return _Transformed(inputs)

    def backward(self, function: type[Function], ctx: Any, memory: Any, original: Callable[..., Any], grads: tuple[Any, ...]) -> Any:
        if memory is None:
            raise RuntimeError(
                f"differentiated_forward must see the forward of {_where(function)} to differentiate it, got a backward alone: "
                "run forward and backward both inside, and loop over samples instead of torch.func.vmap"
            )
        forward, needs = self.original(function, "forward"), tuple(ctx.needs_input_grad)
        body = forward if has_setup(function) else lambda *arguments: forward(_Context(needs), *arguments)  # of its arguments alone
        try:
            return memory.pull(body, needs, received(function, grads))
        except OpaqueForward as error:
            if str(error):  # a Function inside the body has said so already
                raise
            raise OpaqueForward(
                f"the forward of {_where(function)} must be differentiable by autograd, got an output without a graph to its arguments: {_REMEDY}"
            ) from None
        except Exception as error:
            raise OpaqueForward(
                f"the forward of {_where(function)} must be differentiable by autograd, got {type(error).__name__}: {error}: {_REMEDY}"
            ) from error


def _where(function: type[Function]) -> str:
    return f"{name_of(function)} ({location_of(function) or 'unknown place'})"


class _Context(FunctionCtx):
    """Stands in for the context of a node: takes everything, is read by the body alone."""

    to_save: tuple[Any, ...] = ()

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        return self.to_save


class _Run:
    """One run of a forward: its arguments as they were before, and what else decides its result."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self._arguments = tuple(a.detach().clone() if isinstance(a, torch.Tensor) else a for a in arguments)
        self._sources = list(arguments)  # connected to the graph, for higher derivatives
        self._versions = tuple(map(version_of, arguments))
        self._random: tuple[Any, ...] | None = rng_state()
        self._autocast = autocast_state()

    def finished(self) -> None:
        """Keeps the state of the generators only if the run has drawn from them, and no argument that it edited, which may be its output by now."""
        assert self._random is not None
        if same_rng(self._random, rng_state()):
            self._random = None
        for i, version in enumerate(self._versions):
            if version_of(self._sources[i]) != version:
                self._sources[i] = None

    def pull(self, body: Callable[..., Any], needs: tuple[bool, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        again = torch.is_grad_enabled()  # the gradient is going to be differentiated
        with torch.enable_grad(), generators_restored() if self._random else contextlib.nullcontext(), Autocast() as autocast:
            autocast.become(self._autocast)
            if self._random is not None:
                set_rng_state(self._random)
            leaves: list[Any] = [None] * len(self._arguments)
            for i, wanted in enumerate(needs):
                if wanted:
                    leaves[i] = self._connected(i) if again else self._arguments[i].detach().requires_grad_()
            # the body may edit what it is given, which a leaf forbids and the memory must not see
            arguments = [cloned(a) if leaf is None else leaf.clone() for a, leaf in zip(self._arguments, leaves, strict=True)]
            outputs = body(*arguments)
            pairs = _pairs(outputs, cotangents)
            wanted = [leaf for leaf in leaves if leaf is not None]
            if not pairs or not wanted:
                return tuple(None if leaf is None else torch.zeros_like(leaf) for leaf in leaves)
            outputs, weights = zip(*pairs, strict=True)
            gradients = torch.autograd.grad(outputs, wanted, weights, create_graph=again, retain_graph=again, allow_unused=True)
        found = iter(torch.zeros_like(leaf) if gradient is None else gradient for leaf, gradient in zip(wanted, gradients, strict=True))
        return tuple(None if leaf is None else next(found) for leaf in leaves)

    def _connected(self, i: int) -> torch.Tensor:
        source = self._sources[i]
        if source is None or version_of(source) != self._versions[i]:
            raise ValueError(f"argument {i} was edited in place, so that the gradient cannot be differentiated again")
        return source.view_as(source)


class _Transformed:
    """A run of a forward under a torch.func transform, whose tensors only torch.func can differentiate."""

    def __init__(self, inputs: tuple[Any, ...]) -> None:
        self._inputs = inputs

    def pull(self, body: Callable[..., Any], needs: tuple[bool, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        places = [i for i, wanted in enumerate(needs) if wanted]
        kept: list[int] = []

        def partial(*differentiated: torch.Tensor) -> tuple[torch.Tensor, ...]:
            arguments = list(self._inputs)
            for i, value in zip(places, differentiated, strict=True):
                arguments[i] = value
            outputs = _tuple(body(*arguments))
            kept[:] = [i for i, (output, u) in enumerate(zip(outputs, cotangents, strict=True)) if _floating(output) and u is not None]
            return tuple(outputs[i] for i in kept)

        pull = torch.func.vjp(partial, *(self._inputs[i] for i in places))[1]
        gradients: list[Any] = [None] * len(needs)
        for i, gradient in zip(places, pull(tuple(cotangents[i] for i in kept)), strict=True):
            gradients[i] = gradient
        return tuple(gradients)


def _pairs(outputs: Any, cotangents: tuple[Any, ...]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Outputs with a graph, each with its cotangent; raises if there is a cotangent for one without a graph."""
    pairs = []
    for output, u in zip(_tuple(outputs), cotangents, strict=True):
        if u is None or not _floating(output):
            continue
        if output.requires_grad:
            pairs.append((output, u))
        elif bool((u != 0).any()):
            raise OpaqueForward
    return pairs


def _tuple(outputs: Any) -> tuple[Any, ...]:
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def _floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
