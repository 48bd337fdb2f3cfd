"""The class bank as the module that training code copies, moves, saves, averages and compiles."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import pairgrad as pg
from tests.sphere.banks import (
    DTYPES,
    GOOD,
    LABELS,
    U,
    derived_from_buffers,
    filled,
    snapshot,
    untouched,
)


@pytest.mark.parametrize("memory", ["cumulative", "two-epochs"])
def test_state_dict(memory: str) -> None:
    bank = filled(memory=memory)
    names = {"sums", "compensation", "counts"}
    assert set(bank.state_dict()) == {"_extra_state"} | names | ({"next_" + name for name in names} if memory == "two-epochs" else set())
    assert not list(bank.parameters())
    file = io.BytesIO()
    torch.save(bank.state_dict(), file)
    file.seek(0)
    fresh = pg.ClassBank(4, 3, memory=memory)
    kappa = fresh.concentration
    assert not fresh.load_state_dict(torch.load(file, weights_only=True)).missing_keys
    assert torch.equal(fresh.get_buffer("_concentrations"), bank.concentration)  # at once, without a read in between
    assert not torch.equal(fresh.concentration, kappa)
    for name, tensor in bank.named_buffers():
        assert torch.equal(tensor, fresh.get_buffer(name)), name
    features, labels = torch.rand(5, 3), torch.tensor([0, 3, 1, 1, 1])
    for each in (bank, fresh):
        each.update(features, labels)
        derived_from_buffers(each)
    assert torch.equal(bank.sums, fresh.sums)
    assert torch.equal(bank.compensation, fresh.compensation)


def test_a_state_of_another_memory_is_not_loaded() -> None:
    with pytest.raises(RuntimeError, match="next_sums"):
        pg.ClassBank(4, 3).load_state_dict(filled(memory="two-epochs").state_dict())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sums", torch.nan, "sums of class 2 must be finite numbers in torch.float32, got nan: use a state saved earlier"),
        ("sums", 1e300, "sums of class 2 must be finite numbers in torch.float32, got inf: use a state saved earlier"),
        ("sums", 1e30, r"sums of class 2 must have a mean of length at most 1e\+18"),
        ("compensation", torch.inf, "compensation of class 2 must be finite numbers"),
        ("counts", -1.0, "counts of class 2 must be a finite number >= 0, got -1: use a state saved earlier"),
        ("counts", torch.nan, "counts of class 2 must be a finite number >= 0, got nan"),
        ("next_sums", torch.nan, "next_sums of class 2"),
    ],
)
def test_a_state_that_no_update_could_have_reached_is_refused(name: str, value: float, message: str) -> None:
    """As by `update`: at once, and nothing has changed. Averaged counts, which are fractions, are taken."""
    state = {key: tensor.double() if key != "_extra_state" else tensor for key, tensor in filled(memory="two-epochs").state_dict().items()}
    bank = filled(memory="two-epochs")
    before = snapshot(bank)
    with pytest.raises(ValueError, match=message):
        bank.load_state_dict(state | {name: state[name].index_fill(0, torch.tensor([2]), value)})
    untouched(bank, before)
    bank.load_state_dict(state | {"counts": state["counts"] / 3})


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_loading_by_assignment(dtype: torch.dtype, device: str) -> None:
    """The saved tensors become the buffers: also in a bank without memory of its own, and with another dtype."""
    bank = filled(dtype=dtype)
    fresh = pg.ClassBank(4, 3, device=device)
    saved = {name: tensor.clone() for name, tensor in bank.state_dict().items()}
    fresh.load_state_dict(saved, assign=True)
    assert fresh.sums.data_ptr() == saved["sums"].data_ptr()
    assert torch.equal(fresh.get_buffer("_concentrations"), bank.concentration)
    derived_from_buffers(fresh)
    fresh.update(GOOD, LABELS)
    bank.update(GOOD, LABELS)
    for name, tensor in bank.named_buffers():
        assert torch.equal(tensor, fresh.get_buffer(name)), name


def test_deepcopy() -> None:
    bank = filled(memory="two-epochs", estimator="mle")
    twin = copy.deepcopy(bank)
    bits = {name: tensor.clone() for name, tensor in bank.named_buffers()}
    assert torch.equal(twin.concentration, bank.concentration)
    twin.update(GOOD, LABELS)
    derived_from_buffers(twin)
    for name, tensor in bank.named_buffers():
        assert torch.equal(tensor, bits[name]), name
        assert tensor.data_ptr() != twin.get_buffer(name).data_ptr()


def test_a_copy_has_the_derived_quantities_of_its_original_bit_for_bit() -> None:
    """They were computed row by row as classes changed; computing all of them at once may round differently. Written here so that it would differ."""
    bank = filled()
    with bank.updating() as state:
        state.derived()["_concentrations"].mul_(1 + 2 * U)
    copies = [copy.deepcopy(bank), pickle.loads(pickle.dumps(bank))]
    for twin in copies:
        assert torch.equal(twin.concentration, bank.concentration)
    fresh = filled()
    assert not torch.equal(fresh.concentration, bank.concentration)
    fresh.load_state_dict(bank.state_dict())
    assert not torch.equal(fresh.concentration, bank.concentration)  # a state has the sums, and all is derived from them


@pytest.mark.parametrize("convert", [lambda tensor: tensor, lambda tensor: tensor.double(), lambda tensor: tensor.tolist()])
def test_a_state_that_was_saved_with_other_options_warns(convert: Callable[[torch.Tensor], Any]) -> None:
    bank, other = filled(estimator="mle"), pg.ClassBank(4, 3, cap=500.0)
    state = {name: convert(tensor) if name == "_extra_state" else tensor for name, tensor in bank.state_dict().items()}
    if isinstance(state["_extra_state"], list):
        for damaged in ("nonsense", torch.full((5000,), ord("["), dtype=torch.uint8)):
            state["_extra_state"] = damaged
            with pytest.raises(ValueError, match="the options in _extra_state cannot be read: the checkpoint is damaged"):
                other.load_state_dict(state)
        return
    with pytest.warns(
        UserWarning, match=r"saved by a ClassBank with estimator='mle', cap=100000.0, .*into one with estimator='closed-form', cap=500.0"
    ):
        other.load_state_dict(state)
    assert torch.equal(other.sums, bank.sums)
    for nothing in ({}, {"_extra_state": torch.empty(3, dtype=torch.uint8, device="meta")}):
        plain = {name: tensor for name, tensor in state.items() if name != "_extra_state"}
        other.load_state_dict({**plain, **nothing})  # put together by hand, or without values: nothing to compare
    with torch.device("meta"):
        assert bank.state_dict()["_extra_state"].device.type == "cpu"


def test_pickle() -> None:
    bank = filled(memory="two-epochs", decay=0.5)
    bank.sums.mul_(0.5)  # noticed by whoever reads next
    twin = pickle.loads(pickle.dumps(bank))
    assert torch.equal(twin.concentration, bank.concentration)
    for each in (bank, twin):
        each.update(GOOD, LABELS)
        derived_from_buffers(each)
    for name, tensor in bank.named_buffers():
        assert torch.equal(tensor, twin.get_buffer(name)), name
    twin.load_state_dict(filled(memory="two-epochs", decay=0.5).state_dict())
    derived_from_buffers(twin)


def words(bank: pg.ClassBank, prefix: str = "") -> list[Fraction]:
    high, low = (bank.get_buffer(prefix + name).flatten().tolist() for name in ("sums", "compensation"))
    return [Fraction(h) + Fraction(l) for h, l in zip(high, low, strict=True)]


@pytest.mark.parametrize("prefix", ["", "next_"])
def test_conversions_keep_both_words(prefix: str) -> None:
    """float32 -> float64 -> float32 is exact; and float64 holds the whole sum in its high word, so that what it derives is as good as it can be."""
    bank = filled(memory="two-epochs")
    exact, bits = words(bank, prefix), [bank.get_buffer(prefix + name).clone() for name in ("sums", "compensation")]
    assert bits[1].any()
    bank.double()
    assert bank.sums.dtype == bank.compensation.dtype == bank.concentration.dtype == torch.float64
    assert words(bank, prefix) == exact
    assert bank.get_buffer(prefix + "sums").flatten().tolist() == [float(x) for x in exact]
    derived_from_buffers(bank)
    bank.float()
    assert bank.sums.dtype == bank.compensation.dtype == bank.concentration.dtype == torch.float32
    assert bank.counts.dtype == bank._norms.dtype == bank.next_counts.dtype == torch.float64
    for name, old in zip(("sums", "compensation"), bits, strict=True):
        assert torch.equal(bank.get_buffer(prefix + name), old)
    derived_from_buffers(bank)


def test_float32_keeps_what_two_words_can_of_float64() -> None:
    bank = pg.ClassBank(3, 4, dtype=torch.float64)
    for _ in range(9):
        bank.update(torch.randn(5, 4, dtype=torch.float64), torch.randint(3, (5,)))
    exact = words(bank)
    bank.float()
    # |low| <= u |high|, rounded once more
    assert all(abs(got - want) <= U * U * abs(want) for got, want in zip(words(bank), exact, strict=True))
    assert torch.equal(bank.sums + bank.compensation, bank.sums)
    derived_from_buffers(bank)
    bank.to(dtype=torch.float64).update(GOOD.new_ones(1, 4), torch.tensor([0]))
    derived_from_buffers(bank)


@pytest.mark.parametrize("convert", ["half", "bfloat16"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_half_precision_is_refused_silently(convert: str, dtype: torch.dtype) -> None:
    bank = filled(dtype=dtype, memory="two-epochs")
    bits = {name: tensor.clone() for name, tensor in bank.named_buffers()}
    getattr(bank, convert)()
    for name, tensor in bank.named_buffers():
        assert tensor.dtype == bits[name].dtype
        assert torch.equal(tensor, bits[name]), name
    bank.update(GOOD.half(), LABELS)
    derived_from_buffers(bank)


@pytest.mark.parametrize("dtype", DTYPES)
def test_through_the_meta_device(dtype: torch.dtype) -> None:
    bank = filled()
    saved, kappa = copy.deepcopy(bank.state_dict()), bank.concentration
    bank.to(device="meta", dtype=dtype)
    assert {tensor.device.type for tensor in bank.buffers()} == {"meta"}
    assert bank.sums.dtype == dtype
    bank.float().to_empty(device="cpu")
    bank.load_state_dict(saved)
    assert torch.equal(bank.concentration, kappa)
    derived_from_buffers(bank)
    bank.to("meta").to_empty(device="cpu").reset()
    assert not bank.counts.any()
    derived_from_buffers(bank)


@pytest.mark.parametrize("multi_avg_fn", [None, get_ema_multi_avg_fn(0.75)])
def test_averaged_models_average_the_state_and_derive_the_rest(multi_avg_fn: Callable[..., Any] | None) -> None:
    model = torch.nn.ModuleDict({"encoder": torch.nn.Linear(2, 2), "bank": pg.ClassBank(4, 3)})
    averaged = AveragedModel(model, use_buffers=True, multi_avg_fn=multi_avg_fn)
    bank, mean = model["bank"], averaged.module["bank"]
    assert isinstance(mean, pg.ClassBank)
    want: dict[str, torch.Tensor] = {}
    for step in range(3):
        bank.update(torch.rand(6, 3), torch.randint(3, (6,)))
        averaged.update_parameters(model)
        for name in ("sums", "compensation", "counts"):
            tensor = bank.get_buffer(name)
            weight = 1.0 if not step else 0.25 if multi_avg_fn else 1 / (step + 1)
            want[name] = tensor.clone() if not step else want[name] + weight * (tensor - want[name])
            torch.testing.assert_close(mean.get_buffer(name), want[name], rtol=8 * U, atol=8 * U * 20)
        derived_from_buffers(mean)
        derived_from_buffers(bank)
    # a mean of concentrations would be another number
    assert mean.counts[:3].min() > 0
    torch.testing.assert_close(mean.concentration, mean.rule(mean.resultant_length, mean.counts).float(), rtol=4 * U, atol=0)


@pytest.mark.parametrize(
    "edit",
    [
        lambda bank: bank.sums.mul_(0.5),
        lambda bank: bank.sums[1].zero_(),
        lambda bank: bank.counts.add_(3),
        lambda bank: bank._norms.fill_(7),
        lambda bank: bank._concentrations.fill_(7),
        lambda bank: bank._rates.fill_(7),
        lambda bank: bank.sums.detach().copy_(torch.rand(4, 3)),
        lambda bank: setattr(bank, "sums", torch.rand(4, 3)),
        lambda bank: setattr(bank, "counts", torch.ones(4, dtype=torch.float64)),
    ],
)
def test_what_others_write_is_noticed(edit: Callable[[pg.ClassBank], Any]) -> None:
    bank = filled()
    derived_from_buffers(bank)
    edit(bank)
    derived_from_buffers(bank)
    edit(bank)
    bank.update(GOOD[:1], LABELS[:1])  # an update of one class must not pass the others' old values for new
    derived_from_buffers(bank)
    with torch.inference_mode():
        edit(bank)
        derived_from_buffers(bank)


@pytest.mark.parametrize("read", ["concentration", "resultant_length", "mean_direction", "mean", "classes"])
def test_whatever_is_read_first_notices(read: str) -> None:
    """Each of them by itself: none relies on another having been read before."""

    def reading(bank: pg.ClassBank) -> list[torch.Tensor]:
        got = getattr(bank, read)
        return [tensor.clone() for tensor in got()] if read == "classes" else [got]

    bank = filled()
    fresh = pg.ClassBank(4, 3)
    before = reading(bank)
    bank.sums.copy_(torch.rand(4, 3))
    bank.counts.fill_(2)
    fresh.load_state_dict(bank.state_dict())
    for old, new, want in zip(before, reading(bank), reading(fresh), strict=True):
        assert not torch.equal(old, new)
        assert torch.equal(new, want)


def test_exchanged_buffers_are_noticed() -> None:
    """Two banks with equal histories have tensors with equal versions."""
    first, second = filled(), filled()
    first.sums, second.sums = second.sums, first.sums
    derived_from_buffers(first)
    derived_from_buffers(second)


def test_what_is_known_is_not_derived_again() -> None:
    bank = filled()
    bank.concentration  # noqa: B018
    before = snapshot(bank)
    for _ in range(2):
        bank.concentration, bank.resultant_length, bank.mean_direction, bank.classes()
    untouched(bank, before)


def test_inference_mode() -> None:
    """Updating and reading work inside; a bank made inside can be read outside, where torch forbids to write to it."""
    bank = filled()
    twin = copy.deepcopy(bank)
    with torch.inference_mode():
        bank.update(GOOD, LABELS)
        derived_from_buffers(bank)
        made = pg.ClassBank(4, 3)
        made.load_state_dict(twin.state_dict())
        made.update(GOOD, LABELS)
        derived_from_buffers(made)
    twin.update(GOOD, LABELS)
    for each in (bank, made):
        derived_from_buffers(each)
        assert torch.equal(each.sums, twin.sums)
        assert torch.equal(each.concentration, twin.concentration)
    for write in (lambda: made.update(GOOD, LABELS), made.reset):
        with pytest.raises(RuntimeError, match=r"the buffers of this bank are inference tensors, .*use copy.deepcopy\(bank\)"):
            write()
        assert torch.equal(made.sums, twin.sums)
        assert torch.equal(made.counts, twin.counts)
    copied = copy.deepcopy(made)
    copied.update(GOOD, LABELS)
    derived_from_buffers(copied)
    with torch.inference_mode():
        made.update(GOOD, LABELS)
    twin.update(GOOD, LABELS)
    assert torch.equal(made.concentration, twin.concentration)
    assert torch.equal(copied.concentration, twin.concentration)


def test_inference_mode_and_epochs() -> None:
    with torch.inference_mode():
        bank = filled(memory="two-epochs")
    bits = {name: tensor.clone() for name, tensor in bank.state_dict().items()}
    with pytest.raises(RuntimeError, match="the buffers of this bank are inference tensors"):
        bank.start_epoch()
    assert all(torch.equal(tensor, bits[name]) for name, tensor in bank.state_dict().items())


@pytest.mark.parametrize("memory", ["cumulative", "two-epochs"])
@pytest.mark.parametrize("options", [{}, {"on_resultant_above_one": "error", "validate": True, "decay": 0.5}])
def test_one_graph(memory: str, options: dict[str, Any]) -> None:
    """update is traced as a whole, whatever is to be checked; and the next read outside knows that something was written inside."""
    torch._dynamo.reset()
    bank = pg.ClassBank(4, 3, memory=memory, **options)
    twin = copy.deepcopy(bank)
    compiled = torch.compile(bank.update, backend="eager", fullgraph=True)
    for _ in range(3):
        features = torch.rand(4, 3) / 2
        compiled(features, LABELS)
        twin.update(features, LABELS)
        derived_from_buffers(bank)
        for name, tensor in twin.named_buffers():
            assert torch.equal(tensor, bank.get_buffer(name)), name


def test_repr_names_what_is_not_the_default() -> None:
    assert repr(pg.ClassBank(3, 4)) == "ClassBank(3, 4, estimator='closed-form', cap=100000)"
    options = {"on_resultant_above_one": "error", "unseen": "uniform", "decay": 0.5, "memory": "two-epochs", "small_samples": "unbiased"}
    shown = repr(pg.ClassBank(3, 4, estimator="mle", cap=10.0, **options))
    assert "estimator='mle', cap=10" in shown
    assert all(f"{name}={value!r}" in shown for name, value in options.items())
