"""`"original"`, `"consistent"` and `"log-miller"`: the finite-start recurrence of the public code, as diagnosed in the paper.

The recurrence runs in float64 whatever the dtype of the argument, as its source does; results are rounded to the dtype of the argument.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

import torch

from pairgrad.ground.checks import computing_dtype, exact_number, integer_at_least, one_of
from pairgrad.potentials import kernels
from pairgrad.potentials.miller import ConsistentMiller, LogMillerFormulas, Miller
from pairgrad.potentials.protocol import Pair, Potential

LONGEST = 10**6  # steps of the recurrence: more would not come back within minutes


class _Recurrence(Potential):
    invertible = False
    _no_theorem = (
        "its finite start has no useful bound over the whole axis, because its ratio leaves R as x grows (eqs. miller-odd-asymptotic, "
        "miller-even-asymptotic); use realization='paired'"
    )
    _formulas: Miller

    def __init__(
        self, nu: Fraction, kind: type[Miller], *, start: int | None, epsilon: float, clip: bool | float = False, **others: Any
    ) -> None:
        name = self.realization
        if nu.denominator != 1 or nu < 1:
            raise ValueError(
                f"realization {name!r} needs an integer Bessel order nu >= 1, that is an even dim >= 4, got nu = {float(nu):g} (dim {float(2 * nu + 2):g}): "
                "the recurrence runs over integer orders and its source starts it at 2 nu; use realization='paired'"
            )
        order = int(nu)
        start = 2 * order if start is None else integer_at_least("start", start, order + 1, hint=f"it must exceed nu = {order}")
        if start > LONGEST:
            raise ValueError(
                f"realization {name!r} takes {start} sequential steps here, one for each order from start (2 nu = dim - 2 unless it is given), and "
                f"at most {LONGEST} are allowed: choose a smaller start, or use realization='paired', whose cost does not grow with dim"
            )
        epsilon = float(exact_number("epsilon", epsilon))
        limit = _clip(clip)
        super().__init__(nu, start=start, epsilon=epsilon, **({"clip": clip} if kind is not ConsistentMiller else {}), **others)
        self._formulas = kind(order, start, epsilon, limit)

    def compute_dtype(self, dtype: torch.dtype) -> torch.dtype:
        computing_dtype("dtype", dtype)
        return torch.float64

    def formulas(self, dtype: torch.dtype = torch.float64) -> Miller:
        return self._formulas

    @property
    def offset(self) -> float:
        """0: the finite potential approximates Phi itself."""
        return 0.0


def _clip(clip: bool | float) -> float | None:
    if clip is True:
        return 1.0
    if clip is False or clip is None:
        return None
    return float(exact_number("clip", clip))


class Original(_Recurrence):
    """The diagnosed system: the finite potential forward, the raw ratio clipped at 1 backward (eqs. miller-b, miller-potential, miller-three).

    Options: `start`, the order M > nu at which the recurrence starts (2 nu); `clip`, the bound of the supplied ratio (True: 1; False: none);
    `epsilon` in log(x + epsilon) (1e-20).
    """

    realization = "original"
    summary = "finite Miller recurrence; supplies the raw ratio clipped at 1"
    trade = "what the public code does; not coherent, sequential depth dim - 2"
    coherent = False
    _kind: ClassVar[type[Miller]] = Miller

    def __init__(self, nu: Fraction, *, start: int | None = None, clip: bool | float = True, epsilon: float = 1e-20) -> None:
        super().__init__(nu, self._kind, start=start, epsilon=epsilon, clip=clip)


class Consistent(_Recurrence):
    """The control arm: the value of `"original"` bit for bit (eq. miller-potential), with the derivative of that value as slope.

    Options: `start` and `epsilon` as for `"original"`; `derivative`, how the slope is had: `"tangent"` carries it through the recurrence in
    the memory of a few copies of x, `"autograd"` lets torch differentiate the recorded recurrence of value, difference and slope, in the memory
    of its depth. The recorded
    derivative is the one the paper timed; it loses digits for x below nu, where terms nu / x cancel, and is NaN beyond x = 1e154, where squares
    of intermediate ratios overflow.
    """

    realization = "consistent"
    summary = "the same value bit for bit; supplies its derivative"
    trade = "coherent, as far from Phi as the finite recurrence is; sequential depth dim - 2"

    def __init__(self, nu: Fraction, *, start: int | None = None, epsilon: float = 1e-20, derivative: str = "tangent") -> None:
        one_of("derivative", derivative, ("tangent", "autograd"))
        super().__init__(nu, ConsistentMiller, start=start, epsilon=epsilon, derivative=derivative)
        self._recorded = derivative == "autograd"

    def value(self, x: torch.Tensor) -> torch.Tensor:
        return self._elementwise(kernels.plain_value if self._recorded else kernels.value, x=x)

    def slope(self, x: torch.Tensor) -> torch.Tensor:
        return self._elementwise(_recorded_slope if self._recorded else kernels.slope, x=x)

    def derivative(self, x: torch.Tensor) -> torch.Tensor:
        return self.slope(x)

    def pair(self, x: torch.Tensor) -> Pair:
        return Pair(self.value(x), self.slope(x)) if self._recorded else super().pair(x)

    def difference(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self._elementwise(_recorded_difference if self._recorded else kernels.difference, a=a, b=b)


class LogMiller(Original):
    """The paper's comparator: the same recurrence on logarithms, clipped ratio. Options as for `"original"`."""

    realization = "log-miller"
    summary = "the same recurrence in the log domain; supplies the clipped ratio"
    trade = "no overflow without rescaling; keeps the finite start, not coherent, slow"
    _kind = LogMillerFormulas


def _recorded_difference(pot: Potential, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return kernels.plain_value(pot, b) - kernels.plain_value(pot, a)


def _recorded_slope(pot: Potential, x: torch.Tensor) -> torch.Tensor:
    recorded = torch.func.grad(lambda y: kernels.plain_value(pot, y).sum())(x)
    return torch.where(x.isinf(), torch.sign(x), recorded)
