"""What torch.compile launches on a CUDA device for a training step, how much memory it takes beside its inputs, and whether its kernels compile.

Found without a device: inductor's code is generated for an H100, read, and compiled by Triton. The numbers are exact for the pinned torch and Triton.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.device import fake_cuda, inductor_fake, planned

ROOT = Path(__file__).parents[2]
PINNED = "2.13."  # the helpers replace private names of this torch
slow = pytest.mark.slow


def _obstacle() -> str | None:
    if torch.version.cuda or torch.version.hip or not torch.__version__.startswith(PINNED):
        return f"needs a CPU build of torch {PINNED}x, got {torch.__version__}"
    if fake_cuda.compiler() is None:
        return "no C++ compiler found, which the fake device needs"
    return None if importlib.util.find_spec("triton") else "triton is not installed: pip install -e '.[dev]' on Linux"


pytestmark = pytest.mark.skipif(_obstacle() is not None, reason=str(_obstacle()))


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], Any]], Path]:
    """Makes a file once for all workers of a session."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "inductor"
    folder.mkdir(exist_ok=True)

    def made(name: str, make: Callable[[Path], Any]) -> Path:
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / name).exists():
                make(folder)
        return folder / name

    return made


def _run(module: str, *arguments: Any) -> None:
    folder = Path(arguments[1])
    variables = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    variables |= {"TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"), "TRITON_CACHE_DIR": str(folder / "triton"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", f"tests.device.{module}", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-4000:]


@pytest.fixture(scope="session")
def caught(shared: Callable[..., Path]) -> Callable[[str], dict[str, Any]]:
    """What inductor generates for a case of `inductor_fake`."""

    def of(case: str) -> dict[str, Any]:
        library = shared("libnoop_cuda_guard.so", fake_cuda.build)
        found = json.loads(shared(f"{case}.json", lambda folder: _run("inductor_fake", library, folder, case)).read_text())
        assert "error" not in found, found["error"]
        return found

    return of


@pytest.mark.parametrize(
    ("case", "launches", "mebibytes"),
    [
        ("paper", 23, 2),
        pytest.param("paper-arfr", 23, 2, marks=slow),
        pytest.param("many-classes", 60, 256, marks=slow),
        pytest.param("most-classes", 60, 256, marks=slow),
    ],
)
def test_a_step_is_one_graph_with_few_launches(caught: Callable[[str], dict[str, Any]], case: str, launches: int, mebibytes: int) -> None:
    found = caught(case)
    assert len(found["launches"]) <= launches, found["launches"]
    assert not [name for name in found["launches"] if name.startswith("unknown")]
    assert found["peak"] <= mebibytes * 2**20
    # CUDA graphs replay at fixed addresses: what a step writes to must be the buffers of the bank, six of them, and stay where it is
    assert len(found["mutated"]) == 6
    assert all(found["mutated"].values()), found["mutated"]
    assert found["no_graph"] is None


@pytest.mark.parametrize("case", ["paper", pytest.param("many-classes", marks=slow), pytest.param("most-classes", marks=slow)])
def test_the_plan_says_what_is_counted(caught: Callable[[str], dict[str, Any]], tmp_path: Path, case: str) -> None:
    known = planned.counted(tmp_path, "compiled", inductor_fake.CASES[case][:4])
    assert known["launches"] == len(caught(case)["launches"])
    assert known["allocated"] == pytest.approx(caught(case)["peak"], rel=0.01)


@pytest.mark.parametrize("case", ["paper", pytest.param("many-classes", marks=slow), pytest.param("most-classes", marks=slow)])
def test_every_kernel_compiles_and_at_the_paper_size_without_spills(
    caught: Callable[[str], dict[str, Any]], shared: Callable[..., Path], case: str
) -> None:
    kernels = {name for name in caught(case)["launches"] if name.startswith("triton")}
    caught_file = shared(f"{case}.json", lambda _: None)
    results = f"{case}-kernels.json"
    found = json.loads(shared(results, lambda folder: _run("inductor_kernels", caught_file, folder, folder / results, 80, 90)).read_text())
    assert {entry["kernel"] for entry in found} == kernels
    assert {entry["capability"] for entry in found} == {80, 90}
    if case == "paper":
        assert not [entry for entry in found if entry["stack"] or entry["local"]]
    # for more classes inductor times several configurations of some kernels, of which the largest spill; one kernel keeps two registers on the stack
    clean = {(entry["kernel"], entry["capability"]) for entry in found if entry["stack"] <= 8 and not entry["local"]}
    assert clean == {(kernel, capability) for kernel in kernels for capability in (80, 90)}
