"""What a realization's formulas must offer, and the plain way to combine values."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from pairgrad.ground.arithmetic import Arithmetic, Number


class Formulas(Protocol):
    """The formulas of a realization, as functions of an arithmetic (`pairgrad.ground.arithmetic`) and of numbers in it.

    `slope` is what the realization supplies to the optimizer; it is odd in x, and `curvature`, its derivative, even. `value`, `difference`,
    `complement` and `deficit` (1 - slope and x - value for x >= 0) depend on the absolute values of their arguments only.
    """

    def value(self, ops: Arithmetic, x: Number) -> Number: ...
    def slope(self, ops: Arithmetic, x: Number) -> Number: ...
    def pair(self, ops: Arithmetic, x: Number) -> tuple[Number, Number]: ...
    def curvature(self, ops: Arithmetic, x: Number) -> Number: ...
    def complement(self, ops: Arithmetic, x: Number) -> Number: ...
    def deficit(self, ops: Arithmetic, x: Number) -> Number: ...
    def difference(self, ops: Arithmetic, a: Number, b: Number) -> Number: ...
    def secant(self, ops: Arithmetic, a: Number, b: Number) -> Number: ...


@runtime_checkable
class OwnDerivative(Protocol):
    """What formulas offer besides, if `slope` is not the same formula as the derivative of `value`: that derivative, and its derivative."""

    def consistent_slope(self, ops: Arithmetic, x: Number) -> Number: ...
    def consistent_curvature(self, ops: Arithmetic, x: Number) -> Number: ...


class BySubtraction:
    """Differences, complement and deficit by subtracting finished values: what there is for a realization without a secant of its own."""

    def pair(self: Formulas, ops: Arithmetic, x: Number) -> tuple[Number, Number]:
        return self.value(ops, x), self.slope(ops, x)

    def complement(self: Formulas, ops: Arithmetic, x: Number) -> Number:
        return 1 - self.slope(ops, ops.absolute(x))

    def deficit(self: Formulas, ops: Arithmetic, x: Number) -> Number:
        return ops.absolute(x) - self.value(ops, x)

    def difference(self: Formulas, ops: Arithmetic, a: Number, b: Number) -> Number:
        return self.value(ops, b) - self.value(ops, a)

    def secant(self: Formulas, ops: Arithmetic, a: Number, b: Number) -> Number:
        equal = a == b
        step = ops.choose(equal, 1 + 0 * a, b - a)
        return ops.choose(equal, self.slope(ops, a), self.difference(ops, a, b) / step)


def odd(ops: Arithmetic, x: Number, size: Number) -> Number:
    """`size`, a function of |x|, with the sign of x, and 0 at 0."""
    return ops.choose(x == 0, 0 * x, ops.choose(x < 0, -size, size))
