"""A torch function as a JAX one, for `jax.test_util.check_grads`: the value is that of the torch forward, the vjp that of the torch backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch


class NotWrapped(Exception):
    """JAX has no arrays of this kind."""


def check_grads(fn: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """`jax.test_util.check_grads` in reverse mode, first order, with its default tolerances; AssertionError if it fails.

    Args:
        fn: takes the arguments by position.
        arguments: those that require a gradient become arrays, the others are held.
    """
    import jax
    import jax.test_util
    from jax.experimental import enable_x64

    with enable_x64():
        jax.test_util.check_grads(*as_jax(fn, arguments), order=1, modes=["rev"])


def as_jax(fn: Callable[..., Any], arguments: Sequence[Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The JAX function, a `jax.custom_vjp` over `jax.pure_callback`, and its arrays."""
    import jax

    places = [i for i, x in enumerate(arguments) if isinstance(x, torch.Tensor) and x.requires_grad]
    if any(arguments[i].layout != torch.strided or arguments[i].is_complex() for i in places):
        raise NotWrapped("a sparse or complex argument")

    def run(arrays: Sequence[Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The differentiable outputs, and the leaves."""
        given = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in arguments]
        leaves = []
        for place, array in zip(places, arrays, strict=True):
            leaves.append(_tensor(array, arguments[place]).requires_grad_())
            given[place] = leaves[-1]
        with torch.enable_grad():
            result = fn(*given)
        outputs = [x for x in (result if isinstance(result, (tuple, list)) else (result,)) if isinstance(x, torch.Tensor)]
        return [torch.view_as_real(x) if x.is_complex() else x for x in outputs if x.requires_grad], leaves

    def values(*arrays: Any) -> tuple[Any, ...]:
        return tuple(_array(x) for x in run(arrays)[0])

    def pulled(arrays: Sequence[Any], cotangents: Sequence[Any]) -> tuple[Any, ...]:
        outputs, leaves = run(arrays)
        weights = [_tensor(c, x) for c, x in zip(cotangents, outputs, strict=True)]
        gradients = torch.autograd.grad(outputs, leaves, weights, allow_unused=True)
        return tuple(_array(torch.zeros_like(x) if g is None else g) for x, g in zip(leaves, gradients, strict=True))

    arrays = tuple(jax.numpy.asarray(_array(arguments[place])) for place in places)
    made = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in values(*arrays))
    if not made:
        raise NotWrapped("no output that is a differentiable tensor")

    @jax.custom_vjp
    def wrapped(*xs: Any) -> Any:
        return jax.pure_callback(values, made, *xs)

    def forward(*xs: Any) -> Any:
        return wrapped(*xs), xs

    def backward(xs: Any, cotangents: Any) -> Any:
        return jax.pure_callback(pulled, tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in xs), xs, cotangents)

    wrapped.defvjp(forward, backward)
    return wrapped, arrays


def _array(tensor: torch.Tensor) -> Any:
    """NumPy has no bfloat16; JAX brings one."""
    import jax.numpy as jnp

    return tensor.detach().double().numpy().astype(jnp.dtype(str(tensor.dtype).removeprefix("torch.")))


def _tensor(array: Any, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float64)).to(like.dtype).reshape(like.shape)
