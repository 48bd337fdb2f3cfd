"""Checks of arguments, and the sentences that go with them: which argument, what was expected, what came, what to do."""

from __future__ import annotations

import difflib
import inspect
import math
import numbers
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from pairgrad.ground._torch_private import assert_async, is_functorch_wrapped_tensor, is_legacy_batched, maybe_current_level, unobserved
from pairgrad.ground.devices import has_values, on_host

HALF_DTYPES = (torch.float16, torch.bfloat16)
DTYPES = (torch.float32, torch.float64)


_PLAIN = (torch.Tensor, torch.nn.Parameter)
_LONGEST = 100  # characters of what came that are shown
SMALL = 2**14  # numbers of which torch takes longer to start an operation than to do it
LARGEST = 2**63 - 1  # the largest size, count or seed that torch can take


def describe(value: Any) -> str:
    """What came, in a few words."""
    if isinstance(value, torch.Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)} on {value.device}"
    if isinstance(value, np.ndarray):
        return f"a {value.dtype} array of shape {value.shape}"
    return f"{_shown(value)} ({type(value).__name__})"


def _shown(value: Any) -> str:
    """Its repr, as far as a sentence can hold it."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**40:  # Python refuses to print the longest ones
        return f"an integer of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:  # of a class that is not ours
        return f"an object of class {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def dense(name: str, value: torch.Tensor) -> torch.Tensor:
    """`value` if it has a number in every place of its memory, else a TypeError."""
    if not torch.compiler.is_compiling() and (value.layout != torch.strided or value.is_nested):
        raise TypeError(f"{name} must be a dense tensor, got one of layout {value.layout}: use {name}.to_dense()")
    return value


def floating_tensor(name: str, value: Any) -> torch.Tensor:
    """`value` if it is a dense real floating-point tensor, else a TypeError."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{name} must be a floating-point torch tensor, got {describe(value)}: wrap it, e.g. torch.tensor(..., dtype=torch.float64)"
        )
    if value.dtype not in DTYPES and value.dtype not in HALF_DTYPES:
        raise TypeError(
            f"{name} must have dtype float32 or float64 (float16 and bfloat16 are computed in float32), got {describe(value)}: use {name}.to(torch.float32)"
        )
    return dense(name, value)


def on_one_device(first: str, a: torch.Tensor, second: str, b: torch.Tensor) -> None:
    """A ValueError unless two tensors are on the same device."""
    if a.device != b.device:
        raise ValueError(f"{first} and {second} must be on one device, got {a.device} and {b.device}: move one with .to(...)")


def on_device(name: str, value: torch.Tensor, device: torch.device, where: str = "", move: str = "one") -> None:
    """A ValueError unless a tensor is on this device, `where` something else is; `move` says what to move."""
    if value.device != device:
        raise ValueError(f"{name} must be on {device}{where and f', where {where}'}, got {describe(value)}: move {move} with .to(...)")


def computing_dtype(name: str, dtype: Any) -> torch.dtype:
    """The dtype in which tensors of `dtype` are computed: float32 for the half ones, else itself; a TypeError if they cannot be."""
    if not isinstance(dtype, torch.dtype) or (dtype not in DTYPES and dtype not in HALF_DTYPES):
        raise TypeError(f"{name} must be torch.float32, torch.float64, torch.float16 or torch.bfloat16, got {describe(dtype)}")
    return torch.float32 if dtype in HALF_DTYPES else dtype


def wide_dtype(name: str, dtype: Any, *, hint: str = "") -> torch.dtype:
    """`dtype` if it is torch.float32 or torch.float64, else a TypeError."""
    if not isinstance(dtype, torch.dtype) or dtype not in DTYPES:
        raise TypeError(f"{name} must be torch.float32 or torch.float64, got {describe(dtype)}{hint and f': {hint}'}")
    return dtype


def integer_at_least(name: str, value: Any, least: int, *, hint: str = "", most: int = LARGEST) -> int:
    """`value` as an int from `least` to `most`."""
    tail = f": {hint}" if hint else ""
    wanted = "an integer" if least < -LARGEST else f"an integer >= {least}"
    try:
        if isinstance(value, bool) or (isinstance(value, torch.Tensor) and (value.dtype == torch.bool or not has_values(value))):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be {wanted}, got {describe(value)}{tail}") from None
    if number < least:
        raise ValueError(f"{name} must be {wanted}, got {_shown(number)}{tail}")
    if number > most:
        limit = "2^63 - 1" if most == LARGEST else str(most)
        raise ValueError(f"{name} must be an integer from {least} to {limit}, got {_shown(number)}{tail}")
    return number


def exact_number(name: str, value: Any, *, least: int = 0) -> Fraction:
    """`value` as an exact rational >= `least`, of the size of a float."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number >= {least}, got {describe(value)}")
    try:
        number = Fraction(value) if isinstance(value, numbers.Rational) else Fraction(float(value))
        float(number)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} must be a finite number >= {least}, got {_shown(value)}") from None
    if number < least:
        raise ValueError(f"{name} must be >= {least}, got {_shown(value)}")
    return number


def real_number(
    name: str, value: Any, expected: str, good: Callable[[float], bool] = math.isfinite, *, kind: type[Exception] = TypeError
) -> float:
    """`value` as a float for which `good` holds; `expected` says which those are, such as "a finite number > 0". `kind`: raised for no number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise kind(f"{name} must be {expected}, got {describe(value)}")
    try:
        number = float(value)
    except OverflowError:  # an integer or a fraction beyond all floats
        raise ValueError(f"{name} must be {expected}, got {_shown(value)}") from None
    if not good(number):
        raise ValueError(f"{name} must be {expected}, got {_shown(value)}")
    return number


def boolean(name: str, value: Any, *, hint: str = "") -> bool:
    """`value` if it is True or False: a word such as "no" would count as True."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {describe(value)}{hint and f': {hint}'}")
    return bool(value)


def optional_boolean(name: str, value: Any) -> bool | None:
    """`value` if it is True, False or None."""
    if value is not None and not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True, False or None, got {describe(value)}")
    return None if value is None else bool(value)


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """The value, if it is one of the choices; else an error that names the argument and all of them."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, choices))}, got {describe(value) if not isinstance(value, str) else _shown(value)}"
        )
    return value


def known_options(name: str, options: Mapping[str, Any], *takers: Callable[..., Any]) -> None:
    """A TypeError for a keyword that the last of the `takers` would be blamed for: it names what the user called, and what is near."""
    known = {
        parameter.name
        for taker in takers
        for parameter in inspect.signature(taker).parameters.values()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, sorted(known), 1, 0.6)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
            raise TypeError(f"{name} has no option {option!r}: {hint}")


def shape_of(name: str, value: Any) -> torch.Size:
    """`value` as a torch.Size of sizes >= 0 that memory can hold."""
    if torch.compiler.is_compiling():
        return torch.Size(value)
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{name} must be a tuple of integers >= 0, got {describe(value)}: e.g. (3,)")
    sizes: list[Any] = [
        size if isinstance(size, torch.SymInt) else integer_at_least(f"{name}[{i}]", size, 0) for i, size in enumerate(value)
    ]
    if math.prod(sizes) >= 2**60:
        raise ValueError(f"{name} must have fewer than 2^60 elements, got {describe(tuple(value))}")
    return torch.Size(sizes)


def generator_or_none(name: str, value: Any) -> torch.Generator | None:
    """`value` if it is a torch.Generator or None, else a TypeError."""
    if value is not None and not isinstance(value, torch.Generator):
        raise TypeError(f"{name} must be a torch.Generator or None, got {describe(value)}: e.g. torch.Generator().manual_seed(0)")
    return value


def device_or_none(name: str, value: Any) -> torch.device | None:
    """`value` as a torch.device; an index is one of the accelerator. None stays None."""
    if value is None or isinstance(value, torch.device):
        return value
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 128):
        try:
            return torch.device(value)
        except RuntimeError:
            pass
    raise ValueError(f"{name} must be a torch.device or its name, such as 'cpu' or 'cuda:0', got {describe(value)}")


def readable(tensor: torch.Tensor) -> bool:
    """Whether looking at the values costs no device synchronisation: a plain CPU tensor, outside torch.compile and torch.func."""
    return not torch.compiler.is_compiling() and on_host(tensor) and not is_functorch_wrapped_tensor(tensor)


def in_plain_memory(tensors: Sequence[torch.Tensor], most: int = SMALL) -> bool:
    """Whether NumPy can compute with these tensors instead: at most so many float32 or float64 numbers of the host each, no graph to record, and nothing
    that follows torch's operations.
    """
    if torch.compiler.is_compiling() or not unobserved():
        return False
    recorded = torch.is_grad_enabled()
    for t in tensors:
        if not 0 < t.numel() <= most or t.dtype not in DTYPES or not on_host(t) or type(t) not in _PLAIN or (recorded and t.requires_grad):
            return False
        if is_legacy_batched(t):
            return False
    return True


def inside_torch_func() -> bool:
    """Whether this runs inside vmap, grad or another transform of torch.func, where what is drawn may have a mapped dimension."""
    return maybe_current_level() is not None


def assert_later(condition: torch.Tensor, message: str) -> None:
    """An assertion the device makes when it gets there: no synchronisation now."""
    assert_async(condition, message)
