"""The auditor against pairs of functions, one right and one broken: it accuses every broken one and no right one.

The ordinary run looks at one seed with the least effort, without consequences, which the verdict does not depend on; the slow one looks at twenty seeds with
ordinary effort. The functions that are right are right in both dtypes; the broken ones are tried where they are
broken.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from pairgrad.coherence import Report, Verdict, audit
from tests.coherence.zoo import independent, ours, reported
from tests.coherence.zoo.ours.numbers_and_layouts import gated
from tests.coherence.zoo.specimen import Specimen

ZOO = (*independent.SPECIMENS, *ours.SPECIMENS, *reported.SPECIMENS)
HALF = ours.HALF_SPECIMENS

RIGHT = [(specimen, dtype) for specimen in ZOO for dtype in (torch.float64, torch.float32)] + [
    (s, dtype) for s in HALF for dtype in s.dtypes
]
BROKEN = [(specimen, dtype) for specimen in (*ZOO, *HALF) for dtype in specimen.dtypes]


# What a declaration can account for. Edits in place, backwards that change from call to call and NaN are never wanted.
DECLARABLE = {"defect", "no-gradient", "straight-through", "not-linear", "second-order"}

# Kinds that must be in the zoo, by a word of their name in each specimen of them.
KINDS = (
    "wrong factor in one branch",
    "clamp not gated",
    "dropped normaliser",
    "in-place edit",
    "detached iteration",
    "truncated adjoint",
    "batch-coupled rescale",
    "reduction",
    "ignored grad_output",
    "stateful buffer",
    "opaque NumPy",
    "opaque SciPy",
    "piecewise value with another derivative",
    "wrong only in a narrow region",
    "wrong only in FP32",
    "wrong only in double backward",
    "straight-through by intent",
    "gradient-cap by intent",
    "implicit reparameterization by intent",
    "wrong second output of a custom op",
    "compiled function",
    "function transforms",
    "keyword-only",
    "jump",
    "kinks",
    "hidden NaN",
    "random value",
    "coarse value",
    "half precision",
    "bias in half precision",
    "saturated in half precision",
    "wrong forward mode",
    "wrong vmap rule",
    "another value without a gradient",
    "compiled function differs from eager",
    "rounded grad_output",
    "layout of grad_output",
    "layout of an argument",
    "size of grad_output",
    "uneven cotangents of a loss without reduction",
    "optional argument without a gradient",
    "keys and values of different widths",
    "state of the last chunk",
    "gate of another branch",
    "weight gradient reduced in bfloat16",
    "sequence shorter than the window",
    "shape that was not thought of",
    "one leap beside a wrong gradient",
    "wrong only at the input",
    "near-degenerate spectrum",
    "rough backward",
    "constant factor",
    "transpose left out",
    "not re-entrant and wrong",
    "function of a symmetric matrix",
    "reversal by intent",
    "scaling by intent",
    "clamped-straight-through by intent",
    "preconditioned by intent",
)


def _name(case: object) -> str:
    if isinstance(case, Specimen):
        return case.name
    return str(case).removeprefix("torch.")


def _audit(specimen: Specimen, make: str, dtype: torch.dtype, seed: int, effort: str) -> Report:
    constraints: dict[str, Any] = {} if specimen.constraints is None else {"constraints": specimen.constraints}
    return audit(
        getattr(specimen, make)(),
        specimen.inputs(seed, dtype),
        domain=specimen.domain,
        dtype=dtype,
        seed=seed,
        effort=effort,
        consequences=False,
        **constraints,
        **specimen.options,
    )


def _is_cleared(report: Report) -> None:
    assert report.passed, str(report)
    alarms = {finding.kind for finding in report.findings if finding.severity == "alarm"}
    assert alarms <= (DECLARABLE if report.intent else set()), str(report)


def _is_accused(specimen: Specimen, report: Report) -> None:
    assert not report.passed, str(report)
    assert report.verdict != Verdict.INCONCLUSIVE, str(report)
    assert (report.verdict == Verdict.JUMP) == (specimen.kind == "jump"), str(report)


# Every second one in the ordinary run; all of them, with twenty seeds, among the slow tests.
@pytest.mark.parametrize(("specimen", "dtype"), RIGHT[::2], ids=_name)
def test_right_functions_pass(specimen: Specimen, dtype: torch.dtype) -> None:
    _is_cleared(_audit(specimen, "right", dtype, 0, "quick"))


@pytest.mark.parametrize(("specimen", "dtype"), BROKEN[::2], ids=_name)
def test_broken_functions_are_accused(specimen: Specimen, dtype: torch.dtype) -> None:
    _is_accused(specimen, _audit(specimen, "broken", dtype, 0, "quick"))


@pytest.mark.slow
@pytest.mark.parametrize(("specimen", "dtype"), RIGHT, ids=_name)
def test_right_functions_pass_at_many_seeds(specimen: Specimen, dtype: torch.dtype) -> None:
    for seed in range(20):
        _is_cleared(_audit(specimen, "right", dtype, seed, "standard"))


@pytest.mark.slow
@pytest.mark.parametrize(("specimen", "dtype"), BROKEN, ids=_name)
def test_broken_functions_are_accused_at_many_seeds(specimen: Specimen, dtype: torch.dtype) -> None:
    for seed in range(20):
        _is_accused(specimen, _audit(specimen, "broken", dtype, seed, "standard"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_wrong_factor_of_two_in_half_precision_is_measured(dtype: torch.dtype) -> None:
    """Twice the gradient is off by all of the true one; 2**-4 is what bfloat16 resolves."""
    inputs = torch.tensor([[1.25]], dtype=dtype, requires_grad=True), torch.tensor([1.5], dtype=dtype)
    report = audit(gated(2.0), inputs, consequences=False)
    assert report.defect == pytest.approx(1, abs=2.0**-4), str(report)


def test_small_defects_are_measured_as_they_are() -> None:
    """A millionth in the weight of one layer, as the report gives it."""
    by_name = {specimen.name: specimen for specimen in ZOO}
    report = _audit(by_name["ours-normalised-stack"], "broken", torch.float64, 0, "standard")
    assert report.defect == pytest.approx(1e-6, rel=1e-3), str(report)
    assert [finding.where for finding in report.findings if finding.severity == "alarm"] == ["0.weight"], str(report)


def test_the_place_of_a_jump_is_found() -> None:
    by_name = {specimen.name: specimen for specimen in ZOO}
    report = _audit(by_name["ours-joined"], "broken", torch.float64, 0, "standard")
    sizes = [finding.numbers["size"] for finding in report.findings if finding.kind == "jump"]
    assert sizes, str(report)
    assert sizes[0] == pytest.approx(1e-3, rel=0.1), str(report)
    assert any("at 2" in finding.text or "at 1.99999" in finding.text for finding in report.findings if finding.kind == "jump"), str(report)


def test_a_region_of_a_log_range_is_found() -> None:
    """The clipped slope is wrong up to where the slope itself is 1, found by bisection."""
    by_name = {specimen.name: specimen for specimen in ZOO}
    specimen = by_name["ours-log-recurrence"]
    slope = specimen.right()
    low, high = 1.0, 100.0
    for _ in range(60):
        middle = (low * high) ** 0.5
        x = torch.tensor(middle, dtype=torch.float64, requires_grad=True)
        (found,) = torch.autograd.grad(slope(x), x)
        low, high = (middle, high) if found > 1 else (low, middle)
    report = _audit(specimen, "broken", torch.float64, 0, "standard")
    (regions,) = report.regions.values()
    *wrong, right = regions
    assert wrong, str(report)
    assert {region.verdict for region in wrong} == {"incoherent"}, str(report)
    assert right.verdict == "coherent", str(report)
    # A tile is a factor of 1e6 ** (1/64) = 1.24 wide, and its end is halved eight times.
    assert right.low == pytest.approx(low, rel=0.01), str(report)


def test_the_zoo_is_large_and_half_of_it_from_outside() -> None:
    specimens = (*ZOO, *HALF)
    assert len(specimens) >= 100
    assert 2 * (len(independent.SPECIMENS) + len(reported.SPECIMENS)) >= len(specimens)
    assert all(specimen.name.startswith("independent-") for specimen in independent.SPECIMENS)
    assert all(specimen.name.startswith("reported-") for specimen in reported.SPECIMENS)
    assert all(re.search(r"[\w-]+/[\w.-]+#\d+", specimen.note) for specimen in reported.SPECIMENS)
    names = [specimen.name for specimen in specimens]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_in_the_zoo(kind: str) -> None:
    assert any(kind in specimen.kind for specimen in (*ZOO, *HALF)), sorted({specimen.kind for specimen in ZOO})
