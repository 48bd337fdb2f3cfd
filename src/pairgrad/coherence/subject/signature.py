"""What a callable takes."""

from __future__ import annotations

import inspect
from typing import Any

import torch


def function_of(fn: Any) -> type | None:
    """The autograd.Function whose `apply` this is."""
    owner = getattr(fn, "__self__", None)
    return owner if isinstance(owner, type) and issubclass(owner, torch.autograd.Function) else None


def signature(fn: Any) -> inspect.Signature | None:
    """The signature of a call; for a Function that of its forward, without ctx; None if it is not known."""
    owner = function_of(fn)
    try:
        if owner is None:
            return inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn)
        own = inspect.signature(owner.forward)
        with_ctx = owner.setup_context is torch.autograd.Function.setup_context
        parameters = list(own.parameters.values())[1 if with_ctx else 0 :]
        return own.replace(parameters=parameters)
    except (TypeError, ValueError, AttributeError):
        return None
