"""Checks of arguments, and the sentences that go with them: which argument, what was expected, what came, what to do."""

from __future__ import annotations

import numbers
import operator
from fractions import Fraction
from typing import Any

import torch

try:  # private names; without them, arguments inside vmap are looked at too, and torch says that it cannot
    from torch._C._functorch import is_functorch_wrapped_tensor, maybe_current_level
except ImportError:  # pragma: no cover

    def is_functorch_wrapped_tensor(tensor: torch.Tensor, /) -> bool:  # noqa: D103
        return False

    def maybe_current_level() -> int | None:  # noqa: D103
        return None


HALF_DTYPES = (torch.float16, torch.bfloat16)
DTYPES = (torch.float32, torch.float64)


def describe(value: Any) -> str:
    """What came, in a few words."""
    if isinstance(value, torch.Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)} on {value.device}"
    return f"{value!r} ({type(value).__name__})"


def floating_tensor(name: str, value: Any) -> torch.Tensor:
    """`value` if it is a real floating-point tensor, else a TypeError."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{name} must be a floating-point torch tensor, got {describe(value)}: wrap it, e.g. torch.tensor(..., dtype=torch.float64)"
        )
    if value.dtype not in DTYPES and value.dtype not in HALF_DTYPES:
        raise TypeError(
            f"{name} must have dtype float32 or float64 (float16 and bfloat16 are computed in float32), got {describe(value)}: use {name}.to(torch.float32)"
        )
    return value


def computing_dtype(name: str, dtype: Any) -> torch.dtype:
    """The dtype in which tensors of `dtype` are computed: float32 for the half ones, else itself; a TypeError if they cannot be."""
    if dtype not in DTYPES and dtype not in HALF_DTYPES:
        raise TypeError(f"{name} must be torch.float32, torch.float64, torch.float16 or torch.bfloat16, got {describe(dtype)}")
    return torch.float32 if dtype in HALF_DTYPES else dtype


def integer_at_least(name: str, value: Any, least: int, *, hint: str = "") -> int:
    """`value` as an int >= `least`."""
    tail = f": {hint}" if hint else ""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer >= {least}, got {describe(value)}{tail}") from None
    if number < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {number}{tail}")
    return number


def exact_number(name: str, value: Any, *, least: int = 0) -> Fraction:
    """`value` as an exact rational >= `least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number >= {least}, got {describe(value)}")
    try:
        number = Fraction(value) if isinstance(value, numbers.Rational) else Fraction(float(value))
    except (ValueError, OverflowError):
        raise ValueError(f"{name} must be a finite number >= {least}, got {value!r}") from None
    if number < least:
        raise ValueError(f"{name} must be >= {least}, got {value!r}")
    return number


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """The value, if it is one of the choices; else an error that names the argument and all of them."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def readable(tensor: torch.Tensor) -> bool:
    """Whether looking at the values costs no device synchronisation: a plain CPU tensor, outside torch.compile and torch.func."""
    return not torch.compiler.is_compiling() and tensor.device.type == "cpu" and not is_functorch_wrapped_tensor(tensor)


def inside_torch_func() -> bool:
    """Whether this runs inside vmap, grad or another transform of torch.func, where what is drawn may have a mapped dimension."""
    return maybe_current_level() is not None


def assert_later(condition: torch.Tensor, message: str) -> None:
    """An assertion the device makes when it gets there: no synchronisation now."""
    torch._assert_async(condition, message)  # pyright: ignore[reportPrivateImportUsage]
