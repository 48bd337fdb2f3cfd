"""Theorems about the realizations, as functions that can be evaluated and checked.

- `ratio` proves the paper's bound of the Bessel ratio and the constants of the expansion, with the `curves` and `steps` that such a proof is made of.
- `rounding`, `rounding_arithmetic` and `rounding_constants` bound what rounding does to a slope on the whole axis; `running` at given tensors.
- `learning` turns a ratio bound into certificates of scores, losses, predictions and gradients, `state_rounding` adds rounding, `saved` reads a state from
  a file.
"""

from pairgrad.certificates.learning import (
    Bound,
    GroupCertificate,
    LearningCertificate,
    Margin,
    Uniform,
    certify,
    certify_step,
    shot_groups,
    uniform_bounds,
)
from pairgrad.certificates.ratio import (
    Proof,
    measured_ratio_error,
    over_interval,
    paper_difference_theorem,
    paper_theorem,
    planned_bound,
    prove_order,
    prove_plans,
    prove_potential,
)
from pairgrad.certificates.rounding import RoundingBound, slope_rounding_bound
from pairgrad.certificates.saved import SavedState, load_state, save_state
from pairgrad.certificates.steps import Step

__all__ = [
    "Bound",
    "GroupCertificate",
    "LearningCertificate",
    "Margin",
    "Proof",
    "RoundingBound",
    "SavedState",
    "Step",
    "Uniform",
    "certify",
    "certify_step",
    "load_state",
    "measured_ratio_error",
    "over_interval",
    "paper_difference_theorem",
    "paper_theorem",
    "planned_bound",
    "prove_order",
    "prove_plans",
    "prove_potential",
    "save_state",
    "shot_groups",
    "slope_rounding_bound",
    "uniform_bounds",
]
