"""Logit adjustment: the prior, the losses against torch's cross-entropy and against the formula by hand, precision, and errors."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, vmap

from pairgrad.losses import LogitAdjust, TemperatureLogitAdjust

COUNTS = [500, 120, 30, 7, 1]
# Our prior, the sum and torch's log-softmax against the same formula in another order: a few roundings of logits of size up to 10.
CLOSE64 = {"rtol": 1e-14, "atol": 1e-14}


def batch(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    return 3 * torch.randn(8, 5, dtype=dtype), torch.tensor([0, 1, 2, 3, 4, 0, 0, 1])


def by_hand(adjusted: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """-z_y + log sum exp z, one sample and one class at a time."""
    losses = []
    for row, label in zip(adjusted.tolist(), labels.tolist(), strict=True):
        losses.append(math.log(math.fsum(math.exp(v) for v in row)) - row[label])
    return torch.tensor(losses, dtype=torch.float64)


@pytest.mark.parametrize(
    "counts",
    [COUNTS, tuple(COUNTS), np.array(COUNTS), torch.tensor(COUNTS), torch.tensor(COUNTS, dtype=torch.float32), torch.tensor(COUNTS).half()],
)
def test_log_prior(counts: object) -> None:
    prior = LogitAdjust(counts, dtype=torch.float64).log_prior  # type: ignore[arg-type]
    assert prior.dtype == torch.float64
    torch.testing.assert_close(prior, torch.tensor([math.log(n / 658) for n in COUNTS], dtype=torch.float64), rtol=1e-15, atol=0)


def log_prior(counts: list[float]) -> torch.Tensor:
    return LogitAdjust(counts, dtype=torch.float64).log_prior


def test_log_prior_corners() -> None:
    assert log_prior([0, 1, 3]).tolist() == [-math.inf, math.log(0.25), math.log(0.75)]
    assert log_prior([4]).tolist() == [0.0]
    assert log_prior([1e308, 1e308]).tolist() == [math.log(0.5)] * 2
    assert log_prior([0.2, 0.8]).exp().tolist() == pytest.approx([0.2, 0.8], rel=1e-15)


@pytest.mark.parametrize(
    ("counts", "error", "message"),
    [
        ([], ValueError, "class_counts must have one dimension and at least one entry, got a float32 tensor of shape \\(0,\\)"),
        ([[1, 2]], ValueError, "class_counts must have one dimension and at least one entry, got a int64 tensor of shape \\(1, 2\\)"),
        ([3, -1], ValueError, "class_counts must be finite and >= 0, got values from -1 to 3"),
        ([3, math.nan], ValueError, "class_counts must be finite and >= 0, got values from nan"),
        ([3, math.inf], ValueError, "class_counts must be finite and >= 0, got values from 3 to inf"),
        ([0, 0, 0], ValueError, "class_counts must have a positive entry, got 3 zeros"),
        ("many", TypeError, "class_counts must be a one-dimensional sequence or tensor of numbers, got 'many'"),
        (None, TypeError, "class_counts must be a one-dimensional sequence or tensor of numbers, got None"),
        ([1j, 2], TypeError, "class_counts must hold real numbers, got a complex64 tensor"),
        ([True, False], TypeError, "class_counts must hold real numbers, got a bool tensor"),
    ],
)
def test_log_prior_errors(counts: object, error: type[Exception], message: str) -> None:
    for make in (log_prior, LogitAdjust, TemperatureLogitAdjust):
        with pytest.raises(error, match=message + ".*number of training samples of every class"):
            make(counts)  # type: ignore[operator]


def test_logit_adjust_by_hand() -> None:
    logits, labels = batch()
    prior = torch.tensor([math.log(n / 658) for n in COUNTS], dtype=torch.float64)
    for strength in (0.0, 1.0, 1.7):
        want = by_hand(logits + strength * prior, labels)
        got = LogitAdjust(COUNTS, strength, reduction="none", dtype=torch.float64)(logits, labels)
        torch.testing.assert_close(got, want, **CLOSE64)
        torch.testing.assert_close(LogitAdjust(COUNTS, strength, dtype=torch.float64)(logits, labels), want.mean(), **CLOSE64)


def test_the_temperature_divides_the_logits_and_not_the_prior() -> None:
    logits, labels = batch()
    prior = torch.tensor([math.log(n / 658) for n in COUNTS], dtype=torch.float64)
    for temperature, strength in ((0.9, 1.0), (0.7, 1.0), (0.7, 0.4)):
        loss = TemperatureLogitAdjust(COUNTS, temperature, strength, dtype=torch.float64)
        torch.testing.assert_close(loss(logits, labels), by_hand(logits / temperature + strength * prior, labels).mean(), **CLOSE64)
        torch.testing.assert_close(loss.adjusted(logits), logits / temperature + strength * prior, **CLOSE64)
    assert TemperatureLogitAdjust(COUNTS).temperature == 0.9


def test_temperature_one_is_logit_adjustment_bit_for_bit() -> None:
    logits, labels = batch(torch.float32)
    assert torch.equal(TemperatureLogitAdjust(COUNTS, 1.0)(logits, labels), LogitAdjust(COUNTS)(logits, labels))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("weight", [None, [0.5, 1.0, 2.0, 0.0, 4.0]])
def test_options_are_those_of_torch(weight: list[float] | None, smoothing: float, reduction: str) -> None:
    """With labels, some of them ignored, and with class probabilities."""
    logits, labels = batch()
    logits.requires_grad_()
    labels[[2, 5]] = -7
    options = {"label_smoothing": smoothing, "reduction": reduction}
    loss = LogitAdjust(COUNTS, weight=weight, ignore_index=-7, dtype=torch.float64, **options)  # type: ignore[arg-type]
    factors = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    adjusted = logits + torch.tensor([math.log(n / 658) for n in COUNTS], dtype=torch.float64)
    shares = torch.rand(8, 5, dtype=torch.float64)
    for wanted in (labels, shares / shares.sum(1, keepdim=True)):
        got, want = loss(logits, wanted), F.cross_entropy(adjusted, wanted, factors, ignore_index=-7, **options)  # type: ignore[arg-type]
        torch.testing.assert_close(got, want, **CLOSE64)
        gradients = [torch.autograd.grad(r.sum(), logits, retain_graph=True)[0] for r in (got, want)]
        torch.testing.assert_close(*gradients, **CLOSE64)


def test_int32_labels_and_class_probabilities_in_another_dtype() -> None:
    logits, labels = batch(torch.float32)
    loss = LogitAdjust(COUNTS)
    assert torch.equal(loss(logits, labels.int()), loss(logits, labels))
    assert loss(logits, F.one_hot(labels, 5).double()).item() == pytest.approx(loss(logits, labels).item(), rel=1e-6)


@pytest.mark.parametrize("which", ["empty", "ignored", "weightless"])
def test_where_nothing_counts_the_mean_is_zero(which: str) -> None:
    logits, labels = batch(torch.float32)
    loss = LogitAdjust(COUNTS, weight=[0.0, 1, 1, 1, 1])
    if which == "empty":
        logits, labels = logits[:0], labels[:0]
    labels = torch.full_like(labels, -100 if which == "ignored" else 0)
    logits.requires_grad_()
    result = loss(logits, labels)
    assert result.item() == 0
    (gradient,) = torch.autograd.grad(result, logits)
    assert torch.equal(gradient, torch.zeros_like(logits))


def test_a_class_without_samples_takes_no_part() -> None:
    """Probability 0 and gradient 0, with labels and with class probabilities, as if its column were not there."""
    counts = [10, 0, 5]
    loss, without = LogitAdjust(counts, dtype=torch.float64), LogitAdjust([10, 5], dtype=torch.float64)
    logits = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 2, 2, 0])
    rest = logits.detach()[:, [0, 2]].requires_grad_()
    cases = [(labels, labels // 2), (F.one_hot(labels, 3).double(), F.one_hot(labels // 2, 2).double())]
    for full, small in cases:
        got, want = loss(logits, full), without(rest, small)
        torch.testing.assert_close(got, want, **CLOSE64)
        (gradient,), (expected,) = torch.autograd.grad(got, logits), torch.autograd.grad(want, rest)
        torch.testing.assert_close(gradient[:, [0, 2]], expected, **CLOSE64)
        assert torch.equal(gradient[:, 1], torch.zeros(4, dtype=torch.float64))


def test_a_class_without_samples_may_not_be_a_label() -> None:
    loss = LogitAdjust([10, 0, 5])
    message = "labels must not name a class with count 0, got class 1: .* count it in class_counts"
    with pytest.raises(ValueError, match=message):
        loss(torch.zeros(2, 3), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=message):
        loss(torch.zeros(1, 3), torch.tensor([[0.5, 0.1, 0.4]]))
    with pytest.raises(ValueError, match=r"label_smoothing must be 0 when a class has count 0, got 0\.1"):
        LogitAdjust([10, 0, 5], label_smoothing=0.1)
    plain = LogitAdjust([10, 0, 5], strength=0.0)
    assert plain(torch.zeros(1, 3), torch.tensor([1])).item() == pytest.approx(math.log(3), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", [LogitAdjust, TemperatureLogitAdjust])
def test_half_precision_leaves_the_prior_alone(kind: type, dtype: torch.dtype) -> None:
    logits, labels = batch(torch.float32)
    loss, half = kind(COUNTS, weight=[1, 2, 3, 4, 5.1]), kind(COUNTS, weight=[1, 2, 3, 4, 5.1]).to(dtype)
    assert torch.equal(half.log_prior, loss.log_prior)
    assert torch.equal(half.weight, loss.weight)
    low = logits.to(dtype).requires_grad_()
    result = half(low, labels)
    assert result.dtype == torch.float32
    assert torch.equal(result, loss(low.float(), labels))
    (gradient,) = torch.autograd.grad(result, low)
    assert gradient.dtype == dtype
    model = torch.nn.Sequential(torch.nn.Linear(2, 5), kind(COUNTS)).to(dtype)
    assert (model[0].weight.dtype, model[1].log_prior.dtype) == (dtype, torch.float32)


def test_other_conversions_are_as_usual() -> None:
    loss = LogitAdjust(COUNTS, dtype=torch.float64)
    assert loss.log_prior.dtype == torch.float64
    assert loss.half().log_prior.dtype == torch.float64
    assert loss.float().log_prior.dtype == torch.float32
    assert loss.double().log_prior.dtype == torch.float64
    assert LogitAdjust(COUNTS).to("meta").half().log_prior.device.type == "meta"


def test_autocast_computes_in_float32() -> None:
    logits, labels = batch(torch.float32)
    loss = TemperatureLogitAdjust(COUNTS)
    plain = loss(logits, labels)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(loss(logits, labels), plain)
        layer = torch.nn.Linear(3, 5)
        assert loss(layer(torch.ones(8, 3)), labels).dtype == torch.float32


def test_state_dict_round_trip() -> None:
    logits, labels = batch(torch.float32)
    one, other = LogitAdjust(COUNTS, 1.5, weight=[1, 2, 3, 4, 5]), LogitAdjust([1] * 5, weight=[1] * 5)
    assert set(one.state_dict()) == {"log_prior", "weight"}
    assert set(LogitAdjust(COUNTS).state_dict()) == {"log_prior"}
    other.load_state_dict(one.state_dict())
    assert torch.equal(other(logits, labels), one(logits, labels))
    for twin in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert torch.equal(twin(logits, labels), one(logits, labels))


def test_the_weights_are_a_copy() -> None:
    weight = torch.ones(5, dtype=torch.float64)
    loss = LogitAdjust(COUNTS, weight=weight, dtype=torch.float64)
    weight.zero_()
    assert loss.weight is not None
    assert loss.weight.sum() == 5


def test_torch_func_and_compile() -> None:
    logits, labels = batch()
    loss = TemperatureLogitAdjust(COUNTS, dtype=torch.float64)

    def single(row: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return loss(row[None], label[None])

    leaf = logits.clone().requires_grad_()
    (want,) = torch.autograd.grad(loss(leaf, labels) * 8, leaf)
    torch.testing.assert_close(vmap(grad(single))(logits, labels), want, **CLOSE64)
    torch._dynamo.reset()
    (got,) = torch.autograd.grad(torch.compile(loss, fullgraph=True)(leaf, labels) * 8, leaf)
    torch.testing.assert_close(got, want, **CLOSE64)


@pytest.mark.parametrize(
    ("logits", "labels", "error", "message"),
    [
        (
            torch.zeros(2, 4),
            torch.zeros(2).long(),
            ValueError,
            r"logits must have shape \(batch, 5\), one column for each entry of class_counts",
        ),
        (torch.zeros(5), torch.zeros(1).long(), ValueError, r"logits must have shape \(batch, 5\)"),
        (torch.zeros(2, 5).long(), torch.zeros(2).long(), TypeError, "logits must have dtype float32 or float64"),
        (torch.full((1, 5), torch.nan), torch.zeros(1).long(), ValueError, r"logits must not be NaN or \+inf"),
        (torch.full((1, 5), torch.inf), torch.zeros(1).long(), ValueError, r"logits must not be NaN or \+inf"),
        (
            torch.zeros(2, 5),
            torch.zeros(3).long(),
            ValueError,
            r"labels must be integers of shape \(2,\) or class probabilities of shape \(2, 5\)",
        ),
        (torch.zeros(2, 5), torch.zeros(2).bool(), ValueError, "labels must be integers"),
        (
            torch.zeros(2, 5),
            torch.zeros(2),
            ValueError,
            r"labels of a floating dtype are class probabilities and must have the shape of logits, \(2, 5\), .* labels.long\(\)",
        ),
        (torch.zeros(2, 5), torch.tensor([0, 5]), ValueError, r"labels must lie in \[0, 4\] or be ignore_index = -100, got the label 5"),
        (torch.zeros(2, 5), torch.tensor([-1, 0]), ValueError, "got the label -1"),
        (torch.zeros(1, 5), torch.full((1, 5), -0.2), ValueError, "labels that are class probabilities must be finite and >= 0"),
        (torch.zeros(1, 5), torch.full((1, 5), torch.nan), ValueError, "labels that are class probabilities must be finite and >= 0"),
        (torch.zeros(1, 5), [0], TypeError, r"labels must be a tensor of integers or of class probabilities, got \[0\]"),
        (torch.zeros(1, 5), torch.zeros(1, device="meta").long(), ValueError, "logits and labels must be on one device, got cpu and meta"),
        (torch.zeros(1, 5, device="meta"), torch.zeros(1).long(), ValueError, "logits must be on the device of the prior, cpu"),
    ],
)
def test_forward_errors(logits: torch.Tensor, labels: torch.Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        LogitAdjust(COUNTS)(logits, labels)


def test_a_masked_logit_is_allowed() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 1.0]])
    assert LogitAdjust([1, 1, 1])(logits, torch.tensor([0])).item() == pytest.approx(math.log1p(math.e), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"temperature": 0.0}, ValueError, "temperature must be a finite number > 0, got 0.0"),
        ({"temperature": math.inf}, ValueError, "temperature must be a finite number > 0, got inf"),
        ({"temperature": "0.9"}, TypeError, "temperature must be a finite number > 0, got '0.9'"),
        ({"strength": -1.0}, ValueError, "strength must be a finite number >= 0, got -1.0"),
        ({"strength": math.nan}, ValueError, "strength must be a finite number >= 0, got nan"),
        ({"label_smoothing": 1.5}, ValueError, r"label_smoothing must be a number in \[0, 1\], got 1.5"),
        ({"ignore_index": 0.0}, TypeError, "ignore_index must be an integer, got 0.0"),
        ({"reduction": "avg"}, ValueError, "reduction must be one of"),
        ({"weight": [1.0, 2.0]}, ValueError, "weight must have one entry for each of the 5 classes, got 2"),
        ({"weight": [1.0, 2.0, -1.0, 0.0, 0.0]}, ValueError, "weight must be finite and >= 0, got values from -1 to 2"),
        ({"dtype": torch.int64}, TypeError, "dtype must be torch.float32, torch.float64"),
    ],
)
def test_constructor_errors(options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TemperatureLogitAdjust(COUNTS, **options)


def test_class_probabilities_and_an_ignored_class_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="labels must be integers when ignore_index is a class, got ignore_index = 2"):
        LogitAdjust(COUNTS, ignore_index=2)(torch.zeros(1, 5), torch.full((1, 5), 0.2))


def test_repr() -> None:
    assert (
        repr(TemperatureLogitAdjust(COUNTS, 0.7)) == "TemperatureLogitAdjust(num_classes=5, temperature=0.7, strength=1, reduction='mean')"
    )
