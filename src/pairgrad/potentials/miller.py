r"""Formulas of the finite-start Miller recurrence (eqs. miller-b, miller-potential, miller-three).

    b_M = 1,  b_{M+1} = 0,  b_{i-1} = (2 i / x) b_i + b_{i+1},

    value = log I_0(x) + log(b_nu / b_0) - nu log(x + epsilon),      raw ratio = b_{nu+1} / b_nu.

The recurrence is run on the ratios rho_i = b_{i+1} / b_i, element by element: rho_{i-1} = 1 / (2 i / x + rho_i) from rho_M = 0. They neither
overflow nor couple the elements of a batch, and log(b_nu / b_0) is the sum of log rho_j over j < nu (eq. potential-product-app). For any i,

    log rho_j - log x = log(rho_j max(1, 2 i / x)) - max(log x, log 2 i),

and with i near j the product under the first logarithm stays in range for every x. So eight neighbours share one i, the largest j + 1 among them, and
one logarithm, and nothing of size nu log x is subtracted. Convention at x = 0: the epsilon term -nu log(1 + epsilon / x)
(eq. miller-epsilon-potential) is left out, so the value is the limit of the ideal finite potential, -log(2^nu nu!), the slope is 0 and the
curvature that of the ideal potential.

The tangent goes through the same recurrence: l_j = x d/dx log(rho_j / x) obeys l_{j-1} = -rho_{j-1} rho_j (2 + l_j) from l_{M-1} = 0, and stays in
(-2, 0]; k_j = x dl_j/dx obeys k_{j-1} = l_{j-1} (2 + l_{j-1} + l_j) - rho_{j-1} rho_j k_j. Memory is that of a few copies of x.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pairgrad.ground.arithmetic import Arithmetic, Number
from pairgrad.potentials.formulas import BySubtraction, odd

_SHARED_LOGARITHM = 8  # factors between 1e-3 and 1, or pairs of factors x / c and c' / x: eight never leave the range of a double
_SMALLEST = 2.0**-500


class _Descent(NamedTuple):
    log_product: Number
    ratio: Number
    tangents: Number


class _Step(NamedTuple):
    j: int
    ratio: Number  # rho_j
    tangent: Number  # l_j
    second: Number  # k_j


@dataclass(frozen=True)
class Miller(BySubtraction):
    """The finite potential and its exact derivative; `clip` and `raw ratio` are what the source supplies instead."""

    nu: int
    start: int
    epsilon: float
    clip: float | None = None

    def value(self, ops: Arithmetic, x: Number) -> Number:
        size = ops.absolute(x)
        return self._finish_value(ops, size, self._log_product(ops, _away_from_zero(ops, size)))

    def _finish_value(self, ops: Arithmetic, size: Number, log_product: Number) -> Number:
        return ops.log_i0(size) + log_product - self._epsilon_term(ops, size)

    def _log_product(self, ops: Arithmetic, x: Number) -> Number:
        """log(b_nu / b_0) - nu log x."""
        return self._descend(ops, x).log_product

    def _descend(self, ops: Arithmetic, x: Number, *, tangent: bool = False) -> _Descent:
        """The whole recurrence, once: log(b_nu / b_0) - nu log x, rho_nu and, with `tangent`, the sum of l_j over j < nu."""
        log_x = ops.log(x)
        total = tangents = ratio = 0 * x
        twice, one = 2 / x, ops.constant(1)
        product, scale, logarithm, factors = one, one, log_x, 0
        for step in self.steps(ops, x, tangent=tangent):
            if step.j == self.nu:
                ratio = step.ratio
            if step.j >= self.nu:
                continue
            if not factors:
                # One question decides for both places, so that no derivative is lost or counted twice where x and 2 i are equal.
                i = step.j + 1
                below = x < 2 * i
                scale = ops.choose(below, i * twice, one)
                logarithm = ops.choose(below, ops.log_integer(2 * i), log_x)
                product = one
            product = product * (step.ratio * scale)
            factors += 1
            if tangent:
                tangents = tangents + step.tangent
            if step.j % _SHARED_LOGARITHM == 0:
                total = total + (ops.log(product) - factors * logarithm)
                factors = 0
        return _Descent(total, ratio, tangents)

    def pair(self, ops: Arithmetic, x: Number) -> tuple[Number, Number]:
        """Value and supplied slope from one run of the recurrence."""
        size = ops.absolute(x)
        safe = _away_from_zero(ops, size)
        run = self._descend(ops, safe)
        return self._finish_value(ops, size, run.log_product), self._finish_ratio(ops, x, run.ratio * (size / safe))

    def _epsilon_term(self, ops: Arithmetic, x: Number) -> Number:
        if not self.epsilon:
            return 0 * x
        epsilon = ops.constant(self.epsilon)
        safe = ops.choose(x == 0, 1 + 0 * x, x)
        large = ops.log1p(epsilon / ops.maximum(safe, 0 * x + epsilon))
        small = ops.log(safe + epsilon) - ops.log(safe)
        return ops.choose(x == 0, 0 * x, self.nu * ops.choose(safe > epsilon, large, small))

    def raw_ratio(self, ops: Arithmetic, x: Number) -> Number:
        return self._at_nu(ops, x).ratio

    def slope(self, ops: Arithmetic, x: Number) -> Number:
        """What is supplied: the raw ratio, clipped from above (eq. miller-three)."""
        size = ops.absolute(x)
        safe = _away_from_zero(ops, size)
        return self._finish_ratio(ops, x, self.raw_ratio(ops, safe) * (size / safe))

    def _finish_ratio(self, ops: Arithmetic, x: Number, ratio: Number) -> Number:
        if self.clip is not None:
            ratio = ops.minimum(ratio, 0 * ratio + ops.constant(self.clip))
        return odd(ops, x, ratio)

    def curvature(self, ops: Arithmetic, x: Number) -> Number:
        """Derivative of the supplied slope: rho_nu (1 + l_nu) / x, and 0 where the clip is active."""
        size = _away_from_zero(ops, ops.absolute(x))
        at = self._at_nu(ops, size, tangent=True)
        rate = at.ratio / size * (1 + at.tangent)
        if self.clip is None:
            return rate
        return ops.choose(at.ratio < ops.constant(self.clip), rate, 0 * rate)

    def consistent_slope(self, ops: Arithmetic, x: Number) -> Number:
        """Derivative of the value: I_1 / I_0 + sum_{j<nu} l_j / x, and the epsilon term nu epsilon / (x (x + epsilon))."""
        size = ops.absolute(x)
        safe = _away_from_zero(ops, size)
        tangents = 0 * x
        for step in self.steps(ops, safe, tangent=True):
            if step.j < self.nu:
                tangents = tangents + step.tangent
        return self._finish_slope(ops, x, size, safe, tangents)

    def _finish_slope(self, ops: Arithmetic, x: Number, size: Number, safe: Number, tangents: Number) -> Number:
        rate = (ops.i1_over_i0(safe) + tangents / safe) * (size / safe)
        if self.epsilon:
            positive = ops.choose(size == 0, 1 + 0 * size, size)
            epsilon = ops.constant(self.epsilon)
            rate = rate + self.nu * (epsilon / (positive + epsilon)) / positive
        return odd(ops, x, rate)

    def consistent_curvature(self, ops: Arithmetic, x: Number) -> Number:
        """Derivative of `consistent_slope`; right in absolute terms, because I_0 enters by its Riccati equation."""
        size = ops.absolute(x)
        safe = _away_from_zero(ops, size)
        total = 0 * x
        for step in self.steps(ops, safe, tangent=True, second=True):
            if step.j < self.nu:
                total = total + (step.second - step.tangent)
        base = ops.i1_over_i0(safe)
        rate = 1 - base * base - base / safe + total / safe / safe
        if self.epsilon:
            positive = ops.choose(size == 0, 1 + 0 * size, size)
            epsilon = ops.constant(self.epsilon)
            term = self.nu * (epsilon / (positive + epsilon)) / positive * (1 / positive + 1 / (positive + epsilon))
            rate = rate - ops.choose(size == 0, 0 * size, term)
        return rate

    def steps(self, ops: Arithmetic, x: Number, *, tangent: bool = False, second: bool = False) -> Iterator[_Step]:
        """The recurrence downwards, j = M - 1 .. 0."""
        twice = 2 / x
        ratio = l = k = 0 * x  # at j = M
        for i in range(self.start, 0, -1):
            next_ratio = 1 / (i * twice + ratio)
            if tangent:
                product = next_ratio * ratio
                next_l = -product * (2 + l)
                if second:
                    k = next_l * (2 + next_l + l) - product * k
                l = next_l
            ratio = next_ratio
            yield _Step(i - 1, ratio, l, k)

    def _at_nu(self, ops: Arithmetic, x: Number, *, tangent: bool = False) -> _Step:
        """rho_nu, and l_nu, which need no step below nu."""
        for step in self.steps(ops, x, tangent=tangent):
            if step.j == self.nu:
                return step
        raise AssertionError("start > nu")


@dataclass(frozen=True)
class ConsistentMiller(Miller):
    """The same value; supplied is its own derivative."""

    def slope(self, ops: Arithmetic, x: Number) -> Number:
        return self.consistent_slope(ops, x)

    def pair(self, ops: Arithmetic, x: Number) -> tuple[Number, Number]:
        size = ops.absolute(x)
        safe = _away_from_zero(ops, size)
        run = self._descend(ops, safe, tangent=True)
        return self._finish_value(ops, size, run.log_product), self._finish_slope(ops, x, size, safe, run.tangents)

    def curvature(self, ops: Arithmetic, x: Number) -> Number:
        return self.consistent_curvature(ops, x)


@dataclass(frozen=True)
class LogMillerFormulas(Miller):
    """The recurrence on log b_i, by log-add-exp; the same real functions, other roundings, no overflow by construction."""

    def pair(self, ops: Arithmetic, x: Number) -> tuple[Number, Number]:
        return self.value(ops, x), self.slope(ops, x)

    def _log_product(self, ops: Arithmetic, x: Number) -> Number:
        bottom, at_nu, _ = self._logs(ops, x, 0)
        return at_nu - bottom - self.nu * ops.log(x)

    def raw_ratio(self, ops: Arithmetic, x: Number) -> Number:
        at_nu, _, above = self._logs(ops, x, self.nu)
        return ops.exp(above - at_nu)

    def _logs(self, ops: Arithmetic, x: Number, bottom: int) -> tuple[Number, Number, Number]:
        """log b at `bottom`, at nu and at nu + 1."""
        log_x = ops.log(x)
        above, here = None, 0 * x  # log b_{M+1} = -inf, log b_M
        kept = {self.start: here}
        for i in range(self.start, bottom, -1):
            lifted = here + (ops.log_integer(2 * i) - log_x)
            above, here = here, lifted if above is None else ops.logaddexp(lifted, above)
            if i - 1 in (bottom, self.nu, self.nu + 1):
                kept[i - 1] = here
        return kept[bottom], kept[self.nu], kept[self.nu + 1]


def _away_from_zero(ops: Arithmetic, size: Number) -> Number:
    """At least `_SMALLEST`: below, even functions of x are constant and odd ones proportional to x, to more digits than a double has."""
    return ops.at_least(size, ops.constant(_SMALLEST))
