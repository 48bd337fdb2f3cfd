"""The public names, pinned: adding one is a decision, losing one a break."""

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
    "intended",
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
