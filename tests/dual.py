"""Forward-mode derivatives in mpmath: a formula evaluated on dual numbers differentiates itself, at any precision."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath


class Dual:
    """value + derivative * d."""

    def __init__(self, value: Any, derivative: Any = 0) -> None:
        self.value, self.derivative = mpmath.mpf(value), mpmath.mpf(derivative)

    def __add__(self, other: Any) -> Dual:
        other = _dual(other)
        return Dual(self.value + other.value, self.derivative + other.derivative)

    def __mul__(self, other: Any) -> Dual:
        other = _dual(other)
        return Dual(self.value * other.value, self.derivative * other.value + self.value * other.derivative)

    def __truediv__(self, other: Any) -> Dual:
        other = _dual(other)
        quotient = self.value / other.value
        return Dual(quotient, (self.derivative - quotient * other.derivative) / other.value)

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.derivative)

    def __sub__(self, other: Any) -> Dual:
        return self + -_dual(other)

    def __rsub__(self, other: Any) -> Dual:
        return _dual(other) + -self

    def __rtruediv__(self, other: Any) -> Dual:
        return _dual(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def __lt__(self, other: Any) -> bool:
        return self.value < _dual(other).value

    def __le__(self, other: Any) -> bool:
        return self.value <= _dual(other).value

    def __gt__(self, other: Any) -> bool:
        return self.value > _dual(other).value

    def __ge__(self, other: Any) -> bool:
        return self.value >= _dual(other).value

    def __eq__(self, other: object) -> bool:
        return self.value == _dual(other).value

    __hash__ = None  # type: ignore[assignment]

    def __abs__(self) -> Dual:
        return -self if self.value < 0 else self


def _dual(x: Any) -> Dual:
    return x if isinstance(x, Dual) else Dual(x)


class DualArithmetic:
    """The arithmetic of `pairgrad.ground.arithmetic` on dual numbers."""

    name = "dual"

    def __init__(self) -> None:
        self.absolute, self.maximum, self.minimum, self.at_least = abs, max, min, max

    def constant(self, value: Fraction | float) -> Dual:
        exact = Fraction(value)
        return Dual(mpmath.mpf(exact.numerator) / exact.denominator)

    def constants(self, values: tuple[Fraction, ...]) -> tuple[Dual, ...]:
        return tuple(self.constant(v) for v in values)

    def log_integer(self, n: int) -> Dual:
        return Dual(mpmath.log(n))

    def reciprocal(self, x: Dual) -> Dual:
        return 1 / x

    def sqrt(self, x: Dual) -> Dual:
        root = mpmath.sqrt(x.value)
        return Dual(root, x.derivative / (2 * root))

    def exp(self, x: Dual) -> Dual:
        power = mpmath.exp(x.value)
        return Dual(power, power * x.derivative)

    def log(self, x: Dual) -> Dual:
        return Dual(mpmath.log(x.value), x.derivative / x.value)

    def log1p(self, x: Dual) -> Dual:
        return Dual(mpmath.log1p(x.value), x.derivative / (1 + x.value))

    def logaddexp(self, a: Dual, b: Dual) -> Dual:
        return self.log(self.exp(a) + self.exp(b))

    def radius(self, c: Dual, x: Dual) -> Dual:
        return self.sqrt(c * c + x * x)

    def polar(self, c: Dual, x: Dual) -> tuple[Dual, Dual]:
        s = self.radius(c, x)
        return s, x / s

    def choose(self, condition: bool, yes: Dual, no: Dual) -> Dual:
        return _dual(yes) if condition else _dual(no)

    def log_i0(self, x: Dual) -> Dual:
        ratio = mpmath.besseli(1, x.value) / mpmath.besseli(0, x.value)
        return Dual(mpmath.log(mpmath.besseli(0, x.value)), ratio * x.derivative)

    def i1_over_i0(self, x: Dual) -> Dual:
        ratio = mpmath.besseli(1, x.value) / mpmath.besseli(0, x.value)
        return Dual(ratio, (1 - ratio * ratio - ratio / x.value) * x.derivative)

    def multiply_add(self, a: Dual, b: Dual, c: Dual) -> Dual:
        return a * b + c

    def polynomial(self, coefficients: tuple[Dual, ...], t: Dual) -> Dual:
        total = _dual(0)
        for c in reversed(coefficients):
            total = total * t + c
        return total
