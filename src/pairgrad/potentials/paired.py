"""`"paired"`: the midpoint expansion with order shift, planned to be below rounding."""

from __future__ import annotations

import math
from fractions import Fraction

import torch

from pairgrad.ground.certificate import Certificate
from pairgrad.ground.checks import DTYPES, computing_dtype, integer_at_least
from pairgrad.potentials.expansion import Expansion, potential_at_zero
from pairgrad.potentials.plan import MAX_ORDER, plan
from pairgrad.potentials.protocol import RATIO_ERROR, Potential
from pairgrad.potentials.proven import PAGE, slope_error, upwards

MAX_SHIFT = 64


class Paired(Potential):
    """Value and slope from one uniform expansion, below the rounding of the dtype at every dimension and concentration.

    With `order="auto"` the depth is chosen when the object is made, for float32 and float64 separately; the dtype of the argument selects.
    An explicit `order` keeps exactly g_0 .. g_order, at `shift` recurrence steps (0 unless given), for both dtypes.
    """

    realization = "paired"
    summary = "midpoint expansion with order shift, its own exact derivative as slope"
    trade = "exact to rounding at every dim >= 2; what to use"

    def __init__(self, nu: Fraction, *, order: int | str = "auto", shift: int | None = None) -> None:
        if order == "auto":
            if shift is not None:
                raise ValueError(f"shift can be given only together with an explicit order, got shift={shift!r} with order='auto'")
            super().__init__(nu)
            self._formulas = {dtype: plan(nu, dtype) for dtype in DTYPES}
            return
        order = integer_at_least("order", order, 1, hint="the last term of the uniform expansion that is kept, or 'auto'")
        shift = integer_at_least("shift", 0 if shift is None else shift, 0)
        if order > MAX_ORDER or shift > MAX_SHIFT:
            raise ValueError(
                f"order must be <= {MAX_ORDER} and shift <= {MAX_SHIFT}, got order={order} and shift={shift}: the expansion is asymptotic"
            )
        super().__init__(nu, order=order, **({"shift": shift} if shift else {}))
        expansion = Expansion(nu, order, shift)
        self._formulas = dict.fromkeys(DTYPES, expansion)
        self.to_rounding = False
        self.invertible = expansion.increases()

    def formulas(self, dtype: torch.dtype = torch.float64) -> Expansion:
        return self._formulas[computing_dtype("dtype", dtype)]

    @property
    def offset(self) -> float:
        """Phi(0); value(0) is 0."""
        return potential_at_zero(self.nu)

    @property
    def depth(self) -> dict[torch.dtype, tuple[int, int]]:
        """(order, shift) per dtype."""
        return {dtype: (e.order, e.shift) for dtype, e in self._formulas.items()}

    def ratio_certificate(self, dtype: torch.dtype = torch.float64) -> Certificate:
        """A theorem for every nu >= 0; order "auto" keeps it below the rounding of `dtype`.

        An order far too high for the centre has a bound that says nothing, and with a shift it may have a pole: the bound is infinite then.
        """
        expansion = self._formulas[computing_dtype("dtype", dtype)]
        shift = f", shift {expansion.shift}" if expansion.shift else ""
        hypothesis = f"order {expansion.order} around nu + {expansion.shift + 0.5:g}{shift}, nu >= 0"
        error = slope_error(expansion)
        if error is None:
            return Certificate(
                RATIO_ERROR,
                math.inf,
                hypothesis,
                PAGE,
                "proven",
                "the error before the shift may exceed 1, so the slope may have poles: lower the order",
            )
        return Certificate(RATIO_ERROR, upwards(error.size), hypothesis, PAGE, "proven", relative_bound=upwards(error.relative))
