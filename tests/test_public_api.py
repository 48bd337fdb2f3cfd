"""The public names, pinned: adding one is a decision, losing one a break."""

import subprocess
import sys

import pairgrad

PUBLIC = {
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
}
POTENTIAL = {
    "bregman",
    "coherent",
    "complement",
    "compute_dtype",
    "concentration",
    "curvature",
    "defect",
    "deficit",
    "derivative",
    "difference",
    "dim",
    "formulas",
    "increment",
    "invertible",
    "legendre",
    "offset",
    "pair",
    "ratio_bound",
    "ratio_certificate",
    "secant",
    "slope",
    "to_rounding",
    "value",
}


def test_public_names():
    assert set(pairgrad.__all__) == PUBLIC
    assert len(pairgrad.__all__) == len(PUBLIC)


def test_public_names_exist():
    for name in PUBLIC:
        assert getattr(pairgrad, name) is not None


def test_names_of_a_potential():
    assert {name for name in dir(pairgrad.Potential) if not name.startswith("_")} == POTENTIAL


def test_fields():
    assert pairgrad.Pair._fields == ("value", "slope")
    assert tuple(pairgrad.Realization.__dataclass_fields__) == ("name", "summary", "trade", "coherent", "options")


def test_the_mixture_is_loaded_late_and_says_what_it_needs():
    """In a fresh process in which scikit-learn cannot be imported."""
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import pairgrad\n"
        "assert 'VMFMixture' in dir(pairgrad) and not hasattr(pairgrad, 'VMFMixtures')\n"
        "try: pairgrad.VMFMixture\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "pairgrad.VMFMixture needs scikit-learn, which is not installed: pip install 'pairgrad[mixture]'"
