"""What the library does to a device, without one: fake CUDA tensors, and a record of every synchronisation, copy, CPU scalar and mismatch.

Fake tensors hold no values, so this says nothing about results; `pytest -m gpu` does, where there is a device.
"""

from __future__ import annotations

import fcntl
import inspect
import json
import os
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import pairgrad
from tests.device import cases, counts, fake_cuda, planned

ROOT = Path(__file__).parents[2]
PINNED = ROOT / "tests" / "public_api.txt"

# Cases in whose step the host may wait for the device, or copy to it, and why. Everything else must do neither.
MAY_SYNCHRONISE = {
    "ClassBank validate=True": "the user asks for values to be checked on every device, and an error to be raised",
    "ProCoLoss validate=True": "likewise",
    "vmf_scores validate=True": "likewise",
    "vmf_cross_entropy validate=True": "likewise",
    "VonMisesFisher validate_args=True": "likewise",
    "VonMisesFisher fit": "a fit raises an error for data that have no estimate, so it reads what they are",
    "VonMisesFisher fit sra": "likewise",
    "VonMisesFisher fit unbiased": "likewise",
    "ood.FeatureCalibration": "a fit, likewise",
    "ClassBank moved, copied, saved and loaded": "a state whose scores would not be finite is refused where it is loaded",
    "ClassBank to the host": "the copy that is asked for",
    "DistributedClassBank compared": "replicas are compared by checksums, which travel as numbers",
    "certify": "bounds leave as Python numbers, and branches of their proof depend on values",
    "audit": "the auditor compares numbers; what it finds about numbers that are not there says nothing",
    "VMFMixture": "a fit, which decides by numbers when it has converged; scikit-learn's attributes are NumPy arrays",
    "record and monitor": "the auditor compares numbers, and stores them on the host",
}
# Device operations of a step, at most.
MOST = {
    "eager ProCo step": 200,
    "eager ProCo step, many classes": 4500,
    "eager ProCo step, mle": 600,
    "triton ProCo step": 13,
    "triton ProCo step without checks": 6,
    **{name: 600 for name in counts.CASES if name.startswith("mle update")},
}

# Public names that no case calls, and why. A name stands for all that begin with it and a dot.
NOT_CALLED = {
    "pairgrad.assert_coherent": "an audit that raises",
    "pairgrad.coherence": "the auditor decides by values, which fake tensors do not have; an audit, a recording and a monitor have cases",
    "pairgrad.CoherenceMonitor.finish": "audits what was recorded, likewise",
    "pairgrad.CoherenceMonitor.look": "likewise",
    "pairgrad.testing": "tests that users inherit, which audit",
    "pairgrad.gradcheck": "an audit beside torch's check",
    "pairgrad.gradgradcheck": "likewise",
    "pairgrad.opcheck": "likewise",
    "pairgrad.sweep": "likewise",
    "pairgrad.intended": "marks a class, and has no tensors",
    "pairgrad.VMFMixture.aic": "as what has a case",
    "pairgrad.VMFMixture.bic": "as what has a case",
    "pairgrad.VMFMixture.fit_predict": "as what has a case",
    "pairgrad.VMFMixture.partial_fit": "as what has a case",
    "pairgrad.VMFMixture.sample": "as what has a case",
    "pairgrad.VMFMixture.score": "as what has a case",
    "pairgrad.compile": "fake tensors with values made up cannot be compiled; launches of compiled code are counted by generating it",
    "pairgrad.Realization": "a description, without tensors",
    "pairgrad.Pair": "a pair of tensors, made by Potential.pair",
    "pairgrad.Potential": "abstract; the cases call its realizations",
    "pairgrad.Potential.formulas": "likewise",
    "pairgrad.Potential.offset": "a number",
    "pairgrad.Potential.ratio_bound": "a number",
    "pairgrad.Potential.ratio_certificate": "a number and its proof",
    "pairgrad.realizations": "descriptions, without tensors",
    "pairgrad.UpdateField": "made by update_field",
    "pairgrad.compat.Construction": "reads files on the host",
    "pairgrad.compat.EstimatorState": "likewise",
    "pairgrad.compat.ProCoState": "likewise",
    "pairgrad.compat.Symbol": "likewise",
    "pairgrad.compat.kind": "likewise",
    "pairgrad.compat.proco.load_checkpoint": "likewise",
    "pairgrad.compat.read_pickle": "likewise",
    "pairgrad.compat.read_proco_checkpoint": "likewise",
    "pairgrad.compat.read_tensors": "likewise",
    "pairgrad.distributed.Call": "numbers of bytes",
    "pairgrad.distributed.shard": "likewise",
    "pairgrad.distributed.step_calls": "likewise",
    "pairgrad.distributed.wire_bytes": "likewise",
    "pairgrad.distributed.Communicator": "needs a process group with a backend for the device",
    "pairgrad.distributed.DistributedClassBank.exchanged": "likewise",
    "pairgrad.distributed.DistributedClassBank.no_sync": "likewise",
    "pairgrad.distributed.Layout": "likewise; in one process it only counts",
    "pairgrad.distributed.RankError": "an error of a rank",
    "pairgrad.distributed.Watch": "watches ranks",
    "pairgrad.distributed.until_all_are_done": "needs ranks",
    "pairgrad.ood.AccuracyReport": "metrics are computed by NumPy on the host",
    "pairgrad.ood.CalibrationForm": "two words",
    "pairgrad.ood.OODMetrics": "metrics are computed by NumPy on the host",
    "pairgrad.ood.SCOODReport": "likewise",
    "pairgrad.ood.ShotGroups": "likewise",
    "pairgrad.ood.SourceMetrics": "likewise",
    **dict.fromkeys(
        (
            *(
                "pairgrad.ood.accuracy",
                "pairgrad.ood.accuracy_report",
                "pairgrad.ood.aupr_in",
                "pairgrad.ood.aupr_out",
                "pairgrad.ood.auroc",
            ),
            *("pairgrad.ood.balanced_accuracy", "pairgrad.ood.class_balanced_indices", "pairgrad.ood.fpr95", "pairgrad.ood.mean_metrics"),
            *("pairgrad.ood.ood_metrics", "pairgrad.ood.per_class_accuracy", "pairgrad.ood.sc_ood", "pairgrad.ood.shot_groups"),
        ),
        "metrics are computed by NumPy on the host",
    ),
}
# Names that stand for themselves alone: of these some members have no case.
CALLED_IN_NOT_CALLED = ("pairgrad.Potential.", "pairgrad.UpdateField.", "pairgrad.CoherenceMonitor.")


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What all cases did, from one process, which all workers of a test session share."""
    if sys.platform == "win32" or fake_cuda.compiler() is None:
        pytest.skip("there is no C++ compiler to build the device guard with")
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    results = folder / "device.json"
    with open(folder / "device.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not results.exists():
            command = [sys.executable, "-m", "tests.device.run_cases", str(fake_cuda.build(folder)), str(results)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            assert not done.returncode, done.stderr
    return json.loads(results.read_text())


@pytest.mark.parametrize("name", [*cases.CASES, *counts.CASES])
def test_a_step_stays_on_the_device(found: dict[str, Any], name: str) -> None:
    case = found["cases"][name]
    assert case["error"] is None, case["error"]
    built = [event for event in case["construction"] if event[0] not in ("sync", "copy to the device")]
    assert not built, f"{name}, while it is made: {built}"
    if name in MAY_SYNCHRONISE:
        assert case["step"], f"{name} does not synchronise: take it off the list"
        assert {event[0] for event in case["step"]} <= {"sync", "copy to the device"}, case["step"]
    else:
        assert not case["step"], f"{name}: " + "; ".join(
            f"{kind}: {what} at {line}, {count} times" for kind, what, line, count in case["step"]
        )


@pytest.mark.parametrize("name", MOST)
def test_a_step_has_few_operations(found: dict[str, Any], name: str) -> None:
    operations = found["cases"][name]["operations"]
    assert sum(operations.values()) <= MOST[name], operations


@pytest.mark.parametrize(
    ("name", "size"), [("eager ProCo step", (2, 32, 1000, 1024)), ("eager ProCo step, many classes", (2, 1024, 100_000, 512))]
)
def test_the_plan_says_what_is_counted(found: dict[str, Any], tmp_path: Path, name: str, size: tuple[int, ...]) -> None:
    known = planned.counted(tmp_path, "eager", size)
    assert known["launches"] == sum(found["cases"][name]["operations"].values())
    assert known["allocated"] == pytest.approx(found["cases"][name]["peak"], rel=0.01)


def _public() -> list[str]:
    lines = [line for line in PINNED.read_text().splitlines() if line and not line.startswith("#")]
    return [line.split("(")[0] for line in lines]


def _function(name: str) -> Any:
    """The Python function behind a public name, if it has one: of a class its __init__, of a property its getter."""
    value: Any = pairgrad
    for part in name.split(".")[1:]:
        value = inspect.getattr_static(value, part) if isinstance(value, type) else getattr(value, part)
    if isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, cached_property):
        value = value.func
    if isinstance(value, type):
        value = value.__init__
    return inspect.unwrap(value) if callable(value) else None


def _excused(name: str) -> bool:
    if name.startswith(CALLED_IN_NOT_CALLED):
        return name in NOT_CALLED
    return any(name == known or name.startswith(f"{known}.") for known in NOT_CALLED)


def test_every_public_name_has_a_case(found: dict[str, Any]) -> None:
    """A new public callable gets a case in tests/device/cases.py, or a reason in NOT_CALLED."""
    ran = {name.split("src/pairgrad/")[-1] for name in found["ran"]}
    missing = []
    for name in _public():
        code = getattr(_function(name), "__code__", None)
        if code is not None and not _excused(name) and f"{code.co_filename.split('src/pairgrad/')[-1]}:{code.co_qualname}" not in ran:
            missing.append(name)
    assert not missing, missing


def test_the_lists_of_exceptions_name_what_exists() -> None:
    public = _public()
    assert set(MAY_SYNCHRONISE) <= set(cases.CASES)
    assert not [name for name in NOT_CALLED if not any(line == name or line.startswith(f"{name}.") for line in public)]
