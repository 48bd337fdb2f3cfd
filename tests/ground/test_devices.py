"""What differs between devices: a device without float64 gets none, and the results there are those of float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import pairgrad as pg
from pairgrad.ground import devices

CLASSES, DIM, BATCH = 6, 64, 8
COUNTS = [50, 40, 30, 20, 10, 5]


class Doubles(TorchDispatchMode):
    """Records every operation that gives a float64 tensor on one type of device."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device, self.found = device, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = (leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
        if any(tensor.dtype == torch.float64 and tensor.device.type == self.device for tensor in tensors):
            self.found.append(str(func))
        return result


def _without_float64(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setitem(devices.KINDS, device, replace(devices.KINDS[device], float64=False))


def _tensor(*shape: int, **options) -> torch.Tensor:
    return torch.ones(*shape, device="meta", **options)


def _bank_loss(**options) -> Callable[[], object]:
    def run() -> object:
        features, labels = _tensor(2, BATCH, DIM, requires_grad=True), _tensor(BATCH).long()
        loss = pg.ProCoLoss(CLASSES, DIM, class_counts=COUNTS, device="meta", **options)
        loss(features, labels).backward()
        return loss.state_dict()

    return run


def _patt() -> None:
    features, logits = _tensor(2, BATCH, DIM, requires_grad=True), _tensor(BATCH, CLASSES, requires_grad=True)
    pg.PATTLoss(CLASSES, DIM, class_counts=COUNTS, device="meta")(features, _tensor(BATCH).long(), logits).backward()


def _state() -> pg.ClassState:
    return pg.ClassState(_tensor(CLASSES, DIM), _tensor(CLASSES))


def _potential(name: str) -> None:
    x, pot = _tensor(5, requires_grad=True), pg.potential(DIM, name)
    for result in (pot.value(x), pot.slope(x), pot.curvature(x), pot.complement(x), pot.difference(x, 2 * x), *pot.pair(x)):
        result.sum().backward(retain_graph=True)


def _regression() -> None:
    pg.VMFRegressionLoss(DIM)(_tensor(BATCH, DIM, requires_grad=True), _tensor(BATCH, DIM)).backward()


def _distribution() -> None:
    law = pg.VonMisesFisher(_tensor(BATCH, DIM, requires_grad=True), _tensor(BATCH), validate_args=False)
    (law.rsample().sum() + law.log_prob(_tensor(BATCH, DIM)).sum() + law.entropy().sum()).backward()


def _classifier() -> None:
    pg.VMFClassifier(CLASSES, DIM, device="meta")(_tensor(BATCH, DIM, requires_grad=True)).sum().backward()


def _logits(module: torch.nn.Module, *labels: torch.Tensor) -> None:
    module.to("meta")(_tensor(BATCH, CLASSES, requires_grad=True), *labels).backward()


CALLS: dict[str, Callable[[], object]] = {
    "LogitAdjust": lambda: _logits(pg.LogitAdjust(COUNTS), _tensor(BATCH).long()),
    "TemperatureLogitAdjust": lambda: _logits(pg.TemperatureLogitAdjust(COUNTS), _tensor(BATCH).long()),
    "OutlierExposure": lambda: _logits(pg.OutlierExposure()),
    "HypersphericalUniform": lambda: pg.HypersphericalUniform(DIM, device="meta").sample((BATCH,)),
    **{f"potential {name}": lambda name=name: _potential(name) for name in ("paired", "arfr", "log-bessel", "scott")},
    "ProCoLoss": _bank_loss(),
    "ProCoLoss, mle": _bank_loss(estimator="mle"),
    "ProCoLoss, two epochs": _bank_loss(memory="two-epochs"),
    "ProCoLoss, expanded": _bank_loss(geometry="expanded"),
    "PATTLoss": _patt,
    "vmf_scores": lambda: pg.vmf_scores(_tensor(BATCH, DIM, requires_grad=True), _state()).sum().backward(),
    "vmf_cross_entropy": lambda: pg.vmf_cross_entropy(_tensor(BATCH, DIM, requires_grad=True), _tensor(BATCH).long(), _state()).backward(),
    "VMFRegressionLoss": _regression,
    "VonMisesFisher": _distribution,
    "VMFClassifier": _classifier,
}


@pytest.mark.parametrize("name", CALLS)
def test_no_float64_where_the_device_has_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _without_float64(monkeypatch, "meta")
    with Doubles("meta") as doubles:
        CALLS[name]()
    assert doubles.found == []


@pytest.mark.parametrize("name", ["original", "consistent", "log-miller"])
def test_realizations_that_need_float64_say_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _without_float64(monkeypatch, "meta")
    with pytest.raises(ValueError, match=f"no float64, got '{name}': use 'paired', or move the tensors to the CPU"):
        pg.potential(DIM, name).value(_tensor(3))
    with pytest.raises(ValueError, match=f"no float64, got '{name}'"):
        pg.vmf_cross_entropy(_tensor(BATCH, DIM), _tensor(BATCH).long(), _state(), realization=name)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("inputs", lambda: pg.audit(torch.sin, torch.ones(3))),
        ("features", lambda: pg.certify(torch.eye(2, DIM), torch.tensor([0, 1]), pg.ClassState(torch.eye(2, DIM), torch.ones(2)))),
        ("weight", lambda: pg.ood.FeatureCalibration(torch.ones(3, 4), None, [0.2, 0.3, 0.5])),
    ],
)
def test_what_computes_in_float64_asks_for_the_cpu(name: str, call: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    call()
    _without_float64(monkeypatch, "cpu")
    with pytest.raises(ValueError, match=f"{name} must be on a device that has float64, in which .* computes, got cpu: move it to the CPU"):
        call()


def test_a_bank_without_float64_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts and norms in float32: concentrations, whose condition is kappa / dim here, are within a few roundings of it."""
    features, labels = normalize(torch.randn(40, DIM) + 2 * torch.eye(DIM)[0], dim=-1), torch.arange(40) % CLASSES
    found = []
    for narrow in (False, True):
        if narrow:
            _without_float64(monkeypatch, "cpu")
        bank = pg.ClassBank(CLASSES, DIM)
        for _ in range(3):
            bank.update(features, labels)
        assert bank.counts.dtype == (torch.float32 if narrow else torch.float64)
        found.append(bank.concentration)
    assert torch.equal(bank.counts.double(), pg.ClassBank(CLASSES, DIM).counts + 3 * torch.bincount(labels).double())
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=0)


def test_a_bank_moves_to_a_device_without_float64_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The move to "meta" stands for one to mps: torch refuses to send it a float64 tensor."""
    _without_float64(monkeypatch, "meta")
    bank = pg.ClassBank(CLASSES, DIM)

    def refusing(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return tensor.to("meta")

    assert bank._apply(refusing).counts.dtype == torch.float32
    assert {buffer.dtype for buffer in bank.buffers()} == {torch.float32}
    assert bank.to_empty(device="cpu").counts.dtype == torch.float64


def test_a_device_that_is_not_there_is_refused_with_those_that_are() -> None:
    for name in ("cuda:77", "toaster", "meta"):
        with pytest.raises(ValueError, match=rf"--device must be one that torch can use with float32, got '{name}' \(.+\): torch sees cpu"):
            devices.usable_device("--device", name)
    assert devices.usable_device("--device", "cpu") == torch.device("cpu")
