"""The elementwise kernels of a potential in torch, with the derivatives they supply and their limits at infinity."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pairgrad.ground.arithmetic import FloatArithmetic, FusedArithmetic, Number, NumpyArithmetic, TorchArithmetic, as_float
from pairgrad.ground.checks import in_plain_memory
from pairgrad.ground.devices import on_host
from pairgrad.ground.quadrature import gauss_legendre
from pairgrad.potentials.autograd import differentiable, differentiable_pair
from pairgrad.potentials.expansion import Expansion
from pairgrad.potentials.formulas import BySubtraction, Formulas, OwnDerivative

if TYPE_CHECKING:
    from pairgrad.potentials.protocol import Potential

Kernel = Callable[..., torch.Tensor]
Ops = TorchArithmetic
TORCH = TorchArithmetic()
_FUSED, _NUMPY, _FLOATS = FusedArithmetic(), NumpyArithmetic(), FloatArithmetic()

# Enough points for the rounding of float64 over a quarter of the length on which the slope changes, where the error falls by about 300 per point; and over
# the whole of it, where it falls by about 20.
_MEAN_RULE, _BREGMAN_RULE = gauss_legendre(6), gauss_legendre(20)


def computed(kernel: Callable[..., Any], on_devices: Ops = TORCH) -> Callable[..., Any]:
    """kernel(ops, pot, formulas, *numbers) as a function of a potential and tensors of one shape; `on_devices` is the arithmetic away from the host.

    Few numbers on the host go through NumPy: the same lines and the same bits, in a third of the time or less. A single one goes through Python's floats,
    with the formulas of float64, in a tenth of it; there the last bit may differ.
    """

    def of_tensors(pot: Potential, *tensors: torch.Tensor) -> Any:
        formulas = pot.formulas(tensors[0].dtype)
        if not isinstance(formulas, Expansion) or not in_plain_memory(tensors):
            return kernel(TORCH if on_host(tensors[0]) else on_devices, pot, formulas, *tensors)
        if tensors[0].numel() == 1:
            result = of_number(pot, kernel, *(t.item() for t in tensors))
        else:
            with np.errstate(all="ignore"):
                result = kernel(_NUMPY, pot, formulas, *(t.numpy(force=True) for t in tensors))
        if isinstance(result, tuple):
            return tuple(_like(tensors[0], part) for part in result)
        return _like(tensors[0], result)

    return of_tensors


def _like(tensor: torch.Tensor, numbers: Any) -> torch.Tensor:
    if isinstance(numbers, np.ndarray):
        return torch.from_numpy(numbers)
    return torch.full(tensor.shape, numbers, dtype=torch.float64, device=tensor.device).to(tensor.dtype)  # which may overflow


def of_number(pot: Potential, method: str | Callable[..., Any], *numbers: float) -> Any:
    """A method of a potential, or another kernel, for floats."""
    kernel = _KERNELS[method] if isinstance(method, str) else method
    formulas = pot.formulas(torch.float64)
    try:
        return kernel(_FLOATS, pot, formulas, *numbers)
    except (ArithmeticError, ValueError):  # what makes infinity or NaN elsewhere
        with np.errstate(all="ignore"):
            result = kernel(_NUMPY, pot, formulas, *map(np.float64, numbers))
        return tuple(map(float, result)) if isinstance(result, tuple) else float(result)


def _value(ops: Ops, pot: Potential, formulas: Formulas, x: Number) -> Number:
    return ops.choose(ops.infinite(x), math.inf, formulas.value(ops, x))


def _slope(ops: Ops, pot: Potential, formulas: Formulas, x: Number) -> Number:
    supplied = formulas.slope(ops, x)
    if isinstance(formulas, Expansion):  # which has its limits at infinity
        return supplied
    return ops.choose(ops.infinite(x), ops.sign(x), supplied)


def _pair(ops: Ops, pot: Potential, formulas: Formulas, x: Number) -> tuple[Number, Number]:
    value, slope = formulas.pair(ops, x)
    infinite = ops.infinite(x)
    return ops.choose(infinite, math.inf, value), ops.choose(infinite, ops.sign(x), slope)


def _derivative(ops: Ops, pot: Potential, formulas: Formulas, x: Number) -> Number:
    if not isinstance(formulas, OwnDerivative):
        return _slope(ops, pot, formulas, x)
    return ops.choose(ops.infinite(x), ops.sign(x), formulas.consistent_slope(ops, x))


def _defect(ops: Ops, pot: Potential, formulas: Formulas, x: Number) -> Number:
    supplied, derivative = _slope(ops, pot, formulas, x), _derivative(ops, pot, formulas, x)
    return ops.choose(supplied == derivative, 0.0, supplied - derivative)  # infinite slopes, of the epsilon term near 0, are equal too


def _curvature(ops: Ops, pot: Potential, formulas: Formulas, x: Number) -> Number:
    return _flat_at_infinity(ops, formulas.curvature, x)


def _own_curvature(ops: Ops, pot: Potential, formulas: Formulas, x: Number) -> Number:
    return _flat_at_infinity(ops, formulas.consistent_curvature if isinstance(formulas, OwnDerivative) else formulas.curvature, x)


def _flat_at_infinity(ops: Ops, formula: Callable[..., Number], x: Number) -> Number:
    return ops.choose(ops.infinite(x), 0.0, formula(ops, ops.finite(x)))


def _complement(ops: Ops, pot: Potential, formulas: Formulas, x: Number) -> Number:
    positive = ops.choose(ops.infinite(x), 0.0, formulas.complement(ops, x))
    return ops.choose(x < 0, 2 - positive, positive)


def _deficit(ops: Ops, pot: Potential, formulas: Formulas, x: Number) -> Number:
    positive = formulas.deficit(ops, x)
    return ops.choose(ops.infinite(x), x, ops.choose(x < 0, positive + 2 * x, positive))


def _difference(ops: Ops, pot: Potential, formulas: Formulas, a: Number, b: Number) -> Number:
    infinite = ops.infinite(a) | ops.infinite(b)
    return ops.choose(infinite, ops.absolute(b) - ops.absolute(a), formulas.difference(ops, a, b))


def _secant(ops: Ops, pot: Potential, formulas: Formulas, a: Number, b: Number) -> Number:
    both = a + b
    return ops.choose(ops.infinite(both), ops.sign(both), formulas.secant(ops, ops.finite(a), ops.finite(b)))


def _legendre(ops: Ops, pot: Potential, formulas: Formulas, x: Number) -> Number:
    """x slope - value, or the same from complement and deficit where these are smaller: from where the slope is about a half."""
    size = ops.absolute(x)
    low = size < 4 / 3 * (as_float(pot.nu) + 0.5)
    sides = _sides(low)

    def below() -> Number:
        value, slope = _pair(ops, pot, formulas, size)
        return size * slope - value

    def above() -> Number:
        return ops.choose(ops.infinite(size), size, _deficit(ops, pot, formulas, size) - size * _complement(ops, pot, formulas, size))

    if sides == {True}:
        return below()
    return above() if sides == {False} else ops.choose(low, below(), above())


def _sides(condition: Any) -> set[bool]:
    """Which values a condition has, where that can be seen at once: of numbers and arrays; both for tensors."""
    if isinstance(condition, torch.Tensor):
        return {True, False}
    if isinstance(condition, bool):
        return {condition}
    return {bool(np.all(condition)), bool(np.any(condition))}


def _scale(ops: Ops, pot: Potential, a: Number, b: Number) -> Number:
    """The length over which the slope changes at the smaller of two points."""
    return ops.radius(as_float(pot.nu) + 0.5, ops.minimum(ops.absolute(a), ops.absolute(b)))


def _bregman(ops: Ops, pot: Potential, formulas: Formulas, a: Number, b: Number) -> Number:
    """Between close points the integral of (1 - theta) (b - a)^2 slope'(a + theta (b - a)); between others the difference of the secant and the slope,
    or of complement and deficit, whichever subtracts the smaller numbers. Without coherence there is no such integral, and only the definition.
    """
    step = b - a
    if not pot.coherent:
        return _difference(ops, pot, formulas, a, b) - _slope(ops, pot, formulas, a) * step
    infinite = ops.infinite(a) | ops.infinite(b)
    near = ops.absolute(step) <= _scale(ops, pot, a, b)

    def close() -> Number:
        shrink = ops.far(a) * ops.reciprocal(ops.at_least(a, ops.far(a)))  # out there only b / a matters, and the curvature underflows
        inner = ops.choose(near, step * shrink, 0 * a)
        return inner * inner * _mean_bend(ops, pot, formulas, a * shrink, inner)

    def apart() -> Number:
        slope, deficit_a, deficit_b = _slope(ops, pot, formulas, a), _deficit(ops, pot, formulas, a), _deficit(ops, pot, formulas, b)
        low = step * (_secant(ops, pot, formulas, a, b) - slope)
        high = step * _complement(ops, pot, formulas, a) - (deficit_b - deficit_a)
        if isinstance(formulas, Expansion):  # deficits grow like mu log x: for large x their difference is taken from b / a
            mu, ratio = as_float(pot.nu) + 0.5, b / a
            high = ops.choose(ops.minimum(a, b) > 2.0**7 / ops.spacing(a) * mu, mu * (ratio - 1 - ops.log(ratio)), high)
        small = _slope(ops, pot, formulas, ops.maximum(a, b)) * ops.absolute(step) <= deficit_a + deficit_b
        return ops.choose(small, low, high)

    sides = _sides(near)
    chosen = close() if sides == {True} else apart() if sides == {False} else ops.choose(near, close(), apart())
    return ops.choose(infinite & (a == b), 0.0, ops.choose(infinite, math.inf, ops.maximum(chosen, 0 * a)))


def _mean_bend(ops: Ops, pot: Potential, formulas: Formulas, a: Number, step: Number) -> Number:
    """The integral of (1 - theta) slope'(a + theta step)."""
    if isinstance(step, float):
        pairs = zip(*_BREGMAN_RULE, strict=True)
        return sum(weight * (1 - node) * _curvature(ops, pot, formulas, a + node * step) for node, weight in pairs)
    nodes, weights = ops.rule(_BREGMAN_RULE, step)
    return ops.total(weights * (1 - nodes) * _curvature(ops, pot, formulas, a[..., None] + nodes * step[..., None]))


_KERNELS: dict[str, Callable[..., Any]] = {
    "slope": _slope,
    "curvature": _curvature,
    "complement": _complement,
    "deficit": _deficit,
    "legendre": _legendre,
}

# plain torch operations where a graph is recorded, so that autograd continues to the third order and beyond
curvature = computed(_curvature)
own_curvature = computed(_own_curvature)  # the second derivative of the value that is computed
plain_value = computed(_value)  # without the slope that the realization supplies: autograd goes through the formula


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
    near = step.abs() <= _scale(TORCH, pot, fixed, moving) / 4
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
    return _quotient(_derivative(TORCH, pot, pot.formulas(b.dtype), b), b, _gain_at_zero(pot))


def _d_gain(pot: Potential, square: torch.Tensor, bend: Kernel, of: Kernel) -> torch.Tensor:
    """(slope'(b) - slope(b) / b) / (2 b^2), which cancels where b is small: there the first term of the series of R, for b^2 = 0."""
    turn = as_float(2 * pot.nu + 2)
    near = square <= (1e-3 * turn) ** 2
    away = torch.where(near, turn * turn, square)
    return torch.where(near, -1 / (turn * turn * (turn + 2)), (bend(pot, away.sqrt()) - of(pot, away)) / (2 * away))


slope: Kernel = differentiable(computed(_slope), lambda pot, _, x: curvature(pot, x))
value: Kernel = differentiable(plain_value, lambda pot, _, x: slope(pot, x))
pair = differentiable_pair(computed(_pair), lambda pot, x: curvature(pot, x))
complement: Kernel = differentiable(computed(_complement), lambda pot, _, x: -curvature(pot, x))
deficit: Kernel = differentiable(computed(_deficit), lambda pot, _, x: complement(pot, x))
legendre: Kernel = differentiable(computed(_legendre), lambda pot, _, x: torch.where(x.isinf(), 0.0, x * curvature(pot, x)))
bregman: Kernel = differentiable(
    computed(_bregman),
    lambda pot, _, a, b: (a - b) * curvature(pot, a),
    lambda pot, _, a, b: _slope_rise(pot, a, b),
)
difference: Kernel = differentiable(computed(_difference), lambda pot, _, a, b: -slope(pot, a), lambda pot, _, a, b: slope(pot, b))
secant: Kernel = differentiable(
    computed(_secant),
    lambda pot, output, a, b: _d_secant(pot, output, b, a),
    lambda pot, output, a, b: _d_secant(pot, output, a, b),
    uses_output=True,
)
derivative: Kernel = differentiable(computed(_derivative), lambda pot, _, x: own_curvature(pot, x))
defect: Kernel = differentiable(computed(_defect), lambda pot, _, x: curvature(pot, x) - own_curvature(pot, x))
gain: Kernel = differentiable(_gain, lambda pot, _, square: _d_gain(pot, square, curvature, gain))
own_gain: Kernel = differentiable(_own_gain, lambda pot, _, square: _d_gain(pot, square, own_curvature, own_gain))


def _increment(pot: Potential, a: torch.Tensor, squared: torch.Tensor) -> torch.Tensor:
    difference, gain_b = increment_pair(pot, a, squared)
    if isinstance(pot.formulas(squared.dtype), Expansion):  # whose logarithms would underflow
        first = squared * gain_b
        difference = torch.where(first * gain_b * 2.0**-60 == 0, first / 2, difference)
    step = squared / a  # where a^2 would overflow, b - a = squared / (a + b)
    difference = torch.where(a > TORCH.far(a), step / (1 + torch.sqrt((1 + step / a).clamp_min(0))), difference)
    return torch.where(squared == torch.inf, squared - a, difference)


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
