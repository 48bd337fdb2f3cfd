"""Hostile values by kind of argument: what must be refused, and what is odd but says the same as a plain value."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import torch

HUGE = 10**30  # fits no machine integer


class Subclass(torch.Tensor):
    """A tensor of another class, as libraries hand them around."""


@dataclass(frozen=True)
class Hostile:
    """One value that an argument is replaced by.

    Attributes:
        name: for the report.
        value: itself.
        plain: an ordinary value that says the same. If the call takes `value`, it must give what it gives for `plain`, and where `plain` is refused, so must
            it be. None where there is none.
        refused: it must not be taken.
    """

    name: str
    value: Any
    plain: Any = None
    refused: bool = False
    exact: bool = True  # equal bits, or to the rounding of the narrowest dtype

    @property
    def huge(self) -> bool:
        """Of the size of the largest float: a result may be beyond it, and infinite."""
        return "1e+308" in self.name


@dataclass(frozen=True)
class Kind:
    """What an argument may be.

    Attributes:
        values: the hostile values beside a valid one.
        optional: whether None is valid.
    """

    values: Callable[[Any], Iterator[Hostile]]
    optional: bool = False
    name: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def hostile(self, valid: Any) -> Iterator[Hostile]:
        if not self.optional:
            yield Hostile("None", None, refused=True)
        yield from self.values(valid)

    def or_none(self) -> Kind:
        return Kind(self.values, True, self.name, self.options)


_STRANGE: dict[str, Any] = {
    "a word": "seven",
    "an empty string": "",
    "bytes": b"7",
    "a dict": {"value": 1},
    "a set": {1, 2},
    "an object": object(),
    "a class": int,
    "a complex number": 1 + 2j,
    "a lambda": lambda: 1,
    "not implemented": NotImplemented,
    "an ellipsis": ...,
}
_NO_SCALARS: dict[str, Any] = {
    "a list of two": [1, 2],
    "an array of two": np.array([1.0, 2.0]),
    "a tensor of two": torch.tensor([1.0, 2.0]),
    "an empty tensor": torch.zeros(0),
    "a meta tensor": torch.zeros((), device="meta"),
    "an object array": np.array([None, "a"], dtype=object),
}


def _strange(*but: str) -> Iterator[Hostile]:
    for name, value in {**_STRANGE, **_NO_SCALARS}.items():
        if name not in but:
            yield Hostile(name, value, refused=True)


def _number(good: Callable[[float], bool], *, integer: bool = False, huge: bool | None = None) -> Callable[[Any], Iterator[Hostile]]:
    def values(valid: Any) -> Iterator[Hostile]:
        yield from _strange()
        yield Hostile("True", True, refused=True)
        yield Hostile("False", False, refused=True)
        yield Hostile("a number in a string", str(valid), refused=True)
        yield Hostile("a number in a list", [valid], refused=True)
        for number in (math.nan, math.inf, -math.inf):
            yield Hostile(repr(number), number, refused=not good(number))
        for number in (-1, 0, 2**62, HUGE, -HUGE, 10**400):
            wrong = not good(float(number)) if abs(number) < 10**300 else (huge is False or integer or not good(math.inf))
            yield Hostile(f"{number:.3g}" if abs(number) < 10**300 else "10**400", number, refused=wrong)
        for number in (-0.0, 5e-324, 1e-45, 1e308, -1e-3, 0.5, 2.5):
            yield Hostile(repr(number), number, refused=integer or not good(number))
        if integer:
            yield Hostile("a whole float", float(valid), refused=True)
            for cast in (np.int64, np.int32, np.int8, np.uint8):
                if abs(valid) < 100 and valid >= 0:
                    yield Hostile(cast.__name__, cast(valid), plain=valid)
            yield Hostile("a fraction", Fraction(valid), refused=True)
            yield Hostile("an integer tensor", torch.tensor(valid), plain=valid)
        else:
            yield Hostile("numpy float64", np.float64(valid), plain=float(valid))
            yield Hostile("numpy float32", np.float32(valid), plain=float(np.float32(valid)))
            if abs(valid) < 6e4:
                yield Hostile("numpy float16", np.float16(valid), plain=float(np.float16(valid)))
            yield Hostile("a fraction", Fraction(valid), plain=float(valid))
            yield Hostile("a decimal", Decimal(valid), plain=float(valid))
            yield Hostile("an array of no dimensions", np.array(valid), plain=float(valid))
            tensor = torch.tensor(float(valid), dtype=torch.float64)
            yield Hostile("a tensor", tensor, plain=float(valid), exact=False)
            yield Hostile("a tensor that requires a gradient", tensor.clone().requires_grad_(), plain=float(valid), exact=False)
            yield Hostile("a tensor of NaN", torch.tensor(math.nan), refused=True)

    return values


def integer(least: int = -(2**63), most: int = 2**63 - 1) -> Kind:
    return Kind(_number(lambda v: math.isfinite(v) and least <= v <= most, integer=True), name="integer")


def number(good: Callable[[float], bool], *, huge: bool = False) -> Kind:
    """A real number for which `good` holds."""
    return Kind(_number(good, huge=huge), name="number")


def flag(valid: Any) -> Iterator[Hostile]:
    yield from _strange()
    for number in (2, -1, 0.5, math.nan, "False", "no", [], [False]):
        yield Hostile(repr(number), number, refused=True)
    yield Hostile("numpy bool", np.bool_(valid), plain=bool(valid))
    yield Hostile("1", 1, plain=True)


def choice(valid: Any) -> Iterator[Hostile]:
    yield from _strange()
    for number in (0, 1.5, True, math.nan, HUGE):
        yield Hostile(repr(number), number, refused=True)
    yield Hostile("in capitals", str(valid).upper(), refused=True)
    yield Hostile("with a space", f"{valid} ", refused=True)
    yield Hostile("in a list", [valid], refused=True)
    yield Hostile("in bytes", str(valid).encode(), refused=True)
    yield Hostile("in an array", np.array([valid, valid]), refused=True)
    yield Hostile("numpy string", np.str_(valid), plain=str(valid))
    yield Hostile("a null character", "\0", refused=True)


def dtype(valid: Any) -> Iterator[Hostile]:
    yield from _strange()
    for value in ("float32", "torch.float32", np.float32, float, torch.int64, torch.bool, torch.complex64, torch.quint8, 32, True):
        yield Hostile(str(value), value, refused=True)
    yield Hostile("float8", torch.float8_e4m3fn, refused=True)


def device(valid: Any) -> Iterator[Hostile]:
    for name in ("a word", "an empty string", "bytes", "a dict", "an object", "a list of two", "a complex number"):
        yield Hostile(name, {**_STRANGE, **_NO_SCALARS}[name], refused=True)
    for value in (1.5, math.nan, "cpu:-1", "cuda:x", True, HUGE, -7):
        yield Hostile(repr(value), value, refused=True)


def generator(valid: Any) -> Iterator[Hostile]:
    yield from _strange()
    for value in (0, 3.5, True, np.random.default_rng(0)):
        yield Hostile(repr(value)[:20], value, refused=True)


def odd_views(valid: torch.Tensor) -> Iterator[Hostile]:
    """The same numbers in another place or under another name: contiguity, storage, gradients, subclasses."""
    spread = torch.stack([valid, torch.full_like(valid, 7)], -1)[..., 0]
    yield Hostile("every other element", spread, plain=valid)
    if valid.dim() >= 2:
        yield Hostile("transposed in memory", valid.transpose(0, -1).contiguous().transpose(0, -1), plain=valid)
    whole = torch.cat([torch.full((3,), 7, dtype=valid.dtype), valid.reshape(-1)])
    yield Hostile("with an offset", whole[3:].view(valid.shape), plain=valid)
    if valid.dim() >= 1 and len(valid):
        row = valid[:1].expand_as(valid)
        yield Hostile("expanded", row, plain=row.contiguous())
    yield Hostile("of a subclass", valid.clone().as_subclass(Subclass), plain=valid)
    if valid.is_floating_point():
        yield Hostile("negated lazily", torch.complex(torch.zeros_like(valid), -valid).conj().imag, plain=valid)
        yield Hostile("a parameter", torch.nn.Parameter(valid.clone()), plain=valid)
        yield Hostile("a leaf", valid.clone().requires_grad_(), plain=valid)
        yield Hostile("a view of a leaf", spread.clone().requires_grad_().view_as(valid), plain=valid)
    with torch.inference_mode():
        frozen = valid.clone()
    yield Hostile("made in inference mode", frozen, plain=valid)


def _no_tensors(valid: torch.Tensor, *, arrays: bool, lists: bool, optional_scalar: bool = False) -> Iterator[Hostile]:
    for name, value in _STRANGE.items():
        yield Hostile(name, value, refused=True)
    for name, value in {"True": True, "nan": math.nan, "10**30": HUGE, "10**400": 10**400}.items():
        yield Hostile(name, value, refused=name != "10**30" or not optional_scalar)
    if not optional_scalar:
        yield Hostile("0", 0, refused=True)
        yield Hostile("1.5", 1.5, refused=True)
    if not lists:
        yield Hostile("a list", valid.tolist(), refused=True)
    if not arrays:
        yield Hostile("an array", valid.numpy(), refused=True)
    yield Hostile("an object array", np.array([None] * 3, dtype=object), refused=True)
    yield Hostile("an array of strings", np.array(["a", "b"]), refused=True)
    yield Hostile("a ragged list", [[1.0], [1.0, 2.0]], refused=True)
    yield Hostile("a list of None", [None], refused=True)
    if valid.is_floating_point():
        yield Hostile("complex", torch.complex(valid, valid), refused=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated, and still around
            quantized = torch.quantize_per_tensor(valid.float(), 0.1, 0, torch.qint8)
        yield Hostile("quantized", quantized, refused=True)
    yield Hostile("sparse", valid.to_sparse() if valid.dim() else torch.ones(2).to_sparse(), refused=True)
    if valid.dim() == 2:
        yield Hostile("sparse by rows", _csr(valid), refused=True)
    yield Hostile("on meta", valid.to("meta"), refused=True)


def _csr(valid: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return valid.to_sparse_csr()


def _shapes(valid: torch.Tensor, ranks: bool, rows: bool, broadcast: bool) -> Iterator[Hostile]:
    """Shapes that are wrong, though many would broadcast."""
    if ranks:
        yield Hostile("one more dimension in front", valid[None], refused=True)
        yield Hostile("one more dimension at the end", valid[..., None], refused=True)
        if valid.dim() > 1:
            yield Hostile("flat", valid.reshape(-1), refused=True)
    if valid.dim():
        if ranks:
            yield Hostile("no dimension", valid.reshape(-1)[0], refused=True)
        if rows:
            yield Hostile("one row", valid[:1], refused=True)
            yield Hostile("one row more", torch.cat([valid, valid[:1]]), refused=True)
            yield Hostile("one row less", valid[:-1], refused=True)
            yield Hostile("no rows", valid[:0], refused=True)
    if valid.dim() > 1:
        yield Hostile("one column", valid[..., :1], refused=True)
        yield Hostile("one column less", valid[..., :-1], refused=True)
        yield Hostile("no columns", valid[..., :0], refused=True)
        if valid.shape[-1] != valid.shape[-2]:
            yield Hostile("transposed", valid.transpose(-1, -2), refused=True)
    del broadcast


def _with(valid: torch.Tensor, value: float) -> torch.Tensor:
    changed = valid.clone()
    changed.reshape(-1)[-1] = value
    return changed


def _reals(
    low: float = -math.inf,
    *,
    ranks: bool = True,
    rows: bool = True,
    nan: bool = False,
    inf: bool = False,
    minus_inf: bool = False,
    arrays: bool = False,
    lists: bool = False,
    ints: bool = False,
    wide: bool = True,
    scalars: bool = False,
) -> Callable[[torch.Tensor], Iterator[Hostile]]:
    def values(valid: torch.Tensor) -> Iterator[Hostile]:
        yield from _no_tensors(valid, arrays=arrays, lists=lists, optional_scalar=scalars)
        yield from _shapes(valid, ranks, rows, False)
        if not ints:
            yield Hostile("integers", valid.long(), refused=True)
        yield Hostile("booleans", valid > 0, refused=True)
        if not nan:
            yield Hostile("one NaN", _with(valid, math.nan), refused=True)
            yield Hostile("all NaN", torch.full_like(valid, math.nan), refused=True)
        if not inf:
            yield Hostile("one inf", _with(valid, math.inf), refused=True)
        if not minus_inf:
            yield Hostile("one -inf", _with(valid, -math.inf), refused=True)
        if low >= 0:
            yield Hostile("one negative", _with(valid, -1e-3), refused=True)
            yield Hostile("all negative", -valid.abs() - 1, refused=True)
        if wide:
            for scale in (1e308, 1e20, 1e-20, 1e-45, 5e-324, 0.0):
                yield Hostile(f"times {scale:g} in float64", valid.double() * scale)
                if scale < 1e38:
                    yield Hostile(f"times {scale:g}", (valid.double() * scale).to(valid.dtype))
        for other in (torch.float64, torch.float32):
            if valid.dtype != other:
                yield Hostile(str(other), valid.to(other), plain=valid.to(other).to(valid.dtype), exact=False)
        for half in (torch.float16, torch.bfloat16):
            yield Hostile(str(half), valid.to(half), plain=valid.to(half).to(valid.dtype), exact=False)
        if not lists:
            yield Hostile("float8", valid.to(torch.float8_e4m3fn), refused=True)
        yield from odd_views(valid)

    return values


def reals(**options: Any) -> Kind:
    """A tensor of finite real numbers; options say what else is allowed (see `_reals`)."""
    return Kind(_reals(**options), name="reals", options=options)


def labels(*, arrays: bool = False, rows: bool = True, negative: bool = False) -> Kind:
    """Integers from 0, one per row."""

    def values(valid: torch.Tensor) -> Iterator[Hostile]:
        yield from _no_tensors(valid, arrays=arrays, lists=False)
        yield Hostile("one more dimension in front", valid[None], refused=True)
        yield Hostile("one column", valid[:, None], refused=True)
        yield Hostile("no dimension", valid[0], refused=True)
        if rows:
            yield Hostile("one label", valid[:1], refused=True)
            yield Hostile("one less", valid[:-1], refused=True)
            yield Hostile("one more", torch.cat([valid, valid[:1]]), refused=True)
            yield Hostile("none", valid[:0], refused=True)
        yield Hostile("float32", valid.float(), refused=True)
        yield Hostile("float64", valid.double(), refused=True)
        yield Hostile("booleans", valid > 0, refused=True)
        if not negative:
            yield Hostile("one -1", _with(valid, -1), refused=True)
            yield Hostile("the smallest integer", _with(valid, -(2**63)), refused=True)
            yield Hostile("the largest integer", _with(valid, 2**63 - 1), refused=True)
            yield Hostile("a large int8", _with(valid.to(torch.int8), 127), refused=True)
            yield Hostile("a negative int8", _with(valid.to(torch.int8), -100 + 1), refused=True)
        for other in (torch.int32, torch.int16, torch.int8, torch.uint8):
            yield Hostile(str(other), valid.to(other), plain=valid)
        yield Hostile("uint16", valid.to(torch.uint16), plain=valid)
        yield Hostile("uint64", valid.to(torch.uint64), plain=valid)
        yield from odd_views(valid)

    return Kind(values, name="labels")


def strange(valid: Any) -> Iterator[Hostile]:
    yield from _strange()
    for value in (0, 1.5, True, math.nan, HUGE):
        yield Hostile(repr(value)[:10], value, refused=True)


def shape(valid: Any) -> Iterator[Hostile]:
    for name in ("a word", "bytes", "a dict", "an object", "a complex number"):
        yield Hostile(name, _STRANGE[name], refused=True)
    for value in ((-1,), (1.5,), (True,), ("a",), (None,), (2**62, 2**62), (HUGE,), ((1,),), math.nan, -1):
        yield Hostile(repr(value), value, refused=True)


def path(valid: Any) -> Iterator[Hostile]:
    for hostile in strange(valid):
        if hostile.name != "a word":
            yield hostile


FLAG, CHOICE, DTYPE, DEVICE, GENERATOR, STRANGE, SHAPE, PATH = (
    Kind(values, name=name)
    for values, name in (
        (flag, "flag"),
        (choice, "choice"),
        (dtype, "dtype"),
        (device, "device"),
        (generator, "generator"),
        (strange, "strange"),
        (shape, "shape"),
        (path, "path"),
    )
)
POSITIVE = number(lambda v: 0 < v < math.inf)
NONNEGATIVE = number(lambda v: 0 <= v < math.inf)
FINITE = number(math.isfinite)
SHARE = number(lambda v: 0 <= v <= 1)
