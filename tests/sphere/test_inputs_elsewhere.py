"""On an accelerator values are not read on the host, which would wait for it: the device asserts instead. Seen from a tensor that must not be read."""

from __future__ import annotations

import math

import pytest
import torch

import pairgrad as pg
from pairgrad.sphere import bank, inputs
from pairgrad.sphere.inputs import checked_batch, checked_features, checked_labels

LIKE = torch.zeros(1)


class Unread(torch.Tensor):
    """A CPU tensor that says it is on an accelerator, and must not be read."""

    @property
    def device(self) -> torch.device:
        return torch.device("xpu", 0)

    def _read(self, *_: object) -> None:
        raise AssertionError("a value was read on the host")

    item = tolist = __bool__ = __int__ = __index__ = __float__ = _read  # type: ignore[assignment]


def unread(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.as_subclass(Unread)


@pytest.fixture
def asserted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, str]]:
    """What was left for the device to assert: (condition, message)."""
    left: list[tuple[bool, str]] = []
    monkeypatch.setattr(inputs, "assert_later", lambda good, message: left.append((bool(good.as_subclass(torch.Tensor)), message)))
    return left


@pytest.mark.parametrize("value", [1.0, math.nan, -math.inf])
@pytest.mark.parametrize("label", [0, 2, 3, -1])
def test_the_device_asserts(asserted: list[tuple[bool, str]], value: float, label: int) -> None:
    features, labels = unread(torch.tensor([[1.0, value], [1.0, 1.0]])), unread(torch.tensor([1, label]))
    checked_batch(features, labels, 3, 2, unread(LIKE))
    (finite, about_features), (within, about_labels) = asserted
    assert (finite, within) == (math.isfinite(value), 0 <= label < 3)
    assert "features must be finite" in about_features
    assert "labels run from 0 to num_classes - 1 = 2" in about_labels


def test_the_device_asserts_nothing_without_validation(asserted: list[tuple[bool, str]]) -> None:
    checked_batch(unread(torch.full((2, 2), math.nan)), unread(torch.tensor([7, -7])), 3, 2, unread(LIKE), validate=False)
    assert not asserted


def test_narrow_labels_are_compared_as_numbers(asserted: list[tuple[bool, str]]) -> None:
    """uint8 and 300 would be compared modulo 256."""
    checked_labels(unread(torch.tensor([100, 200], dtype=torch.uint8)), 2, 300, unread(LIKE))
    checked_labels(unread(torch.tensor([100, 200], dtype=torch.uint8)), 2, 150, unread(LIKE))
    assert [good for good, _ in asserted] == [True, False]


def test_values_are_read_on_request() -> None:
    """With validate=True the price is paid: what must not be read otherwise is read."""
    with pytest.raises(AssertionError, match="a value was read on the host"):
        checked_features(unread(torch.ones(2, 2)), 2, unread(LIKE), validate=True)
    with pytest.raises(AssertionError, match="a value was read on the host"):
        checked_labels(unread(torch.tensor([0, 1])), 2, 3, unread(LIKE), validate=True)


def test_the_later_assertion_is_one() -> None:
    inputs.assert_later(torch.tensor(True), "fine")
    with pytest.raises(RuntimeError, match="not fine"):
        inputs.assert_later(torch.tensor(False), "not fine")


def test_the_device_refuses_longer_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """The asynchronous path, with a CPU that counts as another device."""
    left = []
    monkeypatch.setattr(bank, "looks", lambda tensor, validate: False)
    monkeypatch.setattr(bank, "assert_later", lambda good, message: left.append(bool(good)))
    held = pg.ClassBank(2, 3, on_resultant_above_one="error")
    held.update(torch.tensor([[0.75, 0.0, 0.0]]), torch.tensor([0]))
    held.update(torch.tensor([[1.5, 0.0, 0.0]]), torch.tensor([1]))
    assert left == [True, False]
    held.validate = False
    held.update(torch.tensor([[1.5, 0.0, 0.0]]), torch.tensor([1]))
    assert len(left) == 2
