"""What only a GPU can show: `pytest -m gpu`, or `pytest -m gpu --device cpu` to see that the tests themselves run.

The numbers on the device beside those of the CPU are those of `pairgrad doctor --device`; here are options, moves, checkpoints and compilation.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

import pairgrad as pg
from pairgrad.losses.fused.triton import runs_on
from tests.cli.command import invoke

pytestmark = pytest.mark.gpu

CLASSES, DIM, BATCH = 20, 64, 40
STEP = 1e-5  # relative, of a float32 step beside float64, as `pairgrad doctor` has it


def _views(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return normalize(torch.randn(2, BATCH, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=-1).to(dtype)


def _labels() -> torch.Tensor:
    return torch.arange(BATCH) % CLASSES


def _loss(device: torch.device | str, dtype: torch.dtype, **options: Any) -> pg.ProCoLoss:
    """Every class has been seen: others begin at random, and another device draws other numbers."""
    loss = pg.ProCoLoss(CLASSES, DIM, class_counts=[100 - 4 * k for k in range(CLASSES)], device=device, dtype=dtype, **options)
    loss.bank.update(_views(dtype)[1].to(device), _labels().to(device))
    return loss


def _gradients(loss: pg.ProCoLoss, steps: int = 2) -> list[torch.Tensor]:
    found = []
    for _ in range(steps):
        views = _views(loss.bank.sums.dtype).to(loss.bank.sums.device).requires_grad_()
        loss(views, _labels().to(views.device)).backward()
        assert views.grad is not None
        found.append(views.grad.cpu())
    return found


def _close(found: list[torch.Tensor], exact: list[torch.Tensor], bound: float = STEP) -> None:
    for ours, theirs in zip(found, exact, strict=True):
        error = float((ours.double() - theirs.double()).norm() / theirs.double().norm())
        assert error <= bound, f"{error:.1e} apart, relative"


def test_doctor(device: torch.device, tmp_path: Path) -> None:
    done = invoke("doctor", "--device", str(device), "--json", str(tmp_path / "doctor.json"), columns=200)
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "doctor.json").read_text())["device"]
    assert {check["status"] for check in found} <= {"ok", "skipped"}


def test_bench(device: torch.device, tmp_path: Path) -> None:
    sizes = ("--batch", "4", "--classes", "50", "--dim", "64", "--repeats", "2")
    done = invoke("bench", "--device", str(device), *sizes, "--json", str(tmp_path / "bench.json"))
    assert done.exit_code == 0, done.output
    costs = json.loads((tmp_path / "bench.json").read_text())["local_costs"]
    assert all(cost["seconds"] > 0 for cost in costs if not cost["note"])
    if device.type == "cuda":
        assert all(cost["bytes"] > 0 for cost in costs if not cost["note"])


OPTIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "arfr": {"realization": "arfr"},
    "mle": {"estimator": "mle"},
    "two epochs": {"memory": "two-epochs"},
    "before the update": {"score": "before-update"},
    "raw features": {"normalize": False},
    "decay": {"decay": 0.9},
    "scalars in float64": {"scalar_dtype": torch.float64},
    "original": {"realization": "original"},
    "checked": {"validate": True},
}
# Of the streamed kernels; the first beside what `pairgrad doctor` looks at.
STREAMED: dict[str, dict[str, Any]] = {
    name: OPTIONS[name] for name in ("arfr", "mle", "two epochs", "before the update", "raw features", "decay")
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options(device: torch.device, name: str) -> None:
    _close(_gradients(_loss(device, torch.float32, **OPTIONS[name])), _gradients(_loss("cpu", torch.float64, **OPTIONS[name])))


@pytest.mark.parametrize("name", STREAMED)
def test_triton(device: torch.device, name: str) -> None:
    if not runs_on(device):
        pytest.skip("triton does not run there")
    exact = _gradients(_loss("cpu", torch.float64, **STREAMED[name]))
    _close(_gradients(_loss(device, torch.float32, execution="triton", **STREAMED[name])), exact)


def test_float64(device: torch.device) -> None:
    _close(_gradients(_loss(device, torch.float64)), _gradients(_loss("cpu", torch.float64)), 1e-12)


def test_a_loss_that_is_moved_copied_saved_and_loaded(device: torch.device) -> None:
    exact = _gradients(_loss("cpu", torch.float32))
    moved = _loss("cpu", torch.float32).to(device)
    copied = copy.deepcopy(moved)
    loaded = pg.ProCoLoss(CLASSES, DIM, class_counts=[100 - 4 * k for k in range(CLASSES)], device=device)
    loaded.load_state_dict(_loss("cpu", torch.float32).state_dict())
    back = copy.deepcopy(moved).to("cpu")
    for loss in (moved, copied, loaded, back):
        _close(_gradients(loss), exact)
    assert {buffer.device.type for buffer in moved.buffers()} == {device.type}


def test_a_wrong_label_is_named_where_values_are_checked(device: torch.device) -> None:
    loss, labels = _loss(device, torch.float32, validate=True), _labels()
    labels[0] = CLASSES
    with pytest.raises(ValueError, match=rf"labels must lie in \[0, {CLASSES - 1}\], got values from 0 to {CLASSES}"):
        loss(_views(torch.float32).to(device), labels.to(device))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast(device: torch.device, dtype: torch.dtype) -> None:
    views = _views(torch.float32).to(dtype)
    exact = views.double().requires_grad_()
    _loss("cpu", torch.float64)(exact, _labels()).backward()
    ours = views.to(device).requires_grad_()
    loss = _loss(device, torch.float32)
    with torch.autocast(device.type, dtype=dtype):
        value = loss(ours, _labels().to(device))
    value.backward()
    assert value.dtype == torch.float32
    assert ours.grad is not None
    assert exact.grad is not None
    _close([ours.grad.cpu()], [exact.grad], torch.finfo(dtype).eps)


def test_an_audit_on_the_device(device: torch.device) -> None:
    x = torch.tensor([64 * 63.0], dtype=torch.float64, device=device)
    verdicts = [pg.audit(pg.potential(128, name).value, x, effort="quick").verdict.value for name in ("original", "paired")]
    assert verdicts == ["incoherent", "coherent"]


def test_a_mixture_on_the_device(device: torch.device) -> None:
    rows = normalize(torch.randn(300, 8, generator=torch.Generator().manual_seed(0)) + 3 * torch.eye(8)[torch.arange(300) % 3], dim=1)
    found = [pg.VMFMixture(3, random_state=0).fit(rows.to(place)).score(rows.to(place)) for place in (device, torch.device("cpu"))]
    assert found[0] == pytest.approx(found[1], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_compiled(device: torch.device, mode: str | None) -> None:
    if mode is not None and device.type != "cuda":
        pytest.skip("graphs are of CUDA")
    exact = _gradients(_loss("cpu", torch.float64), steps=4)
    _close(_gradients(_loss(device, torch.float32, execution="compiled", compile_mode=mode), steps=4), exact)
