"""JAX functions as torch callables, so that they are audited by the methods that audit torch ones.

Only the numbers cross: the value is the one JAX computes, the backward hands on what `jax.vjp` supplies, right or wrong, and
the backward of the backward is JAX's derivative of that, reverse over reverse.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pairgrad.ground.checks import describe
from pairgrad.ground.devices import HOST, on_host

Traces = dict[Hashable, "_Trace"]
_Linearised = tuple[tuple[Any, ...], Callable[..., tuple[Any, ...]], tuple[Any, ...]]  # results, the map of their cotangents, other results
_traces: contextvars.ContextVar[Traces | None] = contextvars.ContextVar("traces", default=None)


def from_jax(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A torch callable that computes `fn`, a function of JAX arrays, and is differentiated by what JAX supplies for it.

    Arguments and results may be tuples, lists, dicts and other trees that JAX knows. Tensors go in as arrays of the same
    dtype, and every array that comes out becomes a tensor; anything else (Python numbers, strings, None) is passed on as
    it is, in either direction, and so are arrays and keys of JAX's own among the arguments. Gradients flow to the
    floating-point and complex tensors that ask for one.

    Where a gradient is asked for, the value is the one that `jax.vjp` returns beside it: for a `jax.custom_vjp` that of its
    forward rule, as in `jax.value_and_grad`. Without a gradient, or under `torch.no_grad`, the function itself is called.
    To JAX every result depends on every argument, if only with a derivative of zero, so a result is never detached.

    Numbers are copied on the way in and on the way out: a tensor edited in place changes no array of JAX's, and none of
    JAX's arrays is seen to change. Tensors on another device go through the host, and the results are put on the device
    of the first argument that is not on the CPU; a gradient is put on the device of its argument. On the side of JAX, the
    computation runs where JAX puts new arrays.

    Args:
        fn: takes and returns arrays, and is one that JAX can differentiate; `jax.jit` and `jax.custom_vjp` are welcome.

    Raises:
        ImportError: JAX is not installed.
        TypeError: `fn` cannot be called.
        RuntimeError: on a call, if an argument needs 64 bits and `jax_enable_x64` is off. Integers are exempt if 32 bits hold them.
    """
    _jax()
    if not callable(fn):
        raise TypeError(f"fn must be a function of JAX arrays, got {describe(fn)}")

    @functools.wraps(fn, updated=())
    def bridged(*args: Any, **kwargs: Any) -> Any:
        return _bridged(fn, fn, args, kwargs, _traces.get(), ulps=0)

    return bridged


@contextlib.contextmanager
def traced_once(traces: Traces) -> Iterator[None]:
    """JAX traces each function of `from_jax` once for each kind of call in here, and its operations are then repeated one by one.

    The numbers are the same, to the bit for value and gradient, to rounding for higher derivatives. A function that JAX cannot trace without its numbers is
    called as usual, and so is one that gives something else than its trace: the two are compared in calls 2, 4, 8, and so on.
    """
    token = _traces.set(traces)
    try:
        yield
    finally:
        _traces.reset(token)


def _bridged(fn: Callable[..., Any], owner: Any, args: Any, kwargs: Any, traces: Traces | None, *, ulps: int) -> Any:
    """One call; functions of one owner compute the same."""
    jax = _jax()
    leaves, structure = jax.tree_util.tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i] for i in places]
    rest = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def of_arrays(*arrays: Any) -> Any:
        full = rest.copy()
        for i, array in zip(places, arrays, strict=True):
            full[i] = array
        args, kwargs = jax.tree_util.tree_unflatten(structure, full)
        return fn(*args, **kwargs)

    wanted = tuple(i for i, tensor in enumerate(tensors) if tensor.requires_grad) if torch.is_grad_enabled() else ()
    trace = None
    if traces is not None and wanted and all(isinstance(leaf, (type(None), bool, int, float, str)) for leaf in rest):
        constants = tuple((type(leaf), repr(leaf)) for leaf in rest)
        kinds = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        key = (id(owner), structure, tuple(places), constants, kinds, wanted, jax.config.jax_enable_x64)
        trace = traces.setdefault(key, _Trace(owner, ulps))
    result = _Result()
    return result.rebuilt(_Bridge.apply(_Call(of_arrays, wanted, traces, trace), result, *tensors))


@dataclass(frozen=True, eq=False)
class _Call:
    """A function of arrays, the places of those that are differentiated, and its trace, if it may have one."""

    fn: Callable[..., Any]
    wanted: tuple[int, ...]
    traces: Traces | None
    trace: _Trace | None


class _Result:
    """What a function of JAX returned, taken apart: the arrays that are differentiated, the other arrays, and the rest."""

    def __init__(self) -> None:
        self._structure: Any = None
        self._leaves: list[Any] = []
        self._smooth: list[int] = []
        self._other: list[int] = []

    def parted(self, value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Arrays with a derivative and arrays without; where they stood is kept, their values are not."""
        jax = _jax()
        leaves, self._structure = jax.tree_util.tree_flatten(value)
        arrays = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (jax.Array, np.ndarray, np.generic))]
        self._smooth = [i for i in arrays if jax.dtypes.issubdtype(leaves[i].dtype, np.inexact)]
        self._other = [i for i in arrays if i not in self._smooth]
        self._leaves = [None if i in arrays else leaf for i, leaf in enumerate(leaves)]
        return tuple(leaves[i] for i in self._smooth), tuple(leaves[i] for i in self._other)

    @property
    def form(self) -> tuple[Any, ...]:
        """All but the arrays."""
        return self._structure, self._leaves, self._smooth, self._other

    @form.setter
    def form(self, form: tuple[Any, ...]) -> None:
        self._structure, self._leaves, self._smooth, self._other = form

    def rebuilt(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The result with tensors in the places of the arrays, in the order in which they were parted."""
        leaves = self._leaves.copy()
        for i, tensor in zip((*self._smooth, *self._other), tensors, strict=True):
            leaves[i] = tensor
        return _jax().tree_util.tree_unflatten(self._structure, leaves)


class _Trace:
    """What JAX does in a call and in its backward, written down once and repeated with other numbers.

    Of a function, the bits must be the same. In the backward of a backward, JAX may add in another order when it is traced; `ulps` allows for that.
    """

    def __init__(self, owner: Any, ulps: int) -> None:
        self._owner = owner  # alive as long as its id is used
        self._ulps = ulps
        self._calls = 0
        self._trusted = True
        self._forward: Callable[..., list[Any]] | None = None
        self._pull: Callable[..., list[Any]] | None = None
        self._form: tuple[Any, ...] = ()
        self._smooth = self._other = 0

    def linearised(self, call: _Call, arrays: Sequence[Any], result: _Result) -> _Linearised:
        """As the function of this name."""
        self._calls += 1
        if not self._trusted or self._calls == 1:
            return _linearised(call.fn, call.wanted, arrays, result)
        if self._calls & (self._calls - 1):
            return self._repeated(arrays, result)
        smooth, pull, other = _linearised(call.fn, call.wanted, arrays, result)
        again = _Result()
        try:
            if self._forward is None:
                self._write(call, arrays)
            copied, repeated, copied_other = self._repeated(arrays, again)
            self._trusted = result.form == again.form and _alike((*smooth, *other), (*copied, *copied_other), self._ulps)
        except Exception:  # of JAX or of the function, which may need numbers
            self._trusted, repeated = False, pull
        if not self._trusted:
            return smooth, pull, other

        def compared(cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
            gradients = pull(cotangents)
            try:
                self._trusted = self._trusted and _alike(gradients, repeated(cotangents), self._ulps)
            except Exception:
                self._trusted = False
            return gradients

        return smooth, compared, other

    def _write(self, call: _Call, arrays: Sequence[Any]) -> None:
        jax, result = _jax(), _Result()
        trees = []

        def forward(*arrays: Any) -> list[Any]:
            smooth, pull, other = _linearised(call.fn, call.wanted, arrays, result)
            self._form, self._smooth, self._other = result.form, len(smooth), len(other)
            residuals, tree = jax.tree_util.tree_flatten(pull)
            trees.append(tree)
            return [*smooth, *other, *residuals]

        def pull(residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
            return list(jax.tree_util.tree_unflatten(trees[-1], residuals)(tuple(cotangents)))

        as_function = importlib.import_module("jax.extend.core").jaxpr_as_fun
        written, made = jax.make_jaxpr(forward, return_shape=True)(*arrays)
        self._forward = as_function(written)
        self._pull = as_function(jax.make_jaxpr(pull)(made[self._smooth + self._other :], made[: self._smooth]))

    def _repeated(self, arrays: Sequence[Any], result: _Result) -> _Linearised:
        assert self._forward is not None
        assert self._pull is not None
        found, again = self._forward(*arrays), self._pull
        both = self._smooth + self._other
        result.form = self._form
        return tuple(found[: self._smooth]), lambda cotangents: tuple(again(*found[both:], *cotangents)), tuple(found[self._smooth : both])


def _alike(first: Sequence[Any], second: Sequence[Any], ulps: int) -> bool:
    """Arrays of equal dtypes, shapes and bits, or apart by that many roundings of their largest element."""
    return all(_close(np.asarray(a), np.asarray(b), ulps) for a, b in zip(first, second, strict=True))


def _close(a: np.ndarray, b: np.ndarray, ulps: int) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.tobytes() == b.tobytes():
        return True
    if not ulps or not _jax().dtypes.issubdtype(a.dtype, np.inexact):
        return False
    wide, other = a.astype(np.complex128), b.astype(np.complex128)
    slack = ulps * float(_jax().numpy.finfo(a.dtype).eps) * np.abs(wide).max()
    return bool(np.isfinite(wide).all() and (np.abs(wide - other) <= slack).all())


class _Bridge(torch.autograd.Function):
    """One call. Torch keeps the arguments and JAX its linearisation; only a backward that is itself differentiated starts again from the arguments."""

    @staticmethod
    def forward(ctx: Any, call: _Call, result: _Result, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        arrays = [_to_jax(tensor) for tensor in tensors]
        if call.trace is not None:
            smooth, ctx.pull, other = call.trace.linearised(call, arrays, result)
        elif call.wanted:
            smooth, ctx.pull, other = _linearised(call.fn, call.wanted, arrays, result)
        else:
            smooth, other = result.parted(call.fn(*arrays))
        device = next((tensor.device for tensor in tensors if not on_host(tensor)), HOST)
        ctx.call, ctx.smooth, ctx.other = call, len(smooth), len(other)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        return tuple(_to_torch(array, device) for array in (*smooth, *other))  # torch knows that integers have no gradient

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        call, tensors = ctx.call, ctx.saved_tensors
        # To torch a complex gradient is the conjugate of what it is to JAX.
        cotangents = tuple(gradient.conj() for gradient in grad_outputs[: ctx.smooth])
        if torch.is_grad_enabled():

            def pulled(arrays: Sequence[Any], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
                return _linearised(call.fn, call.wanted, arrays, _Result())[1](cotangents)

            found = _bridged(pulled, call.trace or pulled, (tensors, cotangents), {}, call.traces, ulps=16)
        else:
            found = tuple(_to_torch(array) for array in ctx.pull(tuple(_to_jax(cotangent) for cotangent in cotangents)))
        gradients: list[torch.Tensor | None] = [None] * len(tensors)
        for i, gradient in zip(call.wanted, found, strict=True):
            gradients[i] = gradient.to(tensors[i].device).conj()
        return None, None, *gradients

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> tuple[torch.Tensor | None, ...]:
        """By `jax.jvp`: of a `jax.custom_jvp` its rule. JAX refuses a `jax.custom_vjp`."""
        tangents = grad_inputs[2:]  # a call and a result come first
        moved = [i for i, tangent in enumerate(tangents) if tangent is not None]

        def pushed(arrays: Sequence[Any], along: Sequence[Any]) -> tuple[Any, ...]:
            chosen = tuple(arrays[i] for i in moved)
            return _jax().jvp(_of(ctx.call.fn, moved, arrays, _Result()), chosen, tuple(along), has_aux=True)[1]

        found = _bridged(pushed, pushed, (ctx.saved_tensors, [tangents[i] for i in moved]), {}, None, ulps=16)
        return (*found, *(None for _ in range(ctx.other)))


def _linearised(fn: Callable[..., Any], wanted: tuple[int, ...], arrays: Sequence[Any], result: _Result) -> _Linearised:
    """`jax.vjp` by the arguments wanted: differentiated results, the map of their cotangents, and the results that have none."""
    return _jax().vjp(_of(fn, wanted, arrays, result), *(arrays[i] for i in wanted), has_aux=True)


def _of(fn: Callable[..., Any], wanted: Sequence[int], arrays: Sequence[Any], result: _Result) -> Callable[..., Any]:
    """`fn` as a function of the arguments wanted alone: differentiated results, and the others."""

    def of_wanted(*chosen: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        full = list(arrays)
        for i, array in zip(wanted, chosen, strict=True):
            full[i] = array
        return result.parted(fn(*full))

    return of_wanted


def _jax() -> Any:
    """The module, or what to install."""
    try:
        return importlib.import_module("jax")
    except ImportError:
        raise ImportError("functions of JAX need JAX: pip install 'pairgrad[jax]'") from None


def _to_jax(tensor: torch.Tensor) -> Any:
    """The tensor as an array of its own dtype, over a copy that nobody else holds."""
    jax = _jax()
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16:  # numpy has no such dtype; JAX brings one
        view = tensor.view(torch.int16).numpy().view(jax.numpy.bfloat16)
    else:
        view = tensor.numpy()
    kept = jax.dtypes.canonicalize_dtype(view.dtype)
    if kept != view.dtype and not (np.issubdtype(kept, np.integer) and np.array_equal(view.astype(kept), view)):
        raise RuntimeError(
            f"JAX would cut {describe(tensor)} down to {kept.name}, because jax_enable_x64 is off: "
            f'call jax.config.update("jax_enable_x64", True), or pass {_narrower(tensor)}'
        )
    return jax.numpy.asarray(view.astype(kept, order="C", copy=True))


def _narrower(tensor: torch.Tensor) -> str:
    return "float32 inputs" if tensor.is_floating_point() else "complex64 inputs" if tensor.is_complex() else "integers that 32 bits hold"


def _to_torch(array: Any, device: torch.device = HOST) -> torch.Tensor:
    """A copy of the array as a tensor of its dtype; arrays of JAX never change, tensors do."""
    copy = np.array(array, order="C", copy=True)
    if copy.dtype == _jax().numpy.bfloat16:
        return torch.from_numpy(copy.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(copy).to(device)
