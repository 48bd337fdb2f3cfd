"""Evaluation of classification and of out-of-distribution detection for long-tailed learning. Scores are OOD-ness: higher is more out-of-distribution.

`scores` (of single samples), `metrics` (of many), `sources` (by OOD source), `accuracy` (by groups of classes), `calibration` with its `sampling`, `inputs`.
"""

from pairgrad.ood.accuracy import (
    SHOT_RULES,
    AccuracyReport,
    ShotGroups,
    accuracy,
    accuracy_report,
    balanced_accuracy,
    per_class_accuracy,
    shot_groups,
)
from pairgrad.ood.calibration import FORMS, CalibrationForm, FeatureCalibration
from pairgrad.ood.metrics import CONVENTIONS, OODMetrics, aupr_in, aupr_out, auroc, fpr95, ood_metrics
from pairgrad.ood.sampling import class_balanced_indices
from pairgrad.ood.scores import energy, max_logit, msp, vmf
from pairgrad.ood.sources import SCOODReport, SourceMetrics, mean_metrics, sc_ood

__all__ = [
    "CONVENTIONS",
    "FORMS",
    "SHOT_RULES",
    "AccuracyReport",
    "CalibrationForm",
    "FeatureCalibration",
    "OODMetrics",
    "SCOODReport",
    "ShotGroups",
    "SourceMetrics",
    "accuracy",
    "accuracy_report",
    "aupr_in",
    "aupr_out",
    "auroc",
    "balanced_accuracy",
    "class_balanced_indices",
    "energy",
    "fpr95",
    "max_logit",
    "mean_metrics",
    "msp",
    "ood_metrics",
    "per_class_accuracy",
    "sc_ood",
    "shot_groups",
    "vmf",
]
