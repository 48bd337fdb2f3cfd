"""The update of a class bank as a Triton kernel, in Triton's interpreter, against the update with torch."""

from __future__ import annotations

import copy
import importlib.util
import os
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import functional as F

import pairgrad as pg

if importlib.util.find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs triton and its interpreter, TRITON_INTERPRET=1", allow_module_level=True)

from pairgrad.losses.fused import triton_bank
from pairgrad.sphere.state import Classes

if TYPE_CHECKING:
    from pairgrad.sphere.bank import Touched

EPS = torch.finfo(torch.float32).eps
# Features of unit length, summed in another order: a rounding for each level of a tree of 16, and one for the length.
ROUNDINGS = 5
STATE = ("sums", "compensation", "counts", "_norms", "_concentrations", "_rates")


def _views(num_views: int, batch: int, dim: int, *, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_views, batch, dim, generator=torch.Generator().manual_seed(seed))


def _by_triton(bank: pg.ClassBank, views: torch.Tensor, labels: torch.Tensor, *, normalize: bool = True) -> Touched:
    assert triton_bank.supports(bank) is None
    with bank.updating():
        return triton_bank.absorb(bank, views, labels, normalize=normalize)


def _close(actual: torch.Tensor, expected: torch.Tensor, size: torch.Tensor | float, what: str) -> None:
    """Within a few roundings of `size`."""
    assert actual.shape == expected.shape, what
    error = ((actual.double() - expected.double()).abs() / size).amax().item() if actual.numel() else 0.0
    assert error <= ROUNDINGS * EPS, f"{what}: {error / EPS:.2f} eps"


def _derived(bank: pg.ClassBank, rows: torch.Tensor, counts: torch.Tensor, found: Any) -> None:
    """Concentrations and rates are those of the rows, to the rounding of float32."""
    norms = torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)
    concentration = bank.rule(norms / counts, counts)
    rates = concentration / norms.masked_fill(norms == 0, torch.inf)
    for name, exact in (("concentration", concentration), ("rates", rates)):
        torch.testing.assert_close(getattr(found, name), exact.float(), rtol=EPS, atol=0)


def _compare(bank: pg.ClassBank, views: torch.Tensor, labels: torch.Tensor, *, normalize: bool = True) -> Touched:
    """Update the bank with the kernel, and a copy of it with torch, view by view; both must agree in everything."""
    other = copy.deepcopy(bank)
    touched = _by_triton(bank, views, labels, normalize=normalize)
    features = views.to(torch.float32)
    features = F.normalize(features, dim=-1) if normalize else features
    assert torch.equal(touched.labels, labels)
    assert [tuple(t.shape) for t in touched[:3]] == [tuple(views.shape), tuple(views.shape[:2]), tuple(views.shape[:2])]
    for number, view in enumerate(features):
        other.update(view, labels)
        counts = other.counts[labels]
        _close(touched.rows[number], other.sums[labels], counts[:, None], f"rows of view {number}")
        _derived(bank, touched.rows[number], counts, Classes(*(tensor[number] for tensor in touched.states())))
    assert torch.equal(bank.counts, other.counts)
    sums = [each.sums.double() + each.compensation.double() for each in (bank, other)]
    _close(*sums, bank.counts.clamp_min(1.0)[:, None], "sums in two words")
    seen = bank.counts > 0
    rows, rates, concentration = (tensor[seen] for tensor in bank.classes())
    _derived(bank, rows, bank.counts[seen], Classes(rows, rates, concentration))
    norms = torch.linalg.vector_norm(bank.sums, dim=1, dtype=torch.float64) / bank.counts.clamp_min(1.0)
    torch.testing.assert_close(bank.resultant_length, norms, rtol=1e-14, atol=0)
    for one, first in enumerate(touched.slots.tolist()):
        assert first == labels.tolist().index(int(labels[one]))
    return touched


LABELS = {
    "distinct": torch.tensor([4, 0, 6, 2, 5]),
    "repeated": torch.tensor([1, 4, 1, 3, 4, 1, 0]),
    "equal": torch.full((19,), 2),
    "one": torch.tensor([3]),
    "none": torch.empty(0, dtype=torch.int64),
    "expanded": torch.tensor([6]).expand(4),
    "strided": torch.tensor([1, 0, 1, 0, 6, 0, 1, 0])[::2],
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("num_views", [1, 2, 3])
def test_an_update_is_that_of_torch(num_views: int, labels: torch.Tensor) -> None:
    bank = pg.ClassBank(7, 33)
    for step in range(2):  # classes without samples, then with
        _compare(bank, _views(num_views, len(labels), 33, seed=step), labels)


@pytest.mark.parametrize(
    "options",
    [
        {"decay": 0.9},
        {"small_samples": "unbiased"},
        {"small_samples": "unbiased", "decay": 0.5},
        {"cap": 20.1},
        {"unseen": "uniform"},
        {"on_resultant_above_one": "normalize"},
        {"memory": "two-epochs"},
        {"memory": "two-epochs", "decay": 0.9},
    ],
    ids=str,
)
def test_options_of_the_bank(options: dict[str, Any]) -> None:
    bank = pg.ClassBank(5, 30, **options)
    for step in range(3):
        _compare(bank, _views(2, 5, 30, seed=step), torch.tensor([0, 3, 3, 1, 3]), normalize="on_resultant_above_one" not in options)


@pytest.mark.parametrize("decay", [None, 0.5])
def test_two_epochs(decay: float | None) -> None:
    """What was collected for the next epoch is what torch collects."""
    bank = pg.ClassBank(5, 30, memory="two-epochs", decay=decay)
    other = copy.deepcopy(bank)
    labels = torch.tensor([0, 3, 3, 1, 3])
    for step in range(2):
        views = F.normalize(_views(2, 5, 30, seed=step), dim=-1)
        _by_triton(bank, views, labels, normalize=False)
        for view in views:
            other.update(view, labels)
    for each in (bank, other):
        each.start_epoch(generator=torch.Generator().manual_seed(0))
    assert torch.equal(bank.counts, other.counts)
    _close(bank.sums, other.sums, bank.counts.clamp_min(1.0)[:, None], "sums")
    _compare(bank, _views(1, 5, 30, seed=2), labels)


def test_features_are_summed_as_they_are_unless_they_are_normalised() -> None:
    bank = pg.ClassBank(3, 33)
    _compare(bank, 0.3 * F.normalize(_views(2, 4, 33), dim=-1), torch.tensor([2, 0, 2, 0]), normalize=False)
    assert bank.resultant_length[0] < 0.3


def test_a_resultant_above_one_gets_the_cap() -> None:
    bank = pg.ClassBank(2, 30)
    _by_triton(bank, 7 * F.normalize(_views(1, 2, 30), dim=-1), torch.tensor([0, 1]), normalize=False)
    assert bank.concentration.tolist() == [1e5, 1e5]


def test_a_resultant_of_exactly_one_gets_the_cap() -> None:
    bank = pg.ClassBank(2, 30)
    _compare(bank, torch.eye(30)[None, :2], torch.tensor([1, 0]))
    assert bank.resultant_length.tolist() == [1, 1]
    assert bank.concentration.tolist() == [1e5, 1e5]


def test_a_feature_that_is_too_short_for_a_unit_length() -> None:
    _compare(pg.ClassBank(2, 30), 1e-13 * F.normalize(_views(1, 2, 30), dim=-1), torch.tensor([1, 0]))


def test_a_feature_of_length_zero_stays_zero_and_gives_no_direction() -> None:
    bank = pg.ClassBank(2, 30)
    touched = _by_triton(bank, torch.zeros(1, 1, 30), torch.tensor([1]))
    assert bank.concentration[1] == 0
    assert (touched.rates[0, 0], touched.concentration[0, 0], touched.rows.abs().max()) == (0, 0, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_features(dtype: torch.dtype) -> None:
    bank = pg.ClassBank(4, 64)
    _compare(bank, _views(2, 5, 64).to(dtype), torch.tensor([0, 3, 3, 1, 3]))


@pytest.mark.parametrize(
    "views",
    [
        _views(5, 2, 33).transpose(0, 1),
        _views(2, 33, 5).transpose(1, 2),
        _views(2, 5, 66)[..., ::2],
        _views(1, 5, 33).expand(2, 5, 33),
        _views(2, 1, 33).expand(2, 5, 33),
        _views(4, 10, 40)[::3, 1::2, 4:37],
    ],
    ids=["views inside", "coordinates outside", "every second", "one view", "one sample", "slices"],
)
def test_strided_and_expanded_views(views: torch.Tensor) -> None:
    _compare(pg.ClassBank(4, 33), views, torch.tensor([0, 3, 3, 1, 3]))


@pytest.mark.parametrize("batch", [16, 17, pytest.param(1100, marks=pytest.mark.slow)])
def test_samples_of_a_class_far_apart(batch: int) -> None:
    """In different blocks of labels and features, with blocks in between that have none."""
    labels = torch.ones(batch, dtype=torch.int64).index_fill_(0, torch.tensor([1, batch - 1]), 2)
    labels[3] = 0
    _compare(pg.ClassBank(3, 64), _views(1, batch, 64), labels)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [30, 64, 1024, 8192])
def test_dimensions(dim: int) -> None:
    bank = pg.ClassBank(1000, dim)
    labels = torch.randint(0, 40, (32,), generator=torch.Generator().manual_seed(0))
    for step in range(2):
        _compare(bank, _views(2, 32, dim, seed=step), labels)


def test_the_same_bits_every_time_and_nothing_else_is_written() -> None:
    views, labels = _views(2, 7, 33), torch.tensor([1, 4, 1, 3, 4, 1, 0])
    first = pg.ClassBank(9, 33)
    before, second = copy.deepcopy(first), copy.deepcopy(first)
    touched = [_by_triton(bank, views, labels) for bank in (first, second)]
    for one, other in zip(*(each[:5] for each in touched), strict=True):
        assert torch.equal(one, other)
    absent = torch.tensor([2, 5, 6, 7, 8])
    for name in STATE:
        assert torch.equal(getattr(first, name), getattr(second, name))
        assert torch.equal(getattr(first, name)[absent], getattr(before, name)[absent])


def test_a_label_that_names_no_class_writes_nothing_and_gives_nan() -> None:
    """As where checks are switched off: never a number that could be taken for a result."""
    bank = pg.ClassBank(3, 33, validate=False)
    expected = copy.deepcopy(bank)
    views = _views(1, 4, 33)
    touched = _by_triton(bank, views, torch.tensor([0, -100, 3, 0]))
    _by_triton(expected, views[:, [0, 3]], torch.tensor([0, 0]))
    for name in STATE:
        assert torch.equal(getattr(bank, name), getattr(expected, name))
    for tensor in (touched.rates, touched.concentration):
        assert torch.isnan(tensor[0]).tolist() == [False, True, True, False]


def test_features_that_are_not_numbers_show_in_their_class_alone() -> None:
    bank = pg.ClassBank(3, 33, validate=False)
    views = _views(1, 2, 33)
    views[0, 1, 5] = torch.nan
    _by_triton(bank, views, torch.tensor([0, 2]))
    assert torch.isnan(bank.concentration).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"estimator": "mle"}, "estimator='mle'"),
        ({"on_resultant_above_one": "error"}, "on_resultant_above_one='error'"),
        ({"dtype": torch.float64}, "float64"),
        ({"dim": 8193}, "dim = 8193"),
        ({}, None),
    ],
    ids=str,
)
def test_the_reason_why_a_bank_is_updated_with_torch(options: dict[str, Any], reason: str | None) -> None:
    found = triton_bank.supports(pg.ClassBank(**{"num_classes": 2, "dim": 30, **options}))
    assert found is None if reason is None else reason in str(found)


def test_buffers_that_are_not_contiguous_are_left_to_torch() -> None:
    bank = pg.ClassBank(4, 30)
    bank.load_state_dict({**bank.state_dict(), "sums": torch.zeros(30, 4).T}, assign=True)
    assert "contiguous" in str(triton_bank.supports(bank))


def test_inference_tensors_are_refused_before_anything_is_written() -> None:
    with torch.inference_mode():
        bank = pg.ClassBank(3, 30)
    before = bank.sums.clone()
    with pytest.raises(RuntimeError, match="inference tensors"):
        triton_bank.absorb(bank, _views(1, 2, 30), torch.tensor([0, 1]), normalize=True)
    assert torch.equal(bank.sums, before)


def test_features_that_need_gradients_get_none() -> None:
    bank = pg.ClassBank(3, 30)
    touched = _by_triton(bank, _views(1, 2, 30).requires_grad_(), torch.tensor([0, 1]))
    assert not touched.rows.requires_grad


@pytest.mark.parametrize("batch", [0, 3])
def test_the_operator_keeps_the_rules_of_torch(batch: int) -> None:
    bank = pg.ClassBank(4, 30)
    state = [getattr(bank, name) for name in STATE]
    labels = torch.tensor([1, 0, 1])[:batch]
    for decay in (None, 0.5):
        arguments = (*state, _views(2, batch, 30), labels, True, False, 1e5, decay)
        torch.library.opcheck(torch.ops.pairgrad.vmf_bank_update, arguments)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_one_graph_under_torch_compile(backend: str) -> None:
    bank = pg.ClassBank(4, 30)
    expected = copy.deepcopy(bank)
    views, labels = _views(2, 5, 30), torch.tensor([0, 3, 3, 1, 3])

    @torch.compile(fullgraph=True, backend=backend)
    def step(views: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        touched = triton_bank.absorb(bank, views, labels, normalize=True)
        return touched.rates * 2 + bank._rates.index_select(0, labels)

    result = step(views, labels)
    touched = _by_triton(expected, views, labels)
    assert torch.equal(result, touched.rates * 2 + expected.classes().rates.index_select(0, labels))
    for name in STATE:
        assert torch.equal(getattr(bank, name), getattr(expected, name))


@pytest.mark.parametrize("length", [2.0**24, 2.0**-12])
def test_what_one_word_cannot_hold_is_in_the_other(length: float) -> None:
    """A sum of 2^24 features is rounded to multiples of 1 in one word; a small sum is rounded when a feature is added."""
    bank = pg.ClassBank(1, 30)
    start = length * F.normalize(_views(1, 1, 30), dim=-1)[0]
    bank.load_state_dict({**bank.state_dict(), "sums": start, "counts": torch.tensor([2.0**25], dtype=torch.float64)})
    exact = start.double()
    for step in range(10):
        views = F.normalize(_views(2, 1, 30, seed=step), dim=-1)
        _by_triton(bank, views, torch.tensor([0]), normalize=False)
        exact += views.double().sum(0)
    # the low word is below the rounding of the high one, and is itself rounded with each of the 20 additions
    assert (bank.sums.double() + bank.compensation.double() - exact).abs().max() <= 20 * EPS * EPS * exact.abs().max()
    assert torch.equal(bank.sums, exact.float())


@pytest.mark.slow
def test_a_thousand_updates_do_not_drift() -> None:
    bank = pg.ClassBank(2, 30)
    exact, labels = torch.zeros(2, 30, dtype=torch.float64), torch.tensor([0, 1, 0])
    for step in range(1000):
        views = F.normalize(_views(2, 3, 30, seed=step) + 1, dim=-1)
        _by_triton(bank, views, labels, normalize=False)
        exact.index_add_(0, labels, views.double().sum(0))
    assert bank.counts.tolist() == [4000, 2000]
    # each sum of two features rounds once, by half an eps of a number below 1: at most 1000 times, and not at all when it is added
    error = (bank.sums.double() + bank.compensation.double() - exact).abs().max()
    assert error <= 1000 * 2 * EPS / 2, error
    assert (bank.sums.double() - exact).abs().max() / 2000 < EPS
