"""What an update of a class bank takes, refuses and touches."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import pairgrad as pg
from tests.sphere.banks import (
    GOOD,
    LABELS,
    LONG,
    derived_from_buffers,
    filled,
    snapshot,
    untouched,
)


def spoiled(value: float) -> torch.Tensor:
    features = GOOD.clone()
    features[2, 1] = value
    return features


@pytest.mark.parametrize("memory", ["cumulative", "two-epochs"])
@pytest.mark.parametrize(
    ("features", "labels", "error", "message"),
    [
        (GOOD, torch.tensor([0, 1, 4, 2]), ValueError, r"labels must lie in \[0, 3\], got values from 0 to 4"),
        (GOOD, torch.tensor([0, -1, 1, 2]), ValueError, r"labels must lie in \[0, 3\], got values from -1 to 2"),
        (GOOD, LABELS.float(), TypeError, r"labels must be an integer torch tensor of shape \(4,\), got a float32 tensor"),
        (GOOD, [0, 1, 1, 2], TypeError, r"labels must be an integer torch tensor of shape \(4,\), got \[0, 1, 1, 2\] \(list\)"),
        (GOOD, LABELS[:3], ValueError, r"labels must have shape \(4,\), one per row of features, got .*shape \(3,\)"),
        (GOOD, LABELS[:, None], ValueError, r"labels must have shape \(4,\), .*got .*shape \(4, 1\)"),
        (GOOD, LABELS.to("meta"), ValueError, "labels must be on cpu, got .*on meta"),
        (GOOD[:, :2], LABELS, ValueError, r"features must have shape \(batch, dim=3\), got a float32 tensor of shape \(4, 2\)"),
        (GOOD[0], LABELS, ValueError, r"features must have shape \(batch, dim=3\), got a float32 tensor of shape \(3,\)"),
        (GOOD[None], LABELS, ValueError, r"features must have shape \(batch, dim=3\), got a float32 tensor of shape \(1, 4, 3\)"),
        (GOOD.long(), LABELS, TypeError, "features must have dtype float32 or float64 .*got a int64 tensor"),
        (GOOD.tolist(), LABELS, TypeError, "features must be a floating-point torch tensor, got .*list"),
        (GOOD.to("meta"), LABELS, ValueError, "features must be on cpu, where the class state is, got .*on meta"),
        (spoiled(math.nan), LABELS, ValueError, "features must be finite, got NaN or infinity"),
        (spoiled(math.inf), LABELS, ValueError, "features must be finite, got NaN or infinity"),
        (spoiled(-math.inf).half(), LABELS, ValueError, "features must be finite, got NaN or infinity"),
        (GOOD.double() * 1e300, LABELS, ValueError, "features must stay finite when they are converted"),
    ],
)
def test_an_error_changes_nothing(features: Any, labels: Any, error: type[Exception], message: str, memory: str) -> None:
    bank = filled(memory=memory)
    before = snapshot(bank)
    with pytest.raises(error, match=message):
        bank.update(features, labels)
    untouched(bank, before)


def test_validate() -> None:
    """False does not look at values; a label that is no class is then torch's to find, before anything changes; True and None look."""
    for validate in (None, True):
        bank = filled(validate=validate)
        with pytest.raises(ValueError, match="features must be finite"):
            bank.update(spoiled(math.nan), LABELS)
    bank = filled(validate=False, memory="two-epochs")
    before = snapshot(bank)
    for label in (4, -1):
        with pytest.raises(IndexError):
            bank.update(GOOD, torch.tensor([0, label, 1, 1]))
    untouched(bank, before)
    bank.update(spoiled(math.nan), LABELS)
    assert bank.sums.isnan().any(1).tolist() == [False, True, False, False]
    unlooked = pg.ClassBank(2, 3, on_resultant_above_one="error", validate=False)
    unlooked.update(LONG, torch.tensor([0]))
    assert unlooked.concentration[0].item() == 1e5


@pytest.mark.parametrize("validate", [None, True, False])
@pytest.mark.parametrize("rule", ["cap", "error", "normalize"])
@pytest.mark.parametrize("memory", ["cumulative", "two-epochs"])
def test_nothing_is_read_on_a_device_without_values(validate: bool | None, rule: str, memory: str) -> None:
    bank = pg.ClassBank(4, 3, device="meta", validate=validate, on_resultant_above_one=rule, memory=memory, small_samples="unbiased")
    bank.update(GOOD.to("meta"), LABELS.to("meta"))
    if memory == "two-epochs":
        bank.start_epoch()
    assert (bank.concentration.shape, bank.mean_direction.shape, bank.resultant_length.shape) == ((4,), (4, 3), (4,))
    assert bank.concentration.device.type == "meta"
    with pytest.raises(ValueError, match="features must be on meta"):
        bank.update(GOOD, LABELS)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_classes": 0}, ValueError, "num_classes must be an integer >= 1, got 0"),
        ({"num_classes": 2.5}, TypeError, "num_classes must be an integer >= 1, got 2.5"),
        ({"dim": 1}, ValueError, "dim must be an integer >= 2, got 1: a direction needs at least two coordinates"),
        ({"estimator": "none"}, ValueError, "estimator must be one of 'closed-form', 'mle', got 'none'"),
        ({"cap": 0.0}, ValueError, "cap must be a positive finite number"),
        (
            {"on_resultant_above_one": "ignore"},
            ValueError,
            "on_resultant_above_one must be one of 'cap', 'error', 'normalize', got 'ignore'",
        ),
        ({"unseen": "zero"}, ValueError, "unseen must be one of 'random', 'uniform', got 'zero'"),
        ({"small_samples": "fix"}, ValueError, "small_samples must be one of 'plain', 'unbiased', got 'fix'"),
        ({"memory": "epoch"}, ValueError, "memory must be one of 'cumulative', 'two-epochs', got 'epoch'"),
        *(({"decay": d}, ValueError, f"decay must be a number between 0 and 1, or None, got {d}") for d in (0.0, 1.0, 1.5, -0.1, math.nan)),
        ({"dtype": torch.float16}, TypeError, "dtype must be torch.float32 or torch.float64, got torch.float16"),
        ({"dtype": torch.int64}, TypeError, "dtype must be torch.float32 or torch.float64, got torch.int64"),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pg.ClassBank(**({"num_classes": 3, "dim": 4} | options))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_features_of_another_dtype_are_converted(dtype: torch.dtype) -> None:
    bank = pg.ClassBank(4, 3)
    twin = copy.deepcopy(bank)
    features = torch.randn(4, 3).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        bank.update(features, LABELS)
    twin.update(features.float(), LABELS)
    assert torch.equal(bank.sums, twin.sums)
    assert torch.equal(bank.concentration, twin.concentration)


def test_features_are_detached_and_may_be_strided() -> None:
    bank = pg.ClassBank(4, 3)
    twin = copy.deepcopy(bank)
    features, labels = torch.randn(3, 8, requires_grad=True), torch.randint(4, (8, 2))
    bank.update((2 * features).T, labels[:, 1])
    twin.update(2 * features.detach().T.contiguous(), labels[:, 1].contiguous().to(torch.int32))
    assert torch.equal(bank.sums, twin.sums)
    assert not any(tensor.requires_grad for tensor in (bank.sums, bank.concentration, bank.mean_direction, bank.resultant_length))


class Made(TorchDispatchMode):
    """The tensors that operations return."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.tensors += [part for part in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(part, torch.Tensor)]
        return result


@pytest.mark.parametrize("memory", ["cumulative", "two-epochs"])
@pytest.mark.parametrize("options", [{}, {"decay": 0.9}, {"on_resultant_above_one": "error"}, {"on_resultant_above_one": "normalize"}])
def test_an_update_makes_nothing_of_the_size_of_the_bank(memory: str, options: dict[str, Any]) -> None:
    """With 7 samples, 11 classes and dimension 13, a tensor with an 11 in its shape has a row per class: only the buffers have."""
    batch, classes, dim = 7, 11, 13
    bank = pg.ClassBank(classes, dim, memory=memory, **options)
    own = {tensor.data_ptr() for tensor in bank.buffers()}
    features, labels = torch.randn(2, batch, dim) / 10, torch.randint(classes, (batch,))
    bank.update(features[0], labels)
    with Made() as made:
        bank.update(features[0], labels)
        with bank.updating() as state:
            state.absorb(features, labels)
    assert len(made.tensors) > 20
    for tensor in made.tensors:
        assert not (classes in tensor.shape and tensor.data_ptr() not in own), tensor.shape
        assert not (classes in tensor.shape and batch in tensor.shape), tensor.shape


@pytest.mark.parametrize("memory", ["cumulative", "two-epochs"])
@pytest.mark.parametrize("times", [1, 3], ids=["fewer samples than classes", "more"])
@pytest.mark.parametrize("options", [{}, {"decay": 0.7}, {"estimator": "mle"}, {"small_samples": "unbiased"}])
@pytest.mark.parametrize("last", [0, 1], ids=["one unseen", "all seen"])
def test_other_rows_keep_their_bits(memory: str, times: int, options: dict[str, Any], last: int) -> None:
    bank = filled(classes=7, dim=3, batch=12, memory=memory, **options)
    bank.update(torch.rand(last, 3) / 2, torch.full((last,), 6))
    before = {name: tensor.clone() for name, tensor in bank.named_buffers()}
    bank.update(torch.rand(4 * times, 3) / 2, torch.tensor([2, 5, 5, 2] * times))
    for name, tensor in bank.named_buffers():
        changed = (tensor != before[name]).reshape(7, -1).any(1).tolist()
        if "compensation" not in name:  # which may be zero twice
            assert changed == [False, False, True, False, False, True, False], name
        assert not any(changed[k] for k in (0, 1, 3, 4, 6)), name


def test_what_is_read_is_not_the_state() -> None:
    bank = filled()
    before = snapshot(bank)
    for name in ("concentration", "mean", "mean_direction", "resultant_length"):
        getattr(bank, name).zero_()
    untouched(bank, before)
    derived_from_buffers(bank)
