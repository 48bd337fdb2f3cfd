"""The log prior of a loss goes with it: through checkpoints, from the device "meta", and it is one prior for all of its parts."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

import pairgrad as pg

COUNTS = [500, 100, 50, 10, 5, 5]
X = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 2, 5, 1])
LOGITS = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))


def trained(kind: Any, **options: Any) -> Any:
    loss = kind(6, 8, class_counts=COUNTS, **options)
    loss(X, Y, LOGITS)
    return loss.eval()


@pytest.mark.parametrize("kind", [pg.ProCoLoss, pg.PATTLoss])
@pytest.mark.parametrize("way", ["to_empty", "assign", "cpu"])
def test_a_loss_that_comes_from_meta_has_the_prior_of_its_counts(kind: Any, way: str) -> None:
    source = trained(kind)
    if way == "assign":
        with torch.device("meta"):
            loss = kind(6, 8, class_counts=COUNTS)
        loss.load_state_dict(source.state_dict(), assign=True)
    else:
        loss = kind(6, 8, class_counts=COUNTS, device="meta" if way == "to_empty" else "cpu")
        if way == "to_empty":
            loss.to_empty(device="cpu")
        loss.load_state_dict(source.state_dict())
    assert torch.equal(loss.eval()(X, Y, LOGITS), source(X, Y, LOGITS))


@pytest.mark.parametrize("kind", [pg.ProCoLoss, pg.PATTLoss])
def test_a_checkpoint_with_another_prior_is_refused(kind: Any) -> None:
    state = torch.nn.ModuleDict({"loss": trained(kind)}).state_dict()
    others: list[Any] = [COUNTS[::-1]] + [None] * (kind is pg.ProCoLoss)
    for counts in others:
        module = torch.nn.ModuleDict({"loss": kind(6, 8, class_counts=counts)})
        with pytest.raises(RuntimeError, match=rf"class_counts of this {kind.__name__} must be those of the checkpoint, .*call set_prior"):
            module.load_state_dict(state)
    with torch.device("meta"):
        module = torch.nn.ModuleDict({"loss": kind(6, 8, class_counts=COUNTS[::-1])})
    with pytest.raises(RuntimeError, match="must be those of the checkpoint"):
        module.load_state_dict(state, assign=True)


def test_a_prior_that_was_taken_off_stays_off() -> None:
    loss, other = trained(pg.ProCoLoss), pg.ProCoLoss(6, 8, class_counts=COUNTS)
    for each in (loss, other):
        each.set_prior(None)
    other.load_state_dict(loss.state_dict())
    assert other.log_prior is None
    assert torch.equal(other.eval()(X, Y), loss(X, Y))


def test_counts_are_copied_with_all_their_digits() -> None:
    counts = [0.1 * n for n in COUNTS]
    want = pg.ProCoLoss(6, 8, class_counts=counts, dtype=torch.float64).log_prior
    loss = pg.ProCoLoss(6, 8, class_counts=counts, device="meta", dtype=torch.float64)
    counts[0] = 1.0
    loss.to_empty(device="cpu")
    assert want is not None
    assert loss.log_prior is not None
    assert torch.equal(loss.log_prior, want)


@pytest.mark.parametrize("logits", [None, LOGITS])
def test_a_label_that_cannot_occur_is_refused_before_the_bank_changes(logits: torch.Tensor | None) -> None:
    loss = pg.ProCoLoss(6, 8, class_counts=[0, *COUNTS[1:]])
    with pytest.raises(ValueError, match="must not name a class with count 0, got class 0"):
        loss(X, Y, logits)
    assert not loss.bank.counts.any()
    assert torch.isfinite(loss(X, Y + (Y == 0).long()))
    loss.set_prior(None)
    assert torch.isfinite(loss(X, Y))


@pytest.mark.parametrize("kind", [pg.ProCoLoss, pg.PATTLoss])
def test_every_option_is_in_the_signature_and_an_unknown_one_is_refused(kind: Any) -> None:
    known = inspect.signature(kind).parameters
    assert {"temperature", "realization", "execution", "compile_mode", "estimator", "cap", "dtype"} <= set(known)
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    with pytest.raises(TypeError, match=f"{kind.__name__}.*'temperatur'"):
        kind(6, 8, class_counts=COUNTS, temperatur=0.1)


@pytest.mark.parametrize("kind", [pg.ProCoLoss, pg.PATTLoss])
def test_a_checkpoint_of_a_loss_with_other_options_warns_with_both_values(kind: Any) -> None:
    saved = kind(6, 8, class_counts=COUNTS, temperature=0.07, estimator="mle", prior_strength=0.5)
    other = kind(6, 8, class_counts=COUNTS)
    with pytest.warns(UserWarning, match="this checkpoint was saved by") as caught:
        other.load_state_dict(saved.state_dict())
    text = " ".join(str(warning.message) for warning in caught)
    for before, now in (
        ("temperature=0.07", "temperature=0.1"),
        ("estimator='mle'", "estimator='closed-form'"),
        ("prior_strength=0.5", "prior_strength=1.0"),
    ):
        assert before in text
        assert now in text
    again = kind(6, 8, class_counts=COUNTS, temperature=0.07, estimator="mle", prior_strength=0.5)
    again.load_state_dict(saved.state_dict())  # warnings are errors here


@pytest.mark.parametrize("call", ["loss", "function", "update"])
def test_features_and_labels_that_changed_places(call: str) -> None:
    loss = pg.ProCoLoss(6, 8)
    calls = {
        "loss": lambda: loss(Y, X),
        "function": lambda: pg.vmf_cross_entropy(Y, X[0], loss.bank),
        "update": lambda: loss.bank.update(Y, X[0]),
    }
    with pytest.raises(TypeError, match=r"features and labels have changed places: .*call it with \(features, labels\)"):
        calls[call]()
    assert not loss.bank.counts.any()


def test_float64_features_in_a_float32_loss_are_not_converted_in_silence() -> None:
    loss = pg.ProCoLoss(6, 8)
    with pytest.warns(UserWarning, match=r"features are float64 and the class bank is float32: .*dtype=torch.float64"):
        assert loss(X.double(), Y).dtype == torch.float32
    loss(X.double(), Y)  # said once
    assert pg.ProCoLoss(6, 8, dtype=torch.float64)(X.double(), Y).dtype == torch.float64


def test_the_temperature_may_follow_a_schedule() -> None:
    loss, want = trained(pg.ProCoLoss), pg.ProCoLoss(6, 8, class_counts=COUNTS, temperature=0.2)
    want.load_state_dict({name: tensor for name, tensor in loss.state_dict().items() if name != "_extra_state"})
    loss.temperature = 0.2
    assert torch.equal(loss.eval()(X, Y), want.eval()(X, Y))
    with pytest.raises(ValueError, match="temperature must be a positive finite number, got 0"):
        loss.temperature = 0
    assert loss.temperature == 0.2


def test_other_layouts_are_told_the_right_one() -> None:
    loss = pg.ProCoLoss(6, 8)
    for features in (X.transpose(0, 1), X.flatten(0, 1)):
        with pytest.raises(ValueError, match=r"one per row of features \(views, batch, dim\), got 4 for .*torch.stack"):
            loss(features, Y)
    assert not loss.bank.counts.any()


def test_torch_func_cannot_update_a_bank_and_says_so() -> None:
    loss = pg.ProCoLoss(6, 8)
    with pytest.raises(RuntimeError, match=r"call loss.eval\(\) first, and loss.bank.update"):
        torch.func.grad(lambda views: loss(views, Y))(X)
    assert torch.isfinite(torch.func.grad(lambda views: loss.eval()(views, Y))(X)).all()


def test_a_temperature_of_the_logits_is_called_by_its_name() -> None:
    with pytest.raises(ValueError, match=r"^logit_temperature must be a finite number > 0, got 0"):
        pg.PATTLoss(6, 8, class_counts=COUNTS, logit_temperature=0)


def test_a_density_head_refuses_a_concentration_that_is_no_number() -> None:
    head = pg.VMFClassifier(3, 8, score="density")
    with torch.no_grad():
        head.log_concentration.fill_(100.0)
    with pytest.raises(ValueError, match="concentration must be finite"):
        head(X[0])
