"""vMF potentials: values and slopes that are one object, and the realizations they are compared with.

- `protocol` is what a potential is, `registry` makes one by name, `formulas` what its mathematics must offer, `kernels` and `autograd` bring that to torch.
- The realizations: `paired`, `arfr`, `recurrence` (over `miller`), `log_bessel`, `scott`, `reference`.
- Behind the first two: `expansion` with the coefficients of `debye`, `plan` (order and shift), `proven` (constants of error bounds). `inverse`: of the slope.
"""

from pairgrad.potentials.formulas import Formulas
from pairgrad.potentials.protocol import Pair, Potential
from pairgrad.potentials.reference import Balls
from pairgrad.potentials.registry import Realization, potential, realizations

__all__ = ["Balls", "Formulas", "Pair", "Potential", "Realization", "potential", "realizations"]
