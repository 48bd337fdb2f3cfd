"""vMF scores and losses.

- `scores` is the class score, `reduction` what makes one number of many.
- `cross_entropy` streams over classes by `fused`; `views` does so for several views and a bank, which `bank_loss` is built on, and `proco` and `patt` on that.
- `adjust`, `outlier`, `classifier`, `regression`: further losses. `field`: the gradients over a region, and why they have no potential.
"""

from pairgrad.losses.adjust import LogitAdjust, TemperatureLogitAdjust
from pairgrad.losses.bank_loss import BankLoss
from pairgrad.losses.classifier import VMFClassifier
from pairgrad.losses.cross_entropy import vmf_cross_entropy
from pairgrad.losses.field import UpdateField, update_field
from pairgrad.losses.outlier import OutlierExposure
from pairgrad.losses.patt import PRESETS, PATTLoss, PATTTerms
from pairgrad.losses.proco import ProCoLoss
from pairgrad.losses.regression import VMFRegressionLoss
from pairgrad.losses.scores import vmf_scores

__all__ = [
    "PRESETS",
    "BankLoss",
    "LogitAdjust",
    "OutlierExposure",
    "PATTLoss",
    "PATTTerms",
    "ProCoLoss",
    "TemperatureLogitAdjust",
    "UpdateField",
    "VMFClassifier",
    "VMFRegressionLoss",
    "update_field",
    "vmf_cross_entropy",
    "vmf_scores",
]
