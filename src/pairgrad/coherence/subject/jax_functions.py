"""JAX functions as torch callables, so that they are audited by the methods that audit torch ones.

Only the numbers cross: the value is the one JAX computes, the backward hands on what `jax.vjp` supplies, right or wrong, and
the backward of the backward is JAX's derivative of that, reverse over reverse.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from pairgrad.ground.checks import describe

_HOST = torch.device("cpu")


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
    jax = _jax()
    if not callable(fn):
        raise TypeError(f"fn must be a function of JAX arrays, got {describe(fn)}")

    @functools.wraps(fn, updated=())
    def bridged(*args: Any, **kwargs: Any) -> Any:
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
        result = _Result()
        return result.rebuilt(_Bridge.apply(of_arrays, wanted, result, *tensors))

    return bridged


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

    def rebuilt(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The result with tensors in the places of the arrays, in the order in which they were parted."""
        leaves = self._leaves.copy()
        for i, tensor in zip((*self._smooth, *self._other), tensors, strict=True):
            leaves[i] = tensor
        return _jax().tree_util.tree_unflatten(self._structure, leaves)


class _Bridge(torch.autograd.Function):
    """One call. Torch keeps the arguments and JAX its linearisation; only a backward that is itself differentiated starts again from the arguments."""

    @staticmethod
    def forward(
        ctx: Any, fn: Callable[..., Any], wanted: tuple[int, ...], result: _Result, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        arrays = [_to_jax(tensor) for tensor in tensors]
        if wanted:
            smooth, ctx.pull, other = _linearised(fn, wanted, arrays, result)
        else:
            smooth, other = result.parted(fn(*arrays))
        device = next((tensor.device for tensor in tensors if tensor.device.type != "cpu"), _HOST)
        ctx.fn, ctx.wanted, ctx.smooth = fn, wanted, len(smooth)
        ctx.save_for_backward(*tensors)
        return tuple(_to_torch(array, device) for array in (*smooth, *other))  # torch knows that integers have no gradient

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        fn, wanted, tensors = ctx.fn, ctx.wanted, ctx.saved_tensors
        # To torch a complex gradient is the conjugate of what it is to JAX.
        cotangents = tuple(gradient.conj() for gradient in grad_outputs[: ctx.smooth])
        if torch.is_grad_enabled():

            def pulled(arrays: Sequence[Any], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
                return _linearised(fn, wanted, arrays, _Result())[1](cotangents)

            found = from_jax(pulled)(tensors, cotangents)
        else:
            found = tuple(_to_torch(array) for array in ctx.pull(tuple(_to_jax(cotangent) for cotangent in cotangents)))
        gradients: list[torch.Tensor | None] = [None] * len(tensors)
        for i, gradient in zip(wanted, found, strict=True):
            gradients[i] = gradient.to(tensors[i].device).conj()
        return None, None, None, *gradients


def _linearised(
    fn: Callable[..., Any], wanted: tuple[int, ...], arrays: Sequence[Any], result: _Result
) -> tuple[tuple[Any, ...], Callable[..., tuple[Any, ...]], tuple[Any, ...]]:
    """`jax.vjp` by the arguments wanted: differentiated results, the map of their cotangents, and the results that have none."""

    def of_wanted(*chosen: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        full = list(arrays)
        for i, array in zip(wanted, chosen, strict=True):
            full[i] = array
        return result.parted(fn(*full))

    return _jax().vjp(of_wanted, *(arrays[i] for i in wanted), has_aux=True)


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


def _to_torch(array: Any, device: torch.device = _HOST) -> torch.Tensor:
    """A copy of the array as a tensor of its dtype; arrays of JAX never change, tensors do."""
    copy = np.array(array, order="C", copy=True)
    if copy.dtype == _jax().numpy.bfloat16:
        return torch.from_numpy(copy.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(copy).to(device)
