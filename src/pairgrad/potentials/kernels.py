"""The elementwise kernels of a potential in torch, with the derivatives they supply and their limits at infinity."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from pairgrad.ground.arithmetic import FusedArithmetic, TorchArithmetic, as_float
from pairgrad.ground.quadrature import as_tensors, gauss_legendre
from pairgrad.potentials.autograd import differentiable, differentiable_pair
from pairgrad.potentials.expansion import Expansion
from pairgrad.potentials.formulas import BySubtraction, OwnDerivative

if TYPE_CHECKING:
    from pairgrad.potentials.protocol import Potential

Kernel = Callable[..., torch.Tensor]
TORCH = TorchArithmetic()
_FUSED = FusedArithmetic()

# Enough points for the rounding of float64 over a quarter of the length on which the slope changes, where the error falls by about 300 per point; and over
# the whole of it, where it falls by about 20.
_MEAN_RULE, _BREGMAN_RULE = gauss_legendre(6), gauss_legendre(20)


def plain_value(pot: Potential, x: torch.Tensor) -> torch.Tensor:
    """Without the slope that the realization supplies: autograd goes through the formula."""
    return torch.where(x.isinf(), torch.inf, pot.formulas(x.dtype).value(TORCH, x))


def _slope(pot: Potential, x: torch.Tensor) -> torch.Tensor:
    formulas = pot.formulas(x.dtype)
    supplied = formulas.slope(TORCH, x)
    return supplied if isinstance(formulas, Expansion) else torch.where(x.isinf(), torch.sign(x), supplied)  # an expansion has its limits


def _pair(pot: Potential, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    value, slope = pot.formulas(x.dtype).pair(TORCH, x)
    infinite = x.isinf()
    return torch.where(infinite, torch.inf, value), torch.where(infinite, torch.sign(x), slope)


def _derivative(pot: Potential, x: torch.Tensor) -> torch.Tensor:
    formulas = pot.formulas(x.dtype)
    if not isinstance(formulas, OwnDerivative):
        return _slope(pot, x)
    return torch.where(x.isinf(), torch.sign(x), formulas.consistent_slope(TORCH, x))


def _defect(pot: Potential, x: torch.Tensor) -> torch.Tensor:
    supplied, derivative = _slope(pot, x), _derivative(pot, x)
    return torch.where(supplied == derivative, 0.0, supplied - derivative)  # infinite slopes, of the epsilon term near 0, are equal too


def curvature(pot: Potential, x: torch.Tensor) -> torch.Tensor:
    """Plain torch operations, so that autograd continues to the third order and beyond."""
    return _flat_at_infinity(pot.formulas(x.dtype).curvature, x)


def own_curvature(pot: Potential, x: torch.Tensor) -> torch.Tensor:
    """The derivative of `derivative`: the second one of the value that is computed."""
    formulas = pot.formulas(x.dtype)
    return _flat_at_infinity(formulas.consistent_curvature if isinstance(formulas, OwnDerivative) else formulas.curvature, x)


def _flat_at_infinity(formula: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    largest = torch.finfo(x.dtype).max
    return torch.where(x.isinf(), 0.0, formula(TORCH, x.clamp(-largest, largest)))


def _complement(pot: Potential, x: torch.Tensor) -> torch.Tensor:
    formulas = pot.formulas(x.dtype)
    positive = torch.where(x.isinf(), 0.0, formulas.complement(TORCH, x))
    return torch.where(x < 0, 2 - positive, positive)


def _deficit(pot: Potential, x: torch.Tensor) -> torch.Tensor:
    positive = pot.formulas(x.dtype).deficit(TORCH, x)
    return torch.where(x.isinf(), x, torch.where(x < 0, positive + 2 * x, positive))


def _difference(pot: Potential, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    infinite = a.isinf() | b.isinf()
    return torch.where(infinite, b.abs() - a.abs(), pot.formulas(a.dtype).difference(TORCH, a, b))


def _secant(pot: Potential, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    largest = torch.finfo(a.dtype).max
    return pot.formulas(a.dtype).secant(TORCH, a.clamp(-largest, largest), b.clamp(-largest, largest))


def _legendre(pot: Potential, x: torch.Tensor) -> torch.Tensor:
    """x slope - value, or the same from complement and deficit where these are smaller."""
    value, supplied = _pair(pot, x)
    size = x.abs()
    return torch.where(supplied.abs() < 0.5, x * supplied - value, _deficit(pot, size) - size * _complement(pot, size))


def _scale(pot: Potential, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The length over which the slope changes at the smaller of two points."""
    return TORCH.radius(as_float(pot.nu) + 0.5, torch.minimum(a.abs(), b.abs()))


def _bregman(pot: Potential, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Between close points the integral of (1 - theta) (b - a)^2 slope'(a + theta (b - a)); between others the difference of the secant and the slope,
    or of complement and deficit, whichever subtracts the smaller numbers. Without coherence there is no such integral, and only the definition.
    """
    step = b - a
    if not pot.coherent:
        return _difference(pot, a, b) - _slope(pot, a) * step
    infinite = a.isinf() | b.isinf()
    near = step.abs() <= _scale(pot, a, b)
    inner = torch.where(near, step, 0.0)
    nodes, weights = as_tensors(_BREGMAN_RULE, step)
    close = step * step * (weights * (1 - nodes) * curvature(pot, a[..., None] + nodes * inner[..., None])).sum(-1)
    low, high = step * (_secant(pot, a, b) - _slope(pot, a)), step * _complement(pot, a) - (_deficit(pot, b) - _deficit(pot, a))
    small = _slope(pot, torch.maximum(a, b)) * step.abs() <= _deficit(pot, a) + _deficit(pot, b)
    finite = torch.where(near, close, torch.where(small, low, high)).clamp_min(0)
    return torch.where(infinite, torch.where(a == b, 0.0, torch.inf), finite)


def _slope_rise(pot: Potential, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """slope(b) - slope(a) for a, b >= 0, from the complements where these are smaller; differentiable."""
    steep = slope(pot, torch.minimum(a, b).detach()) > 0.5
    return torch.where(steep, complement(pot, a) - complement(pot, b), slope(pot, b) - slope(pot, a))


def _d_secant(pot: Potential, output: torch.Tensor | None, fixed: torch.Tensor, moving: torch.Tensor) -> torch.Tensor:
    """d/db of S(a, b) with b `moving`: (slope(b) - S) / (b - a), or where that cancels the integral of theta slope'(a + theta (b - a))."""
    assert output is not None
    largest = torch.finfo(fixed.dtype).max
    fixed, moving = fixed.clamp(-largest, largest), moving.clamp(-largest, largest)
    step = moving - fixed
    near = step.abs() <= _scale(pot, fixed, moving) / 4
    quotient = (slope(pot, moving) - output) / torch.where(near, 1.0, step)
    integral = sum(
        weight * node * curvature(pot, fixed + node * torch.where(near, step, 0.0)) for node, weight in zip(*_MEAN_RULE, strict=True)
    )
    return torch.where(near, integral, quotient)


def increment_pair(
    pot: Potential, a: torch.Tensor, squared: torch.Tensor, terms: tuple[int, int] | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """value(b) - value(a), and the gain slope(b) / b, for a >= 0 and b^2 = a^2 + squared; no gradients.

    `terms` are `series_terms` of an expansion. The two arguments broadcast, and what depends on `a` alone is computed in its shape.
    """
    formulas = pot.formulas(squared.dtype)
    if isinstance(formulas, Expansion):
        return formulas.increment(_FUSED, a, squared, terms)
    b = torch.sqrt((a * a + squared).clamp_min(0))
    if isinstance(formulas, BySubtraction):
        value_b, slope_b = formulas.pair(TORCH, b)
        difference, limit = value_b - formulas.value(TORCH, a), _gain_at_zero(pot)
    else:
        a, b = torch.broadcast_tensors(a, b)
        difference, slope_b = formulas.difference(TORCH, a, b), formulas.slope(TORCH, b)
        limit = formulas.curvature(TORCH, b.new_zeros(()))
    return difference, _quotient(slope_b, b, limit)


def _gain_at_zero(pot: Potential) -> float:
    """Of R(x) / x, and of the finite recurrences, which have its first term."""
    return 1 / as_float(2 * pot.nu + 2)


def _quotient(slope: torch.Tensor, b: torch.Tensor, limit: float | torch.Tensor) -> torch.Tensor:
    small = b < torch.finfo(b.dtype).tiny ** 0.5
    return torch.where(small, limit, slope / torch.where(small, 1.0, b))


def series_terms(pot: Potential, reach: float | None, dtype: torch.dtype) -> tuple[int, int] | None:
    """Lengths of the series of `increment_pair` for |b - a| <= reach; None for logarithms, which need no bound."""
    formulas = pot.formulas(pot.compute_dtype(dtype))
    if reach is None or not isinstance(formulas, Expansion):
        return None
    return formulas.series_terms(reach, torch.finfo(pot.compute_dtype(dtype)).eps / 2)


def _gain(pot: Potential, square: torch.Tensor) -> torch.Tensor:
    """slope(b) / b as a function of b^2."""
    return increment_pair(pot, square.sqrt(), torch.zeros_like(square))[1]


def _own_gain(pot: Potential, square: torch.Tensor) -> torch.Tensor:
    """derivative(b) / b as a function of b^2."""
    if not isinstance(pot.formulas(square.dtype), OwnDerivative):
        return _gain(pot, square)
    b = square.sqrt()
    return _quotient(_derivative(pot, b), b, _gain_at_zero(pot))


def _d_gain(pot: Potential, square: torch.Tensor, bend: Kernel, of: Kernel) -> torch.Tensor:
    """(slope'(b) - slope(b) / b) / (2 b^2), which cancels where b is small: there the first term of the series of R, for b^2 = 0."""
    turn = as_float(2 * pot.nu + 2)
    near = square <= (1e-3 * turn) ** 2
    away = torch.where(near, turn * turn, square)
    return torch.where(near, -1 / (turn * turn * (turn + 2)), (bend(pot, away.sqrt()) - of(pot, away)) / (2 * away))


slope: Kernel = differentiable(_slope, lambda pot, _, x: curvature(pot, x))
value: Kernel = differentiable(plain_value, lambda pot, _, x: slope(pot, x))
pair = differentiable_pair(_pair, lambda pot, x: curvature(pot, x))
complement: Kernel = differentiable(_complement, lambda pot, _, x: -curvature(pot, x))
deficit: Kernel = differentiable(_deficit, lambda pot, _, x: complement(pot, x))
legendre: Kernel = differentiable(_legendre, lambda pot, _, x: x * curvature(pot, x))
bregman: Kernel = differentiable(
    _bregman,
    lambda pot, _, a, b: (a - b) * curvature(pot, a),
    lambda pot, _, a, b: _slope_rise(pot, a, b),
)
difference: Kernel = differentiable(_difference, lambda pot, _, a, b: -slope(pot, a), lambda pot, _, a, b: slope(pot, b))
secant: Kernel = differentiable(
    _secant,
    lambda pot, output, a, b: _d_secant(pot, output, b, a),
    lambda pot, output, a, b: _d_secant(pot, output, a, b),
    uses_output=True,
)
derivative: Kernel = differentiable(_derivative, lambda pot, _, x: own_curvature(pot, x))
defect: Kernel = differentiable(_defect, lambda pot, _, x: curvature(pot, x) - own_curvature(pot, x))
gain: Kernel = differentiable(_gain, lambda pot, _, square: _d_gain(pot, square, curvature, gain))
own_gain: Kernel = differentiable(_own_gain, lambda pot, _, square: _d_gain(pot, square, own_curvature, own_gain))


def _increment(pot: Potential, a: torch.Tensor, squared: torch.Tensor) -> torch.Tensor:
    return increment_pair(pot, a, squared)[0]


def _reached(a: torch.Tensor, squared: torch.Tensor) -> torch.Tensor:
    """b^2, which rounding may take below 0."""
    square = a * a + squared
    return torch.where(square < 0, 0.0, square)  # not clamp_min: in torch 2.15 its derivative at 0 is 0


# torch.compile follows the backward of the gains where they are names of this module, and not where they are variables of an enclosing function
increment: Kernel = differentiable(
    _increment,
    lambda pot, _, a, squared: a * (gain(pot, _reached(a, squared)) - gain(pot, a * a)),
    lambda pot, _, a, squared: gain(pot, _reached(a, squared)) / 2,
)
# the same value; differentiated as what it is, whatever the realization supplies
own_increment: Kernel = differentiable(
    _increment,
    lambda pot, _, a, squared: a * (own_gain(pot, _reached(a, squared)) - own_gain(pot, a * a)),
    lambda pot, _, a, squared: own_gain(pot, _reached(a, squared)) / 2,
)
