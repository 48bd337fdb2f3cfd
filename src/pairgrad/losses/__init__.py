"""vMF scores and losses.

- `options` says how scores and losses are computed, `scores` is the class score, `reduction` what makes one number of many.
- `cross_entropy` streams over classes by `fused`. `bank_loss` does so for several views and a bank that they update: a `step`, which a strategy evaluates in
  one process or in several. `proco` and `patt` are built on it.
- `adjust`, `outlier`, `classifier`, `regression`: further losses. `update_field`: the gradients over a region, and why they have no potential.
"""

from pairgrad.losses.adjust import LogitAdjust, TemperatureLogitAdjust
from pairgrad.losses.bank_loss import BankLoss
from pairgrad.losses.classifier import VMFClassifier
from pairgrad.losses.cross_entropy import vmf_cross_entropy
from pairgrad.losses.fused.execution import EXECUTIONS, Execution
from pairgrad.losses.outlier import OutlierExposure
from pairgrad.losses.patt import PRESETS, PATTLoss, PATTTerms
from pairgrad.losses.proco import ProCoLoss
from pairgrad.losses.regression import VMFRegressionLoss
from pairgrad.losses.scores import vmf_scores
from pairgrad.losses.step import Step, Strategy
from pairgrad.losses.update_field import UpdateField, update_field

__all__ = [
    "EXECUTIONS",
    "PRESETS",
    "BankLoss",
    "Execution",
    "LogitAdjust",
    "OutlierExposure",
    "PATTLoss",
    "PATTTerms",
    "ProCoLoss",
    "Step",
    "Strategy",
    "TemperatureLogitAdjust",
    "UpdateField",
    "VMFClassifier",
    "VMFRegressionLoss",
    "update_field",
    "vmf_cross_entropy",
    "vmf_scores",
]
