"""Every private name of torch that pairgrad uses, one small function or constant each. A test enforces that no other file uses any.

Checked with torch 2.11.0, 2.12.1, 2.13.0 and 2.15.0. Up to 2.10 some of it behaves differently; in 2.15 `apply_owner` is None.

Two kinds of names do not count: methods of a module that subclasses override (`_apply`, `_load_from_state_dict`), and names that are data, in messages or
in the files that torch writes and `compat` reads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

import torch
import torch._C._functorch as functorch
import torch.autograd.forward_ad as _forward_mode
import torch.nn.modules.module as _module
from torch.utils import _pytree

pytree = _pytree  # nested containers of tensors; there is no public module for them
is_functorch_wrapped_tensor = functorch.is_functorch_wrapped_tensor  # whether a transform of torch.func holds a tensor
is_legacy_batched = functorch.is_legacy_batchedtensor  # whether autograd holds a batch of gradients (`is_grads_batched`) as one tensor
maybe_current_level = functorch.maybe_current_level  # how many transforms of torch.func are active; None without any
current_backward = torch._C._current_graph_task_id  # the number of the backward pass that runs in this thread, -1 outside of one
owner_of = attrgetter("_forward_cls")  # the class whose `apply` made a context, which must be one

FUNCTIONS_CLASS = "_VariableFunctionsClass"  # what the qualified names of functions such as torch.exp begin with
_GENERATED = "GeneratedBackwardFor_"  # what the names of Functions that torch.library makes begin with

_Made = TypeVar("_Made", bound=Callable[..., Any])


def version(tensor: torch.Tensor) -> int:
    """Counts the in-place edits of a tensor; inference tensors raise."""
    return tensor._version


def storage_address(tensor: torch.Tensor) -> int:
    """The same for all tensors that share memory. (`data_ptr()` is 0 for every storage without memory.)"""
    return tensor.untyped_storage()._cdata


def sparse_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices and values of a COO tensor. The public `indices()` and `values()` refuse one that is not coalesced."""
    return tensor._indices(), tensor._values()


def sparse_values(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a sparse tensor of any layout."""
    return tensor._values() if tensor.layout == torch.sparse_coo else tensor.values()


def with_values(pattern: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A sparse tensor with the elements of `pattern` in their order, and other values."""
    if pattern.layout == torch.sparse_coo:
        return torch.sparse_coo_tensor(pattern._indices(), values, pattern.shape, is_coalesced=pattern.is_coalesced())
    by_row = pattern.layout in (torch.sparse_csr, torch.sparse_bsr)
    inner, outer = (pattern.crow_indices(), pattern.col_indices()) if by_row else (pattern.ccol_indices(), pattern.row_indices())
    return torch.sparse_compressed_tensor(inner, outer, values, pattern.shape, layout=pattern.layout)


def registries(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """The dicts of a module's own parameters and buffers, to be written to; `named_buffers` makes copies, and a subclass may override it."""
    return module._parameters, module._buffers


def standard_gamma(concentration: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """Gamma variables of scale 1. The public `torch.distributions.Gamma` takes no generator."""
    return torch._standard_gamma(concentration, generator=generator)  # pyright: ignore[reportPrivateImportUsage]


def new_distribution(distribution: torch.distributions.Distribution, cls: type, instance: Any) -> Any:
    """The object that `expand` of `cls` fills: `instance`, or an empty one of the distribution's class if that has the `__init__` of `cls`."""
    return distribution._get_checked_instance(cls, instance)


def assert_async(condition: torch.Tensor, message: str) -> None:
    """An assertion that the device makes when it gets there."""
    torch._assert_async(condition, message)  # pyright: ignore[reportPrivateImportUsage]


def default_store() -> Any:
    """The store of the default process group."""
    return torch.distributed.distributed_c10d._get_default_store()


def compile_options(mode: str | None = None) -> dict[str, Any]:
    """The options that a mode of torch.compile stands for; those of each mode if None."""
    return torch._inductor.list_mode_options(mode)


@cache
def has_compile_option(name: str) -> bool:
    """Whether this torch has an option of torch.compile; it refuses those that it does not know."""
    return name in torch._inductor.list_options()


def constant_result(function: _Made) -> _Made:
    """As `torch.compiler.assume_constant_result`, which imports the compiler: torch.compile runs the function once and does not trace it."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def compiled_region_functions() -> tuple[Any, str, str] | None:
    """A module and the names of two of its functions: the first is called when a compiled region begins, the second before and after its code runs.

    None if this torch does not have them.
    """
    from torch._dynamo import eval_frame  # slow to import

    names = "_callback_from_stance", "_maybe_set_eval_frame"
    return (eval_frame, *names) if all(hasattr(eval_frame, name) for name in names) else None


def compiler_backend(name: str) -> Callable[..., Any]:
    """A backend of torch.compile by its name; `torch.compiler.list_backends` lists the names."""
    from torch._dynamo import lookup_backend  # slow to import

    return lookup_backend(name)


def graph_breaks(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> list[tuple[str, str, int]]:
    """Why, in which file and at which line torch.compile breaks the graph of a call. Resets what was compiled."""
    from torch._dynamo import explain  # slow to import

    found = []
    for entry in explain(fn)(*args, **kwargs).break_reasons:
        frame = entry.user_stack[-1] if entry.user_stack else None
        found.append((entry.reason.splitlines()[0], frame.filename if frame else "", (frame.lineno or 0) if frame else 0))
    return found


def pop_function_modes() -> list[Any]:
    """Takes off all modes of torch functions, and returns them, the uppermost first."""
    return [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]


def push_function_mode(mode: Any) -> None:
    """Puts a mode of torch functions on top."""
    torch._C._push_on_torch_function_stack(mode)


def default_device_mode() -> Any:
    """The mode of `torch.set_default_device`, which must be the lowest; None without one."""
    return getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)


_HOOKS = tuple(name for name in vars(_module) if name.startswith("_global_"))


def global_hooks() -> list[Any]:
    """What is registered for all modules: a copy of each dict of hooks, and whether the backward hooks are of the full kind (None without any)."""
    registered = [getattr(_module, name) for name in _HOOKS]
    return [dict(value) if isinstance(value, dict) else value for value in registered]


def set_global_hooks(hooks: list[Any]) -> None:
    """Puts back what `global_hooks` gave. The dicts stay the same objects: handles of hooks hold them."""
    for name, value in zip(_HOOKS, hooks, strict=True):
        registry = getattr(_module, name)
        if isinstance(registry, dict):
            registry.clear()
            registry.update(value)
        else:
            setattr(_module, name, value)


def forward_mode() -> bool:
    """Whether tensors may carry tangents (`torch.autograd.forward_ad`)."""
    return _forward_mode._current_level >= 0


def unobserved() -> bool:
    """Whether operations are what they seem: no transform of torch.func, no forward mode, no mode and no tracer follows them."""
    return not (
        functorch.maybe_current_level() is not None or forward_mode() or torch._C._len_torch_dispatch_stack() or torch._C._is_tracing()
    )


def dispatch_modes() -> int:
    """How many dispatch modes are on, such as those of the compiler."""
    return torch._C._len_torch_dispatch_stack()


def apply_owner() -> type[Any] | None:
    """The base of Function whose `apply` makes the node; `Function.apply` looks it up at every call. None where it is not written in Python."""
    return torch.autograd.function._SingleLevelFunction if isinstance(vars(torch.autograd.Function)["apply"], classmethod) else None


def function_of(ctx: Any) -> Any:
    """The class whose `apply` made a context; None if it is not a context."""
    return getattr(ctx, "_forward_cls", None)


def is_generated(function: type) -> bool:
    """Whether torch.library made the Function for a custom operator, whose forward is then the operator itself."""
    return function.__module__ == "torch._library.autograd" and function.__name__.startswith(_GENERATED)


def is_collective(function: type) -> bool:
    """Whether torch.library made the Function for a collective of torch.distributed, in a namespace such as "_c10d_functional"."""
    return is_generated(function) and function.__name__.startswith((f"{_GENERATED}c10d", f"{_GENERATED}_c10d"))


def operator_metadata(ctx: Any) -> Any:
    """What the context of a generated Function keeps about the call of the operator; None for others."""
    return getattr(ctx, "_pt_metadata", None)


def operator_functions(definition: Any) -> list[Any]:
    """The backward and the forward that a custom operator was defined with, None for one that it does not have."""
    return [getattr(definition, name, None) for name in ("_backward_fn", "_init_fn")]


def operator_name(function: Any) -> str:
    """The qualified name of an operator, as it is called or defined, or of one of its overloads, such as "aten::add"; empty for other callables."""
    return str(next((getattr(function, name) for name in ("_qualname", "_qualified_op_name", "_name") if hasattr(function, name)), ""))


def is_ddp_sink(function: type) -> bool:
    """Whether a Function is the one through which DistributedDataParallel passes the outputs of a model."""
    return function.__name__ == "_DDPSink"


def opcheck_error() -> type[Exception]:
    """What `torch.library.opcheck` raises; it has no public name."""
    from torch.testing._internal.optests.generate_tests import OpCheckError  # slow to import

    return OpCheckError
