"""What inputs on the command line can be made of: random and regular tensors, lists of numbers, files."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import normalize

from pairgrad.compat import read_tensors
from pairgrad.ground._torch_private import pytree
from pairgrad.ground.reading import read_bytes, read_json, read_safetensors

DTYPES = {
    name: getattr(torch, name)
    for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex128", "complex64")
}
LARGEST = 2**28  # elements of one tensor; a slip of the finger should not fill the memory
MOST_DIMENSIONS = 64  # torch makes tensors of more, and does nothing with them


@dataclass
class Making:
    """How tensors are made: generator and dtype for those that do not say theirs, and the ones that are not to be differentiated."""

    generator: torch.Generator
    dtype: torch.dtype = torch.float64
    fixed: list[torch.Tensor] = field(default_factory=list)


def _normal(shape: Sequence[int], making: Making) -> torch.Tensor:
    return torch.randn(shape, generator=making.generator, dtype=torch.float64)


def _even(shape: Sequence[int], making: Making) -> torch.Tensor:
    return torch.rand(shape, generator=making.generator, dtype=torch.float64)


def _definite(shape: Sequence[int], making: Making) -> torch.Tensor:
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"spd needs a shape that ends in two equal sizes, such as spd(4, 4), got {tuple(shape)}")
    root = _normal(shape, making)
    return root @ root.mT / shape[-1] + torch.eye(shape[-1], dtype=torch.float64)


def _geometric(low: float, high: float, count: float, making: Making) -> torch.Tensor:
    if low <= 0 or high <= 0:
        raise ValueError(f"geomspace needs two positive ends, got {low:g} and {high:g}")
    return torch.linspace(math.log(low), math.log(high), _count(count), dtype=torch.float64).exp()


def _integers(*arguments: Any) -> torch.Tensor:
    """Of [low,] high, shape and how to make them."""
    low, high, shape, making = arguments if len(arguments) == 4 else (0, *arguments)
    if not (-(2**63) <= low < high < 2**63 and low == int(low) and high == int(high)):
        raise ValueError(f"randint needs whole numbers low < high, both of 64 bits, got {low:g} and {high:g}")
    return torch.randint(int(low), int(high), shape, generator=making.generator)


def _uniform(low: float, high: float, shape: Sequence[int], making: Making) -> torch.Tensor:
    if not low < high:
        raise ValueError(f"uniform needs low < high, got {low:g} and {high:g}")
    return low + (high - low) * _even(shape, making)


def _chances(p: float, shape: Sequence[int], making: Making) -> torch.Tensor:
    if not 0 <= p <= 1:
        raise ValueError(f"bernoulli needs a probability from 0 to 1, got {p:g}")
    return (_even(shape, making) < p).double()


def _count(value: float) -> int:
    if not 0 <= value <= LARGEST or value != int(value):
        raise ValueError(f"a number of elements must be a whole number from 0 to {LARGEST}, got {value:g}")
    return int(value)


def _identity(n: float, making: Making) -> torch.Tensor:
    rows = _count(n)
    if rows**2 > LARGEST:
        raise ValueError(f"eye of {rows} rows has {rows**2} elements, more than {LARGEST}")
    return torch.eye(rows, dtype=torch.float64)


@dataclass(frozen=True)
class Maker:
    """A function of the language. Numbers come first; `shape` says whether sizes or a tuple of them come after."""

    example: str
    says: str
    make: Callable[..., torch.Tensor]
    numbers: tuple[int, ...] = (0,)  # how many numbers it may take before the shape
    shape: bool = True


_F64: dict[str, Any] = {"dtype": torch.float64}
MAKERS: dict[str, Maker] = {
    "randn": Maker("randn(32, 128)", "normal numbers", _normal),
    "rand": Maker("rand(8)", "even on 0 to 1", _even),
    "uniform": Maker("uniform(0.1, 4, (16,))", "even between two ends", _uniform, (2,)),
    "positive": Maker("positive(8)", "exp of normal numbers", lambda shape, making: _normal(shape, making).exp()),
    "unit": Maker("unit(32, 128)", "rows of length 1", lambda shape, making: normalize(_normal(shape, making), dim=-1)),
    "simplex": Maker("simplex(32, 10)", "rows that add up to 1", lambda shape, making: _normal(shape, making).softmax(-1)),
    "spd": Maker("spd(4, 4)", "symmetric positive definite", _definite),
    "randint": Maker("randint(10, (32,))", "whole numbers below", _integers, (1, 2)),
    "bernoulli": Maker("bernoulli(0.5, (8,)):bool", "0 or 1", _chances, (1,)),
    "ones": Maker("ones(3)", "", lambda shape, making: torch.ones(shape, **_F64)),
    "zeros": Maker("zeros(3)", "", lambda shape, making: torch.zeros(shape, **_F64)),
    "full": Maker("full(2.5, (3,))", "", lambda value, shape, making: torch.full(shape, float(value), **_F64), (1,)),
    "eye": Maker("eye(4)", "", _identity, (1,), shape=False),
    "arange": Maker("arange(10)", "whole numbers from 0", lambda n, making: torch.arange(_count(n)), (1,), shape=False),
    "linspace": Maker("linspace(0, 1, 8)", "", lambda a, b, n, making: torch.linspace(a, b, _count(n), **_F64), (3,), shape=False),
    "logspace": Maker(
        "logspace(-3, 3, 8)", "powers of ten", lambda a, b, n, making: torch.logspace(a, b, _count(n), **_F64), (3,), shape=False
    ),
    "geomspace": Maker("geomspace(0.1, 10, 8)", "even in the logarithm", _geometric, (3,), shape=False),
}
FIXED = "fixed"  # the wrapper of what is not to be differentiated
KNOWN = (
    "known: "
    + ", ".join(f"{maker.example}{f' ({maker.says})' if maker.says else ''}" for maker in MAKERS.values())
    + ", fixed(...) (not differentiated), numbers, [1.5, 2, -3], true, false, none, 'text', @file.safetensors, @file.pt, @file.json; "
    "a dtype may follow, as in randn(4, 4):float32"
)


def load(path: str, dtype: torch.dtype = torch.float64) -> Any:
    """The content of a file of inputs: tensors by name, or whatever plain structure it holds. Nothing in it is executed."""
    kind = Path(path).suffix.lower()
    if kind == ".safetensors":
        try:
            loaded, _ = read_safetensors(path)
        except ImportError as error:
            raise ValueError(str(error)) from None
        except ValueError as error:
            raise ValueError(f"{path} is not a safetensors file: {error}") from None
        positions = [str(i) for i in range(len(loaded))]
        return tuple(loaded[name] for name in positions) if sorted(loaded) == sorted(positions) else loaded
    if kind in (".pt", ".pth"):
        try:
            return read_tensors(path)
        except ValueError as error:
            raise ValueError(f"{path} cannot be read: {error}") from None
    if kind == ".json":
        try:
            content = read_json(read_bytes(path))
        except ValueError as error:
            raise ValueError(f"{path} is not a JSON file: {error}") from None
        try:
            if isinstance(content, list) and not _even_rows(content):  # not one tensor: arguments one by one
                return tuple(as_tensor(item, dtype) for item in content)
            return as_tensor(content, dtype)
        except (ValueError, TypeError, RuntimeError, OverflowError) as error:
            raise ValueError(f"{path} holds numbers that make no tensor: {error}") from None
    raise ValueError(f"inputs are read from .safetensors, .pt, .pth and .json files, got {path!r}")


def as_tensor(value: Any, dtype: torch.dtype) -> Any:
    """Lists of numbers, nested evenly, as tensors; whole numbers as int64. Other lists and dicts stay, with what is inside turned."""
    return _as_tensor(value, dtype, {})


def _as_tensor(value: Any, dtype: torch.dtype, known: dict[int, set[type]]) -> Any:
    if isinstance(value, dict):
        return {name: _as_tensor(item, dtype, known) for name, item in value.items()}
    if not isinstance(value, list):
        return value
    types = _types(value, known)
    if not types <= {bool, int, float}:
        return [_as_tensor(item, dtype, known) for item in value]
    if not _even_rows(value):
        raise ValueError("rows of different lengths")
    return torch.tensor(value, dtype=None if types and float not in types else dtype)


def _types(value: list[Any], known: dict[int, set[type]]) -> set[type]:
    """The types in a list and in the lists in it. Each list is asked once, however deep it is."""
    if id(value) not in known:
        types = set(map(type, value))
        if list in types:
            types = types - {list} | {each for item in value if isinstance(item, list) for each in _types(item, known)}
        known[id(value)] = types
    return known[id(value)]


def _even_rows(value: list[Any]) -> bool:
    rows = [item for item in value if isinstance(item, list)]
    return not rows or (len(rows) == len(value) and len({len(row) for row in rows}) == 1 and all(_even_rows(row) for row in rows))


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors in a structure."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
