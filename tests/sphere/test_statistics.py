"""Sums and counts: exact within a batch, compensated over updates, against rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch.overrides import TorchFunctionMode

import pairgrad as pg
from pairgrad.sphere.statistics import Batch, Statistics, _two_words, absorbed, gathered

U = 2.0**-24  # unit roundoff of float32
LONG_RUN = 1e-6  # what the bank promises after a million updates, relative to the exact sum

# Per update the low word is rounded twice, each time by at most u |low| <= u (2 u |high|): 4 u^2 = 1.5e-14 of the sum. Over n updates of equal
# addends the sum itself grows like n, so that the errors add up to at most 2 n u^2 of it: 7.2e-9 after a million.
PER_UPDATE = 2 * U * U


def dyadic(*shape: int, bits: int = 12, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random numbers k / 2^bits with |k| < 2^(bits - 1): sums of some thousand of them are exact in float32."""
    return torch.randint(1 - 2 ** (bits - 1), 2 ** (bits - 1), shape).to(dtype) / 2**bits


def fractions(tensor: torch.Tensor) -> list:
    return [fractions(part) for part in tensor] if tensor.dim() else Fraction(tensor.item())


def exact(rows: Statistics) -> list[list[Fraction]]:
    """high + low as rationals."""
    both = zip(fractions(rows.high), fractions(rows.low), strict=True)
    return [[h + l for h, l in zip(high, low, strict=True)] for high, low in both]


def empty(classes: int, dim: int, dtype: torch.dtype = torch.float32) -> Statistics:
    words = (torch.zeros(classes, dim, dtype=dtype) for _ in range(2))
    return Statistics(*words, torch.zeros(classes, dtype=torch.float64))


@pytest.mark.parametrize("labels", [[4], [2, 2, 2], [0, 1, 2], [5, 0, 5, 3, 0, 5, 1], [1, 0], list(range(9, -1, -1)) * 2, []])
def test_gathered_is_a_dictionary_of_sums(labels: list[int]) -> None:
    views = dyadic(3, len(labels), 2)
    batch = gathered(views, torch.tensor(labels, dtype=torch.int64))
    assert batch.labels.tolist() == labels
    assert batch.slots.tolist() == [labels.index(label) for label in labels]
    assert batch.multiplicity.tolist() == [labels.count(label) for label in labels]
    assert batch.multiplicity.dtype == torch.float64
    assert len(batch.totals) == 3
    for view, total in zip(fractions(views), batch.totals, strict=True):
        want = [[sum(x[i] for x, other in zip(view, labels, strict=True) if other == label) for i in range(2)] for label in labels]
        assert fractions(total) == want


def test_gathered_leaves_its_arguments_alone() -> None:
    views, labels = dyadic(2, 5, 3), torch.tensor([3, 1, 3, 3, 0])
    before = views.clone(), labels.clone()
    gathered(views, labels)
    assert torch.equal(views, before[0])
    assert torch.equal(labels, before[1])


@pytest.mark.parametrize("repeatable", [False, True])
def test_on_the_cpu_classes_are_summed_in_the_order_of_the_batch(repeatable: bool) -> None:
    """index_add_ does that. index_put_ adds float32 with several threads at once, in any order, if the batch is large."""
    names = []

    class Recorded(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), options=None):
            names.append(function.__name__)
            return function(*arguments, **(options or {}))

    with Recorded():
        gathered(dyadic(2, 5, 3), torch.tensor([3, 1, 3, 3, 0]), repeatable=repeatable)
    assert names.count("index_add_") == 3  # two views and the counts
    assert "index_put_" not in names


def test_merged_is_all_views_as_one() -> None:
    views, labels = dyadic(3, 4, 2), torch.tensor([1, 0, 1, 1])
    merged = gathered(views, labels).merged()
    concatenated = gathered(views.reshape(1, 12, 2), labels.repeat(3))
    assert len(merged.totals) == 1
    assert torch.equal(merged.totals[0], concatenated.totals[0][:4])
    assert merged.multiplicity.tolist() == [9, 3, 9, 9]
    one = gathered(views[:1], labels)
    assert one.merged() is one


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_absorbed_is_the_sum_count_update_exactly(dtype: torch.dtype) -> None:
    """40 batches of 9 samples in 3 views, with repeated labels: sums and counts equal the rational ones after every view."""
    dim, classes = 3, 4
    held = empty(classes, dim, dtype)
    sums, counts = [[Fraction(0)] * dim for _ in range(classes)], [0] * classes
    for _ in range(40):
        views, labels = dyadic(3, 9, dim, dtype=dtype), torch.randint(classes, (9,))
        after = absorbed(held.rows(labels), gathered(views, labels), None)
        assert len(after) == 3
        for view, rows in zip(fractions(views), after, strict=True):
            for feature, label in zip(view, labels.tolist(), strict=True):
                sums[label] = [a + b for a, b in zip(sums[label], feature, strict=True)]
                counts[label] += 1
            assert exact(rows) == [sums[label] for label in labels.tolist()]
            assert rows.counts.tolist() == [counts[label] for label in labels.tolist()]
        held.write(labels, after[-1])
    assert exact(held) == sums
    assert held.counts.tolist() == counts


def test_the_first_samples_replace_what_was_there_and_only_they() -> None:
    rows = Statistics(torch.full((2, 3), 0.75), torch.full((2, 3), 2.0**-30), torch.tensor([0.0, 1.0], dtype=torch.float64))
    views = dyadic(2, 2, 3)
    first, second = absorbed(rows, gathered(views, torch.tensor([0, 1])), None)
    assert torch.equal(first.high[0], views[0, 0])
    assert not first.low[0].any()
    assert exact(first)[1] == [Fraction(0.75) + Fraction(2.0**-30) + x for x in fractions(views[0, 1])]
    assert exact(second)[0] == [x + y for x, y in zip(fractions(views[0, 0]), fractions(views[1, 0]), strict=True)]
    assert first.counts.tolist() == [1, 2]
    assert second.counts.tolist() == [2, 3]


def test_decay_forgets_at_every_view_in_which_the_class_occurs() -> None:
    """With the factor 1/2 everything is exact: S <- S / 2 + s, n <- n / 2 + m; the first samples still replace all."""
    labels = torch.tensor([0, 1, 0])
    held = empty(2, 2)._replace(high=torch.full((2, 2), 0.75))
    sums, counts = [[Fraction(0)] * 2 for _ in range(2)], [Fraction(0)] * 2
    for _ in range(6):
        views = dyadic(2, 3, 2)
        after = absorbed(held.rows(labels), gathered(views, labels), 0.5)
        for view, rows in zip(fractions(views), after, strict=True):
            for label in (0, 1):
                mine = [x for x, other in zip(view, labels.tolist(), strict=True) if other == label]
                sums[label] = [a / 2 + sum(x[i] for x in mine) for i, a in enumerate(sums[label])]
                counts[label] = counts[label] / 2 + len(mine)
            assert exact(rows) == [sums[label] for label in labels.tolist()]
            assert rows.counts.tolist() == [counts[label] for label in labels.tolist()]
        held.write(labels, after[-1])


@pytest.mark.parametrize("default", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_and_counts_forget_by_one_factor_whatever_the_default_dtype(dtype: torch.dtype, default: torch.dtype) -> None:
    """The factor rounded to the dtype of the sums, for both; else the resultant length would run away from the mean's."""
    batch = gathered(torch.ones(2, 1, 2, dtype=dtype), torch.tensor([0]))
    previous = torch.get_default_dtype()
    try:
        torch.set_default_dtype(default)
        after = absorbed(empty(1, 2, dtype), batch, 0.999)
        after += absorbed(after[-1], batch, 0.999)
    finally:
        torch.set_default_dtype(previous)
    factor, want = torch.tensor(0.999, dtype=dtype).double().item(), 0.0
    for rows in after:  # two views, twice
        want = want * factor + 1
        assert rows.counts.item() == pytest.approx(want, rel=8 * 2.0**-53)
        assert exact(rows)[0][0] == pytest.approx(want, rel=4 * torch.finfo(dtype).eps)  # the product with the factor is rounded
    assert after[0].counts.dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_words_lose_nothing_whichever_is_larger(dtype: torch.dtype) -> None:
    """With an empty low word high + addend is exact, over forty orders of magnitude of their quotient in base 2; and the result is normalised."""
    scale = torch.exp2(torch.arange(-20, 21, dtype=dtype))[:, None]
    high, addend = torch.rand(41, 50, dtype=dtype) - 0.5, scale * (torch.rand(41, 50, dtype=dtype) - 0.5)
    top, low = _two_words(high, torch.zeros_like(high), addend)
    got = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(fractions(top), fractions(low), strict=True)]
    want = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(fractions(high), fractions(addend), strict=True)]
    assert got == want
    assert torch.equal(top + low, top)


def test_two_words_carry_the_old_low_word_and_are_renormalised() -> None:
    high, low = torch.tensor([1.0, 1.0, 2.0**24]), torch.tensor([2.0**-25, -(2.0**-26), 1.0])
    top, rest = _two_words(high, low, torch.tensor([2.0**-25, 0.0, 1.0]))
    assert top.tolist() == [1.0, 1.0, 2.0**24 + 2]
    assert rest.tolist() == [2.0**-24, -(2.0**-26), 0.0]
    top, rest = _two_words(torch.tensor([1.0]), torch.tensor([2.0**-24]), torch.tensor([2.0**-24]))
    assert (top.item(), rest.item()) == (1 + 2.0**-23, 0.0)


def test_two_words_cancel_to_zero() -> None:
    high, low = _two_words(torch.tensor([0.3]), torch.tensor([0.0]), torch.tensor([1e-9]))
    high, low = _two_words(high, low, torch.tensor([-0.3]))
    assert (high.item(), low.item()) == (pytest.approx(1e-9, rel=U), 0.0)
    high, low = _two_words(high, low, -high)
    assert (high.item(), low.item()) == (0.0, 0.0)


def drifts(updates: int, per_call: int) -> tuple[float, float]:
    """Relative errors of (high + low, plain float32 accumulation) after so many updates by the same three samples."""
    features, labels = torch.tensor([[0.1, 0.7], [0.3, -0.9], [1e-3, 1 / 3]]), torch.tensor([0, 1, 2])
    batch = gathered(features.expand(per_call, 3, 2), labels)
    rows, plain = empty(3, 2), torch.zeros(3, 2)
    for _ in range(updates // per_call):
        rows = absorbed(rows, batch, None)[-1]
        for _ in range(per_call):
            plain = plain + features
    truth = [[updates * x for x in row] for row in fractions(features)]
    assert rows.counts.tolist() == [updates] * 3
    cells = [(i, j) for i in range(3) for j in range(2)]
    ours = max(abs(exact(rows)[i][j] / truth[i][j] - 1) for i, j in cells)
    theirs = max(abs(Fraction(plain[i, j].item()) / truth[i][j] - 1) for i, j in cells)
    return float(ours), float(theirs)


def test_a_long_run_does_not_drift() -> None:
    ours, plain = drifts(20_000, 50)
    assert ours <= 20_000 * PER_UPDATE
    assert ours <= LONG_RUN < plain


@pytest.mark.slow
def test_a_million_updates_do_not_drift() -> None:
    ours, plain = drifts(1_000_000, 200)
    assert ours <= 1_000_000 * PER_UPDATE <= LONG_RUN < 1e-3 < plain


@torch.no_grad()
def test_compiled_code_keeps_the_compensation() -> None:
    """A compiler that may reorder additions would find that the low word is always zero; pg.compile lets it contract products and sums."""
    torch._dynamo.reset()
    labels = torch.tensor([0, 1, 0])

    def step(high: torch.Tensor, low: torch.Tensor, counts: torch.Tensor, views: torch.Tensor) -> Statistics:
        return absorbed(Statistics(high, low, counts), gathered(views, labels), None)[-1]

    compiled = pg.compile(step)
    got = want = empty(3, 4).rows(labels)
    for _ in range(60):
        views = torch.rand(2, 3, 4)
        got, want = compiled(*got, views), step(*want, views)
    assert want.low.any()
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b)


def test_rows_and_write_touch_what_is_named() -> None:
    held = Statistics(dyadic(5, 2), dyadic(5, 2), torch.arange(5, dtype=torch.float64))
    before = Statistics(*(tensor.clone() for tensor in held))
    labels = torch.tensor([3, 1, 3])
    rows = held.rows(labels)
    for whole, part in zip(before, rows, strict=True):
        assert torch.equal(part, whole[labels])
    held.write(labels, Statistics(*(tensor + 1 for tensor in rows)))
    for old, new in zip(before, held, strict=True):
        assert torch.equal(new[[1, 3]], old[[1, 3]] + 1)
        assert torch.equal(new[[0, 2, 4]], old[[0, 2, 4]])


def test_the_shapes_depend_on_the_batch_alone() -> None:
    """No row per sample and class: a batch looks the same whether its labels come from three classes or from a billion."""
    views = dyadic(1, 3, 2)
    small, large = gathered(views, torch.tensor([2, 0, 2])), gathered(views, torch.tensor([10**9, 5, 10**9]))
    assert isinstance(large, Batch)
    assert torch.equal(small.slots, large.slots)
    assert torch.equal(small.totals[0], large.totals[0])
    assert torch.equal(small.multiplicity, large.multiplicity)


@pytest.mark.parametrize("repeatable", [False, True])
def test_rows_that_are_sums_already_carry_how_many_they_stand_for(repeatable: bool) -> None:
    """Summed in two parts, as two processes do, and then together: the same as at once."""
    views, labels = dyadic(2, 9, 3), torch.tensor([4, 1, 4, 0, 1, 4, 2, 0, 4])
    parts = [gathered(views[:, half], labels[half]) for half in (slice(0, 5), slice(5, 9))]
    totals, places, numbers = [], [], []
    for part in parts:
        first = part.slots == torch.arange(len(part.slots))
        totals.append(torch.stack(part.totals) * first[:, None])
        places.append(part.labels)
        numbers.append(part.multiplicity * first)
    both = gathered(torch.cat(totals, 1), torch.cat(places), torch.cat(numbers), repeatable=repeatable)
    once = gathered(views, labels)
    for entry, label in enumerate(both.labels.tolist()):
        place = labels.tolist().index(label)
        assert both.multiplicity[entry] == once.multiplicity[place]
        for got, wanted in zip(both.totals, once.totals, strict=True):
            assert torch.equal(got[entry], wanted[place])


@pytest.mark.parametrize("decay", [None, 0.5])
def test_a_class_that_is_not_in_the_batch_stays_as_it_is(decay: float | None) -> None:
    """Neither forgotten nor, if nobody has seen it, emptied."""
    rows = Statistics(dyadic(3, 2), torch.zeros(3, 2), torch.tensor([0.0, 4.0, 4.0], dtype=torch.float64))
    labels = torch.tensor([0, 1, 2])
    batch = gathered(
        torch.stack([dyadic(3, 2), dyadic(3, 2)]) * torch.tensor([[0.0], [0.0], [1.0]]), labels, torch.tensor([0, 0, 1.0]).double()
    )
    for after in absorbed(rows, batch, decay):
        for tensor, before in zip(after, rows, strict=True):
            assert torch.equal(tensor[:2], before[:2])
        assert after.counts[2] != rows.counts[2]


def test_a_bank_takes_in_classes_that_do_not_occur() -> None:
    """The state of such a class, seen or not, is what it was, and is finite."""
    bank = pg.ClassBank(4, 3)
    bank.update(torch.eye(3), torch.tensor([1, 1, 2]))
    before = {name: tensor.clone() for name, tensor in bank.named_buffers()}
    touched = bank.absorb_batch(gathered(torch.zeros(1, 3, 3), torch.tensor([0, 1, 3]), torch.zeros(3, dtype=torch.float64)))
    for name, tensor in bank.named_buffers():
        assert torch.equal(tensor, before[name]), name
    assert torch.isfinite(touched.concentration).all()
    assert torch.equal(touched.rows[0], bank.sums[[0, 1, 3]])
