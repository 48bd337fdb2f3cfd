"""Checks of a labelled batch: what they say, when they look at values, and that they never look where that would wait for a device."""

from __future__ import annotations

import math

import pytest
import torch

from pairgrad.sphere import inputs
from pairgrad.sphere.inputs import checked_batch, checked_features, checked_labels, looks

LIKE = torch.zeros(1)
META = torch.zeros(1, device="meta")


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4, 5), (0, 5), (2, 4, 5)])
def test_good_features_come_back_as_they_are(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    features = torch.ones(shape, dtype=dtype)
    assert checked_features(features, 5, LIKE) is features


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        ([[1.0]], TypeError, r"features must be a floating-point torch tensor, got \[\[1.0\]\] \(list\)"),
        (torch.ones(4, 5, dtype=torch.int64), TypeError, "features must have dtype float32 or float64 .*got a int64 tensor of shape"),
        (torch.ones(4, 5, dtype=torch.complex64), TypeError, "features must have dtype float32 or float64 .*got a complex64 tensor"),
        (torch.ones(4, 6), ValueError, r"features must have shape \(batch, dim=5\), got a float32 tensor of shape \(4, 6\) on cpu"),
        (torch.ones(5), ValueError, r"features must have shape \(batch, dim=5\), got a float32 tensor of shape \(5,\) on cpu"),
        (torch.ones(4, 5, device="meta"), ValueError, r"features must be on cpu, where the class state is, got .*on meta: move one"),
    ],
)
def test_wrong_features(features: torch.Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        checked_features(features, 5, LIKE)


@pytest.mark.parametrize("validate", [None, True])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_features_that_are_not_finite(value: float, dtype: torch.dtype, validate: bool | None) -> None:
    features = torch.ones(4, 5, dtype=dtype, requires_grad=True) * torch.tensor([1.0, 1, value, 1, 1], dtype=dtype)
    with pytest.raises(ValueError, match=r"features must be finite, got NaN or infinity in a float\d\d tensor of shape \(4, 5\)"):
        checked_features(features, 5, LIKE, validate=validate)
    assert checked_features(features, 5, LIKE, validate=False) is features


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_large_features_whose_sum_overflows_are_finite(dtype: torch.dtype) -> None:
    features = torch.full((4, 5), torch.finfo(dtype).max, dtype=dtype)
    assert checked_features(features, 5, LIKE) is features
    features[::2] *= -1
    assert checked_features(features, 5, LIKE) is features


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_good_labels_become_int64(dtype: torch.dtype) -> None:
    labels = checked_labels(torch.tensor([0, 2, 1, 2], dtype=dtype), 4, 3, LIKE)
    assert labels.dtype == torch.int64
    assert labels.tolist() == [0, 2, 1, 2]
    assert checked_labels(torch.zeros(0, dtype=dtype), 0, 3, LIKE).shape == (0,)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (torch.rand(2, 3), TypeError, r"got a float32 tensor of shape \(2, 3\) on cpu: use labels.argmax\(1\), or soft for probabilities"),
        (torch.rand(2), TypeError, r"got a float32 tensor of shape \(2,\) on cpu: use labels.long\(\)"),
        (
            [0, 1],
            TypeError,
            r"labels must be an integer torch tensor of shape \(2,\), got \[0, 1\] \(list\): use torch.as_tensor\(labels\)",
        ),
        (torch.tensor([0.0, 1.0]), TypeError, "labels must be an integer torch tensor .*got a float32 tensor of shape"),
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
        checked_labels(labels, 2, 3, LIKE, validate=validate)


def test_labels_are_not_looked_at_if_nobody_wants_to() -> None:
    assert checked_labels(torch.tensor([7, -1]), 2, 3, LIKE, validate=False).tolist() == [7, -1]


def test_ignored_labels_may_be_anything_others_may_not() -> None:
    assert checked_labels(torch.tensor([-100, 2]), 2, 3, LIKE, ignore_index=-100).tolist() == [-100, 2]
    assert checked_labels(torch.tensor([255, 2]), 2, 3, LIKE, ignore_index=255).tolist() == [255, 2]
    with pytest.raises(ValueError, match=r"labels must lie in \[0, 2\], got values from -100 to 2"):
        checked_labels(torch.tensor([-100, 2]), 2, 3, LIKE)
    with pytest.raises(ValueError, match=r"got values from -1 to 2"):
        checked_labels(torch.tensor([-1, 2]), 2, 3, LIKE, ignore_index=-100)


@pytest.mark.parametrize(("label", "dtype", "ignored"), [(156, torch.uint8, -100), (-1, torch.int8, 255), (-100, torch.int8, 156)])
def test_narrow_labels_are_not_ignored_modulo_256(label: int, dtype: torch.dtype, ignored: int) -> None:
    with pytest.raises(ValueError, match=f"got values from {min(label, 0)} to {max(label, 0)}"):
        checked_labels(torch.tensor([0, label], dtype=dtype), 2, 3, LIKE, ignore_index=ignored)


def test_a_batch_has_a_label_per_row_of_each_view() -> None:
    views, labels = torch.ones(3, 4, 5), torch.tensor([0, 1, 2, 0])
    assert checked_batch(views, labels, 3, 5, LIKE)[0] is views
    with pytest.raises(ValueError, match=r"labels must have shape \(4,\), one per row of features, got .*shape \(3,\)"):
        checked_batch(views, labels[:3], 3, 5, LIKE)


def test_features_that_overflow_in_the_state() -> None:
    """Finite in float64, infinite in the float32 sums they are for."""
    features, labels = torch.full((2, 5), 1e300, dtype=torch.float64), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="features must stay finite when they are converted to the dtype of the class state, got infinity"):
        checked_batch(features, labels, 3, 5, LIKE)
    checked_batch(features, labels, 3, 5, LIKE.double())
    checked_batch(features, labels, 3, 5, LIKE, validate=False)
    checked_batch(features / 1e290, labels, 3, 5, LIKE)


def test_when_values_are_read_on_the_host() -> None:
    cpu, elsewhere = torch.zeros(1), unread(torch.zeros(1))
    assert [looks(cpu, validate) for validate in (None, True, False)] == [True, True, False]
    assert [looks(elsewhere, validate) for validate in (None, True, False)] == [False, True, False]
    assert [looks(META, validate) for validate in (None, True, False)] == [False, False, False]
    seen = []

    @torch.compile(backend="eager", fullgraph=True)
    def inside(x: torch.Tensor) -> torch.Tensor:
        seen.append([looks(x, validate) for validate in (None, True, False)])
        return x + 1

    inside(cpu)
    assert seen == [[False, False, False]]


@pytest.mark.parametrize("validate", [None, True, False])
def test_without_values_nothing_is_read(validate: bool | None) -> None:
    features, labels = torch.ones(4, 5, device="meta"), torch.zeros(4, dtype=torch.int64, device="meta")
    got = checked_batch(features, labels, 3, 5, META, validate=validate)
    assert got[0] is features
    assert got[1].device.type == "meta"
    checked_batch(features.double(), labels, 3, 5, META, validate=validate)


@pytest.mark.parametrize("value", [1.0, math.nan, -math.inf])
@pytest.mark.parametrize("label", [0, 2, 3, -1])
def test_elsewhere_the_device_asserts(asserted: list[tuple[bool, str]], value: float, label: int) -> None:
    features, labels = unread(torch.tensor([[1.0, value], [1.0, 1.0]])), unread(torch.tensor([1, label]))
    checked_batch(features, labels, 3, 2, unread(LIKE))
    (finite, about_features), (within, about_labels) = asserted
    assert (finite, within) == (math.isfinite(value), 0 <= label < 3)
    assert "features must be finite" in about_features
    assert "labels run from 0 to num_classes - 1 = 2" in about_labels


def test_elsewhere_the_device_asserts_nothing_if_nobody_wants_to(asserted: list[tuple[bool, str]]) -> None:
    checked_batch(unread(torch.full((2, 2), math.nan)), unread(torch.tensor([7, -7])), 3, 2, unread(LIKE), validate=False)
    assert not asserted


def test_elsewhere_narrow_labels_are_compared_as_numbers(asserted: list[tuple[bool, str]]) -> None:
    """uint8 and 300 would be compared modulo 256."""
    checked_labels(unread(torch.tensor([100, 200], dtype=torch.uint8)), 2, 300, unread(LIKE))
    checked_labels(unread(torch.tensor([100, 200], dtype=torch.uint8)), 2, 150, unread(LIKE))
    assert [good for good, _ in asserted] == [True, False]


def test_elsewhere_values_are_read_on_request() -> None:
    """With validate=True the price is paid: what must not be read otherwise is read."""
    with pytest.raises(AssertionError, match="a value was read on the host"):
        checked_features(unread(torch.ones(2, 2)), 2, unread(LIKE), validate=True)
    with pytest.raises(AssertionError, match="a value was read on the host"):
        checked_labels(unread(torch.tensor([0, 1])), 2, 3, unread(LIKE), validate=True)


def test_the_later_assertion_is_one() -> None:
    inputs.assert_later(torch.tensor(True), "fine")
    with pytest.raises(RuntimeError, match="not fine"):
        inputs.assert_later(torch.tensor(False), "not fine")


def test_sparse_features_are_refused_with_the_way_out() -> None:
    with pytest.raises(
        TypeError, match=r"features must be a dense tensor, got one of layout torch\.sparse_coo: use features\.to_dense\(\)"
    ):
        checked_features(torch.eye(3).to_sparse(), 3, LIKE)
