"""The elementwise kernels of a potential in torch, with the derivatives they supply and their limits at infinity."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from pairgrad.ground.arithmetic import FusedArithmetic, TorchArithmetic
from pairgrad.potentials.autograd import differentiable, differentiable_pair
from pairgrad.potentials.expansion import Expansion
from pairgrad.potentials.formulas import BySubtraction, OwnDerivative

if TYPE_CHECKING:
    from pairgrad.potentials.protocol import Potential

Kernel = Callable[..., torch.Tensor]
TORCH = TorchArithmetic()
_FUSED = FusedArithmetic()

# Six-point Gauss-Legendre rule on [0, 1].
_NODES = (0.03376524289842398, 0.16939530676686776, 0.3806904069584016, 0.6193095930415985, 0.8306046932331322, 0.966234757101576)
_WEIGHTS = (0.08566224618958517, 0.1803807865240693, 0.2339569672863455, 0.2339569672863455, 0.1803807865240693, 0.08566224618958517)


def _value(pot: Potential, x: torch.Tensor) -> torch.Tensor:
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


def _difference(pot: Potential, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    infinite = a.isinf() | b.isinf()
    return torch.where(infinite, b.abs() - a.abs(), pot.formulas(a.dtype).difference(TORCH, a, b))


def _secant(pot: Potential, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    largest = torch.finfo(a.dtype).max
    return pot.formulas(a.dtype).secant(TORCH, a.clamp(-largest, largest), b.clamp(-largest, largest))


def _d_secant(pot: Potential, output: torch.Tensor | None, fixed: torch.Tensor, moving: torch.Tensor) -> torch.Tensor:
    """d/db of S(a, b) with b `moving`: (slope(b) - S) / (b - a), or where that cancels the integral of theta slope'(a + theta (b - a))."""
    assert output is not None
    largest = torch.finfo(fixed.dtype).max
    fixed, moving = fixed.clamp(-largest, largest), moving.clamp(-largest, largest)
    step = moving - fixed
    scale = TORCH.radius(float(pot.nu) + 0.5, torch.minimum(fixed.abs(), moving.abs()))
    near = step.abs() <= scale / 4
    quotient = (slope(pot, moving) - output) / torch.where(near, 1.0, step)
    integral = sum(
        weight * node * curvature(pot, fixed + node * torch.where(near, step, 0.0)) for node, weight in zip(_NODES, _WEIGHTS, strict=True)
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
    return 1 / float(2 * pot.nu + 2)


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
    turn = float(2 * pot.nu + 2)
    near = square <= (1e-3 * turn) ** 2
    away = torch.where(near, turn * turn, square)
    return torch.where(near, -1 / (turn * turn * (turn + 2)), (bend(pot, away.sqrt()) - of(pot, away)) / (2 * away))


slope: Kernel = differentiable(_slope, lambda pot, _, x: curvature(pot, x))
value: Kernel = differentiable(_value, lambda pot, _, x: slope(pot, x))
pair = differentiable_pair(_pair, lambda pot, x: curvature(pot, x))
complement: Kernel = differentiable(_complement, lambda pot, _, x: -curvature(pot, x))
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


def _increment(of: Kernel) -> Kernel:
    """value(b) - value(a), whose derivatives are made of the gain `of`."""
    return differentiable(
        lambda pot, a, squared: increment_pair(pot, a, squared)[0],
        lambda pot, _, a, squared: a * (of(pot, (a * a + squared).clamp_min(0)) - of(pot, a * a)),
        lambda pot, _, a, squared: of(pot, (a * a + squared).clamp_min(0)) / 2,
    )


increment: Kernel = _increment(gain)
own_increment: Kernel = _increment(own_gain)  # the same value; differentiated as what it is, whatever the realization supplies
