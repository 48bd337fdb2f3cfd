"""Learning states in files."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import pairgrad as pg
from pairgrad.certificates import SavedState, load_state, save_state


@pytest.fixture
def bank():
    generator = torch.Generator().manual_seed(1)
    bank = pg.ClassBank(4, 16, cap=300.0, small_samples="unbiased", estimator="mle", generator=generator)
    for label in range(4):
        near = torch.nn.functional.normalize(torch.eye(16)[label] + 0.05 * torch.randn(30, 16, generator=generator), dim=1)
        bank.update(near, torch.full((30,), label))
    return bank


FEATURES, LABELS = torch.eye(16)[:4], torch.arange(4)


def test_a_bank_comes_back_with_its_rule(tmp_path, bank):
    path = save_state(
        tmp_path / "new" / "state.safetensors", SavedState(FEATURES, LABELS, bank, 0.07, torch.zeros(4), torch.tensor([9, 99, 999, 1]))
    )
    back = load_state(path)
    assert isinstance(back.state, pg.ClassBank)
    assert torch.equal(back.state.concentration, bank.concentration)
    assert bank.concentration.max() == 300
    assert torch.equal(back.state.mean_direction, bank.mean_direction)
    assert (back.temperature, back.class_counts.tolist()) == (0.07, [9, 99, 999, 1])
    mine, theirs = (pg.certify(FEATURES, LABELS, state, 0.07).loss.total for state in (bank, back.state))
    assert mine == theirs
    assert [file.name for file in path.parent.iterdir()] == ["state.safetensors"]


def test_the_options_of_a_bank_keep_their_stored_names(tmp_path, bank):
    """Captured states on disk call the estimator "concentration"."""
    path = save_state(tmp_path / "s", SavedState(FEATURES, LABELS, bank))
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"bank": '{"concentration": "mle", "cap": 300.0, "small_samples": "unbiased"}'}


def test_a_fixed_state_and_views_come_back(tmp_path):
    state = pg.ClassState(torch.eye(3, 16), torch.tensor([1.0, 2.0, 3.0]))
    back = load_state(save_state(tmp_path / "s", SavedState(torch.stack([FEATURES, -FEATURES]), LABELS.clamp_max(2), state)))
    assert torch.equal(back.state.concentration, state.concentration)
    assert back.temperature is back.log_prior is back.class_counts is None
    assert isinstance(back.views, list)
    assert len(back.views) == 2
    assert pg.certify(back.views, back.labels, back.state).score.total.shape == (2, 4)


def test_the_state_dict_of_a_loss_will_do(tmp_path, bank):
    """Written by others, without any metadata: the bank is found by the names of its tensors, and has the default rule."""
    path = tmp_path / "loss.safetensors"
    loss = pg.ProCoLoss(4, 16)
    loss(FEATURES, LABELS)
    tensors = {"features": FEATURES, "labels": LABELS, **{f"criterion.{name}": t.clone() for name, t in loss.state_dict().items()}}
    save_file(tensors, path)
    assert torch.equal(load_state(path).state.sums, loss.bank.sums)
    tensors |= {f"other.{name}": t.clone() for name, t in bank.state_dict().items()}
    save_file(tensors, path)
    with pytest.raises(ValueError, match=r"holds several banks: choose one of 'criterion\.bank\.', 'other\.'"):
        load_state(path)
    assert torch.equal(load_state(path, bank="other").state.sums, bank.sums)
    assert torch.equal(load_state(path, bank="criterion.bank.").state.sums, loss.bank.sums)
    with pytest.raises(ValueError, match="holds no bank 'third'"):
        load_state(path, bank="third")


def test_what_is_missing_or_wrong_is_named(tmp_path, bank):
    path = tmp_path / "x.safetensors"
    own = {f"bank.{name}": t.clone() for name, t in bank.state_dict().items()}
    for tensors, metadata, message in (
        ({"labels": LABELS}, {}, "must hold a tensor 'features', got only labels"),
        (
            {"features": FEATURES, "labels": LABELS},
            {},
            "must hold a bank .* or mean_direction and concentration, got only features, labels",
        ),
        ({"features": FEATURES[0], "labels": LABELS, **own}, {}, r"features .* must have shape \(batch, dim\)"),
        ({"features": FEATURES, "labels": LABELS, **own}, {"temperature": "warm"}, "temperature .* must be a number, got 'warm'"),
        ({"features": FEATURES, "labels": LABELS, **own}, {"temperature": "-1"}, "temperature must be a positive finite number"),
        ({"features": FEATURES, "labels": LABELS, **own}, {"bank": json.dumps({"cap": "x"})}, "cannot be made again: cap must be"),
        ({"features": FEATURES, "labels": LABELS, **own}, {"bank": "{"}, "cannot be made again"),
        (
            {"features": FEATURES, "labels": LABELS, **own, "bank.counts": torch.tensor([1.0, 2, -3, 4])},
            {},
            r"the bank in .*x\.safetensors cannot be used: bank\.counts of class 2 must be a finite number >= 0, got -3",
        ),
        (
            {
                "features": FEATURES,
                "labels": LABELS,
                "mean_direction": own["bank.sums"],
                "concentration": torch.tensor([1.0, 2, 3, torch.inf]),
            },
            {},
            r"the classes in .*x\.safetensors cannot be used: concentration must be finite and >= 0, got inf for class 3",
        ),
        ({"features": FEATURES, "labels": LABELS, **own, "bank.counts": torch.zeros(3)}, {}, r"bank\.sums .* must have shape"),
    ):
        save_file({name: t.clone() for name, t in tensors.items()}, path, metadata)
        with pytest.raises(ValueError, match=message) as caught:
            load_state(path)
        assert str(path) in str(caught.value)
    path.write_bytes(b"no tensors at all")
    with pytest.raises(ValueError, match="is not a safetensors file"):
        load_state(path)
    with pytest.raises(FileNotFoundError):
        load_state(tmp_path / "nowhere")
    with pytest.raises(TypeError, match=r"state must be a pairgrad\.ClassBank"):
        save_state(path, SavedState(FEATURES, LABELS, FEATURES))
    assert path.read_bytes() == b"no tensors at all"


def test_of_a_bank_with_two_memories_the_one_that_is_scored_comes_back(tmp_path):
    bank = pg.ClassBank(4, 16, memory="two-epochs")
    bank.update(FEATURES, LABELS)
    bank.start_epoch()
    bank.update(FEATURES.flip(0), LABELS)
    back = load_state(save_state(tmp_path / "s", SavedState(FEATURES, LABELS, bank)))
    assert torch.equal(back.state.sums, bank.sums)
    assert torch.equal(back.state.concentration, bank.concentration)
