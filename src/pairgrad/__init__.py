"""Paired potentials: a value and the derivative handed to the optimizer, as one object."""

from pairgrad import compat
from pairgrad._version import __version__
from pairgrad.ground.compilation import compile
from pairgrad.losses import (
    LogitAdjust,
    OutlierExposure,
    PATTLoss,
    ProCoLoss,
    TemperatureLogitAdjust,
    VMFClassifier,
    VMFRegressionLoss,
    vmf_cross_entropy,
    vmf_scores,
)
from pairgrad.potentials import Pair, Potential, Realization, potential, realizations
from pairgrad.sphere import ClassBank, ClassState

__all__ = [
    "ClassBank",
    "ClassState",
    "LogitAdjust",
    "OutlierExposure",
    "PATTLoss",
    "Pair",
    "Potential",
    "ProCoLoss",
    "Realization",
    "TemperatureLogitAdjust",
    "VMFClassifier",
    "VMFRegressionLoss",
    "__version__",
    "compat",
    "compile",
    "potential",
    "realizations",
    "vmf_cross_entropy",
    "vmf_scores",
]
