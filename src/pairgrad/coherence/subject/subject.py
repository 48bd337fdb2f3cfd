"""What is under audit: a callable with its arguments, seen as a function of the tensors it is differentiated by.

Every call starts from the same state: arguments are fresh copies; parameters, buffers and plain attributes of modules, the random number generators and the
global settings of torch are put back, so that two calls at one point give one result unless the callable itself keeps something from
call to call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad
from torch.nn.parameter import is_lazy

from pairgrad.coherence.subject.backward import Accumulated, Leaves, is_freed, supplied, way_to_gradients
from pairgrad.coherence.subject.jax_functions import Traces, traced_once
from pairgrad.coherence.subject.settings import Settings
from pairgrad.coherence.subject.sparse import parts, values_of, with_values
from pairgrad.ground._torch_private import FUNCTIONS_CLASS, pytree, registries
from pairgrad.ground.checks import DTYPES, HALF_DTYPES, describe
from pairgrad.ground.devices import device_random_state, has_values, need_float64, set_device_random_state

FLOATING = (*DTYPES, *HALF_DTYPES)

_TRUSTED = 8  # calls for which a callable that worked at the inputs is taken to work there still

Point = tuple[torch.Tensor, ...]  # one value for each differentiated tensor
Arrange = Callable[[torch.Tensor], torch.Tensor]  # the same numbers in another layout in memory


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Outputs at a point, detached, and what the backward supplies there for a cotangent."""

    outputs: tuple[torch.Tensor, ...]
    gradients: Point

    @property
    def finite(self) -> bool:
        return all(bool(torch.isfinite(tensor).all()) for tensor in (*self.outputs, *self.gradients))


class Stopped(Exception):
    """An audit cannot go on: its time is up, or the callable fails where it did not fail before."""


class NothingReturned(TypeError):
    """The callable returns no floating-point tensor with elements."""


class _Unsteady(ValueError):
    """The outputs at the same inputs have another shape than before: an error of the user, wherever it is met."""


class Subject:
    """A callable and its arguments as a function from `tensors` to tuples of floating-point tensors.

    Attributes:
        tensors: values of the differentiated tensors at the arguments given, detached.
        names: what they are called in reports: "input 0", a keyword, or the name of a parameter.
        output_names: likewise for the outputs that are audited.
        connected: whether any output depends on the tensors as far as autograd knows.
        random: whether a call draws from a random number generator.
    """

    def __init__(
        self, fn: Callable[..., Any], inputs: Any, *, dtype: torch.dtype | None = None, module: torch.nn.Module | None = None
    ) -> None:
        if not callable(fn):
            raise TypeError(f"fn must be callable, got {describe(fn)}")
        if isinstance(fn, type) and issubclass(fn, torch.autograd.Function):
            raise TypeError(f"fn must be callable: pass {fn.__name__}.apply, not the class {fn.__name__}")
        if dtype is not None and (not isinstance(dtype, torch.dtype) or dtype not in FLOATING):
            raise TypeError(f"dtype must be torch.float64, torch.float32, torch.float16 or torch.bfloat16, got {describe(dtype)}")
        self.fn = fn
        self.name = name_of(fn)
        args, kwargs = arguments_of(inputs)
        flat, self._structure = pytree.tree_flatten((args, kwargs))
        for leaf in flat:
            if isinstance(leaf, torch.Tensor) and not has_values(leaf):
                raise ValueError(f"inputs must hold numbers, got {describe(leaf)}: an audit computes with them")
            if isinstance(leaf, torch.Tensor):
                need_float64("inputs", leaf, "an audit")
        self._flat = [_prepared(leaf, dtype) for leaf in flat]
        self.module = module if module is not None else module_of(fn)
        self._places, self._trained = _differentiated(self._flat), _parameters(self.module)
        if not self._places and not self._trained:
            raise ValueError(
                f"inputs must hold at least one floating-point tensor to differentiate by, got {_listed(flat)}: "
                "pass a tensor such as torch.tensor(1.0, dtype=torch.float64)"
            )
        self._positions = _position_names(args, kwargs)
        sparse = [self._flat[place].layout != torch.strided for place in self._places]
        inputs = [self._positions[place] + " (values)" * inside for place, inside in zip(self._places, sparse, strict=True)]
        self.names = (*inputs, *(f"parameter {name}" if name in inputs else name for name, _ in self._trained))
        self.tensors: Point = tuple(values_of(self._flat[place]).detach().clone() for place in self._places) + tuple(
            parameter.detach().clone() for _, parameter in self._trained
        )
        self._held = _Held(self.module)
        self.random = True  # until the first call has shown otherwise
        self._copies = False
        self._frees = False  # whether a backward frees the memory of the outputs: they are copied before it
        self._through: Accumulated | None = None
        self._traces: Traces = {}
        self._rng, self._settings = rng_state(), Settings()
        self._loose = False  # whether a call or a backward may have changed settings since they were put back
        self.evaluations = 1
        self.watch: Callable[[], None] | None = None  # called before each call
        self.roughness: tuple[float, ...] = (0.0,) * len(
            self.tensors
        )  # of the gradients, from neighbour to neighbour, as far as it is known
        self.spread = 0.0  # how far apart the gradients of two neighbours are
        self.failed: Exception | None = None  # the last that the callable raised
        self.constraints: dict[int, Any] = {}  # by place: the sets that the tensors stay in
        try:
            result, leaves = self._first_call()
            outputs, self.output_names = self._audited(result)
            if not outputs:
                listed = _listed(pytree.tree_leaves(result))
                raise NothingReturned(f"fn must return at least one floating-point tensor with elements, got {listed}")
            self.outputs = tuple(output.detach().clone() for output in outputs)
            self.connected = any(output.requires_grad for output in outputs)
            if self.connected:
                self._through = way_to_gradients(outputs, leaves, (fn, self.module, *flat))
                if self._through is not None:
                    self.pull(self.tensors, [torch.ones_like(output) for output in outputs])
            self.random = getattr(fn, "draws", False) is True or not same_rng(self._rng, rng_state())  # a backward may draw numbers too
        finally:
            self.restore()
        self._checked = -_TRUSTED  # the number of the last call that showed it still works at the inputs

    @property
    def is_whole(self) -> bool:
        """Whether the callable holds no module but itself, so that a copy of it is independent."""
        return self.module is None or self.fn is self.module

    @property
    def inputs(self) -> Point:
        """The differentiated tensors that are arguments."""
        return self.tensors[: len(self._places)]

    @property
    def parameters(self) -> Point:
        """Those that are parameters of a module."""
        return self.tensors[len(self._places) :]

    @property
    def dense(self) -> bool:
        """Whether there are differentiated arguments, none of them sparse."""
        return bool(self._places) and all(self._flat[place].layout == torch.strided for place in self._places)

    # Calls ------------------------------------------------------------------------------------------------------------

    def _first_call(self) -> tuple[Any, Leaves]:
        try:
            return self._call(self.tensors)
        except RuntimeError as error:
            if "leaf" not in str(error) or "in-place" not in str(error):
                raise
            self._copies = True
            self.restore()
            return self._call(self.tensors)

    def outputs_at(self, point: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The audited outputs at a point, detached."""
        with self._settings:
            outputs, _ = self._run(point)
        return tuple(output.detach() for output in outputs)

    def pull(self, point: Sequence[torch.Tensor], cotangent: Sequence[torch.Tensor]) -> Evaluation:
        """Outputs at a point and the gradient that the backward supplies for a cotangent; zeros where it supplies none."""
        with self._settings:
            outputs, leaves = self._run(point)
            gradients = supplied(outputs, leaves, cotangent)
        if any(map(is_freed, outputs)):  # reversible networks free what they can compute again
            self._frees = True
            return self.pull(point, cotangent)
        return Evaluation(tuple(output.detach() for output in outputs), gradients)

    def pull_twice(self, point: Sequence[torch.Tensor], cotangent: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> Evaluation:
        """The scalar <gradient, weights> at a point, and its gradient in the point and in the cotangent by a second backward."""
        with self._settings:
            outputs, leaves = self._run(point)
            asking = tuple(weight.detach().clone().requires_grad_() for weight in cotangent)
            first = supplied(outputs, leaves, asking, create_graph=True)
            total = sum((gradient.double() * weight).sum() for gradient, weight in zip(first, weights, strict=True))
            assert isinstance(total, torch.Tensor)
            second = supplied((total,), (*leaves, *asking), (torch.ones_like(total),))
        return Evaluation((total.detach(),), second)

    def untracked(self) -> Point:
        """The outputs at the inputs where no gradient is requested."""
        self._begin()
        flat, _ = self._prepare(self.tensors, copies=False)
        for place in self._places:
            flat[place] = flat[place].detach()
        args, kwargs = pytree.tree_unflatten(flat, self._structure)
        with self._settings, torch.no_grad():
            named = dict(self._numbered(self.fn(*args, **kwargs)))
        return tuple(named[name] for name in self.output_names)

    def push(self, point: Sequence[torch.Tensor], tangent: Sequence[torch.Tensor], weights: Sequence[torch.Tensor] = ()) -> Evaluation:
        """Outputs at a point and, by forward mode, their derivatives along a tangent of the inputs. Parameters stay where they are.

        With `weights` of the outputs, reverse mode over forward mode instead: <weights, derivatives>, and its gradients in the inputs.
        """
        with self._settings, forward_ad.dual_level():
            outputs, leaves = self._dual(point, tangent)
            parts = [forward_ad.unpack_dual(output) for output in outputs]
            tangents = tuple(torch.zeros_like(primal) if t is None else t for primal, t in parts)
            if weights:
                total = sum((t.double() * weight).sum() for t, weight in zip(tangents, weights, strict=True))
                assert isinstance(total, torch.Tensor)
                return Evaluation((total.detach(),), supplied((total,), leaves, (torch.ones_like(total),)))
            return Evaluation(tuple(primal.detach() for primal, _ in parts), tuple(t.detach() for t in tangents))

    def push_gradients(self, point: Sequence[torch.Tensor], tangent: Sequence[torch.Tensor], cotangent: Sequence[torch.Tensor]) -> Point:
        """By forward mode over reverse mode: how the gradients of the inputs change along a tangent of the inputs."""
        with self._settings, forward_ad.dual_level():
            outputs, leaves = self._dual(point, tangent)
            gradients = supplied(outputs, leaves, cotangent, create_graph=True)
            tangents = [forward_ad.unpack_dual(gradient).tangent for gradient in gradients]
            return tuple(torch.zeros_like(g).detach() if t is None else t.detach() for g, t in zip(gradients, tangents, strict=True))

    def _dual(self, point: Sequence[torch.Tensor], tangent: Sequence[torch.Tensor]) -> tuple[Point, Leaves]:
        """Outputs that carry tangents, and the leaves of the inputs."""
        moved = iter(tangent)
        outputs, leaves = self._run(point, enter=lambda leaf: forward_ad.make_dual(leaf, next(moved).to(leaf)))
        return outputs, Leaves(leaves[: len(self._places)])

    def map(self, points: Sequence[Point], cotangent: Sequence[torch.Tensor]) -> list[Evaluation]:
        """Outputs and gradients of the inputs at several points by `torch.func.vjp` under `torch.func.vmap`. Parameters stay where they are."""
        places, weights = self._places, dict(zip(self.output_names, cotangent, strict=True))

        flat, _ = self._prepare(self.tensors, copies=False)

        def pulled(*tensors: torch.Tensor) -> Any:
            def chosen(*inner: torch.Tensor) -> Point:
                given = flat.copy()
                for place, tensor in zip(places, inner, strict=True):
                    given[place] = tensor
                named = dict(self._numbered(self._apply(given)))
                return tuple(named[name] for name in weights)

            outputs, pull, *_ = torch.func.vjp(chosen, *tensors)
            return outputs, pull(tuple(weights.values()))

        self._begin()
        with self._settings:
            columns = [torch.stack(column) for column in zip(*(point[: len(places)] for point in points), strict=True)]
            outputs, gradients = torch.func.vmap(pulled, randomness="same")(*columns)
        return [Evaluation(tuple(o[i].detach() for o in outputs), tuple(g[i].detach() for g in gradients)) for i in range(len(points))]

    def arguments(self) -> Any:
        """The arguments again, as `Subject` takes them, with copies of the tensors as they were, and the mark of those that are differentiated."""
        flat = [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in self._flat]
        for place in self._places:
            flat[place] = flat[place].requires_grad_()
        args, kwargs = pytree.tree_unflatten(flat, self._structure)
        return kwargs or args

    def graph(self, point: Sequence[torch.Tensor] | None = None, *, arrange: Arrange | None = None) -> tuple[Point, Leaves]:
        """Outputs with their graph, and the leaves they hang on. `arrange` gives the inputs, not the parameters, another layout in memory."""
        made = self._run(self.tensors if point is None else point, arrange)
        self._loose = True
        return made

    def alone(self, index: int, cotangent: Sequence[torch.Tensor]) -> torch.Tensor | None:
        """The gradient of one input at the inputs if the others ask for none; None if no output depends on it as far as autograd knows."""
        self._begin()
        self._loose = True
        flat, leaves = self._prepare(self.tensors, copies=self._copies)
        for other, place in enumerate(self._places):
            if other != index:
                flat[place] = flat[place].detach()
        outputs, names = self._audited(self._apply(flat))
        reached = {name: output for name, output in zip(names, outputs, strict=True) if output.requires_grad}
        pairs = [(reached[name], weight) for name, weight in zip(self.output_names, cotangent, strict=True) if name in reached]
        if not pairs:
            return None
        return supplied([output for output, _ in pairs], leaves, [weight for _, weight in pairs])[index]

    def outside(self, error: Exception) -> None:
        """After a call that raised away from the inputs: ends the audit unless that has to do with the place alone."""
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
            raise Stopped(f"fn raises {_said(error)}") from error
        if self.evaluations - self._checked < _TRUSTED:
            return
        self._checked = self.evaluations
        try:
            self.pull(self.tensors, tuple(torch.ones_like(output) for output in self.outputs))
        except (_Unsteady, Stopped):
            raise
        except Exception as again:
            raise Stopped(f"fn raises at the inputs after {self.evaluations} calls, where it did not before: {_said(again)}") from again

    def _run(
        self, point: Sequence[torch.Tensor], arrange: Arrange | None = None, enter: Callable[[torch.Tensor], torch.Tensor] | None = None
    ) -> tuple[Point, Leaves]:
        """`enter` is what the callable gets for a leaf."""
        self._begin()
        try:
            result, leaves = self._call(point, arrange, enter)
        except Exception as error:
            self.failed = error
            raise
        outputs, names = self._audited(result)
        if names != self.output_names or any(output.shape != first.shape for output, first in zip(outputs, self.outputs, strict=True)):
            same = arrange is None and all(map(_same, point, self.tensors))
            raise (_Unsteady if same else ValueError)(self._other_outputs(outputs, names, same=same))
        return tuple(output.clone() for output in outputs) if self._frees else outputs, leaves

    def _begin(self) -> None:
        """Before each call."""
        self.evaluations += 1
        if self._loose:
            self._settings.put_back()
            self._loose = False
        if self.watch is not None:
            self.watch()
        if self.random:
            set_rng_state(self._rng)

    def _other_outputs(self, outputs: Point, names: Sequence[str], *, same: bool) -> str:
        """The sentence for outputs that are not comparable with those of the first call."""
        first, later = (
            ", ".join(f"{name} of shape {tuple(output.shape)}" for name, output in zip(of, made, strict=True)) or "none with elements"
            for of, made in ((self.output_names, self.outputs), (names, outputs))
        )
        where = "in a later call at the same inputs" if same else "at a point near the inputs"
        advice = "make it independent of earlier calls" if same else "audit the part whose shape is fixed, or other inputs"
        return f"fn must return outputs of one shape, got {first} in the first call, and {later} {where}: {advice}"

    def _call(
        self, point: Sequence[torch.Tensor], arrange: Arrange | None = None, enter: Callable[[torch.Tensor], torch.Tensor] | None = None
    ) -> tuple[Any, Leaves]:
        """The result at a point, and the leaves it hangs on."""
        flat, leaves = self._prepare(point, arrange, copies=self._copies)
        if enter is not None:
            for place in self._places:
                flat[place] = enter(flat[place])
        return self._apply(flat), leaves

    def _prepare(self, point: Sequence[torch.Tensor], arrange: Arrange | None = None, *, copies: bool) -> tuple[list[Any], Leaves]:
        """Fresh arguments with the values of a point, all state put back, and the leaves.

        A leaf may not be edited in place, where the result of an operation may: with `copies`, a callable that edits its argument gets one of those.
        """
        self._held.put_back()
        flat = [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in self._flat]
        leaves = []
        for place, value in zip(self._places, point[: len(self._places)], strict=True):
            given, leaf = flat[place], value.detach().clone()
            if given.layout != torch.strided:
                leaf = with_values(given, leaf)
            elif arrange is not None:
                leaf = arrange(leaf).detach()
            leaves.append(leaf.requires_grad_())
            flat[place] = (
                leaf if not copies else leaf.clone() if arrange is None or leaf.layout != torch.strided else _Arranged.apply(leaf, arrange)
            )
        for (_, parameter), value in zip(self._trained, point[len(self._places) :], strict=True):
            parameter.data.copy_(value)  # by its data: a graph that the caller still holds must not see a change of version
            leaves.append(parameter)
        found = Leaves(leaves)
        found.through = self._through
        return flat, found

    def _apply(self, flat: list[Any]) -> Any:
        args, kwargs = pytree.tree_unflatten(flat, self._structure)
        with torch.enable_grad(), traced_once(self._traces):
            return self.fn(*args, **kwargs)

    def _audited(self, result: Any) -> tuple[tuple[torch.Tensor, ...], tuple[str, ...]]:
        """The outputs to audit: floating-point ones with elements that autograd can reach; all with elements if it can reach none."""
        numbered = self._numbered(result)
        reached = [pair for pair in numbered if pair[1].requires_grad] or numbered
        return tuple(leaf for _, leaf in reached), tuple(name for name, _ in reached)

    def _numbered(self, result: Any) -> list[tuple[str, torch.Tensor]]:
        """All floating-point outputs with elements, by name."""
        leaves = [
            _real(leaf) for leaf in _unpacked(result) if isinstance(leaf, torch.Tensor) and (leaf.dtype in FLOATING or leaf.is_complex())
        ]
        return [(f"output {i}" if len(leaves) > 1 else "output", leaf) for i, leaf in enumerate(leaves) if leaf.numel()]

    # State ------------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Subject:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    def restore(self) -> None:
        """Puts parameters, buffers, attributes, the generators and the global settings back to where they were before the audit."""
        self._settings.put_back()
        self._held.put_back()
        if self.random:
            set_rng_state(self._rng)

    def calls_edit(self, cotangent: Sequence[torch.Tensor] | None = None) -> list[str]:
        """Names of arguments, and "grad_output", that one forward and backward edits in place."""
        self.restore()
        flat, leaves = self._prepare(self.tensors, copies=True)
        before = [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in flat]
        outputs, _ = self._audited(self._apply(flat))
        edited = {i for i, (old, new) in enumerate(zip(before, flat, strict=True)) if _differs(old, new)}
        names = []
        if self.connected:
            cotangent = tuple(torch.ones_like(output) for output in outputs) if cotangent is None else tuple(u.clone() for u in cotangent)
            sent = tuple(u.clone() for u in cotangent)
            supplied(outputs, leaves, sent, copy=False)
            edited |= {i for i, (old, new) in enumerate(zip(before, flat, strict=True)) if _differs(old, new)}
            if any(_differs(old, new) for old, new in zip(cotangent, sent, strict=True)):
                names.append("grad_output")
        return [self._positions[i] for i in sorted(edited)] + names


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments: a tuple or list of them, a mapping of keywords, one tensor, or both kinds as `inspect.Signature.bind` gives them."""
    if isinstance(inputs, inspect.BoundArguments):
        return inputs.args, inputs.kwargs
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    raise TypeError(
        f"inputs must be a tensor, a tuple of positional arguments or a dict of keyword arguments, got {describe(inputs)}: "
        "numbers to differentiate by are passed as tensors"
    )


def _prepared(leaf: Any, dtype: torch.dtype | None) -> Any:
    """An argument as every call gets a copy of it: tensors detached, floating-point ones in the dtype of the audit; the mark of what to differentiate stays."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if leaf.is_complex() and leaf.requires_grad:
        raise TypeError(f"inputs must be real, got {describe(leaf)}: wrap fn so that it takes the real and the imaginary part")
    copy = leaf.detach().clone()
    if dtype is not None and copy.dtype in FLOATING:
        copy = copy.to(dtype)
    return copy.requires_grad_(leaf.requires_grad)


def _differentiated(flat: list[Any]) -> list[int]:
    """Places of the tensors that require a gradient; if none does, of all dense floating-point ones, or of the sparse ones. The mark goes."""
    floating = [i for i, leaf in enumerate(flat) if isinstance(leaf, torch.Tensor) and leaf.dtype in FLOATING and values_of(leaf).numel()]
    asking = [i for i in floating if flat[i].requires_grad]
    for i in floating:
        flat[i] = flat[i].detach()
    return asking or [i for i in floating if flat[i].layout == torch.strided] or floating


def _parameters(module: torch.nn.Module | None) -> list[tuple[str, torch.Tensor]]:
    named = () if module is None else module.named_parameters()
    return [(name, p) for name, p in named if p.requires_grad and p.dtype in FLOATING and p.numel() and p.layout == torch.strided]


def module_of(fn: Any) -> torch.nn.Module | None:
    """The module whose parameters and buffers a call uses, where the callable says so itself: a module, its method, or a partial application of either."""
    for _ in range(8):
        if fn is None or isinstance(fn, torch.nn.Module):
            return fn
        fn = getattr(fn, "func", None) or getattr(fn, "__self__", None)
    return None


def _unpacked(result: Any) -> list[Any]:
    """Everything inside tuples, lists, dicts and dataclasses."""
    found: list[Any] = []
    for leaf in pytree.tree_leaves(result):
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            found += [inner for entry in dataclasses.fields(leaf) for inner in _unpacked(getattr(leaf, entry.name))]
        else:
            found.append(leaf)
    return found


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """An output as a dense tensor of real numbers, a complex one as its real and imaginary parts."""
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _position_names(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    names: list[str] = []
    for name, arg in [*((f"input {i}", arg) for i, arg in enumerate(args)), *kwargs.items()]:
        count = len(pytree.tree_leaves(arg))
        names += [name] if count == 1 else [f"{name}[{k}]" for k in range(count)]
    return names


def _listed(leaves: Sequence[Any]) -> str:
    return ", ".join(describe(leaf) for leaf in leaves[:4]) + (", ..." if len(leaves) > 4 else "") if leaves else "nothing"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def name_of(fn: Callable[..., Any]) -> str:
    """How reports call the callable."""
    if isinstance(fn, torch.nn.Module):
        return type(fn).__name__
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        return f"{owner.__name__}.apply"
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or type(fn).__name__
    return name.rsplit("<locals>.", 1)[-1].removeprefix(f"{FUNCTIONS_CLASS}.")


def _differs(old: Any, new: Any) -> bool:
    return isinstance(old, torch.Tensor) and (is_freed(new) or not _same(old.detach(), new.detach()))


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal element by element, NaN equal to itself; sparse tensors store the same elements."""
    if a.layout != b.layout:
        return False
    if a.layout != torch.strided:
        return a.shape == b.shape and all(map(_same, parts(a), parts(b)))
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


class _Arranged(torch.autograd.Function):
    """A copy of a leaf in the layout that the leaf has, which may be edited in place."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, arrange: Arrange) -> torch.Tensor:
        return arrange(leaf.detach().clone()).data  # by its data: a view may not be edited

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0], None


class _Held:
    """Parameters, buffers and attributes of a module as they were, to be put back."""

    def __init__(self, module: torch.nn.Module | None) -> None:
        self._tensors: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._registries: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._containers: list[tuple[Any, Any]] = []
        for part in module.modules() if module is not None else ():
            parameters, buffers = registries(part)
            for registry in (buffers, vars(part)):
                self._registries.append((registry, dict(registry)))
            held = [*parameters.values(), *buffers.values(), *vars(part).values()]
            self._tensors += [
                (tensor, tensor.detach().clone()) for tensor in held if isinstance(tensor, torch.Tensor) and not is_lazy(tensor)
            ]
            own = [value for key, value in vars(part).items() if not key.startswith("_")]
            self._containers += [(value, value.copy()) for value in own if isinstance(value, (list, dict, set))]

    def put_back(self) -> None:
        for registry, entries in self._registries:
            for key in registry.keys() - entries.keys():
                del registry[key]
            registry.update(entries)
        for container, value in self._containers:
            container.clear()
            container.extend(value) if isinstance(container, list) else container.update(value)
        for tensor, value in self._tensors:
            if tensor.layout == torch.sparse_coo:  # its data is a copy that may get other indices
                tensor.data = value.clone()
            else:
                tensor.data.copy_(value)  # by its data: a graph that the caller still holds must not see a change of version


@contextlib.contextmanager
def generators_restored() -> Iterator[None]:
    """The global random number generators as they were, in the end."""
    state = rng_state()
    try:
        yield
    finally:
        set_rng_state(state)


def rng_state() -> tuple[Any, ...]:
    """Of all global generators: torch on the host and on the accelerator, Python, NumPy."""
    return torch.get_rng_state(), device_random_state(), random.getstate(), np.random.get_state()  # noqa: NPY002 (the generator a callable may use)


def set_rng_state(state: tuple[Any, ...]) -> None:
    """Puts back what `rng_state` gave."""
    torch.set_rng_state(state[0])
    set_device_random_state(state[1])
    random.setstate(state[2])
    np.random.set_state(state[3])  # noqa: NPY002


def same_rng(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    """Whether two states of the generators are equal."""
    return (
        torch.equal(first[0], second[0])
        and len(first[1]) == len(second[1])
        and all(torch.equal(a, b) for a, b in zip(first[1], second[1], strict=True))
        and first[2] == second[2]
        and all(np.array_equal(a, b) for a, b in zip(first[3], second[3], strict=True))
    )
