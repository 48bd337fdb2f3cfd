"""torch.compile with the settings that are right here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from pairgrad.ground._torch_private import compile_options
from pairgrad.ground.checks import describe, one_of

# a b + c with one rounding where the processor has it: polynomials in half the instructions, and never less accurate
_OPTIONS = {"cpp.enable_floating_point_contract_flag": "fast"}
Callee = TypeVar("Callee", bound=Callable[..., Any])


def checked_mode(name: str, mode: Any) -> str:
    """`mode` if it is one of torch.compile, else a ValueError."""
    return one_of(name, mode, tuple(compile_options()))


def compile(target: Callee, *, mode: str | None = None) -> Callee:
    """`torch.compile` of a module or function as one graph with static shapes, so that nothing falls back to eager mode unseen.

    One graph per shape of the batch: drop the last, smaller batch of an epoch or it is compiled for itself. Values are not checked inside a compiled region.

    Args:
        target: a module, such as a loss, or a function of tensors.
        mode: of torch.compile; `"reduce-overhead"` captures CUDA graphs.
    """
    if not callable(target) or isinstance(target, type):
        raise TypeError(f"target must be a module or a function, got {describe(target)}")
    options = {**_OPTIONS, **compile_options(checked_mode("mode", mode))} if mode is not None else dict(_OPTIONS)
    return torch.compile(target, fullgraph=True, dynamic=False, options=options)  # type: ignore[return-value]
