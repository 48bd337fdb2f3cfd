"""Losses whose gradient in the features is known already: the one place where they meet autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import Function, forward_ad

from pairgrad.ground._torch_private import is_functorch_wrapped_tensor, version
from pairgrad.losses.reduction import reduce


def attached(
    loss: torch.Tensor,
    gradient: torch.Tensor | None,
    features: torch.Tensor,
    *state: Any,
    again: Callable[..., torch.Tensor],
    state_gradients: Callable[..., Sequence[torch.Tensor | None]] | None = None,
    reduction: str = "none",
    share: float = 1.0,
) -> torch.Tensor:
    """`loss` (...), whose gradient in the features (..., p) is `gradient`, reduced; where nothing needs a gradient, a constant.

    Args:
        state: what the loss may be differentiated by besides the features, tensors or not.
        again: the losses from (features, *state) once more, in operations that can be differentiated, for a second derivative.
        state_gradients: the gradients in `state` from (gradient of the losses, features, *state), where a tensor of it requires one.
        share: what `gradient` has been multiplied with already: 1, or for a mean the share of a row.
    """
    if gradient is None and not any(isinstance(value, torch.Tensor) and value.requires_grad for value in state):
        return reduce(loss, reduction)
    if torch.compiler.is_compiling():
        return reduce(_Traced.apply(features, loss, gradient), reduction)
    return _Attached.apply(loss, gradient, again, state_gradients, reduction, share, features, *state)


class _Attached(Function):
    """In eager mode, reduced at once."""

    @staticmethod
    def forward(
        ctx: Any,
        loss: torch.Tensor,
        gradient: torch.Tensor | None,
        again: Callable[..., torch.Tensor],
        state_gradients: Callable[..., Sequence[torch.Tensor | None]] | None,
        reduction: str,
        share: float,
        features: torch.Tensor,
        *state: Any,
    ) -> torch.Tensor:
        ctx.again, ctx.state_gradients, ctx.reduction, ctx.rows = again, state_gradients, reduction, max(loss.numel(), 1)
        ctx.averaged = share != 1
        # a bank that is updated before backward runs must not stop it: what needs no gradient is kept, not saved
        ctx.kept = [None if isinstance(value, torch.Tensor) and value.requires_grad else value for value in state]
        ctx.places = [place for place, value in enumerate(state) if isinstance(value, torch.Tensor) and value.requires_grad]
        ctx.versions = [_version(value) for value in ctx.kept]
        ctx.save_for_backward(gradient, features, *(state[place] for place in ctx.places))
        return loss.clone() if reduction == "none" else reduce(loss, reduction)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        gradient, features, *learned = ctx.saved_tensors
        if not (ctx.kept or torch.is_grad_enabled()):
            return None, None, None, None, None, None, _by_features(ctx, grad, gradient, features)
        inputs = [features, *ctx.kept]
        for place, value in zip(ctx.places, learned, strict=True):
            inputs[1 + place] = value
        needed = ctx.needs_input_grad[6:]
        found: list[torch.Tensor | None] = [None] * len(inputs)
        if torch.is_grad_enabled():
            _unchanged(ctx)
            wanted = [place for place, need in enumerate(needed) if need]
            loss = reduce(ctx.again(*inputs), ctx.reduction)
            parts = torch.autograd.grad(loss, [inputs[place] for place in wanted], grad, create_graph=True)
            for place, part in zip(wanted, parts, strict=True):
                found[place] = part
            return *(None,) * 6, *found
        if any(needed[1:]):
            _unchanged(ctx)
            found[1:] = ctx.state_gradients(grad, *inputs)
        if needed[0]:
            found[0] = _by_features(ctx, grad, gradient, features)
        return *(None,) * 6, *found


def _by_features(ctx: Any, grad: torch.Tensor, gradient: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
    if ctx.reduction == "none":
        total = grad.unsqueeze(-1) * gradient
    else:
        total = gradient * (grad / ctx.rows if ctx.reduction == "mean" and not ctx.averaged else grad)
    return total.to(features.dtype)


class _Traced(Function):
    """Inside a compiled region: the gradient in the features alone, for losses (...) and a gradient (..., p)."""

    @staticmethod
    def forward(features: torch.Tensor, loss: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        return loss.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        (gradient,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * gradient, None, None


def _version(value: Any) -> int | None:
    return version(value) if isinstance(value, torch.Tensor) and not value.is_inference() else None


def _unchanged(ctx: Any) -> None:
    if [_version(value) for value in ctx.kept] != ctx.versions:
        raise RuntimeError(
            "the class state was changed between the forward and a backward that evaluates it again, with create_graph=True or for gradients in the "
            "state, the temperature or the prior: update the bank after backward, or take the scores of a copy"
        )


def is_transformed(tensor: torch.Tensor) -> bool:
    """Whether a torch.func transform or forward-mode differentiation is active."""
    if torch.compiler.is_compiling():
        return False
    return is_functorch_wrapped_tensor(tensor) or forward_ad.unpack_dual(tensor).tangent is not None
