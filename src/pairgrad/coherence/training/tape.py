"""One training step as a tape of torch calls, so that its loss can be computed again, away from training, as a function of its parameters.

While a `Tape` is on, it sees every torch function, tensor method and `Function.apply` of its thread, and keeps those that involve a tensor which requires
a gradient, or one that comes from such a tensor. Tensors that come from elsewhere (inputs, labels, buffers) are copied when they are first met. When a
gradient is asked of a loss, the tape ends, is cut down to what the loss depends on, and takes itself off.

What a step takes through Python (`.item()`, numpy, a branch on a value) stays as it was: the loss is computed again along the branch that the step took. It
is a function of the parameters that the step got a gradient for; others, of a frozen or a target network, stay as they were.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import Function
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointFunction

from pairgrad.coherence.causes.nodes import version_of
from pairgrad.coherence.subject.autocast import autocast_state
from pairgrad.coherence.subject.backward import is_custom
from pairgrad.coherence.subject.subject import rng_state, same_rng
from pairgrad.coherence.training.step import Call, Group, Replay, Seen, Slot, Source, Step
from pairgrad.ground._torch_private import (
    apply_owner,
    compiled_region_functions,
    default_device_mode,
    dispatch_modes,
    is_ddp_sink,
    is_functorch_wrapped_tensor,
    operator_name,
    pop_function_modes,
    push_function_mode,
    pytree,
    storage_address,
)
from pairgrad.ground.checks import integer_at_least
from pairgrad.ground.devices import capturing_graph, device_random_state

CALLS = 20_000  # of a step, at most
MEMORY = 1 << 30  # bytes that the copies of one tape may take unless the caller says otherwise
NO_LOSS = "no gradient was asked of a loss while the tape was on"
COMPILED = ", such as one in a region compiled by torch.compile"

_MIB = 1 << 20
_TENSOR: Any = torch.Tensor
_GRAD = {getattr(_TENSOR.grad, name) for name in ("__get__", "__set__", "__delete__")}
_QUERIES = {_TENSOR.dim, _TENSOR.size, _TENSOR.numel, _TENSOR.stride, _TENSOR.is_contiguous, _TENSOR.is_floating_point, _TENSOR.__len__}
_ASIDE = {_TENSOR.retain_grad, *_GRAD, *_QUERIES}  # give or change no tensor that the loss depends on
_FLAGS = {_TENSOR.requires_grad_, _TENSOR.requires_grad.__set__}
_DATA = _TENSOR.data.__set__
_MARKS = {_TENSOR.register_hook, _DATA, *_FLAGS}  # what changes a tensor without a new version of it
_ASKING = ((_TENSOR, "backward"), (torch.autograd, "backward"), (torch.autograd, "grad"))


_on: list[Tape] = []  # the one that is on


class Tape(TorchFunctionMode):
    """Records one step: `with Tape() as tape: train()`, then `tape.replay()`.

    It ends when a gradient is asked of a loss (`loss.backward()`, `torch.autograd.backward`, or `torch.autograd.grad` by a parameter), or when it meets
    something that it could not do again. The results of training keep their bits, and no intermediate result lives longer than without it.

    Args:
        memory: how many bytes the copies of parameters, inputs and buffers may take.

    Attributes:
        finished: whether it has ended.
        reason: why there is no replay; empty while the tape is on, and if there is one.
    """

    def __init__(self, memory: int = MEMORY) -> None:
        super().__init__()
        self.finished, self.reason = False, ""
        self._memory = integer_at_least("memory", memory, 0)
        self._thread = threading.get_ident()
        self._on = False
        self._region: Any = None  # the frame that runs compiled code, for which the tape is off
        self._entering = False
        self._patches: list[tuple[Any, str, Any, Any]] = []
        self._inside = 0  # in how many calls: what is called in a call is not taped
        self._applied: list[type[Function]] = []  # in the call that runs
        self._hidden: bool | None = None  # the grad mode around a checkpoint, which switches it off
        self._step: Step | None = None
        self._replay: Replay | None = None
        self._forget()

    def _forget(self) -> None:
        self._slots = itertools.count()
        self._calls: list[Call] = []
        self._seen: dict[int, Seen] = {}  # by the id of a tensor
        self._groups: dict[int, Group] = {}  # by the address of a storage
        self._sources: dict[int, Source] = {}  # by slot
        self._bytes = 0
        self._graph = False  # whether there is a graph yet
        self._hint = ""

    def replay(self) -> Replay | None:
        """The loss as a function, if the value and the gradient that the step had come out of it again; otherwise None, and `reason` says why."""
        if self._step is not None and self._replay is None and not self.reason:
            replay = Replay(self._step)
            self.reason = self._step.difference(replay)
            if not self.reason and self._step.reached != self._step.leaves:
                self._step.leaves = self._step.reached
                replay = Replay(self._step)
            self._replay = None if self.reason else replay
            self._step = None
        return self._replay

    def __enter__(self) -> Tape:
        """Goes below all other modes, so that whoever takes off the uppermost gets the one that he has put on."""
        if self._on or self.finished:
            raise RuntimeError("a Tape records one step: make a new one")
        if _on:
            self._end("another recording keeps a step at the same time")
            return self
        _on.append(self)
        self._thread, self._on = threading.get_ident(), True
        _put_below(self)
        for owner, name in _ASKING:
            self._patch(owner, name, self._around_asking(getattr(owner, name)))
        if (owner := apply_owner()) is not None:
            self._patch(owner, "apply", classmethod(self._around_apply(owner)))
        else:
            self._end(f"torch {torch.__version__} does not tell where a torch.autograd.Function is applied")
        if (found := compiled_region_functions()) is not None:
            compiler, begins, switches = found
            self._patch(compiler, begins, self._around_compiled(getattr(compiler, begins)))
            self._patch(compiler, switches, self._around_switch(getattr(compiler, switches)))
        else:
            self._end(f"torch {torch.__version__} does not tell where a region compiled by torch.compile begins")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the tape and takes it off, wherever it lies among the modes. May be called again.

        Inside a call that passes through the tape it cannot be taken off; then it lets everything pass, and is taken off later.
        """
        if not self.finished:
            self._end(NO_LOSS)
        if not self._on:
            return
        if threading.get_ident() == self._thread and not (_take_off(self) or self._region):
            return
        self._on, self._region = False, None  # from another thread it stays among the modes of its own, and lets everything pass
        _on.remove(self)
        for owner, name, before, patch in reversed(self._patches):
            if vars(owner).get(name) is patch:
                type.__delattr__(owner, name) if before is None else _set(owner, name, before)
        self._patches.clear()

    def _patch(self, owner: Any, name: str, patch: Any) -> None:
        self._patches.append((owner, name, vars(owner).get(name), patch))
        _set(owner, name, patch)

    def _end(self, reason: str) -> None:
        self.finished, self.reason = True, reason
        self._forget()

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        """Inside, what is called is part of a call, or the tape's own business."""
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    def _passes(self) -> bool:
        """Whether a call is none of the tape's business. A tape that has ended takes the opportunity to go."""
        if threading.get_ident() != self._thread:
            return True
        if self._region is not None and dispatch_modes():  # something is being compiled: what runs then is for show
            return True
        if self.finished and not self._inside:
            self.stop()
        return self.finished or self._inside > 0

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        func, kwargs = getattr(func, "_pairgrad_plain", func), kwargs or {}
        if self.finished or self._inside or func in _ASIDE:
            return func(*args, **kwargs)
        if getattr(func, "__name__", "") == "__get__" and not isinstance(value := func(*args, **kwargs), torch.Tensor):
            return value
        with self._busy():
            return self._record(func, func, args, kwargs)

    def _around_apply(self, owner: type[Any]) -> Callable[..., Any]:
        """`apply` of a Function that somebody has kept ends in the one of its base, which is looked up at every call."""

        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            plain = super(owner, cls).apply  # pyright: ignore[reportAttributeAccessIssue]
            if not self._passes():
                return self._apply(cls, plain, args, kwargs)
            if self._inside and threading.get_ident() == self._thread:
                self._applied.append(cls)
            return plain(*args, **kwargs)

        return apply

    def _apply(self, function: type[Any], plain: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if function is CheckpointFunction:  # runs calls on parameters that it is not given, without a graph: taped, as if with one
            before, self._hidden = self._hidden, self._grad_mode()
            try:
                return plain(*args, **kwargs)
            finally:
                self._hidden = before
        again = _copied_inputs if is_ddp_sink(function) else _Apply(function)
        with self._busy():
            return self._record(again, plain, args, kwargs)

    def _around_asking(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def ask(*args: Any, **kwargs: Any) -> Any:
            if self._region is not None or self._passes():
                return plain(*args, **kwargs)
            with self._busy():
                asked = self._guarded(_Asked.of, plain, args, kwargs)
                if asked is not None and asked.ends:
                    self._guarded(self._finish, asked)
            if self.finished:
                self.stop()
            result = plain(*args, **kwargs)
            if self._step is not None and asked is not None:
                self._guarded(self._step.look, asked.inputs, result)
            return result

        vars(ask)["_pairgrad_plain"] = plain
        return ask

    def _around_compiled(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Compiled code looks at the modes it runs under, and would be compiled again: the tape is off while it runs.

        What runs then is seen only if it is a Function, as the whole of a compiled region is where AOTAutograd has made it.
        """

        @functools.wraps(plain)
        def callback(given: Any) -> Any:
            chosen = plain(given)
            if threading.get_ident() == self._thread:
                if self.finished:
                    self.stop()
                elif callable(chosen) and _take_off(self):
                    self._region, self._entering, self._hint = sys._getframe(1), True, COMPILED
            return chosen

        return callback

    def _around_switch(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Called by the frame that runs compiled code, before and after. What this would call after `plain`, dynamo would look at."""

        @functools.wraps(plain)
        def switch(callback: Any) -> Any:
            if self._region is not None and self._region is sys._getframe(1):
                if not self._entering:
                    self._region = None
                    _put_below(self)
                self._entering = False
            return plain(callback)

        return switch

    def _grad_mode(self) -> bool:
        return torch.is_grad_enabled() if self._hidden is None else self._hidden

    def _record(self, again: Callable[..., Any], plain: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls `plain`, and keeps how to call it `again`."""
        given = self._guarded(self._look, again, args, kwargs)
        self._applied = []
        result = plain(*args, **kwargs)
        if given is not None and not self.finished:
            self._guarded(self._keep, given, result)
        return result

    def _guarded(self, do: Callable[..., Any], *args: Any) -> Any:
        """Training goes on, whatever happens to the tape."""
        try:
            return do(*args)
        except Exception as error:
            self._step = None
            return self._end(f"the tape failed with {type(error).__name__}: {error}")

    def _look(self, again: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Given | None:
        """Before a call: what it is given, if that is anything to the tape."""
        flat, structure = pytree.tree_flatten((args, kwargs))
        tensors = [value for value in flat if isinstance(value, torch.Tensor)]
        if not any(tensor.requires_grad or self._find(tensor) for tensor in tensors):
            return None
        if any(map(is_functorch_wrapped_tensor, tensors)):
            self._hint = ", such as one under a torch.func transform"
            return None
        if reason := _refusal(again) or next(filter(None, map(self._meet, tensors)), ""):
            return self._end(reason)
        return _Given(
            again,
            [self._kept(value) for value in flat],
            structure,
            tensors,
            [version_of(tensor) for tensor in tensors],
            tensors[0].requires_grad,
            self._grad_mode(),
            autocast_state(),
            rng_state() if isinstance(again, _Apply) else _torch_random(),
        )

    def _keep(self, given: _Given, result: Any) -> None:
        """After a call: what came of it."""
        random = _if_drawn(given.random)
        again, tensors = given.again, given.tensors
        edited = [tensor for tensor, version in zip(tensors, given.versions, strict=True) if version_of(tensor) != version]
        marked = tensors[:1] if again in _MARKS else []
        results = [(i, value) for i, value in enumerate(pytree.tree_leaves(result)) if isinstance(value, torch.Tensor)]
        if not (results or edited or marked) or (again in _FLAGS and tensors[0].requires_grad == given.flag):
            return
        if len(self._calls) >= CALLS:
            return self._end(f"no gradient was asked of a loss within {CALLS} calls") if self._graph else self._forget()
        reason = self._edit(edited)
        if again in _FLAGS and self._enter(tensors[0]).slot in self._sources:
            reason = "a parameter is switched on or off within the step"
        elif again == _DATA:
            reason = "the data of a tensor is replaced within the step"
        if reason:
            return self._end(reason) if self._graph else self._forget()  # before the step: an optimizer, or a switch
        self._graph |= given.grad and (self._hidden is not None or any(value.requires_grad for _, value in results))
        outputs = tuple((i, self._enter(value).slot) for i, value in results)
        functions = [*((again.function,) if isinstance(again, _Apply) else ()), *self._applied]
        self._calls.append(
            Call(
                again,
                given.flat,
                given.structure,
                outputs,
                frozenset(self._enter(tensor).group for tensor in tensors),
                frozenset(self._enter(tensor).group for tensor in (*(value for _, value in results), *edited, *marked)),
                frozenset(slot for tensor in (*edited, *marked) for slot in self._enter(tensor).group.sources),
                given.grad,
                given.autocast,
                random,
                tuple(filter(is_custom, functions)),
            )
        )

    def _find(self, tensor: torch.Tensor) -> Seen | None:
        seen = self._seen.get(id(tensor))
        return seen if seen is not None and seen.tensor() is tensor else None

    def _enter(self, tensor: torch.Tensor) -> Seen:
        """A tensor with its slot, a new one if it has none."""
        seen = self._find(tensor)
        if seen is None:
            seen = Seen(weakref.ref(tensor), next(self._slots), self._group(tensor), version_of(tensor))
            self._seen[id(tensor)] = seen
            seen.group.members.append(seen)
        return seen

    def _group(self, tensor: torch.Tensor) -> Group:
        try:
            address = storage_address(tensor)
        except (NotImplementedError, RuntimeError):  # sparse
            return Group()
        group = self._groups.get(address)
        if group is None or all(seen.tensor() is None for seen in group.members):  # another storage at the address of one that is gone
            group = self._groups[address] = Group()
        return group

    def _meet(self, tensor: torch.Tensor) -> str:
        """Makes sure that an argument is known, a copy if it comes from elsewhere; otherwise says why that cannot be."""
        seen = self._find(tensor)
        if seen is not None and seen.version == version_of(tensor):
            return ""
        if seen is not None and (source := self._sources.get(seen.slot)) is not None:  # edited without gradients
            if source.leaf and self._graph:
                return f"a parameter of shape {tuple(tensor.shape)} is edited in place within the step"
            if source.leaf:
                self._forget()  # before the step: an optimizer
            else:
                seen.group.members.remove(seen)
                del self._seen[id(tensor)]
        elif seen is not None:
            return f"{_shaped(tensor)} was edited in place by a call that is not seen"
        if type(tensor).__module__.startswith("torch.distributed"):
            return f"{_shaped(tensor)} is spread over several processes ({type(tensor).__name__})"
        if tensor.requires_grad and not tensor.is_leaf:
            maker = type(tensor.grad_fn).__name__
            return f"{_shaped(tensor)} ({maker}) was made before the tape was on, or by a call that is not seen{self._hint}"
        if self._group(tensor).edited:
            return f"{_shaped(tensor)} shares memory with one that was edited in place, and is not seen to come from it"
        need = self._bytes + tensor.numel() * tensor.element_size()
        if need > self._memory and not self._graph and self._bytes:  # what was done without gradients before the step
            self._forget()
            return self._meet(tensor)
        if need > self._memory:
            return f"would need {need / _MIB:.4g} MiB or more, memory allows {self._memory / _MIB:.4g} MiB"
        self._bytes = need
        seen = self._enter(tensor)
        seen.group.sources.append(seen.slot)
        self._sources[seen.slot] = Source.of(tensor)
        return ""

    def _edit(self, tensors: list[torch.Tensor]) -> str:
        """Notes what was edited in place; says why the tape cannot go on after that."""
        for tensor in tensors:
            group = self._enter(tensor).group
            group.edited = True
            for seen in group.members:
                if (member := seen.tensor()) is not None:
                    seen.version = version_of(member)
            if any(self._sources[slot].leaf for slot in group.sources):
                return f"a parameter of shape {tuple(tensor.shape)} is edited in place within the step"
            if len(group.sources) > 1:
                return f"{_shaped(tensor)} is edited in place, and tensors that share its memory are in use"
        return ""

    def _kept(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return Slot(self._enter(value).slot)
        if isinstance(value, torch.Generator) and value is not torch.default_generator:
            return value.clone_state()
        return value

    def _finish(self, asked: _Asked) -> None:
        """Cuts the tape down to what the loss depends on. What shares memory counts as one."""
        root = asked.roots[0] if len(asked.roots) == 1 else None
        seen = None if root is None else self._find(root)
        if root is None:
            return self._end(f"a gradient is asked of {len(asked.roots)} tensors at once, not of one loss")
        if root.numel() != 1 or asked.weighted:
            return self._end(f"a gradient is asked of {_shaped(root)} with weights, not of a loss")
        if seen is None or not root.requires_grad or seen.slot in self._sources:
            return self._end(f"the loss was made before the tape was on, or by a call that is not seen{self._hint}")
        needed, calls = {seen.group}, []
        for call in reversed(self._calls):
            if not call.touched.isdisjoint(needed):
                calls.append(call)
                needed |= call.inputs
        calls.reverse()
        used = dict.fromkeys(kept.slot for call in calls for kept in call.flat if isinstance(kept, Slot))
        sources = {slot: self._sources[slot] for slot in used if slot in self._sources}
        step = Step(tuple(calls), seen.slot, sources, root.detach().clone())
        if not step.leaves:
            return self._end("the loss depends on no parameter that was seen")
        step.expect(self._seen.values(), self._memory - self._bytes)
        self._step = step
        self._end("")


@dataclass(frozen=True, eq=False)
class _Given:
    """What there is to know before a call."""

    again: Callable[..., Any]
    flat: list[Any]
    structure: Any
    tensors: list[torch.Tensor]
    versions: list[int | None]
    flag: bool  # whether the first one requires a gradient
    grad: bool
    autocast: tuple[Any, ...]
    random: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class _Apply:
    function: type[Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function.apply(*args, **kwargs)


def _copied_inputs(_: Any, *inputs: Any) -> tuple[Any, ...]:
    """What the outputs of DistributedDataParallel pass through, without the messages it sends in backward."""
    return tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in inputs)


@dataclass(frozen=True)
class _Asked:
    roots: tuple[torch.Tensor, ...]
    inputs: tuple[torch.Tensor, ...]
    weighted: bool
    ends: bool  # whether this is the gradient that training is after, and not a part of the loss

    @staticmethod
    def of(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Asked:
        """The arguments of `Tensor.backward`, `torch.autograd.backward` and `torch.autograd.grad`."""
        is_grad = func.__name__ == "grad"
        order = {
            "grad": ("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph"),
            "Tensor.backward": ("tensors", "gradient", "retain_graph", "create_graph", "inputs"),
        }
        names = order.get(func.__qualname__, ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs"))
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        roots = _several(given.get("outputs" if is_grad else "tensors", given.get("self")))
        inputs = _several(given.get("inputs"))
        weights = [w for name in ("gradient", "grad_tensors", "grad_outputs") for w in _several(given.get(name))]
        weighted = any(not torch.equal(weight, torch.ones_like(weight)) for weight in weights)
        by_parameter = any(isinstance(tensor, torch.nn.Parameter) for tensor in inputs)
        return _Asked(roots, inputs, weighted, not is_grad or (by_parameter and not given.get("create_graph")))


def _several(value: Any) -> tuple[torch.Tensor, ...]:
    if isinstance(value, torch.Tensor):
        return (value,)
    values = value.values() if isinstance(value, Mapping) else value if isinstance(value, Iterable) else ()
    return tuple(tensor for tensor in values if isinstance(tensor, torch.Tensor))


def _refusal(func: Callable[..., Any]) -> str:
    """Why a call cannot be made again."""
    if isinstance(func, _Apply):
        function = func.function
        if function.__module__.startswith(("torch.distributed", "torch.nn.parallel")) or function.__name__ == "SyncBatchNorm":
            return f"the loss goes through a collective of torch.distributed ({function.__name__})"
        return ""
    name = operator_name(func)
    if str(getattr(func, "__module__", "")).startswith("torch.distributed") or "c10d" in name:
        return f"the loss goes through a collective of torch.distributed ({getattr(func, '__name__', name)})"
    if capturing_graph():
        return "the step is captured in a CUDA graph"
    return ""


def _shaped(tensor: torch.Tensor) -> str:
    return f"a tensor of shape {tuple(tensor.shape)}"


def _torch_random() -> tuple[Any, ...]:
    """The generators that torch functions draw from; asking for all of them takes longer than many a call."""
    return torch.get_rng_state(), device_random_state()


def _if_drawn(before: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The state before, of all generators, if any of those looked at has moved since."""
    if len(before) > 2:
        return None if same_rng(before, rng_state()) else before
    moved = any(not torch.equal(old, new) for old, new in zip(pytree.tree_leaves(before), pytree.tree_leaves(_torch_random()), strict=True))
    return (*before, *rng_state()[2:]) if moved else None


def _put_below(mode: TorchFunctionMode) -> None:
    """Below all other modes, but above that of `torch.set_default_device`, which must be the lowest."""
    above = pop_function_modes()
    if above and above[-1] is default_device_mode():
        push_function_mode(above.pop())
    push_function_mode(mode)
    for other in reversed(above):
        push_function_mode(other)


def _take_off(mode: TorchFunctionMode) -> bool:
    """Whether the mode was among those that are on."""
    modes = pop_function_modes()
    for other in reversed(modes):
        if other is not mode:
            push_function_mode(other)
    return any(other is mode for other in modes)


def _set(owner: Any, name: str, value: Any) -> None:
    (type.__setattr__ if isinstance(owner, type) else setattr)(owner, name, value)
