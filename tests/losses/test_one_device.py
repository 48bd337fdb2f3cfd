"""Operations that CUDA refuses or that cost a copy, found without a GPU: no eager operation mixes a CPU scalar with tensors on another device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import pairgrad as pg


class OneDevice(TorchDispatchMode):
    """Records every operation that is given a CPU tensor beside a tensor on the device "meta"."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        devices = {tensor.device.type for tensor in tree_leaves((args, kwargs or {})) if isinstance(tensor, torch.Tensor)}
        if {"cpu", "meta"} <= devices:
            self.mixed.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def mode() -> Iterator[OneDevice]:
    with OneDevice() as mode:
        yield mode


def test_mixed_devices_are_recorded(mode: OneDevice) -> None:
    torch.addcmul(torch.tensor(1.0), torch.tensor(2.0), torch.empty(3, device="meta"))
    assert mode.mixed == ["aten.addcmul.default"]


@pytest.mark.parametrize("realization", ["paired", "arfr"])
def test_scores_and_losses_stay_on_the_device(mode: OneDevice, realization: str) -> None:
    features, directions = torch.zeros(4, 64, device="meta", requires_grad=True), torch.zeros(6, 64, device="meta")
    state = pg.ClassState(directions, torch.zeros(6, device="meta"))
    labels = torch.empty(4, dtype=torch.long, device="meta")
    with torch.no_grad():
        scores = pg.vmf_scores(features, state, realization=realization)
    loss = pg.vmf_cross_entropy(features, labels, state, realization=realization)
    loss.backward()
    assert {scores.device.type, loss.device.type} == {"meta"}
    assert features.grad is not None
    assert features.grad.device.type == "meta"
    assert mode.mixed == []


class Operations(TorchDispatchMode):
    """Records the names of all operations."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket._qualified_op_name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_bank_sorts_instead_of_adding_in_any_order_in_deterministic_mode(deterministic: bool) -> None:
    """index_add_ adds in any order on CUDA; index_put_ with accumulate=True sorts first."""
    bank, loss = pg.ClassBank(6, 64, device="meta"), pg.ProCoLoss(6, 64, device="meta")
    features, labels = torch.zeros(4, 64, device="meta"), torch.empty(4, dtype=torch.long, device="meta")
    torch.use_deterministic_algorithms(deterministic)
    try:
        with Operations() as operations:
            bank.update(features, labels)
            loss(features, labels)
    finally:
        torch.use_deterministic_algorithms(False)
    assert ("aten::index_add_" in operations.names) is not deterministic
    assert ("aten::index_put_" in operations.names) is deterministic
