"""What a statement about an error consists of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Literal


def rounded_up(bound: float | Fraction, digits: int = 4) -> str:
    """A bound as text, rounded upwards, so that what is printed is a bound too.

    Examples:
        >>> rounded_up(0.1), rounded_up(Fraction(1, 10))  # the float is a little above 1/10
        ('0.1001', '0.1')
    """
    if not math.isfinite(bound):
        return str(bound)
    exact = Fraction(bound)
    up = Context(prec=digits, rounding=ROUND_CEILING).divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return f"{float(up):.{digits}g}"


@dataclass(frozen=True)
class Certificate:
    """A bound with everything one needs to rely on it.

    `proven` bounds are theorems about exact arithmetic; `measured` ones are the largest value seen, under the conditions of `hypothesis`.
    Where nothing is known, `bound` is None and `reason` says why and what to use instead.
    """

    quantity: str  # what is bounded
    bound: float | None
    hypothesis: str  # when it holds
    equation: str  # the label of the equation in the paper, or the page of the documentation, that states it
    status: Literal["proven", "measured", "none"]
    reason: str = ""
    relative_bound: float | None = None  # of the same quantity over the exact one

    def __post_init__(self) -> None:
        if (self.bound is None) != (self.status == "none"):
            raise ValueError(
                f"a certificate has a bound exactly if its status is not 'none', got bound={self.bound} and status={self.status!r}"
            )
        if self.bound is None and not self.reason:
            raise ValueError("a certificate without a bound needs a reason")

    def __str__(self) -> str:
        if self.bound is None:
            return f"{self.quantity}: no bound. {self.reason}"
        where = "; ".join(part for part in (self.status, self.hypothesis, self.equation, self.reason) if part)
        return f"{self.quantity} <= {rounded_up(self.bound)} ({where})"
