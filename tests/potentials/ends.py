"""Arguments from the whole range of a dtype, and the exact functions there in ball arithmetic.

`draw` makes states that reach the ends: subnormal and huge numbers, the sizes whose squares leave the range, zeros of both signs, infinities, and second
arguments equal or adjacent to the first. `compared` evaluates one function of `"paired"` at such states and says how accurate it is; `failures` are the
results that are less accurate than documented.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import flint
import numpy as np
import torch

import pairgrad as pg
from tests.tolerances import (
    BREGMAN_ROUNDINGS,
    DEFICIT_ROUNDINGS_BELOW_DIM_4,
    INVERSE_ROUNDINGS,
    LEGENDRE_ROUNDINGS,
    SUBNORMAL_UNITS,
    paired_tolerance,
)
from tests.truth import order, scale, working_precision

ONE_POINT = ("value", "slope", "pair", "curvature", "complement", "deficit", "legendre", "concentration", "concentration from complement")
TWO_POINT = ("bregman", "difference", "secant", "increment")
_BITS = 70  # relative accuracy of the truth


class Compared(NamedTuple):
    """A result beside the truth."""

    quantity: str
    dtype: torch.dtype
    dim: int
    points: tuple[float, ...]
    got: float
    expected: float
    error: float  # as a multiple of what is allowed


def draw_dim(rng: np.random.Generator) -> int:
    """Half below 64, where the order shift works, the others log-uniform up to 65536."""
    return int(rng.integers(2, 64)) if rng.random() < 0.5 else round(2 ** rng.uniform(1, 16))


def _lengths(rng: np.random.Generator, dim: int, dtype: torch.dtype, count: int) -> np.ndarray:
    """Nonnegative, exactly representable in `dtype`."""
    info, kind = torch.finfo(dtype), np.float64 if dtype == torch.float64 else np.float32
    smallest, largest = math.log2(info.smallest_normal * info.eps), math.log2(info.max)
    whole = rng.uniform(smallest, largest, count)
    roots = rng.choice([smallest / 2, largest / 2, math.log2(info.smallest_normal), largest], count) + rng.uniform(-30, 30, count)
    middle = math.log2(scale(dim)) + rng.uniform(-27, 27, count)
    exponents = np.select([rng.random(count) < 0.5, rng.random(count) < 0.7], [whole, roots], middle)
    x = np.exp2(np.clip(exponents, smallest, np.nextafter(largest, 0))).astype(kind)
    special = np.array([0, info.smallest_normal * info.eps, info.smallest_normal, info.max, np.inf, 1], dtype=kind)
    return np.where(rng.random(count) < 0.06, rng.choice(special, count), x)


def draw(rng: np.random.Generator, quantity: str, dim: int, dtype: torch.dtype, count: int) -> tuple[torch.Tensor, ...]:
    """Arguments of one function."""
    signs = rng.choice(np.array([-1, 1], dtype=np.float32), (2, count))
    with np.errstate(all="ignore"):
        a = _lengths(rng, dim, dtype, count)
        kind = a.dtype
        if quantity == "concentration from complement":
            return (torch.from_numpy(np.minimum(a, 1)),)
        if quantity == "concentration":
            length = np.where(rng.random(count) < 0.2, 1 - np.minimum(a, 1), np.minimum(a, 1))
            return (torch.from_numpy((signs[0] * length).astype(kind)),)
        if quantity in ONE_POINT:
            return (torch.from_numpy((signs[0] * a).astype(kind)),)
        other = _lengths(rng, dim, dtype, count)
        gaps = (a * (1 + signs[0] * 10 ** rng.uniform(-17, 0, count))).astype(kind)
        steps = np.nextafter(a, rng.choice(np.array([0, np.inf], dtype=kind), count))
        far = (a * 10 ** rng.uniform(-3, 3, count)).astype(kind)
        pick = rng.random(count)
        b = np.select([pick < 0.4, pick < 0.6, pick < 0.7, pick < 0.95], [other, gaps, steps, far], a).astype(kind)
        if quantity == "increment":
            squares = (other * signs[0] * np.where(rng.random(count) < 0.5, other, 1)).astype(kind)
            squares = np.where(rng.random(count) < 0.3, ((b - a) * (b + a)).astype(kind), squares)
            squares = np.where(np.isnan(squares) | (squares == -np.inf), -1, squares)
            squares = np.maximum(squares, -(a * a))
            return torch.from_numpy(a), torch.from_numpy(squares.astype(kind))
        if quantity != "bregman":
            a, b = (signs[0] * a).astype(kind), (np.where(rng.random(count) < 0.8, signs[0], signs[1]) * b).astype(kind)
        return torch.from_numpy(a), torch.from_numpy(b.astype(kind))


# Truth. Every function below is evaluated at growing precision, until its ball has `_BITS` correct bits.


def _phi(nu: flint.arb, x: flint.arb) -> flint.arb:
    """log I_nu(x) - nu log x for x >= 0."""
    return x.bessel_i(nu, scaled=True).log() + x - nu * x.log() if x != 0 else -nu * nu.const_log2() - (nu + 1).lgamma()


def _ratio(nu: flint.arb, x: flint.arb) -> flint.arb:
    """I_{nu+1}(x) / I_nu(x), odd in x."""
    if x == 0:
        return flint.arb(0)
    size = abs(x)
    ratio = size.bessel_i(nu + 1, scaled=True) / size.bessel_i(nu, scaled=True)
    return -ratio if x < 0 else ratio


def _value(nu: flint.arb, x: flint.arb) -> flint.arb:
    return _phi(nu, abs(x)) - _phi(nu, flint.arb(0)) if x != 0 else flint.arb(0)


def _curvature(nu: flint.arb, x: flint.arb) -> flint.arb:
    if x == 0:
        return 1 / (2 * nu + 2)
    ratio = _ratio(nu, x)
    return 1 - ratio * ratio - (2 * nu + 1) * ratio / x


def _difference(nu: flint.arb, a: flint.arb, b: flint.arb) -> flint.arb:
    return _phi(nu, abs(b)) - _phi(nu, abs(a)) if abs(a) != abs(b) else flint.arb(0)


def _secant(nu: flint.arb, a: flint.arb, b: flint.arb) -> flint.arb:
    return _difference(nu, a, b) / (b - a) if a != b else _ratio(nu, a)


def _bregman(nu: flint.arb, a: flint.arb, b: flint.arb) -> flint.arb:
    return _difference(nu, a, b) - _ratio(nu, a) * (b - a) if a != b else flint.arb(0)


def _increment(nu: flint.arb, a: flint.arb, squared: flint.arb) -> flint.arb:
    if squared == 0:
        return flint.arb(0)
    square = a * a + squared
    return _phi(nu, square.sqrt() if square > 0 else flint.arb(0)) - _phi(nu, a)


_EXACT: dict[str, Callable[..., flint.arb]] = {
    "value": _value,
    "slope": _ratio,
    "curvature": _curvature,
    "complement": lambda nu, x: 1 - _ratio(nu, x),
    "deficit": lambda nu, x: x - _value(nu, x),
    "legendre": lambda nu, x: x * _ratio(nu, x) - _value(nu, x),
    "bregman": _bregman,
    "difference": _difference,
    "secant": _secant,
    "increment": _increment,
}


def exactly(quantity: str, dim: int, *points: float) -> flint.arb:
    """The ball of one of the functions above at floats, which are the numbers they are."""
    bits = 192
    while True:
        with working_precision(bits):
            nu = flint.arb(order(dim).numerator) / order(dim).denominator
            ball = _EXACT[quantity](nu, *map(flint.arb, points))
        if ball.rel_accuracy_bits() >= _BITS or ball == 0:
            return ball
        assert bits < 1 << 15, (quantity, dim, points, ball)
        bits *= 2


def limit(quantity: str, *points: float) -> float:
    """What the function is where an argument is infinite; NaN where there is no limit."""
    x, last = points[0], points[-1]
    sign = math.copysign(1, x)
    if quantity == "increment":
        return math.nan if math.isinf(x) and math.isinf(last) else math.inf if math.isinf(last) else 0.0
    if quantity == "bregman":
        return 0.0 if x == last else math.inf
    if quantity == "difference":
        return abs(last) - abs(x)
    if quantity == "secant":
        if math.isinf(x) and math.isinf(last):
            return sign if x == last else 0.0
        return math.copysign(1, x if math.isinf(x) else last)
    limits = {"value": math.inf, "slope": sign, "curvature": 0.0, "complement": 1 - sign, "deficit": x, "legendre": math.inf}
    return limits[quantity]


def allowed(quantity: str, dtype: torch.dtype, dim: int, truth: flint.arb, *points: float) -> float:
    """The documented error: relative to the result, and some units of the smallest subnormal number."""
    info = torch.finfo(dtype)
    if quantity == "bregman":
        relative = BREGMAN_ROUNDINGS * info.eps
    elif quantity == "deficit" and dim < 4:
        relative = DEFICIT_ROUNDINGS_BELOW_DIM_4 * info.eps
    elif quantity == "legendre":
        relative = LEGENDRE_ROUNDINGS * info.eps
    elif quantity == "increment":
        low = (dim / 2 - 0.5) ** 2 + flint.arb(points[0]) ** 2
        high = low + flint.arb(points[1])
        least = flint.arb((dim / 2 - 0.5) ** 2)
        relative = paired_tolerance("difference", dtype, dim) * max(1.0, float(low / (high if high > least else least))) ** 0.5
    else:
        relative = paired_tolerance(quantity, dtype, dim)
    return float(abs(truth)) * relative + SUBNORMAL_UNITS * info.smallest_normal * info.eps


def _error(quantity: str, dtype: torch.dtype, dim: int, got: float, *points: float) -> tuple[float, float]:
    """The error as a multiple of what is allowed, and what was expected."""
    if not all(map(math.isfinite, points)):
        expected = limit(quantity, *points)
        return (0.0 if got == expected or (math.isnan(got) and math.isnan(expected)) else math.inf), expected
    truth = exactly(quantity, dim, *points)
    expected = float(truth)
    largest = torch.finfo(dtype).max
    if abs(expected) > largest or not math.isfinite(got):
        return (0.0 if abs(expected) >= largest * (1 - 1e-6) and abs(got) >= largest * (1 - 1e-6) else math.inf), expected
    with working_precision(192):
        return float(abs(flint.arb(got) - truth)) / allowed(quantity, dtype, dim, truth, *points), expected


def _inverse_error(dtype: torch.dtype, dim: int, got: float, length: float, *, of: str) -> tuple[float, float]:
    """Of x with slope(x) or complement(x) = `length`: what is left of that equation, over the curvature, is the error of x, to first order."""
    ends = {0.0: 0.0, 1.0: math.inf} if of == "slope" else {0.0: math.inf, 1.0: 0.0}
    if abs(length) in ends:
        expected = math.copysign(ends[abs(length)], length)
        return (0.0 if got == expected else math.inf), expected
    info = torch.finfo(dtype)
    if of == "complement" and (dim - 1) / 2 / length > info.max * (1 - 1e-6):
        return (0.0 if got > info.max * (1 - 1e-5) else math.inf), math.inf
    if not math.isfinite(got) or got == 0:
        return math.inf, math.nan
    reached, bend = exactly(of, dim, got), exactly("curvature", dim, got)
    with working_precision(192):
        step = (reached - flint.arb(length)) / bend
        condition = max(1.0, float(abs(length / (got * bend))))
        room = INVERSE_ROUNDINGS * info.eps / 2 * condition * abs(got) + SUBNORMAL_UNITS * dim * info.smallest_normal * info.eps
        return float(abs(step)) / room, got - float(step)


WAYS = (
    "few",
    "one",
    "many",
)  # numbers in a call: up to 2^14 take another way through the library than more of them, and a single one a third


def results(quantity: str, dim: int, *points: torch.Tensor, way: str = "few") -> dict[str, torch.Tensor]:
    """What `"paired"` computes, by the name of what it should be."""
    if way == "one":
        parts = [results(quantity, dim, *row) for row in zip(*(p.split(1) for p in points), strict=True)]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    if way == "many":
        count = len(points[0])
        found = results(quantity, dim, *(p.repeat(2**14 // count + 1) for p in points))
        return {name: result[:count] for name, result in found.items()}
    pot = pg.potential(dim)
    if quantity == "pair":
        return pot.pair(*points)._asdict()
    if quantity == "concentration from complement":
        return {quantity: pot.concentration(1 - points[0], complement=points[0])}
    return {quantity: getattr(pot, quantity)(*points)}


_ERRORS: dict[str, Callable[..., tuple[float, float]]] = {
    **{quantity: partial(_error, quantity) for quantity in _EXACT},
    "concentration": partial(_inverse_error, of="slope"),
    "concentration from complement": partial(_inverse_error, of="complement"),
}


def compared(quantity: str, dtype: torch.dtype, dim: int, *points: torch.Tensor, way: str = "few") -> Iterator[Compared]:
    """Each result of the function beside the truth."""
    for name, result in results(quantity, dim, *points, way=way).items():
        for got, *row in zip(result.tolist(), *(p.tolist() for p in points), strict=True):
            error, expected = _ERRORS[name](dtype, dim, got, *row)
            yield Compared(quantity, dtype, dim, tuple(row), got, expected, error)


def failures(quantity: str, dtype: torch.dtype, dim: int, *points: torch.Tensor, way: str = "few") -> list[Compared]:
    """Where the function is less accurate than documented."""
    return [found for found in compared(quantity, dtype, dim, *points, way=way) if not found.error <= 1]
