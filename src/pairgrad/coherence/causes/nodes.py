"""Custom backward nodes, caught in the act: what each was given, what came back to it and what it sent on, so that it can be audited alone.

A module that says `f = X.apply` at import time keeps `apply` for good, but torch looks up `forward`, `setup_context` and `backward` on the class at every
call. So these three (and `vjp`, the other name of `backward`) are what `Interception` replaces, for as long as it is entered.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction, Function, FunctionMeta
from torch.compiler import is_dynamo_compiling

from pairgrad.coherence.subject.autocast import Autocast
from pairgrad.coherence.subject.backward import is_custom
from pairgrad.coherence.subject.subject import generators_restored, set_rng_state
from pairgrad.ground._torch_private import (
    function_of,
    is_functorch_wrapped_tensor,
    is_generated,
    maybe_current_level,
    operator_functions,
    owner_of,
    pytree,
    sparse_values,
    version,
    with_values,
)
from pairgrad.ground.checks import describe

_FORWARD, _SETUP, _BACKWARD = "forward", "setup_context", ("backward", "vjp")
_METHODS = (_FORWARD, _SETUP, *_BACKWARD)
_CACHED = 64  # subclasses whose methods are kept ready
_LEAD = 4096  # elements in front of a view that are copied with it at least, if there are as many
_SPARSE_VIEW = 16  # a view that uses less than one element in so many is copied without what lies between
_ROUNDING = 2.0**10  # units of rounding by which two runs of one backward may differ


@dataclass(frozen=True, eq=False)
class Visit:
    """One backward of one node.

    Attributes:
        function: the subclass of torch.autograd.Function.
        name: its name; of a custom operator, the qualified name, such as "mylib::op".
        location: file and line of its forward; None if unknown.
        arguments: what forward got. Tensors are detached copies from before the call, in the same memory layout; those that the node was differentiated by
            require a gradient. Other objects are themselves.
        cotangents: what backward got, copied before the call, in the same memory layout; None where None came.
        gradients: copies of what backward returned.
        edited: positions of the arguments that forward edits in place.
        keywords: keyword-only arguments of a custom operator.
        autocast: the state of autocast, if it was on.
        random: the state of the random number generators before forward and before backward, each None if no number was drawn.
        detached: positions of the arguments that forward takes requires_grad away from.
    """

    function: type[Function]
    name: str
    location: str | None
    arguments: tuple[Any, ...]
    cotangents: tuple[Any, ...]
    gradients: tuple[Any, ...]
    edited: tuple[int, ...] = ()
    keywords: tuple[tuple[str, Any], ...] = ()
    autocast: tuple[Any, ...] | None = None
    random: tuple[Any, Any] = (None, None)
    detached: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} ({self.location or 'unknown place'}) at {', '.join(map(describe, self.arguments))}"


def replay(visit: Visit) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A callable and arguments that apply the node of a visit alone, under the autocast of the visit. The values of a sparse argument stand for it."""
    if not isinstance(visit, Visit):
        raise TypeError(f"visit must be a Visit, as visits() returns them, got {describe(visit)}")
    return _of_values(_applied(visit), visit)


def _applied(visit: Visit) -> Callable[..., Any]:
    """The node as it was called in the visit."""
    fn = _alone(visit)
    if visit.autocast is None:
        return fn
    state = visit.autocast

    def under(*args: Any) -> Any:
        with Autocast() as autocast:
            autocast.become(state)
            return fn(*args)

    under.__name__ = under.__qualname__ = visit.name
    return under


def _alone(visit: Visit) -> Callable[..., Any]:
    op = operator_of(visit.function)
    if op is not None:
        return functools.partial(op, **dict(visit.keywords)) if visit.keywords else op
    if not visit.edited and not visit.detached:
        return visit.function.apply

    def apply(*arguments: Any) -> Any:
        """A leaf may not be edited in place; a copy of it may, and has the same gradient. One that was detached is a leaf again for the next call."""
        flags = [arguments[i].requires_grad for i in visit.detached]
        output = visit.function.apply(*(cloned(a) if i in visit.edited else a for i, a in enumerate(arguments)))
        for i, flag in zip(visit.detached, flags, strict=True):
            if flag and arguments[i].is_leaf:
                arguments[i].requires_grad_()
        return output

    apply.__name__ = apply.__qualname__ = visit.name
    return apply


def _of_values(fn: Callable[..., Any], visit: Visit) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The same function of the values of sparse arguments, which can be moved where the pattern of their elements cannot."""
    flat, structure = pytree.tree_flatten(visit.arguments)
    patterns = {i: leaf.detach() for i, leaf in enumerate(flat) if isinstance(leaf, torch.Tensor) and leaf.layout != torch.strided}
    if not patterns:
        return fn, visit.arguments

    def apply(*arguments: Any) -> Any:
        leaves = pytree.tree_leaves(arguments)
        for i, pattern in patterns.items():
            leaves[i] = with_values(pattern, leaves[i])
        return fn(*pytree.tree_unflatten(leaves, structure))

    apply.__name__ = apply.__qualname__ = visit.name
    for i, pattern in patterns.items():
        flat[i] = sparse_values(pattern).clone().requires_grad_(flat[i].requires_grad)
    return apply, pytree.tree_unflatten(flat, structure)


def reproduced(visit: Visit) -> float | None:
    """How far off the node is when it is applied again to what it got in the visit: ||again - then|| / ||then|| of the gradients that it sends on.

    Returns:
        0 if they are equal up to rounding; None if the visit did not keep them. What the node raises goes through.
    """
    if not visit.gradients:
        return None
    given, structure = pytree.tree_flatten(visit.arguments)
    leaves = [copied(leaf).requires_grad_(leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf for leaf in given]
    wanted = [leaf if isinstance(leaf, torch.Tensor) and leaf.requires_grad else None for leaf in leaves]
    with generators_restored():
        again = _sent_on(_applied(visit), pytree.tree_unflatten(leaves, structure), [leaf for leaf in wanted if leaf is not None], visit)
    gap = size = 0.0
    eps = 0.0
    for leaf, then in zip(wanted, _aligned(visit.arguments, visit.gradients), strict=True):
        if leaf is not None:
            now = _plain_gradient(next(again), leaf)
            before = _plain_gradient(then, leaf)
            same = (now == before) | (now.isnan() & before.isnan())
            gap += float(torch.where(same, 0.0, now - before).abs().square().sum())
            size += float(torch.where(before.isfinite(), before, 0.0).abs().square().sum())
            eps = max(eps, torch.finfo(leaf.dtype).eps)
    if not gap:
        return 0.0
    off = math.sqrt(gap / size) if size > 0 and math.isfinite(gap) else math.inf
    return 0.0 if off <= _ROUNDING * eps else off


def _sent_on(fn: Callable[..., Any], arguments: Any, wanted: list[torch.Tensor], visit: Visit) -> Iterator[torch.Tensor | None]:
    """The gradients of some arguments, with the cotangents and the random numbers of a visit."""
    if visit.random[0] is not None:
        set_rng_state(visit.random[0])
    with torch.enable_grad():
        outputs = [output for output in pytree.tree_leaves(fn(*arguments)) if isinstance(output, torch.Tensor)]
    pairs = [
        (output, copied(cotangent))
        for output, cotangent in zip(outputs, pytree.tree_leaves(visit.cotangents), strict=False)
        if output.requires_grad and isinstance(cotangent, torch.Tensor)
    ]
    if visit.random[1] is not None:
        set_rng_state(visit.random[1])
    if not pairs or not wanted:
        return iter([None] * len(wanted))
    return iter(torch.autograd.grad([o for o, _ in pairs], wanted, [c for _, c in pairs], allow_unused=True))


def _aligned(arguments: Any, gradients: Any) -> Iterator[Any]:
    """The gradient of each leaf of the arguments, None for those that have none; a backward may return fewer or more than there are arguments."""
    for argument, gradient in itertools.zip_longest(arguments, gradients[: len(arguments)]):
        leaves = pytree.tree_leaves(argument)
        found = pytree.tree_leaves(gradient)
        yield from found if len(found) == len(leaves) else [None] * len(leaves)


def _plain_gradient(gradient: Any, leaf: torch.Tensor) -> torch.Tensor:
    """A gradient in the shape of its argument, with all its numbers, in double precision; autograd sums over dimensions that were broadcast."""
    dtype = torch.complex128 if leaf.is_complex() else torch.float64
    if not isinstance(gradient, torch.Tensor):
        return torch.zeros(leaf.shape, dtype=dtype, device=leaf.device)
    dense = gradient.detach()
    dense = dense if dense.layout == torch.strided else dense.to_dense()
    return dense.to(dtype).sum_to_size(leaf.shape)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A detached copy that lies in memory as the tensor does: with its strides, its offset, elements that share memory, and what lies between and before them.

    An offset of more than the view itself is shortened. Sparse tensors, and views that use a small part of the memory they span, are cloned.
    """
    plain = tensor.detach()
    extent = _extent(plain)
    if extent is None:
        return plain.clone()
    lead, used = extent
    memory = plain.as_strided((lead + used,), (1,), plain.storage_offset() - lead).clone()
    return memory.as_strided(plain.shape, plain.stride(), lead)


def copied_bytes(tensor: torch.Tensor) -> int:
    """What a copy made by `copied` takes; of a sparse tensor, as if it were dense."""
    extent = _extent(tensor)
    return tensor.element_size() * (tensor.numel() if extent is None else sum(extent))


def _extent(tensor: torch.Tensor) -> tuple[int, int] | None:
    """How many elements of memory in front of a tensor are copied with it, and how many it spans itself; None: a clone will do, or has to."""
    if tensor.layout != torch.strided or not tensor.numel() or (tensor.is_contiguous() and not tensor.storage_offset()):
        return None
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_quantized or is_functorch_wrapped_tensor(tensor):
        return None
    used = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    if tensor.is_conj() or tensor.is_neg() or used > _SPARSE_VIEW * tensor.numel() + _LEAD:
        return None
    return min(int(tensor.storage_offset()), max(used, _LEAD)), used


def cloned(argument: Any) -> Any:
    """A copy of a tensor, and everything else as it is."""
    return argument.clone() if isinstance(argument, torch.Tensor) else argument


def is_compiled(function: type) -> bool:
    """Whether torch.compile made the Function for a region."""
    return function.__name__ == "CompiledFunction" and function.__module__.startswith("torch.")


def operator_of(function: type[Function]) -> Any:
    """The operator that a generated Function belongs to; None if it is not a generated one."""
    return _free(function.forward).get("op") if is_generated(function) else None


def name_of(function: type[Function]) -> str:
    """The name of a Function, or of the operator that it was generated for."""
    op = operator_of(function)
    return function.__name__ if op is None else op.name()


def location_of(function: type[Function]) -> str | None:
    """Where the backward of a function is written, or its forward if that cannot be told: path from the working directory, or from the root, and line."""
    candidates: list[Any] = [function.backward, function.forward]
    if is_generated(function):
        candidates = operator_functions(_free(function.forward).get("info"))
    for candidate in candidates:
        code = getattr(_plain(candidate), "__code__", None)
        if code is not None:
            try:
                path, here = os.path.abspath(code.co_filename), Path.cwd()
            except OSError:  # the working directory is gone
                return f"{code.co_filename}:{code.co_firstlineno}"
            if Path(path).is_relative_to(here):
                path = str(Path(path).relative_to(here))
            return f"{path}:{code.co_firstlineno}"
    return None


def _plain(fn: Any) -> Any:
    """The Python function under methods, partial applications and decorators that say what they wrap."""
    while inner := getattr(fn, "__func__", None) or getattr(fn, "__wrapped__", None) or getattr(fn, "func", None):
        fn = inner
    return fn


def _free(fn: Any) -> dict[str, Any]:
    """What a closure holds, and what the closures hold that it holds: the operator of a generated Function is nowhere else."""
    plain, found = _plain(fn), {}
    code, cells = getattr(plain, "__code__", None), getattr(plain, "__closure__", None)
    if code is None or not cells:
        return found
    for name, cell in zip(code.co_freevars, cells, strict=True):
        content = cell.cell_contents
        if name == "orig_forward":  # of an operator on lists of tensors
            found |= _free(content)
        found[name] = content
    return found


_watching: list[Interception] = []  # those that are entered
_plain_init: list[Any] = []  # FunctionMeta.__init__ as it was, while any is


class Interception:
    """Entered, it stands around the forward and backward of every Function it covers, those defined meanwhile included.

    Subclasses say what to `remember` before the body of a forward runs, and what the backward does with it. What a class holds in its `__dict__` is the
    very object it held before, once the interception is left. A method that somebody took from a class meanwhile goes on as if it never had been here.

    Whether a call of forward is that of a node shows by its context: it belongs to the class the method was looked up on, and is not the one whose forward
    runs. (A forward may call that of its parent, with the same context.) Where forward gets no context, setup_context does, right after forward has
    returned. An attribute of a context costs more than all the rest, so that a context without memory gets none.
    """

    _numbers = itertools.count()

    def __init__(self) -> None:
        self._active = False
        self._slot = f"_pairgrad_{next(self._numbers)}"  # the attribute of a context that holds its memory
        self._pending = _Pending()
        self._patched: list[tuple[weakref.ref[type], str]] = []
        self._alive = 512

    # For subclasses

    def covers(self, function: type[Function]) -> bool:
        return is_custom(function)

    def remember(self, function: type[Function], ctx: Any, arguments: tuple[Any, ...]) -> Any:
        """Before the body of a forward; ctx is None if the forward gets none. None: the node is left alone."""

    def forwarded(self, memory: Any) -> None:
        """After the body of the forward."""

    def set_up(self, memory: Any, ctx: Any) -> Any:
        """The memory of a node whose forward got no context, when it has one."""
        return memory

    def transformed(self, function: type[Function], inputs: tuple[Any, ...]) -> Any:
        """Memory for a node that a torch.func transform makes for `function`; None: leave it alone."""
        return None

    def backward(self, function: type[Function], ctx: Any, memory: Any, original: Callable[..., Any], grads: tuple[Any, ...]) -> Any:
        """In place of the backward; memory is None if the context has none."""
        raise NotImplementedError

    # Entering and leaving

    def __enter__(self) -> Any:
        self._active = True
        try:
            for function in list(_subclasses(Function)):
                self._patch(function)
            self._watch_definitions()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._active = False
        if self in _watching:
            _watching.remove(self)
        if not _watching and _plain_init:
            type.__setattr__(FunctionMeta, "__init__", _plain_init.pop())
        for reference, name in self._patched:
            owner = reference()
            if owner is not None:
                _unlink(owner, name, self)
        self._patched.clear()

    def _watch_definitions(self) -> None:
        _watching.append(self)
        if _plain_init:
            return
        plain = FunctionMeta.__dict__["__init__"]
        _plain_init.append(plain)

        @functools.wraps(plain)
        def watched(function: Any, *args: Any, **kwargs: Any) -> None:
            plain(function, *args, **kwargs)
            if issubclass(function, Function):
                for interception in _watching:
                    interception._patch(function)

        type.__setattr__(FunctionMeta, "__init__", watched)

    def _patch(self, function: type[Function]) -> None:
        """Replaces the methods where they are defined: on the function, its parents or what is mixed in."""
        if not self.covers(function):
            return
        for owner in function.__mro__:
            if issubclass(Function, owner) or owner.__module__ == Function.__module__:
                continue
            for name in _METHODS:
                raw = vars(owner).get(name)
                if raw is not None and not _is_linked(raw, self):
                    type.__setattr__(owner, name, _Method(self, name, raw))
                    self._patched.append((weakref.ref(owner), name))
        if len(self._patched) > 2 * self._alive:  # classes made anew at every step come and go
            self._patched = [entry for entry in self._patched if entry[0]() is not None]
            self._alive = max(512, len(self._patched))

    def original(self, function: type[Function], name: str) -> Callable[..., Any]:
        """A method as it was before any interception."""
        for owner in function.__mro__:
            raw = vars(owner).get(name)
            if raw is not None:
                while isinstance(raw, _Method):
                    raw = raw.raw
                return _bound(raw, None, function)
        raise AttributeError(f"{function.__name__} has no {name}")

    # The methods

    def around(self, name: str, function: type[Function], original: Callable[..., Any]) -> Callable[..., Any]:
        around = {_FORWARD: self._around_forward, _SETUP: self._around_setup}.get(name, self._around_backward)(function, original)

        @functools.wraps(original)
        def method(*args: Any, **kwargs: Any) -> Any:
            if is_dynamo_compiling():  # Dynamo follows the original alone, and makes nothing of what `around` holds
                return original(*args, **kwargs)
            return around(*args, **kwargs)

        if name == _FORWARD:
            with contextlib.suppress(TypeError, ValueError):  # torch reads it at every call of a forward without a context
                method.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
        return method

    # These run at every call, also of nodes that are passed by: few calls of Python functions.

    def _around_forward(self, function: type[Function], original: Callable[..., Any]) -> Callable[..., Any]:
        split, pending, remember = has_setup(function), self._pending, self.remember
        single = (
            sum(_FORWARD in vars(owner) for owner in function.__mro__ if not issubclass(Function, owner)) == 1
        )  # no parent's forward to call

        def forward(*args: Any, **kwargs: Any) -> Any:
            if not self._active or kwargs or (maybe_current_level() is not None and any(map(is_wrapped, args))):
                return original(*args, **kwargs)
            if split:
                memory = remember(function, None, args)
                output = original(*args)
                self.forwarded(memory)
                pending.entry = tuple(map(id, args)), memory  # not the arguments: nobody knows whether setup_context will follow
                return output
            ctx = args[0] if args else None
            if not isinstance(ctx, BackwardCFunction) or owner_of(ctx) is not function or (not single and pending.running == id(ctx)):
                return original(*args)
            memory = remember(function, ctx, args[1:])
            if memory is None and single:
                return original(*args)
            if memory is not None:
                setattr(ctx, self._slot, memory)
            outer, pending.running = pending.running, id(ctx)
            try:
                output = original(*args)
            finally:
                pending.running = outer
            if memory is not None:
                self.forwarded(memory)
            return output

        return forward

    def _around_setup(self, function: type[Function], original: Callable[..., Any]) -> Callable[..., Any]:
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
            if not self._active:
                return original(ctx, inputs, output)
            if self._is_new_node(function, ctx):
                arguments, memory = self._pending.entry
                self._pending.entry = (), None
                if memory is not None and arguments == tuple(map(id, inputs)):
                    memory = self.set_up(memory, ctx)
                    if memory is not None:
                        setattr(ctx, self._slot, memory)
            elif _is_transformed(ctx) and not hasattr(ctx, self._slot):
                memory = self.transformed(function, inputs)
                if memory is not None:
                    setattr(ctx, self._slot, memory)
            return original(ctx, inputs, output)

        return setup_context

    def _around_backward(self, function: type[Function], original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(ctx: Any, *grads: Any) -> Any:
            if not self._active:
                return original(ctx, *grads)
            if isinstance(ctx, BackwardCFunction) and owner_of(ctx) is not function and not _is_transformed(ctx):
                return original(ctx, *grads)  # the backward of another class calls this one
            return self.backward(function, ctx, getattr(ctx, self._slot, None), original, grads)

        return backward

    def _is_new_node(self, function: type[Function], ctx: Any) -> bool:
        return function_of(ctx) is function and isinstance(ctx, BackwardCFunction) and not hasattr(ctx, self._slot)


class _Pending(threading.local):
    """What a thread is in the middle of."""

    entry: tuple[tuple[int, ...], Any] = (), None  # of a forward without a context: which arguments it got, and its memory
    running: int = 0  # id of the context whose forward runs


class _Method:
    """A replaced method in the `__dict__` of a class. Looked up on a class, it gives the original, bound to that class, with the interception around it."""

    def __init__(self, interception: Interception, name: str, raw: Any) -> None:
        self.interception, self.name, self.raw = interception, name, raw
        self._around: dict[type, tuple[Callable[..., Any], Callable[..., Any]]] = {}  # the original, and what stands around it

    def __reduce__(self) -> Any:
        """Pickled with its class, it is what it stands around."""
        return _itself, (self.raw,)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            known = self._around.get(owner)
            if known is not None:
                return known[self.interception._active]
        original = _bound(self.raw, instance, owner)
        if instance is not None or not (isinstance(owner, type) and issubclass(owner, Function) and self.interception.covers(owner)):
            return original
        if len(self._around) >= _CACHED:  # classes made anew at every step must not live on here
            self._around.clear()
        around = self.interception.around(self.name, owner, original)
        self._around[owner] = original, around
        return around if self.interception._active else original


def _itself(value: Any) -> Any:
    return value


def _is_linked(raw: Any, interception: Interception) -> bool:
    """Whether an interception is among those around a method."""
    while isinstance(raw, _Method):
        if raw.interception is interception:
            return True
        raw = raw.raw
    return False


def _unlink(owner: type, name: str, interception: Interception) -> None:
    """Takes an interception off a method, from within others that came later if there are any."""
    method = vars(owner).get(name)
    if isinstance(method, _Method) and method.interception is interception:
        type.__setattr__(owner, name, method.raw)
        return
    while isinstance(method, _Method):
        inner = method.raw
        if isinstance(inner, _Method) and inner.interception is interception:
            method.raw = inner.raw
            method._around.clear()  # they hold the one that is gone
            return
        method = inner


def _bound(raw: Any, instance: Any, owner: Any) -> Any:
    """What a lookup gives for an entry of a class `__dict__`."""
    bind = getattr(type(raw), "__get__", None)
    return raw if bind is None else bind(raw, instance, owner)


def has_setup(function: type[Function]) -> bool:
    """Whether forward comes without a context, which setup_context gets instead."""
    return function.setup_context is not Function.setup_context


def _subclasses(base: type) -> Iterator[type[Any]]:
    seen: set[type] = set()
    pending = [base]
    while pending:
        for found in type.__subclasses__(pending.pop()):
            if found not in seen:
                seen.add(found)
                pending.append(found)
                yield found


def _is_transformed(ctx: Any) -> bool:
    """Whether the context is of a node that a torch.func transform put in the place of a Function."""
    maker = function_of(ctx)
    return isinstance(ctx, BackwardCFunction) and isinstance(maker, type) and not issubclass(maker, Function)


def is_wrapped(value: Any) -> bool:
    """Whether a transform of `torch.func` holds this tensor."""
    return isinstance(value, torch.Tensor) and is_functorch_wrapped_tensor(value)


def version_of(value: Any) -> int | None:
    """Counts the in-place edits of a tensor; None where nothing counts them."""
    return version(value) if isinstance(value, torch.Tensor) and not value.is_inference() else None


def received(function: type[Function], grads: tuple[Any, ...]) -> tuple[Any, ...]:
    """The cotangents, which some Functions ask for in one list."""
    return tuple(grads[0]) if getattr(function, "boxed_grads_call", False) and len(grads) == 1 else grads
