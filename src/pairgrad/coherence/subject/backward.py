"""What a backward supplies to the leaves: by `autograd.grad`, or through `.grad` where a backward runs another backward inside.

Reentrant checkpoints and reversible networks do that. The inner pass accumulates into `.grad` of whatever it reaches, so `autograd.grad` refuses it, or
misses what it accumulates.
"""

from __future__ import annotations

import functools
import gc
import inspect
import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.autograd.function import Function

from pairgrad.coherence.subject.sparse import values_at, values_of
from pairgrad.ground._torch_private import function_of, is_collective, is_generated

_REFUSED = "incompatible with .grad()"


class Leaves(tuple[torch.Tensor, ...]):
    """Leaves of a graph, with the way to read their gradients if it is not `autograd.grad`."""

    through: Accumulated | None = None


def supplied(
    outputs: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    cotangent: Sequence[torch.Tensor],
    *,
    create_graph: bool = False,
    retain_graph: bool | None = None,
    copy: bool = True,
) -> tuple[torch.Tensor, ...]:
    """What backward gives to each leaf, detached unless a graph was requested; zeros where it gives nothing."""
    pairs = [(output, weight) for output, weight in zip(outputs, cotangent, strict=True) if output.requires_grad]
    if not pairs:
        return tuple(torch.zeros_like(values_of(leaf.detach())) for leaf in leaves)
    reached = [output for output, _ in pairs]
    weights = [weight.to(output.dtype, copy=copy) for output, weight in pairs]  # a backward that edits it edits a copy
    options: dict[str, Any] = {"retain_graph": retain_graph, "create_graph": create_graph}
    through = leaves.through if isinstance(leaves, Leaves) else None
    if through is not None and not (create_graph and through.refused):
        gradients = through.gradients(reached, leaves, weights, **options)
    else:
        gradients = torch.autograd.grad(reached, list(leaves), weights, allow_unused=True, **options)
    found = tuple(_dense(leaf, g) for leaf, g in zip(leaves, gradients, strict=True))
    return found if create_graph else tuple(gradient.detach() for gradient in found)


def is_freed(tensor: torch.Tensor) -> bool:
    """Whether the memory behind a tensor was given back, by `storage.resize_(0)`; reading it would end the process."""
    if tensor.layout != torch.strided or not tensor.numel():
        return False
    last = tensor.storage_offset() + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.untyped_storage().nbytes() < (last + 1) * tensor.element_size()


def _dense(leaf: torch.Tensor, gradient: torch.Tensor | None) -> torch.Tensor:
    """A gradient as a tensor with all its numbers: zeros for none, and those that a sparse one leaves out. That of a sparse leaf is by its values."""
    if gradient is None:
        return torch.zeros_like(values_of(leaf.detach()))
    if leaf.layout != torch.strided:
        return values_at(gradient, leaf)
    return gradient if gradient.layout == torch.strided else gradient.to_dense()


class Accumulated:
    """Reads gradients from `.grad` after `autograd.backward`, and leaves `.grad` of every tensor as it was.

    An inner backward may reach tensors that are neither leaves nor in the graph, so all tensors alive that require a gradient are looked after.

    Attributes:
        refused: whether torch refuses `autograd.grad` here; then it refuses second derivatives too.
    """

    def __init__(self, *, refused: bool) -> None:
        self.refused = refused
        alive = [found for found in gc.get_objects() if issubclass(type(found), torch.Tensor)]
        self._alive = [weakref.ref(tensor) for tensor in alive if tensor.requires_grad and tensor.is_leaf]

    def gradients(
        self, outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], cotangent: Sequence[torch.Tensor], **options: Any
    ) -> list[torch.Tensor | None]:
        """As of `autograd.grad`; `leaves` need not have been alive before."""
        alive = [tensor for tensor in (reference() for reference in self._alive) if tensor is not None]
        with _Cleared([*alive, *leaves]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Using backward\\(\\) with create_graph=True")  # the cycle it warns of ends with this block
            torch.autograd.backward(outputs, cotangent, **options)
            return [leaf.grad for leaf in leaves]


class _Cleared:
    """Tensors with `.grad` set to None, and put back in the end: the same objects, which are not written to meanwhile."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._tensors = list({id(tensor): tensor for tensor in tensors}.values())

    def __enter__(self) -> _Cleared:
        self._before = [tensor.grad for tensor in self._tensors]
        for tensor in self._tensors:
            tensor.grad = None
        return self

    def touched(self) -> bool:
        """Whether any of the tensors has a gradient by now."""
        return any(tensor.grad is not None for tensor in self._tensors)

    def __exit__(self, *_: object) -> None:
        for tensor, gradient in zip(self._tensors, self._before, strict=True):
            tensor.grad = gradient


def way_to_gradients(outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], holders: Iterable[Any]) -> Accumulated | None:
    """How to read the gradients of the outputs, learned from one backward: None means `autograd.grad`.

    `holders` are the callable, its module and its arguments: an inner backward is noticed by the gradients of tensors found in them.
    """
    known = [*leaves, *(tensor for holder in holders for tensor in _tensors_of(holder))]
    with _Cleared(tensor for tensor in known if tensor.requires_grad and tensor.is_leaf) as watched:
        try:
            supplied(outputs, leaves, [torch.ones_like(output) for output in outputs])
        except RuntimeError as error:
            if _REFUSED not in str(error):
                raise
            return Accumulated(refused=True)
        return Accumulated(refused=False) if watched.touched() else None


def _tensors_of(holder: Any) -> list[torch.Tensor]:
    """A tensor, the parameters of a module, or those that a callable holds: as attributes, in its closure, among its globals, as bound arguments."""
    held = [holder]
    while isinstance(holder, functools.partial):
        held += [*holder.args, *holder.keywords.values(), holder.func]
        holder = holder.func
    if inspect.ismethod(holder):
        held += [holder.__self__, *getattr(holder.__self__, "__dict__", {}).values()]
        holder = holder.__func__
    if inspect.isfunction(holder):
        held += inspect.getclosurevars(holder).nonlocals.values()
        held += [holder.__globals__[name] for name in holder.__code__.co_names if name in holder.__globals__]
    elif not isinstance(holder, (torch.nn.Module, torch.Tensor)):
        held += getattr(holder, "__dict__", {}).values()
    modules = [value for value in held if isinstance(value, torch.nn.Module)]
    return [*(value for value in held if isinstance(value, torch.Tensor)), *(p for module in modules for p in module.parameters())]


def is_custom(function: type) -> bool:
    """Whether a Function is not part of torch: written by a user, or made by torch.library for an operator that is not a collective."""
    return not is_collective(function) if is_generated(function) else function.__module__.partition(".")[0] != "torch"


def custom_functions(outputs: Iterable[torch.Tensor]) -> list[type[Function]]:
    """The custom Functions in the graph of some outputs, each once."""
    waiting, seen, found = [output.grad_fn for output in outputs], set(), {}
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        function = function_of(node)
        if isinstance(function, type) and issubclass(function, Function) and is_custom(function):
            found[function] = None
        waiting += [following for following, _ in node.next_functions]
    return list(found)


def has_jvp(function: type[Function]) -> bool:
    """Whether a Function has a rule for forward mode; torch raises where it has none."""
    return function.jvp is not Function.jvp


def may_have_vmap(function: type[Function]) -> bool:
    """Whether a Function has a rule for vmap, or may have one, as a custom operator."""
    return is_generated(function) or function.generate_vmap_rule or function.vmap is not Function.vmap
