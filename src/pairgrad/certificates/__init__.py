"""Theorems about the realizations, as functions that can be evaluated and checked.

- `ratio` proves the paper's bound of the Bessel ratio and the constants of the expansion, with the `curves` and `steps` that such a proof is made of.
- `rounding`, `rounding_arithmetic` and `rounding_constants` bound what rounding does to a slope on the whole axis; `running` at given tensors.
- `finite_start` says what the finite start of Miller's recurrence does.
- `learning` turns a ratio bound into certificates of scores, losses, predictions and gradients, `state_rounding` adds rounding, `saved` reads a state from
  a file.
"""

from pairgrad.certificates.finite_start import FiniteStart
from pairgrad.certificates.learning import LearningCertificate, certify, certify_step, uniform_bounds
from pairgrad.certificates.ratio import Proof, measured_ratio_error, paper_theorem, prove_order, prove_plans, prove_potential
from pairgrad.certificates.saved import SavedState, load_state, save_state

__all__ = [
    "FiniteStart",
    "LearningCertificate",
    "Proof",
    "SavedState",
    "certify",
    "certify_step",
    "load_state",
    "measured_ratio_error",
    "paper_theorem",
    "prove_order",
    "prove_plans",
    "prove_potential",
    "save_state",
    "uniform_bounds",
]
