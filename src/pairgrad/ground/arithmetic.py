"""The arithmetics a formula is evaluated in.

A formula of this library is written once, as a function of its argument and of an *arithmetic*: the object that says
how to take a square root, a logarithm or the value of a polynomial. Torch tensors give the kernel that trains, mpmath
gives fifty digits, python-flint gives balls that provably contain the result. Because all run the same lines, the
kernel, the coherence test and the certificate cannot drift apart. NumPy and plain floats stand in for torch where few numbers are computed.

Constants are exact: `fractions.Fraction`, or a float that is meant to the last bit. `constant` brings them into the arithmetic, rounded once.

Two operations differ in kind, not in meaning, between the arithmetics:

- `radius(c, x)` is s = sqrt(c^2 + x^2), and `polar(c, x)` is (s, x / s); in floating point they must not overflow before their results do.
- `choose(condition, yes, no)` picks between two expressions of *the same* real function. In floating point they differ in
  rounding, which is why there is a choice; in ball arithmetic either is a valid enclosure.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from operator import methodcaller
from typing import Any, Protocol

import numpy as np
import torch

from pairgrad.ground._torch_private import is_functorch_wrapped_tensor
from pairgrad.ground.devices import HOST, on_host
from pairgrad.ground.quadrature import Rule, as_tensors

Number = Any  # a tensor, an mpf or an arb, according to the arithmetic


class Arithmetic(Protocol):
    """What a formula may ask for beyond + - * / and unary minus."""

    def constant(self, value: Fraction | float, /) -> Number: ...
    def constants(self, values: Sequence[Fraction], /) -> Sequence[Number]: ...
    def absolute(self, x: Number, /) -> Number: ...
    def maximum(self, a: Number, b: Number, /) -> Number: ...
    def minimum(self, a: Number, b: Number, /) -> Number: ...
    def at_least(self, x: Number, least: Number, /) -> Number: ...
    def log_integer(self, n: int, /) -> Number: ...
    def reciprocal(self, x: Number, /) -> Number: ...
    def sqrt(self, x: Number, /) -> Number: ...
    def exp(self, x: Number, /) -> Number: ...
    def log(self, x: Number, /) -> Number: ...
    def log1p(self, x: Number, /) -> Number: ...
    def log1p_over(self, x: Number, /) -> Number: ...
    def logaddexp(self, a: Number, b: Number, /) -> Number: ...
    def radius(self, c: Number, x: Number, /) -> Number: ...
    def polar(self, c: Number, x: Number, /) -> tuple[Number, Number]: ...
    def choose(self, condition: Any, yes: Number, no: Number, /) -> Number: ...
    def log_i0(self, x: Number, /) -> Number: ...
    def i1_over_i0(self, x: Number, /) -> Number: ...
    def polynomial(self, coefficients: Sequence[Number], t: Number, /) -> Number: ...
    def multiply_add(self, a: Number, b: Number, c: Number, /) -> Number: ...


def as_float(value: Fraction) -> float:
    """`float(value)`, to the last bit, also in a region that torch.compile traces: before torch 2.12 it cannot follow `float` of a Fraction."""
    return value.numerator / value.denominator


def horner(coefficients: Sequence[Number], t: Number) -> Number:
    """sum_i coefficients[i] t^i."""
    if len(coefficients) == 1:
        return coefficients[0] + 0 * t
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * t + c
    return total


def multiply_add(a: Number, b: Number, c: Number) -> Number:
    """a b + c, in two operations."""
    return a * b + c


def divided_difference(
    coefficients: Sequence[Number], a: Number, b: Number, step: Callable[[Number, Number, Number], Number] = multiply_add
) -> Number:
    """(q(b) - q(a)) / (b - a) of the polynomial q without a subtraction, by Horner's scheme at two points.

    The inner scheme runs in the shape of b alone, the outer one in that of both.
    """
    if len(coefficients) < 3:
        return coefficients[-1] + 0 * a if len(coefficients) == 2 else 0 * a * b
    total = quotient = coefficients[-1]
    for c in reversed(coefficients[1:-1]):
        total = step(total, b, c)
        quotient = step(quotient, a, total)
    return quotient


def _chain(coefficients: Sequence[float], t: torch.Tensor) -> torch.Tensor:
    """Horner's scheme in one buffer where no graph is recorded."""
    if torch.is_grad_enabled() or len(coefficients) < 3:
        return horner(coefficients, t)
    total = coefficients[-1] * t
    for c in reversed(coefficients[1:-1]):
        total.add_(c).mul_(t)
    return total.add_(coefficients[0])


def once(x: Number) -> Number:
    """x, kept in memory where code is generated for the CPU: what depends on a column alone would be computed again in every row."""
    if isinstance(x, torch.Tensor) and torch.compiler.is_compiling() and on_host(x):
        return x.as_strided(x.shape, x.stride())  # a view of what must then exist
    return x


def homogeneous(coefficients: Sequence[Number], x: Number, y: Number) -> Number:
    """sum_j coefficients[j] x^j y^(n - j), n the degree."""
    total, power = coefficients[-1] + 0 * x, 1
    for c in reversed(coefficients[:-1]):
        power = power * y
        total = total * x + c * power
    return total


def homogeneous_difference(coefficients: Sequence[Number], a: Number, b: Number, y: Number) -> Number:
    """The divided difference of `homogeneous` in its first argument between a and b; its derivative where a = b."""
    if len(coefficients) < 2:
        return 0 * b
    total = quotient = coefficients[-1] + 0 * b
    power = 1
    for c in reversed(coefficients[1:-1]):
        power = power * y
        total = total * b + c * power
        quotient = quotient * a + total
    return quotient


_BLOCK = 5  # coefficients: about the square root of their number, which is 30 at most


class TorchArithmetic:
    """Tensors, elementwise, in the dtype of the argument; constants are Python floats, rounded from exact rationals."""

    name = "torch"

    reciprocal = staticmethod(torch.reciprocal)
    sqrt = staticmethod(torch.sqrt)
    exp = staticmethod(torch.exp)
    log = staticmethod(torch.log)
    log1p = staticmethod(torch.log1p)
    logaddexp = staticmethod(torch.logaddexp)
    absolute = staticmethod(torch.abs)
    maximum = staticmethod(torch.maximum)
    minimum = staticmethod(torch.minimum)
    infinite = staticmethod(torch.isinf)
    sign = staticmethod(torch.sign)
    rule = staticmethod(as_tensors)

    log_integer = staticmethod(math.log)
    constant = staticmethod(float)

    def multiply_add(self, a: torch.Tensor | float, b: torch.Tensor, c: torch.Tensor | float) -> torch.Tensor:
        return a * b + c

    def constants(self, values: Sequence[Fraction]) -> tuple[float, ...]:
        return tuple(as_float(v) for v in values)

    def at_least(self, x: torch.Tensor, least: float) -> torch.Tensor:
        if torch.is_grad_enabled():
            return torch.maximum(x, x.new_full((), least))  # not clamp: where the two are equal, autograd must give each a half
        return x.clamp_min(least)

    def total(self, x: torch.Tensor) -> torch.Tensor:
        """The sum along the last dimension."""
        return x.sum(-1)

    def spacing(self, x: torch.Tensor) -> float:
        """eps of the dtype."""
        return torch.finfo(x.dtype).eps

    def far(self, x: torch.Tensor) -> float:
        """Beyond it the slope is 1 to rounding; up to it, squares do not overflow, nor do their sums with any finite number."""
        return 2.0**480 if x.dtype == torch.float64 else 2.0**50

    def finite(self, x: torch.Tensor) -> torch.Tensor:
        """x, or the largest number in place of infinity."""
        largest = torch.finfo(x.dtype).max
        return x.clamp(-largest, largest)

    def choose(self, condition: torch.Tensor, yes: torch.Tensor | float, no: torch.Tensor) -> torch.Tensor:
        return torch.where(condition, yes, no)

    def log1p_over(self, x: torch.Tensor) -> torch.Tensor:
        flat = x * x == 0  # not x == 0: log1p of a subnormal number may be wrong
        return torch.where(flat, 1.0, torch.log1p(x) / torch.where(flat, 1.0, x))

    def radius(self, c: float, x: torch.Tensor) -> torch.Tensor:
        return self.polar(c, x)[0]

    def polar(self, c: float, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Beyond `far` the constant is below the rounding of x: the radius is |x|, and x over it +-1, at infinity too."""
        far = 2.0**500 if x.dtype == torch.float64 else 2.0**60
        near = x.clamp(-far, far)
        root = torch.sqrt(near * near + c * c)
        return torch.maximum(root, x.abs()), near / root

    def log_i0(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(torch.special.i0e(x)) + x

    def i1_over_i0(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.i1e(x) / torch.special.i0e(x)

    def polynomial(self, coefficients: Sequence[float], t: torch.Tensor) -> torch.Tensor:
        """Horner's scheme; in two interleaved halves when it is long, because one chain waits for its own latency."""
        if len(coefficients) < 8:
            return _chain(coefficients, t)
        square = t * t
        return _chain(coefficients[::2], square) + t * _chain(coefficients[1::2], square)


class BlockArithmetic(TorchArithmetic):
    """The same with about one operation per coefficient of a long polynomial instead of two: for small tensors, which take as long as they have operations."""

    def polynomial(self, coefficients: Sequence[float], t: torch.Tensor) -> torch.Tensor:
        """Blocks of `_BLOCK` coefficients, each a sum of known powers, and Horner's scheme over the blocks."""
        long = len(coefficients) >= 2 * _BLOCK
        if not long or torch.is_grad_enabled() or torch.compiler.is_compiling() or is_functorch_wrapped_tensor(t):
            return super().polynomial(coefficients, t)
        powers = [t]
        while len(powers) < _BLOCK:
            powers.append(powers[-1] * t)
        total = None
        for start in reversed(range(0, len(coefficients), _BLOCK)):
            first, *others = coefficients[start : start + _BLOCK]
            block = others[0] * t + first if others else torch.full_like(t, first)
            for c, power in zip(others[1:], powers[1:], strict=False):
                block.add_(power, alpha=c)
            total = block if total is None else block.addcmul_(total, powers[-1])
        assert total is not None
        return total


class FusedArithmetic(TorchArithmetic):
    """The same with a b + c in one pass over memory, where no graph is recorded. The last bits may differ: some processors round once."""

    def multiply_add(self, a: torch.Tensor | float, b: torch.Tensor, c: torch.Tensor | float) -> torch.Tensor:
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or is_functorch_wrapped_tensor(b):
            return a * b + c
        if on_host(b) and type(b) is torch.Tensor:
            return torch.addcmul(_operand(c, b.dtype), _operand(a, b.dtype), b)
        # elsewhere a number stays a number: a CPU tensor beside others of a device is refused, and to fill one there is an operation
        if not isinstance(c, torch.Tensor):
            return (a * b).add_(c)
        return torch.addcmul(c, a, b) if isinstance(a, torch.Tensor) else torch.add(c, b, alpha=a)

    def polynomial(self, coefficients: Sequence[float], t: torch.Tensor) -> torch.Tensor:
        if len(coefficients) == 1:
            return coefficients[0] + 0 * t
        total = self.multiply_add(coefficients[-1], t, coefficients[-2])
        for c in reversed(coefficients[:-2]):
            total = self.multiply_add(total, t, c)
        return total


class NumpyArithmetic(TorchArithmetic):
    """Arrays and NumPy's scalars with the bits of `TorchArithmetic` on the CPU, for tensors so small that starting torch's operations is what takes time.

    Roots, logarithms and sums are torch's own, whose last bits are not those of NumPy.
    """

    absolute, maximum, minimum = staticmethod(np.abs), staticmethod(np.maximum), staticmethod(np.minimum)
    infinite, sign = staticmethod(np.isinf), staticmethod(np.sign)

    def reciprocal(self, x: Number) -> Number:
        return 1 / x

    def sqrt(self, x: Number) -> Number:
        return torch.from_numpy(np.asarray(x)).sqrt().numpy()[()]

    def log(self, x: Number) -> Number:
        return torch.from_numpy(np.asarray(x)).log().numpy()[()]

    def log1p(self, x: Number) -> Number:
        return torch.from_numpy(np.asarray(x)).log1p().numpy()[()]

    def at_least(self, x: Number, least: float) -> Number:
        return np.maximum(x, least)

    def total(self, x: Number) -> Number:
        return torch.from_numpy(x).sum(-1).numpy()[()]

    def spacing(self, x: Number) -> float:
        return float(np.finfo(x.dtype).eps)

    def far(self, x: Number) -> float:
        return 2.0**480 if x.dtype == np.float64 else 2.0**50

    def finite(self, x: Number) -> Number:
        largest = np.finfo(x.dtype).max
        return np.minimum(np.maximum(x, -largest), largest)

    def rule(self, rule: Rule, like: Number) -> tuple[Number, Number]:
        return np.asarray(rule[0], like.dtype), np.asarray(rule[1], like.dtype)

    def choose(self, condition: Number, yes: Number, no: Number) -> Number:
        return np.where(condition, yes, no) if isinstance(condition, np.ndarray) else yes if condition else no

    def log1p_over(self, x: Number) -> Number:
        flat = x * x == 0
        return self.choose(flat, 1 + 0 * x, self.log1p(x) / self.choose(flat, 1 + 0 * x, x))

    def polar(self, c: float, x: Number) -> tuple[Number, Number]:
        far = 2.0**500 if x.dtype == np.float64 else 2.0**60
        near = np.minimum(np.maximum(x, -far), far)
        root = self.sqrt(near * near + c * c)
        return np.maximum(root, np.abs(x)), near / root

    def polynomial(self, coefficients: Sequence[float], t: Number) -> Number:
        if len(coefficients) < 8:
            return _steps(coefficients, t)
        square = t * t
        return _steps(coefficients[::2], square) + t * _steps(coefficients[1::2], square)


class FloatArithmetic(TorchArithmetic):
    """Python's floats: a number at a time, where the last bit need not be that of a tensor. Division by 0 and the logarithm of 0 raise."""

    sqrt, exp, log, log1p = staticmethod(math.sqrt), staticmethod(math.exp), staticmethod(math.log), staticmethod(math.log1p)
    absolute, maximum, minimum = staticmethod(abs), staticmethod(max), staticmethod(min)
    infinite = staticmethod(math.isinf)

    def reciprocal(self, x: Number) -> Number:
        return 1 / x

    def sign(self, x: Number) -> Number:
        return math.copysign(1.0, x) if x else 0.0

    def spacing(self, x: Number) -> float:
        return sys.float_info.epsilon

    def far(self, x: Number) -> float:
        return 2.0**480

    def finite(self, x: Number) -> Number:
        return max(min(x, sys.float_info.max), -sys.float_info.max)

    def at_least(self, x: Number, least: float) -> Number:
        return max(x, least)

    def choose(self, condition: Number, yes: Number, no: Number) -> Number:
        return yes if condition else no

    def log1p_over(self, x: Number) -> Number:
        return math.log1p(x) / x if x * x else 1.0

    def polar(self, c: float, x: Number) -> tuple[Number, Number]:
        near = max(min(x, 2.0**500), -(2.0**500))
        root = math.sqrt(near * near + c * c)
        return max(root, abs(x)), near / root

    def polynomial(self, coefficients: Sequence[float], t: Number) -> Number:
        return horner(coefficients, t)


def _steps(coefficients: Sequence[float], t: Number) -> Number:
    """Horner's scheme, in one buffer if t is an array."""
    if len(coefficients) == 1:
        return coefficients[0] + 0 * t
    total = coefficients[-1] * t
    for c in coefficients[-2:0:-1]:
        total += c
        total *= t
    total += coefficients[0]
    return total


def _operand(value: torch.Tensor | float, dtype: torch.dtype) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else _cpu_constant(value, dtype)


@cache
def _cpu_constant(value: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(value, dtype=dtype, device=HOST)


class _OneByOne:
    """What arithmetics of single numbers share."""

    sqrt: Callable[[Number], Number]
    constant: Callable[[Fraction | float], Number]
    absolute = staticmethod(abs)
    polynomial, multiply_add = staticmethod(horner), staticmethod(multiply_add)

    def constants(self, values: Sequence[Fraction]) -> tuple[Number, ...]:
        return tuple(map(self.constant, values))

    def choose(self, condition: bool, yes: Number, no: Number) -> Number:
        return yes if condition else no

    def reciprocal(self, x: Number) -> Number:
        return 1 / x

    def radius(self, c: Number, x: Number) -> Number:
        return self.sqrt(c * c + x * x)

    def polar(self, c: Number, x: Number) -> tuple[Number, Number]:
        s = self.radius(c, x)
        return s, x / s


class MpmathArithmetic(_OneByOne):
    """Real numbers at the working precision of an mpmath context (`mpmath.mp` unless another is given)."""

    name = "mpmath"

    def __init__(self, context: Any = None) -> None:
        if context is None:
            import mpmath

            context = mpmath.mp
        self.context = context
        self.sqrt, self.exp, self.log, self.log1p = context.sqrt, context.exp, context.log, context.log1p
        self.log_integer = context.log
        self.maximum, self.minimum, self.at_least = max, min, max

    def constant(self, value: Fraction | float) -> Number:
        exact = Fraction(value)
        return self.context.mpf(exact.numerator) / exact.denominator

    def log1p_over(self, x: Number) -> Number:
        return self.log1p(x) / x if x else self.context.one

    def logaddexp(self, a: Number, b: Number) -> Number:
        return self.log(self.exp(a) + self.exp(b))

    def log_i0(self, x: Number) -> Number:
        return self.log(self.context.besseli(0, x))

    def i1_over_i0(self, x: Number) -> Number:
        return self.context.besseli(1, x) / self.context.besseli(0, x)


class BallArithmetic(_OneByOne):
    """Balls of python-flint at its current precision: every result contains the exact one."""

    name = "ball"
    sqrt, exp, log, log1p = (staticmethod(methodcaller(name)) for name in ("sqrt", "exp", "log", "log1p"))

    def __init__(self) -> None:
        import flint

        self.arb, self._fmpq = flint.arb, flint.fmpq

    def constant(self, value: Fraction | float) -> Number:
        exact = Fraction(value)
        return self.arb(self._fmpq(exact.numerator, exact.denominator))

    def log1p_over(self, x: Number) -> Number:
        if 0 in x:  # log1p(x) / x = 1 + theta x with |theta| < 1 for |x| <= 1/2
            return self.arb(1, x.abs_upper()) if x.abs_upper() < 0.5 else self.arb("nan")
        return x.log1p() / x

    def logaddexp(self, a: Number, b: Number) -> Number:
        top = a.max(b)
        return top + ((a - top).exp() + (b - top).exp()).log()

    def maximum(self, a: Number, b: Number) -> Number:
        return self.arb(a).max(self.arb(b))

    at_least = maximum

    def log_integer(self, n: int) -> Number:
        return self.arb(n).log()

    def minimum(self, a: Number, b: Number) -> Number:
        return self.arb(a).min(self.arb(b))

    def log_i0(self, x: Number) -> Number:
        return x.bessel_i(0, scaled=True).log() + x

    def i1_over_i0(self, x: Number) -> Number:
        return x.bessel_i(1, scaled=True) / x.bessel_i(0, scaled=True)
