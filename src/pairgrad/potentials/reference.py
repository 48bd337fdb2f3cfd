"""`"reference"`: the exact potential in ball arithmetic, for tests, tables and certificates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from pairgrad.ground.arithmetic import Arithmetic, Number
from pairgrad.ground.balls import flint, working_precision
from pairgrad.ground.certificate import Certificate
from pairgrad.ground.checks import floating_tensor, integer_at_least, one_of
from pairgrad.potentials.protocol import RATIO_ERROR, Potential

_QUANTITIES = ("value", "slope", "curvature", "complement", "deficit", "difference", "secant")


@dataclass(frozen=True)
class Balls:
    """Enclosures of Phi, R (eq. main-vmf-pair), R', 1 - R and their differences: `digits` correct digits, at whatever precision that takes."""

    nu: Fraction
    digits: int

    def _order(self) -> Any:
        return flint().arb(flint().fmpq(self.nu.numerator, self.nu.denominator))

    def _phi(self, x: Any) -> Any:
        nu = self._order()
        if x == 0:
            return -nu * nu.const_log2() - (nu + 1).lgamma()
        return x.bessel_i(nu, scaled=True).log() + x - nu * x.log()

    def _ratio(self, x: Any) -> Any:
        nu = self._order()
        return x.bessel_i(nu + 1, scaled=True) / x.bessel_i(nu, scaled=True)

    def _riccati(self, x: Any) -> Any:
        """R' = 1 - R^2 - (2 nu + 1) R / x."""
        nu = self._order()
        if x == 0:
            return 1 / (2 * nu + 2)
        ratio = self._ratio(x)
        return 1 - ratio * ratio - (2 * nu + 1) * ratio / x

    def _enclose(self, function: Callable[..., Any], *points: Any) -> Any:
        wanted = int(self.digits * 3.33) + 4
        bits = 2 * wanted + 64
        while True:
            with working_precision(bits):
                ball = function(*points)
            if ball.rel_accuracy_bits() >= wanted:
                return ball
            if bits > 1 << 17:
                raise ArithmeticError(f"no enclosure with {self.digits} digits at {points} for nu = {self.nu}; the best is {ball}")
            bits *= 2

    # flint rounds the result of every operation, of a change of sign too: all of them happen inside of `_enclose`, at its precision

    def value_ball(self, x: Any) -> Any:
        return self._enclose(lambda y: self._phi(abs(y)), x)

    def slope_ball(self, x: Any) -> Any:
        if x == 0:
            return flint().arb(0)
        return self._enclose((lambda y: -self._ratio(-y)) if x < 0 else self._ratio, x)

    def curvature_ball(self, x: Any) -> Any:
        """R', by its Riccati equation (eq. a2-riccati-app)."""
        return self._enclose(lambda y: self._riccati(abs(y)), x)

    def complement_ball(self, x: Any) -> Any:
        """1 - R(|x|)."""
        if x == 0:
            return flint().arb(1)
        return self._enclose(lambda y: 1 - self._ratio(abs(y)), x)

    def deficit_ball(self, x: Any) -> Any:
        """|x| less the potential."""
        return self._enclose(lambda y: abs(y) - self._phi(abs(y)), x)

    def difference_ball(self, a: Any, b: Any) -> Any:
        if a == b or a == -b:  # not `in`, which takes a wide ball for equal to itself
            return flint().arb(0)
        return self._enclose(lambda p, q: self._phi(abs(q)) - self._phi(abs(p)), a, b)

    def secant_ball(self, a: Any, b: Any) -> Any:
        if a == b:
            return self.slope_ball(a)
        if a == -b:
            return flint().arb(0)
        return self._enclose(lambda p, q: (self._phi(abs(q)) - self._phi(abs(p))) / (q - p), a, b)

    def apply(self, quantity: str, *points: torch.Tensor) -> np.ndarray:
        """Enclosures at every element, as an object array."""
        arrays = [p.detach().cpu().to(torch.float64).numpy() for p in points]
        result = np.empty(arrays[0].shape, dtype=object)
        arb = flint().arb
        function = getattr(self, f"{quantity}_ball")
        for index in np.ndindex(arrays[0].shape):
            numbers = [float(array[index]) for array in arrays]
            finite = bool(np.all(np.isfinite(numbers)))
            result[index] = function(*map(arb, numbers)) if finite else arb("nan")
        return result

    def _evaluate(self, quantity: str, ops: Arithmetic, *points: Number) -> Number:
        if getattr(ops, "name", "") != "torch":
            return getattr(self, f"{quantity}_ball")(*points)
        balls = self.apply(quantity, *points)
        flat = [float(ball) for ball in balls.ravel()]
        return torch.tensor(flat, dtype=torch.float64).reshape(points[0].shape).to(points[0])

    def value(self, ops: Arithmetic, x: Number) -> Number:
        return self._evaluate("value", ops, x)

    def slope(self, ops: Arithmetic, x: Number) -> Number:
        return self._evaluate("slope", ops, x)

    def pair(self, ops: Arithmetic, x: Number) -> tuple[Number, Number]:
        return self.value(ops, x), self.slope(ops, x)

    def curvature(self, ops: Arithmetic, x: Number) -> Number:
        return self._evaluate("curvature", ops, x)

    def complement(self, ops: Arithmetic, x: Number) -> Number:
        return self._evaluate("complement", ops, x)

    def deficit(self, ops: Arithmetic, x: Number) -> Number:
        return self._evaluate("deficit", ops, x)

    def difference(self, ops: Arithmetic, a: Number, b: Number) -> Number:
        return self._evaluate("difference", ops, a, b)

    def secant(self, ops: Arithmetic, a: Number, b: Number) -> Number:
        return self._evaluate("secant", ops, a, b)


class Reference(Potential):
    """Truth: `enclosure` returns balls that contain the exact result; the other methods round them to the dtype of the argument.

    Elements are computed one by one on the CPU, at a working precision that is global to python-flint, so this is not for training, compiling,
    vmapping or several threads. Option: `digits` (50).
    """

    realization = "reference"
    summary = "the exact function in ball arithmetic (python-flint)"
    trade = "provably right to any number of digits; a Python loop over elements, not for training"

    def __init__(self, nu: Fraction, *, digits: int = 50) -> None:
        digits = integer_at_least("digits", digits, 17)
        super().__init__(nu, digits=digits)
        self._balls = Balls(nu, digits)

    def formulas(self, dtype: torch.dtype = torch.float64) -> Balls:
        return self._balls

    @property
    def offset(self) -> float:
        """0: the value is Phi itself."""
        return 0.0

    def enclosure(self, quantity: str, *points: torch.Tensor) -> np.ndarray:
        """Balls (`flint.arb`) around value, slope, curvature, complement, deficit, difference or secant at finite points, as an object array."""
        one_of("quantity", quantity, _QUANTITIES)
        wanted = 2 if quantity in ("difference", "secant") else 1
        if len(points) != wanted:
            raise TypeError(f"enclosure({quantity!r}, ...) takes {wanted} tensor{'s' * (wanted - 1)}, got {len(points)}")
        tensors = [floating_tensor("points", p) for p in points]
        return self._balls.apply(quantity, *torch.broadcast_tensors(*tensors))

    def ratio_certificate(self, dtype: torch.dtype = torch.float64) -> Certificate:
        """0: it is the ratio."""
        return Certificate(RATIO_ERROR, 0.0, "nu >= 0", "eq. potential-identity", "proven", relative_bound=0.0)
