"""torch.compile with the settings that are right here."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

import torch

from pairgrad.ground._torch_private import compile_options, has_compile_option
from pairgrad.ground.checks import describe, one_of

# a b + c with one rounding where the processor has it: polynomials in half the instructions, and never less accurate
_OPTIONS: dict[str, Any] = {"cpp.enable_floating_point_contract_flag": "fast"}
# Inductor compiles and loads a test program for each vector instruction set before its first kernel, which takes six to ten seconds. A compiler that is new
# enough for torch's headers has the sets that torch finds in the processor.
if "TORCHINDUCTOR_VEC_ISA_OK" not in os.environ:
    _OPTIONS["cpp.vec_isa_ok"] = True
# Results of more operations than this are computed once, not again in each loop that uses them; loops that can be one are fused all the same. At torch's own
# 50 our chains are generated several times over.
_OPTIONS["realize_cpu_opcount_threshold"] = 12
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
    return _compiled(target, mode, {})


def _compiled(target: Any, mode: str | None, options: dict[str, Any]) -> Any:
    options = options | {name: value for name, value in _OPTIONS.items() if has_compile_option(name)}
    if mode is not None:
        options.update(compile_options(checked_mode("mode", mode)))
    return torch.compile(target, fullgraph=True, dynamic=False, options=options)


def compiled_copy(function: FunctionType, *, mode: str | None = None) -> FunctionType:
    """`compile` of a function of this library, as a copy with a code object of its own: torch.compile keeps at most eight graphs for one.

    What the function finds in our modules does not change, so that a call does not check it again: that took as long as all elementwise arithmetic of a step.
    """
    copy = FunctionType(function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    return _compiled(copy, mode, {"guard_filter_fn": lambda guards: [not guard.is_global for guard in guards]})
