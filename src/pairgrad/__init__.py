"""Paired potentials: a value and the derivative handed to the optimizer, as one object.

Names are imported when they are first used: `import pairgrad` itself does not load torch.
"""

from typing import TYPE_CHECKING, Any

from pairgrad._lazy import attach
from pairgrad._version import __version__

if TYPE_CHECKING:
    from pairgrad import coherence, compat, distributed, ood, testing
    from pairgrad.certificates import certify
    from pairgrad.coherence import CoherenceMonitor, assert_coherent, audit, gradcheck, gradgradcheck, intended, opcheck, record, sweep
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
    from pairgrad.mixture import VMFMixture
    from pairgrad.potentials import Pair, Potential, Realization, potential, realizations
    from pairgrad.sphere import ClassBank, ClassState

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
    "gradcheck",
    "gradgradcheck",
    "intended",
    "ood",
    "opcheck",
    "potential",
    "realizations",
    "record",
    "sweep",
    "testing",
    "update_field",
    "vmf_cross_entropy",
    "vmf_scores",
]

# The names that each module gives to `pairgrad`; type checkers and editors read the imports above.
_NAMES = {
    "pairgrad.certificates": ("certify",),
    "pairgrad.coherence": (
        "CoherenceMonitor",
        "assert_coherent",
        "audit",
        "gradcheck",
        "gradgradcheck",
        "intended",
        "opcheck",
        "record",
        "sweep",
    ),
    "pairgrad.distributions": ("HypersphericalUniform", "VonMisesFisher"),
    "pairgrad.ground.compilation": ("compile",),
    "pairgrad.losses": (
        *("LogitAdjust", "OutlierExposure", "PATTLoss", "ProCoLoss", "TemperatureLogitAdjust", "UpdateField", "VMFClassifier"),
        *("VMFRegressionLoss", "update_field", "vmf_cross_entropy", "vmf_scores"),
    ),
    "pairgrad.potentials": ("Pair", "Potential", "Realization", "potential", "realizations"),
    "pairgrad.sphere": ("ClassBank", "ClassState"),
}
# Packages that are attributes without being imported first: those above, and those whose names are not repeated here.
_PACKAGES = ("compat", "distributed", "ood", "testing", *(module.split(".")[1] for module in _NAMES))

_lazy, __dir__ = attach(__name__, {name: module for module, names in _NAMES.items() for name in names} | {"VMFMixture": ""}, _PACKAGES)


def __getattr__(name: str) -> Any:
    if name != "VMFMixture":
        return _lazy(name)
    try:  # a scikit-learn estimator, and scikit-learn is an extra
        from pairgrad.mixture import VMFMixture
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "sklearn":
            raise
        raise ModuleNotFoundError(
            "pairgrad.VMFMixture needs scikit-learn, which is not installed: pip install 'pairgrad[mixture]'", name=error.name
        ) from error
    return VMFMixture
