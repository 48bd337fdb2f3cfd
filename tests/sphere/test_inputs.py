"""Checks of features and labels, as users of scores, losses and banks meet them: what is refused and in which words, and what is fine."""

from __future__ import annotations

import math

import pytest
import torch

import pairgrad as pg

STATE = pg.ClassState(torch.eye(3, 5), torch.full((3,), 4.0))


def scores(features: torch.Tensor, **options) -> torch.Tensor:
    return pg.vmf_scores(features, STATE, **options)


def losses(labels: torch.Tensor, **options) -> torch.Tensor:
    features = torch.ones(2, 5)
    return pg.vmf_cross_entropy(features, labels, STATE, reduction="none", **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4, 5), (0, 5), (2, 4, 5)])
def test_good_features(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    got = scores(torch.ones(shape, dtype=dtype))
    assert got.shape == (*shape[:-1], 3)
    assert got.isfinite().all()


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        ([[1.0]], TypeError, r"features must be a floating-point torch tensor, got \[\[1.0\]\] \(list\)"),
        (torch.ones(4, 5, dtype=torch.int64), TypeError, "features must have dtype float32 or float64 .*got a int64 tensor of shape"),
        (torch.ones(4, 5, dtype=torch.complex64), TypeError, "features must have dtype float32 or float64 .*got a complex64 tensor"),
        (torch.ones(4, 6), ValueError, r"features must have shape \(batch, dim=5\), got a float32 tensor of shape \(4, 6\) on cpu"),
        (torch.ones(5), ValueError, r"features must have shape \(batch, dim=5\), got a float32 tensor of shape \(5,\) on cpu"),
        (torch.ones(4, 5, device="meta"), ValueError, r"features must be on cpu, where the class state is, got .*on meta: move one"),
        (
            torch.eye(5).to_sparse(),
            TypeError,
            r"features must be a dense tensor, got one of layout torch\.sparse_coo: use features\.to_dense\(\)",
        ),
    ],
)
def test_wrong_features(features: torch.Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        scores(features)
    with pytest.raises(error, match=message):
        pg.ClassBank(3, 5).update(features, torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize("validate", [None, True])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_features_that_are_not_finite(value: float, dtype: torch.dtype, validate: bool | None) -> None:
    features = torch.ones(4, 5, dtype=dtype, requires_grad=True) * torch.tensor([1.0, 1, value, 1, 1], dtype=dtype)
    with pytest.raises(ValueError, match=r"features must be finite, got NaN or infinity in a float\d\d tensor of shape \(4, 5\)"):
        scores(features, validate=validate)
    assert not scores(features, validate=False).isfinite().all()


def test_large_features_whose_sum_overflows_are_finite() -> None:
    """A quick look at the sum of all values must not refuse them: each is a number, and so is each length."""
    features = torch.full((2_000, 5), 60_000.0, dtype=torch.float16)
    assert features.sum().isinf()
    assert scores(features).isfinite().all()
    features[::2] *= -1
    assert scores(features).isfinite().all()
    with pytest.raises(ValueError, match=r"features must not be longer than 1e\+18 in a float32 tensor"):
        pg.ClassBank(3, 5).update(torch.full((2, 5), torch.finfo(torch.float32).max), torch.tensor([0, 1]))


def test_features_that_overflow_in_the_bank() -> None:
    """Finite in float64, infinite in the float32 sums they are for."""
    features, labels = torch.full((2, 5), 1e100, dtype=torch.float64), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="features must stay finite when they are converted to the dtype of the class state, got infinity"):
        pg.ClassBank(3, 5).update(features, labels)
    pg.ClassBank(3, 5, dtype=torch.float64).update(features, labels)
    pg.ClassBank(3, 5, validate=False).update(features, labels)
    pg.ClassBank(3, 5).update(features / 1e90, labels)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_labels_of_any_integer_dtype(dtype: torch.dtype) -> None:
    assert torch.equal(losses(torch.tensor([0, 2], dtype=dtype)), losses(torch.tensor([0, 2])))
    bank = pg.ClassBank(3, 5)
    bank.update(torch.ones(4, 5), torch.tensor([0, 2, 1, 2], dtype=dtype))
    bank.update(torch.ones(0, 5), torch.zeros(0, dtype=dtype))
    assert bank.counts.tolist() == [1, 1, 2]


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (
            [0, 1],
            TypeError,
            r"labels must be an integer torch tensor of shape \(2,\), got \[0, 1\] \(list\): use torch.as_tensor\(labels\)",
        ),
        (torch.tensor([True, False]), TypeError, "labels must be an integer torch tensor .*got a bool tensor of shape"),
        (
            torch.tensor([0, 1, 2]),
            ValueError,
            r"labels must have shape \(2,\), one per row of features, got a int64 tensor of shape \(3,\)",
        ),
        (torch.tensor([[0], [1]]), ValueError, r"labels must have shape \(2,\), .*got a int64 tensor of shape \(2, 1\)"),
        (torch.tensor(1), ValueError, r"labels must have shape \(2,\), .*got a int64 tensor of shape \(\)"),
        (torch.zeros(2, dtype=torch.int64, device="meta"), ValueError, "labels must be on cpu, got a int64 tensor .*on meta: move them"),
        (
            torch.tensor([0, 3]),
            ValueError,
            r"labels must lie in \[0, 2\], got values from 0 to 3: labels run from 0 to num_classes - 1 = 2",
        ),
        (torch.tensor([-1, 2]), ValueError, r"labels must lie in \[0, 2\], got values from -1 to 2"),
        (torch.tensor([-1, 2], dtype=torch.int8), ValueError, r"labels must lie in \[0, 2\], got values from -1 to 2"),
    ],
)
@pytest.mark.parametrize("validate", [None, True])
def test_wrong_labels(labels: torch.Tensor, error: type[Exception], message: str, validate: bool | None) -> None:
    with pytest.raises(error, match=message):
        losses(labels, validate=validate)
    with pytest.raises(error, match=message):
        pg.ClassBank(3, 5, validate=validate).update(torch.ones(2, 5), labels)


@pytest.mark.parametrize(
    ("labels", "hint"), [(torch.rand(2, 3), r"labels.argmax\(1\), or soft for probabilities"), (torch.rand(2), r"labels.long\(\)")]
)
def test_a_bank_takes_labels_and_not_probabilities(labels: torch.Tensor, hint: str) -> None:
    with pytest.raises(TypeError, match=rf"labels must be an integer torch tensor of shape \(2,\), got a float32 tensor .*: use {hint}"):
        pg.ClassBank(3, 5).update(torch.ones(2, 5), labels)


def test_ignored_labels_may_be_anything_others_may_not() -> None:
    for ignored in (-100, 255):
        got = losses(torch.tensor([ignored, 2]), ignore_index=ignored)
        assert got[0] == 0
        assert got[1] == losses(torch.tensor([0, 2]))[1] > 0
    with pytest.raises(ValueError, match=r"got values from -1 to 2"):
        losses(torch.tensor([-1, 2]), ignore_index=-100)


@pytest.mark.parametrize(("label", "dtype", "ignored"), [(156, torch.uint8, -100), (-1, torch.int8, 255), (-100, torch.int8, 156)])
def test_narrow_labels_are_not_ignored_modulo_256(label: int, dtype: torch.dtype, ignored: int) -> None:
    with pytest.raises(ValueError, match=f"got values from {min(label, 0)} to {max(label, 0)}"):
        losses(torch.tensor([0, label], dtype=dtype), ignore_index=ignored)


def test_a_batch_has_a_label_per_row_of_each_view() -> None:
    views, labels = torch.ones(3, 4, 5), torch.tensor([0, 1, 2, 0])
    assert pg.ProCoLoss(3, 5)(views, labels).isfinite()
    with pytest.raises(ValueError, match=r"labels must have shape \(4,\), one per row of features \(views, batch, dim\), got 3"):
        pg.ProCoLoss(3, 5)(views, labels[:3])


@pytest.mark.parametrize("validate", [None, True, False])
def test_without_values_nothing_is_read(validate: bool | None) -> None:
    state = pg.ClassState(torch.eye(3, 5, device="meta"), torch.ones(3, device="meta"))
    features, labels = torch.ones(4, 5, device="meta"), torch.zeros(4, dtype=torch.int64, device="meta")
    assert pg.vmf_scores(features.double(), state, validate=validate).device.type == "meta"
    assert pg.vmf_cross_entropy(features, labels, state, validate=validate).device.type == "meta"


def test_a_compiled_region_reads_nothing() -> None:
    """Neither an error nor a graph break for what eager code refuses."""
    pot = pg.potential(5)
    compiled = torch.compile(lambda x: scores(x, realization=pot), backend="eager", fullgraph=True)
    assert compiled(torch.full((2, 5), math.nan)).isnan().all()
