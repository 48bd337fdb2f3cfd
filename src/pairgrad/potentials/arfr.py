"""`"arfr"`: the paper's F_R and A_R, and their generalisation to any order of the uniform expansion around nu."""

from __future__ import annotations

import math
from fractions import Fraction

import torch

from pairgrad.ground.certificate import Certificate
from pairgrad.ground.checks import computing_dtype, integer_at_least
from pairgrad.potentials.expansion import Expansion, UnnormalisedExpansion
from pairgrad.potentials.plan import MAX_ORDER
from pairgrad.potentials.protocol import RATIO_ERROR, Potential
from pairgrad.potentials.proven import PAGE, first_order, slope_error, upwards


class ArFr(Potential):
    """Order n of the expansion around nu: order 2 is eqs. a2 and f2, with the stable difference of eqs. stable-delta and stable-f2.

    The value is F_R with the constant it has in eq. f2; it agrees with Phi up to `offset` at infinity.
    """

    realization = "arfr"
    summary = "the paper's F_R and A_R (order 2), or any other order around nu"
    trade = "fixed depth; error below nu^-3 at order 2 (a theorem for nu >= 10/9), poor at small nu"

    def __init__(self, nu: Fraction, *, order: int | str = "auto") -> None:
        if nu == 0:
            raise ValueError(
                "realization 'arfr' needs nu > 0 (dim >= 3), got nu = 0 (dim 2): it expands in 1/nu, and its terms diverge at nu = 0; "
                "use realization='paired'"
            )
        order = 2 if order == "auto" else integer_at_least("order", order, 1, hint="the last r_k that is kept; the paper's is 2")
        if order > MAX_ORDER:
            raise ValueError(f"order must be <= {MAX_ORDER}, got {order}: the expansion is asymptotic")
        super().__init__(nu, order=order)
        self.order = order
        try:
            self._expansion = UnnormalisedExpansion(nu, order, beta=1)
        except OverflowError:
            raise ValueError(
                f"realization 'arfr' cannot be held in floats at nu = {float(nu):g}: its coefficients grow like nu^-{order}; use realization='paired'"
            ) from None
        self.to_rounding = False
        self.invertible = self._expansion.increases()

    def formulas(self, dtype: torch.dtype = torch.float64) -> Expansion:
        return self._expansion

    @property
    def offset(self) -> float:
        """-log(2 pi) / 2, the limit of Phi - F_R at infinity."""
        return -math.log(2 * math.pi) / 2

    def ratio_certificate(self, dtype: torch.dtype = torch.float64) -> Certificate:
        """At order 2 below nu^-3 of Theorem thm:a2, and close to what is attained: about 0.0835 nu^-3; needs nu from about 1 on."""
        computing_dtype("dtype", dtype)  # one formula for all of them
        least = first_order(1, self.order)
        hypothesis = f"order {self.order} around nu, nu >= {float(least):g}"
        error = slope_error(self._expansion) if self.nu >= least else None
        if error is None:
            reason = (
                f"order {self.order} around nu has a theorem for nu >= {float(least):g} (dim >= {math.ceil(2 * least + 2)}), got nu = {float(self.nu):g}; "
                "use realization='paired', which has one at every dim"
            )
            return Certificate(RATIO_ERROR, None, hypothesis, PAGE, "none", reason)
        return Certificate(RATIO_ERROR, upwards(error.size), hypothesis, PAGE, "proven", relative_bound=upwards(error.relative))
