"""Paired potentials: a value and the derivative handed to the optimizer, as one object."""

from pairgrad import coherence, compat, testing
from pairgrad._version import __version__
from pairgrad.certificates.learning import certify
from pairgrad.coherence import CoherenceMonitor, assert_coherent, audit, intended, record
from pairgrad.ground.compilation import compile
from pairgrad.losses import (
    LogitAdjust,
    OutlierExposure,
    PATTLoss,
    ProCoLoss,
    TemperatureLogitAdjust,
    UpdateField,
    VMFClassifier,
    VMFRegressionLoss,
    update_field,
    vmf_cross_entropy,
    vmf_scores,
)
from pairgrad.potentials import Pair, Potential, Realization, potential, realizations
from pairgrad.sphere import ClassBank, ClassState

__all__ = [
    "ClassBank",
    "ClassState",
    "CoherenceMonitor",
    "LogitAdjust",
    "OutlierExposure",
    "PATTLoss",
    "Pair",
    "Potential",
    "ProCoLoss",
    "Realization",
    "TemperatureLogitAdjust",
    "UpdateField",
    "VMFClassifier",
    "VMFRegressionLoss",
    "__version__",
    "assert_coherent",
    "audit",
    "certify",
    "coherence",
    "compat",
    "compile",
    "intended",
    "potential",
    "realizations",
    "record",
    "testing",
    "update_field",
    "vmf_cross_entropy",
    "vmf_scores",
]
