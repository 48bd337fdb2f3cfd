"""Well-kept functions of torch must pass, and what is really wrong with them must be found."""

import pytest
import torch

import pairgrad as pg
from tests.coherence.library_functions import FUNCTIONS, NOT_DERIVATIVES

# What the audit finds, with evidence in docs/auditor-library.md: trigamma in float64 is good to 5e-10 only, which shows in the gradient of digamma and the
# second derivative of lgamma; polygamma(1, x) is computed by another formula than its gradient; the backward of binary_cross_entropy has an epsilon of 1e-12.
FOUND = {
    "special.digamma",
    "special.digamma, negative",
    "special.gammaln",
    "special.multigammaln",
    "special.polygamma, order 0",
    "special.polygamma, order 1",
    "lgamma",
    "binary_cross_entropy",
    "binary_cross_entropy, weighted",
}
# The backward of matrix_exp takes the exponential of a matrix with grad_output in it: where that is large, float32 loses its digits.
LOSES_DIGITS = {"linalg.matrix_exp, large"}
DTYPES = [torch.float64, torch.float32]
# Every tenth one in the ordinary run, at the inputs; all of them, over their domains and with more seeds, among the slow tests.
SOME = [function for i, function in enumerate(FUNCTIONS) if i % 10 == 0 or function.name in FOUND | NOT_DERIVATIVES]


def test_enough_functions_are_swept():
    assert len({function.name for function in SOME} - FOUND - NOT_DERIVATIVES) >= 20
    assert {function.name for function in FUNCTIONS} >= FOUND | NOT_DERIVATIVES


def check(function, dtype, seed, **options):
    report = pg.audit(function.fn, function.inputs(seed, dtype), seed=seed, consequences=False, **options)
    if function.name in NOT_DERIVATIVES:
        assert not report.passed, str(report)
    elif function.name in LOSES_DIGITS and dtype == torch.float32:
        assert {finding.kind for finding in report.findings if finding.severity == "alarm"} == {"not-linear"}, str(report)
    elif function.name in FOUND and dtype == torch.float64:
        assert report.passed or report.defect < 1e-8, str(report)
    else:
        assert report.passed, str(report)
    return report


@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("function", SOME, ids=lambda function: function.name)
def test_well_kept_functions_pass(function, dtype):
    check(function, dtype, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_all_well_kept_functions_pass_over_their_domains(function, dtype, seed):
    check(function, dtype, seed, domain=function.domain)


@pytest.mark.parametrize("name", ["special.digamma", "lgamma", "binary_cross_entropy"])
def test_what_is_really_wrong_is_found(name):
    (function,) = [function for function in FUNCTIONS if function.name == name]
    report = pg.audit(function.fn, function.inputs(0, torch.float64), domain=function.domain, consequences=False)
    assert report.verdict in ("incoherent", "second-order")
    assert 1e-12 < report.defect < 1e-8
