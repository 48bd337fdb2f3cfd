r"""What starting Miller's recurrence at a finite order M does: sign, size, limits and onset of its errors, for every integer M > nu >= 1.

Letters, as in the paper (labels of its equations are cited): Phi and R are the exact potential and ratio, Phi~ and R~ the finite ones
(eqs. miller-potential, miller-three), E = Phi~ - Phi, and D = Phi~' - (supplied ratio). The realizations `"original"` and `"consistent"`
of the library run the recurrence.

**High concentration.** Write K = M + 1 and u_j = R~_j / x (eq. miller-u), so that u_{j-1} = 1 / (2 j + x^2 u_j) from u_M = 0. Each step turns a
constant into a multiple of x^-2 and back (eqs. parity-ansatz-app, c-recurrence-app). The sums there have closed forms for every M:

    M - j odd:   u_j = a_j + O(x^-2),          1 / a_j = 2 ((j + 1) + (j + 3) + .. + M) = (K^2 - j^2) / 2,
    M - j even:  u_j = c_j x^-2 + O(x^-4),     c_j = 2 ((j + 2) + (j + 4) + .. + M) = (K^2 - (j + 1)^2) / 2 = 1 / a_{j+1}.

By eq. potential-product-app, Phi~ = log I_0 + sum over j < nu of log u_j. Every j with M - j even brings -2 log x, and the constants of neighbours
cancel in pairs, c_j a_{j+1} = 1. What is left, with log I_0 = x - log(2 pi x) / 2 + 1 / (8 x) + O(x^-2), is (eq. miller-forward-asymptotic)

    Phi~ = x - (nu + 1/2 - m) log x - log(2 pi) / 2 + log P + O(1/x),      Phi~' = 1 - (nu + 1/2 - m) / x + O(x^-2),

    nu odd,  M even:  (nu + 1) / 2 of the j count,  m = -1,  P = c_{nu-1} = (K^2 - nu^2) / 2       (the paper's case if M = 2 nu);
    nu even, M even:  nu / 2 of them,               m = 0,   P = 1                                 (M = 2 nu: left out in the paper);
    nu odd,  M odd:   (nu - 1) / 2,                 m = 1,   P = a_0 = 2 / K^2;
    nu even, M odd:   nu / 2,                       m = 0,   P = a_0 c_{nu-1} = 1 - (nu / K)^2.

The exact potential is x - (nu + 1/2) log x - log(2 pi) / 2 - (4 nu^2 - 1) / (8 x) + O(x^-2), and the log u_j have no term in 1/x, hence (eq. E-asymptotic-app)

    E = m log x + log P + nu^2 / (2 x) + O(x^-2),      E' = m / x - nu^2 / (2 x^2) + O(x^-3).

So for even nu and M the finite potential and its derivative become exact, E -> 0, while the ratio supplied for that derivative tends to 0.
The source's log(x + epsilon) adds -nu log(1 + epsilon / x) to E (eq. miller-epsilon-potential), that is -nu epsilon / x + O(x^-2).

**Monotonicity.** l_j = x d/dx log u_j obeys l_{j-1} = -p_j (2 + l_j) with p_j = R~_{j-1} R~_j = 1 - 2 j R~_{j-1} / x, from l_{M-1} = 0. The exact ratios
obey the same, with -1 < l < 0. By the sign law p_j is below its exact value where M - j is even and above it where M - j is odd, so by induction l_j
is above its exact value, hence above -1, for odd M - j: there R~_j increases. It reaches 1 once, between 2 (j + 1) and 1 / a_j, because u_j decreases
from 1 / (2 j + 2) to a_j.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import torch

import pairgrad as pg
from pairgrad.ground import BallArithmetic, MpmathArithmetic, TorchArithmetic, describe, flint, integer_at_least
from pairgrad.potentials import Balls, Formulas

Arithmetic = TorchArithmetic | MpmathArithmetic | BallArithmetic
Number = Any  # a number of the arithmetic: a tensor, an mpf, an arb


class ScoreErrorIntegrals(NamedTuple):
    """The two integrals that add up to a score error, and the error of both together as the quadrature estimates it."""

    ratio_error: Number
    residual: Number
    quadrature_estimate: Number


@dataclass(frozen=True)
class FiniteStart:
    """The recurrence for order `nu` started at `start` (2 nu unless given), with the source's log(x + epsilon).

    Methods take an arithmetic of `pairgrad.ground` and a point x > 0 in it: a tensor (taken to float64), what mpmath takes for a
    number, or what python-flint takes for a ball. Coefficients of expansions are exact. In float64, errors that are differences of two finished
    numbers (`potential_error`, `error_slope`, `residual`, `score_error`) carry the rounding of those numbers; `product` and `ratio_error` are
    right in relative terms until they underflow.

    Examples:
        >>> from pairgrad.ground import TorchArithmetic
        >>> case = FiniteStart(nu=63)
        >>> case.start, case.sign, case.ratio_coefficient, case.log_coefficient
        (126, 1, Fraction(1, 6080), Fraction(129, 2))
        >>> f"{case.clip_onset(TorchArithmetic()).item():.1f}"
        '2717.9'
    """

    nu: int
    start: int | None = None
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        nu = integer_at_least("nu", self.nu, 1, hint="the recurrence runs over integer orders, dim = 2 nu + 2")
        options = pg.potential(nu=nu, realization="original", start=self.start, epsilon=self.epsilon).options  # checked there
        for name, value in (("nu", nu), ("start", options["start"]), ("epsilon", options["epsilon"])):
            object.__setattr__(self, name, value)

    def formulas(self, realization: str) -> Formulas:
        """Those of `"original"`, whose slope is min(R~, 1), or of `"consistent"`, whose slope is Phi~'; the value of both is Phi~."""
        return pg.potential(nu=self.nu, realization=realization, start=self.start, epsilon=self.epsilon).formulas()

    def value(self, ops: Arithmetic, x: Number) -> Number:
        """Phi~, with epsilon (eqs. miller-potential, miller-epsilon-potential)."""
        return self.formulas("original").value(ops, _point(ops, "x", x))

    def derivative(self, ops: Arithmetic, x: Number) -> Number:
        """The derivative of `value`."""
        return self.formulas("consistent").slope(ops, _point(ops, "x", x))

    def ratio(self, ops: Arithmetic, x: Number, *, clipped: bool = False) -> Number:
        """R~, or min(R~, 1), which is what the source supplies as a derivative (eq. miller-three)."""
        *_, ratio = self._descend(x := _point(ops, "x", x), 0 * x)
        return ops.minimum(ratio, 0 * ratio + 1) if clipped else ratio

    def exact_value(self, ops: Arithmetic, x: Number) -> Number:
        """Phi (eq. main-vmf-pair): by `"paired"` in torch, Bessel functions in mpmath, and `"reference"` in balls."""
        value = _exact(ops, self.nu).value(ops, _point(ops, "x", x))
        return value + pg.potential(nu=self.nu).offset if isinstance(ops, TorchArithmetic) else value

    def exact_ratio(self, ops: Arithmetic, x: Number) -> Number:
        """R, the derivative of `exact_value` (eq. potential-identity)."""
        return _exact(ops, self.nu).slope(ops, _point(ops, "x", x))

    @property
    def sign(self) -> int:
        """The sign of R~ - R, one for all x > 0: (-1)^(M - nu + 1) (eqs. main-sign, miller-sign)."""
        return 1 if (self._start - self.nu) % 2 else -1

    def product(self, ops: Arithmetic, x: Number) -> Number:
        """u~_nu - u_nu = (R~ - R) / x as the product of Theorem thm:miller-sign, eq. miller-product: nothing is subtracted, so no digits are lost.

        A factor x^2 / ((2 i + x^2 u~_i) (2 i + x^2 u_i)) of the paper is R~_{i-1} R_{i-1}: what one step does to a difference
        (eq. mobius-step-app). The exact ratios descend from R_M by the same map.
        """
        x = _point(ops, "x", x)
        exact = _exact(ops, self._start).slope(ops, x)
        product = self.sign * exact / x
        for finite, true in zip(self._descend(x, 0 * x), self._descend(x, exact), strict=True):
            product = product * (finite * true)
        return product

    def ratio_error(self, ops: Arithmetic, x: Number, *, clipped: bool = False) -> Number:
        """R~ - R, by `product`; or min(R~, 1) - R, as the smaller of that and 1 - R."""
        x = _point(ops, "x", x)
        error = x * self.product(ops, x)
        return ops.minimum(error, _exact(ops, self.nu).complement(ops, x)) if clipped else error

    def potential_error(self, ops: Arithmetic, x: Number) -> Number:
        """E = Phi~ - Phi (eq. defects), with the epsilon term."""
        return self.value(ops, x) - self.exact_value(ops, x)

    def error_slope(self, ops: Arithmetic, x: Number) -> Number:
        """E' = Phi~' - R; for odd nu and start 2 nu it is -1/x + O(x^-2) (eq. clip-phase-app)."""
        return self.derivative(ops, x) - self.exact_ratio(ops, x)

    def residual(self, ops: Arithmetic, x: Number, *, clipped: bool = True) -> Number:
        """D = Phi~' - (supplied ratio), clipped or raw (eq. defects).

        The coherence defect d is -D (eq. coherence-defect). It splits into what the value does wrong and what the ratio does wrong:
        D = `error_slope` - `ratio_error` (eq. defect-decomposition).
        """
        return self.derivative(ops, x) - self.ratio(ops, x, clipped=clipped)

    def epsilon_term(self, ops: Arithmetic, x: Number) -> Number:
        """nu log(1 + epsilon / x), by which epsilon lowers `value` (eq. miller-epsilon-potential)."""
        x = _point(ops, "x", x)
        return self.nu * ops.log1p(ops.constant(self.epsilon) / x)

    @property
    def ratio_coefficient(self) -> Fraction:
        """a_nu with R~ ~ a_nu x if M - nu is odd, else c_nu with R~ ~ c_nu / x (eqs. miller-odd-asymptotic, miller-even-asymptotic)."""
        if self.sign > 0:
            return 1 / _half_difference_of_squares(self._start + 1, self.nu)
        return _half_difference_of_squares(self._start + 1, self.nu + 1)

    def ratio_asymptote(self, ops: Arithmetic, x: Number) -> Number:
        """The leading term of R~; what is left is smaller by a factor O(x^-2) (Theorem thm:miller-parity)."""
        x = _point(ops, "x", x)
        coefficient = _number(ops, self.ratio_coefficient)
        return coefficient * x if self.sign > 0 else coefficient / x

    @property
    def error_exponent(self) -> int:
        """m with E ~ m log x (eq. E-asymptotic-app): 0 for even nu; for odd nu -1 with an even start, as 2 nu is, and 1 with an odd one."""
        if self.nu % 2 == 0:
            return 0
        return 1 if self._start % 2 else -1

    @property
    def log_coefficient(self) -> Fraction:
        """nu + 1/2 - m, what multiplies -log x in Phi~ and -1/x in Phi~'; nu + 3/2 for odd nu and start 2 nu."""
        return self.nu + Fraction(1, 2) - self.error_exponent

    @property
    def constant_factor(self) -> Fraction:
        """P of the module's docstring: what is left of the product of all a_j and c_j with j < nu."""
        top = self._start + 1
        last = _half_difference_of_squares(top, self.nu)  # c_{nu-1} = 1 / a_nu
        if self._start % 2 == 0:
            return last if self.nu % 2 else Fraction(1)
        first = Fraction(2, top * top)  # a_0
        return first if self.nu % 2 else first * last

    def constant(self, ops: Arithmetic) -> Number:
        """C = log P - log(2 pi) / 2 of eq. miller-forward-asymptotic."""
        return ops.log(_number(ops, self.constant_factor)) - _log_two_pi(ops) / 2

    def value_asymptote(self, ops: Arithmetic, x: Number) -> Number:
        """x - (nu + 1/2 - m) log x + C; what is left of Phi~ is O(1/x) (eq. miller-forward-asymptotic)."""
        x = _point(ops, "x", x)
        return x - _number(ops, self.log_coefficient) * ops.log(x) + self.constant(ops)

    def derivative_asymptote(self, ops: Arithmetic, x: Number) -> Number:
        """1 - (nu + 1/2 - m) / x; what is left of Phi~' is O(x^-2) (eq. miller-forward-derivative-asymptotic)."""
        return 1 - _number(ops, self.log_coefficient) / _point(ops, "x", x)

    def error_asymptote(self, ops: Arithmetic, x: Number) -> Number:
        """m log x + log P + nu (nu / 2 - epsilon) / x; what is left of E is O(x^-2). Eq. E-asymptotic-app, its constant, and one term more."""
        x = _point(ops, "x", x)
        return self.error_exponent * ops.log(x) + ops.log(_number(ops, self.constant_factor)) + self._error_decay(ops) / x

    @property
    def residual_limit(self) -> int:
        """The limit of the clipped residual D: 0 if the ratio ends at the clip (M - nu odd), 1 if it dies out (M - nu even)."""
        return 0 if self.sign > 0 else 1

    @property
    def residual_coefficient(self) -> Fraction:
        """The coefficient of 1/x in the clipped residual D: minus `log_coefficient`, and minus c_nu where the ratio dies out.

        For odd nu and start 2 nu that is -(nu + 3/2) (eq. clip-phase-app).
        """
        return -self.log_coefficient - (0 if self.sign > 0 else self.ratio_coefficient)

    def residual_asymptote(self, ops: Arithmetic, x: Number) -> Number:
        """`residual_limit` + `residual_coefficient` / x; what is left of the clipped D is O(x^-2)."""
        return self.residual_limit + _number(ops, self.residual_coefficient) / _point(ops, "x", x)

    def clip_onset(self, ops: Arithmetic) -> Number:
        """The one x with R~(x) = 1, by bisection from both sides until the arithmetic has no number between them.

        In floating point the result is the upper side, a point where the clip is active; in balls it encloses both, and the root. The module's
        docstring says why the root exists and is alone. Cost: one run of the recurrence from M to nu per bit.

        Raises:
            ValueError: where M - nu is even; there R~ < R < 1 for all x.
        """
        if self.sign < 0:
            raise ValueError(
                f"the raw ratio must overshoot for the clip to become active, which needs an odd start - nu, got nu = {self.nu} and "
                f"start = {self._start}: it stays below the exact ratio, hence below 1, for every x; start = {self._start + 1} has an onset"
            )
        low, high = (_number(ops, bound) for bound in (Fraction(2 * self.nu + 2), 1 / self.ratio_coefficient))
        while True:
            middle = (low + high) / 2
            if isinstance(ops, BallArithmetic):
                middle = middle.mid()
            if not low < middle < high:
                break
            *_, ratio = self._descend(middle, 0 * middle)
            if ratio >= 1:
                high = middle
            elif ratio < 1:
                low = middle
            else:  # a ball around 1: the precision is used up
                break
        return low.union(high) if isinstance(ops, BallArithmetic) else high

    def score_error(self, ops: Arithmetic, concentration: Number, radius: Number) -> Number:
        """Error of the score Phi~(r) - Phi~(kappa): E(r) - E(kappa) (eqs. miller-score-endpoint, miller-score-epsilon)."""
        ends = _point(ops, "concentration", concentration), _point(ops, "radius", radius)
        return self.formulas("original").difference(ops, *ends) - _exact(ops, self.nu).difference(ops, *ends)

    def score_error_integrals(
        self, ops: MpmathArithmetic, concentration: Number, radius: Number, *, clipped: bool = True
    ) -> ScoreErrorIntegrals:
        """`score_error` as the integral of `ratio_error` plus that of `residual`, from the concentration to the radius.

        Eqs. miller-score-clip-integral and miller-score-raw-integral (not clipped): the first part is seen by comparing the ratio with R,
        the second is what the supplied derivative does not explain. Tanh-sinh quadrature at the precision of the mpmath context, in two pieces
        where the clip sets in between the ends.
        """
        if not isinstance(ops, MpmathArithmetic):
            raise TypeError(
                f"ops must be an MpmathArithmetic for quadrature, got {type(ops).__name__}: pass pairgrad.ground.MpmathArithmetic()"
            )
        start, end = _point(ops, "concentration", concentration), _point(ops, "radius", radius)
        points = [start, end]
        if clipped and self.sign > 0 and min(points) < (onset := self.clip_onset(ops)) < max(points):
            points.insert(1, onset)
        parts = [
            ops.context.quad(lambda x, of=of: of(ops, x, clipped=clipped), points, error=True) for of in (self.ratio_error, self.residual)
        ]
        return ScoreErrorIntegrals(parts[0][0], parts[1][0], parts[0][1] + parts[1][1])

    def score_error_asymptote(self, ops: Arithmetic, concentration: Number, radius: Number) -> Number:
        """m log(r / kappa) + nu (nu / 2 - epsilon) (1/r - 1/kappa); what is left is O(kappa^-2 + r^-2).

        For odd nu and an even start the first term is log(kappa / r) (eq. miller-score-asymptotic); for even nu only the second is there.
        """
        start, end = _point(ops, "concentration", concentration), _point(ops, "radius", radius)
        return self.error_exponent * ops.log(end / start) + self._error_decay(ops) * (1 / end - 1 / start)

    @property
    def _start(self) -> int:
        return 2 * self.nu if self.start is None else self.start

    def _descend(self, x: Number, ratio: Number) -> Iterator[Number]:
        """The ratios of orders M - 1 to nu, from that of order M: 0 in the finite recurrence."""
        twice = 2 / x
        for j in range(self._start, self.nu, -1):
            ratio = 1 / (j * twice + ratio)
            yield ratio

    def _error_decay(self, ops: Arithmetic) -> Number:
        return _number(ops, self.nu * (Fraction(self.nu, 2) - Fraction(self.epsilon)))


@dataclass(frozen=True)
class _Bessel:
    """Phi and R from the Bessel functions of an mpmath context."""

    nu: int

    def value(self, ops: Any, x: Number) -> Number:
        return ops.log(ops.context.besseli(self.nu, x)) - self.nu * ops.log(x)

    def slope(self, ops: Any, x: Number) -> Number:
        return ops.context.besseli(self.nu + 1, x) / ops.context.besseli(self.nu, x)

    def complement(self, ops: Any, x: Number) -> Number:
        return 1 - self.slope(ops, x)

    def difference(self, ops: Any, a: Number, b: Number) -> Number:
        return self.value(ops, b) - self.value(ops, a)


def _exact(ops: Arithmetic, nu: int) -> Formulas | _Bessel:
    """The exact potential and ratio of order nu in an arithmetic; in torch the potential is counted from its value at 0."""
    if isinstance(ops, TorchArithmetic):
        return pg.potential(nu=nu).formulas(torch.float64)
    if isinstance(ops, MpmathArithmetic):
        return _Bessel(nu)
    # Balls works at twice the bits it is asked for, and 64 more: half of the bits at hand gives all of them, and lets x be inexact.
    return Balls(Fraction(nu), int(flint().ctx.prec * math.log10(2) / 2))


def _point(ops: Arithmetic, name: str, x: Any) -> Number:
    """`x` as a positive finite number of the arithmetic."""
    if isinstance(ops, TorchArithmetic):
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            raise TypeError(f"{name} must be a floating-point torch tensor, got {describe(x)}: wrap it, e.g. torch.tensor(...).double()")
        number = x.to(torch.float64)
        good = bool(((number > 0) & number.isfinite()).all())
    else:
        number = _scalar(ops, name, x)
        good = bool(0 < number < math.inf)
    if not good:
        raise ValueError(f"{name} must be positive and finite, got {describe(x)}: the recurrence divides by it")
    return number


def _scalar(ops: Arithmetic, name: str, x: Any) -> Number:
    if not isinstance(ops, (MpmathArithmetic, BallArithmetic)):
        raise TypeError(f"ops must be a TorchArithmetic, an MpmathArithmetic or a BallArithmetic, got {describe(ops)}")
    if isinstance(x, (int, Fraction)):
        return ops.constant(Fraction(x))
    try:
        return ops.context.mpf(x) if isinstance(ops, MpmathArithmetic) else ops.arb(x)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a real number that {type(ops).__name__} takes, got {describe(x)}") from None


def _number(ops: Arithmetic, value: Fraction) -> Number:
    """An exact constant as a number whose logarithm the arithmetic can take."""
    return torch.tensor(float(value), dtype=torch.float64) if isinstance(ops, TorchArithmetic) else _scalar(ops, "value", value)


def _log_two_pi(ops: Arithmetic) -> Number:
    if isinstance(ops, MpmathArithmetic):
        return ops.log(2 * ops.context.pi)
    return (2 * ops.arb.pi()).log() if isinstance(ops, BallArithmetic) else math.log(2 * math.pi)


def _half_difference_of_squares(a: int, b: int) -> Fraction:
    return Fraction(a * a - b * b, 2)
