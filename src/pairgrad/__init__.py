"""Paired potentials: a value and the derivative handed to the optimizer, as one object."""

from typing import TYPE_CHECKING, Any

from pairgrad import coherence, compat, distributed, ood, testing
from pairgrad._version import __version__
from pairgrad.certificates.learning import certify
from pairgrad.coherence import CoherenceMonitor, assert_coherent, audit, intended, record
from pairgrad.distributions import HypersphericalUniform, VonMisesFisher
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

if TYPE_CHECKING:
    from pairgrad.mixture import VMFMixture

__all__ = [
    "ClassBank",
    "ClassState",
    "CoherenceMonitor",
    "HypersphericalUniform",
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
    "VMFMixture",
    "VMFRegressionLoss",
    "VonMisesFisher",
    "__version__",
    "assert_coherent",
    "audit",
    "certify",
    "coherence",
    "compat",
    "compile",
    "distributed",
    "intended",
    "ood",
    "potential",
    "realizations",
    "record",
    "testing",
    "update_field",
    "vmf_cross_entropy",
    "vmf_scores",
]


def __getattr__(name: str) -> Any:
    """`VMFMixture` is a scikit-learn estimator, and scikit-learn an extra: it is loaded when the name is first used."""
    if name != "VMFMixture":
        raise AttributeError(f"module 'pairgrad' has no attribute {name!r}")
    try:
        from pairgrad.mixture import VMFMixture
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "sklearn":
            raise
        raise ModuleNotFoundError(
            "pairgrad.VMFMixture needs scikit-learn, which is not installed: pip install 'pairgrad[mixture]'", name=error.name
        ) from error
    globals()[name] = VMFMixture
    return VMFMixture


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
