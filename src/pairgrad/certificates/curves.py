"""Rational functions p(t) / (1 + t)^d on [0, 1], and proofs in ball arithmetic that they stay below a constant.

The axis x >= 0 is compact in t = c / sqrt(c^2 + x^2): x = 0 is t = 1 and x = infinity is t = 0. On a box [a, b] with midpoint m and radius r the
polynomial p(m + r u) has its Taylor coefficients a_i computed in balls, and |p| <= |a_0| + |a_1| + ... there. Boxes are halved until the
constant is met on each, or until a point is found that exceeds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

from pairgrad.ground.balls import flint

PRECISION = 192  # bits; the coefficients of g_26 cancel by 40 of them
_SMALLEST_BOX = Fraction(1, 2**40)
_MOST_BOXES = 100_000


def rational(value: Fraction | int) -> Any:
    """The number as a `flint.fmpq`."""
    return flint().fmpq(Fraction(value).numerator, Fraction(value).denominator)


def ball(middle: Fraction | int, reach: Fraction | int = 0) -> Any:
    """The ball around `middle` of radius `reach`, as a `flint.arb`."""
    return flint().arb(rational(middle), rational(reach))


def polynomial(coefficients: Sequence[Fraction | int]) -> Any:
    """The polynomial, constant term first, as a `flint.fmpq_poly`."""
    return flint().fmpq_poly([rational(c) for c in coefficients])


@dataclass(frozen=True)
class Outcome:
    """Whether a bound was proven, over how many boxes; the share of it that was left; or where it is exceeded, or could not be decided."""

    holds: bool
    boxes: int
    margin: float | None = None  # least (bound - enclosure) / bound over the boxes; 0 where the bound is attained
    exceeded_at: float | None = None
    undecided_at: float | None = None

    def __str__(self) -> str:
        if self.exceeded_at is not None:
            return f"exceeded at t = {self.exceeded_at:.6f}"
        return f"{self.boxes} boxes" if self.holds else f"undecided near t = {self.undecided_at:.6f} after {self.boxes} boxes"


class Curve:
    """p(t) / (1 + t)^d, exactly, in lowest terms."""

    def __init__(self, numerator: Any, power: int = 0) -> None:
        one_plus = polynomial((1, 1))
        while power and numerator and not numerator % one_plus:
            numerator, power = numerator // one_plus, power - 1
        self.numerator, self.power = numerator, power

    @cached_property
    def _balls(self) -> Any:
        return flint().arb_poly(self.numerator)

    @cached_property
    def derivative(self) -> Curve:
        step = self.numerator.derivative() * polynomial((1, 1)) - self.power * self.numerator
        return Curve(step, self.power + 1)

    def at(self, t: Fraction) -> Any:
        """The exact value, a `flint.fmpq`."""
        return self.numerator(rational(t)) / rational(1 + t) ** self.power

    def over(self, low: Fraction, high: Fraction) -> Any:
        """A ball that contains the values on [low, high]."""
        middle, reach = (low + high) / 2, (high - low) / 2
        shifted = self._balls(flint().arb_poly([rational(middle), rational(reach)])).coeffs() or [flint().arb(0)]
        spread = flint().arb(0)
        for coefficient in shifted[1:]:
            spread += abs(coefficient)
        around = shifted[0] + flint().arb(0, spread.upper())
        return around / ball(1 + middle, reach) ** self.power if self.power else around

    def at_most(self, bound: Fraction, weight: Literal["1", "v"] = "1") -> Outcome:
        """Prove |curve| <= bound on [0, 1], or |curve| sqrt(1 - t^2) <= bound with the weight v.

        A supremum that is attained at the end of a box is recognised there: if the derivative has one sign on the box, the two ends are compared
        exactly.
        """
        limit = ball(bound)
        boxes, margin = 0, 1.0
        pending = [(Fraction(0), Fraction(1))]
        while pending:
            low, high = pending.pop()
            boxes += 1
            largest = abs(self.over(low, high))
            if weight == "v":
                largest = largest * ball(1 - low * low).sqrt()
            if largest <= limit:
                margin = min(margin, float((limit - largest).lower() / limit))
                continue
            middle = (low + high) / 2
            for t in (low, middle, high):
                if self._exceeds(t, bound, weight):
                    return Outcome(False, boxes, exceeded_at=float(t))
            if weight == "1" and self.derivative.over(low, high) != 0:  # true only if the ball excludes 0
                margin = min(margin, *(float(1 - abs(self.at(t)) / rational(bound)) for t in (low, high)))
                continue
            if high - low < _SMALLEST_BOX or boxes > _MOST_BOXES:
                return Outcome(False, boxes, undecided_at=float(middle))
            pending += [(low, middle), (middle, high)]
        return Outcome(True, boxes, margin)

    def _exceeds(self, t: Fraction, bound: Fraction, weight: str) -> bool:
        square = self.at(t) ** 2
        return bool((square * rational(1 - t * t) if weight == "v" else square) > rational(bound) ** 2)
