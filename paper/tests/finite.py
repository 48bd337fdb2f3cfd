"""The finite-start recurrence on b_i and b_i' in mpmath, straight from eqs. miller-b and miller-potential: no line of the library is used."""

from __future__ import annotations

from typing import Any, NamedTuple

from mpmath import besseli, log, mp, mpf


class Finite(NamedTuple):
    value: Any
    derivative: Any
    raw_ratio: Any


def finite_start(nu: int, start: int, x: Any) -> Finite:
    """Value, derivative of the value, and raw ratio, at the working precision of mpmath."""
    here, above, d_here, d_above = mpf(1), mpf(0), mpf(0), mpf(0)
    kept = {start: (here, d_here)}
    for i in range(start, 0, -1):
        below = 2 * i * here / x + above
        d_below = 2 * i * (d_here - here / x) / x + d_above
        above, here, d_above, d_here = here, below, d_here, d_below
        if i - 1 in (0, nu, nu + 1):
            kept[i - 1] = (here, d_here)
    (b0, d0), (b, d), (b_next, _) = kept[0], kept[nu], kept[nu + 1]
    derivative = besseli(1, x) / besseli(0, x) + d / b - d0 / b0 - nu / x
    return Finite(log(besseli(0, x)) + log(b / b0) - nu * log(x), derivative, b_next / b)


def relative_defect(nu: int, start: int, x: float, digits: int) -> Any:
    """log10 of |min(raw ratio, 1) - derivative| / |derivative|, by subtraction at `digits` digits."""
    with mp.workdps(digits):
        finite = finite_start(nu, start, mpf(x))
        return +mp.log10(abs(min(finite.raw_ratio, 1) - finite.derivative) / abs(finite.derivative))
