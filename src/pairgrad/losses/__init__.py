"""vMF scores and losses."""

from pairgrad.losses.adjust import LogitAdjust, TemperatureLogitAdjust
from pairgrad.losses.bank_loss import BankLoss
from pairgrad.losses.classifier import VMFClassifier
from pairgrad.losses.cross_entropy import vmf_cross_entropy
from pairgrad.losses.field import UpdateField, update_field
from pairgrad.losses.outlier import OutlierExposure
from pairgrad.losses.patt import PATTLoss, PATTTerms
from pairgrad.losses.proco import ProCoLoss
from pairgrad.losses.regression import VMFRegressionLoss
from pairgrad.losses.scores import vmf_scores

__all__ = [
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
