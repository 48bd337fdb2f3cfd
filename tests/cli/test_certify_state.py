"""`pairgrad certify --state` as a user runs it."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

import pairgrad as pg
from pairgrad.certificates import SavedState, load_state, save_state
from pairgrad.ground import rounded_up
from tests.cli.command import pairgrad

from .command import invoke


@pytest.fixture
def path(tmp_path):
    generator = torch.Generator().manual_seed(0)
    bank = pg.ClassBank(5, 64, generator=generator)
    labels = torch.arange(5).repeat(30)[: 5 * 24]
    features = torch.nn.functional.normalize(torch.eye(64)[labels] + 0.1 * torch.randn(len(labels), 64, generator=generator), dim=1)
    bank.update(features, labels)
    saved = SavedState(
        torch.stack([features[:8], features[8:16]]), labels[:8], bank, 0.1, torch.zeros(5), torch.tensor([500, 200, 50, 30, 5])
    )
    return save_state(tmp_path / "state.safetensors", saved)


def run(*arguments: object):
    return invoke("certify", *map(str, arguments), columns=200)


def test_the_whole_summary(path):
    done = pairgrad("certify", "--state", path)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "2 views of 8 samples, 5 classes, dim 64, tau = 0.1" in text
    assert "realization='arfr', order=2) in float32" in text
    assert "realization='paired') in float32" in text
    for line in (
        "score of any class",
        "mean loss",
        "total variation",
        "gradient of a sample's loss",
        "head: mean loss",
        "medium:",
        "tail:",
    ):
        assert done.stdout.count(line) >= 2
    assert "All 16 predictions are those of the exact scores" in text
    assert "by class_counts of the file" in text
    assert "assumed" not in text
    assert "Rounding: + - * / round to nearest" in text


def test_the_numbers_are_those_of_certify(path):
    saved = load_state(path)
    done = run("--state", path, "--realization", "paired", "--dtype", "float64", "--temperature", 0.2)
    assert done.exit_code == 0, done.output
    certificate = pg.certify(saved.views, saved.labels, saved.state, 0.2, saved.log_prior, "paired", geometry_dtype=torch.float64)
    row = next(line.split() for line in done.output.splitlines() if line.startswith("mean loss"))
    assert row[2] == rounded_up(float(certificate.loss.total), 3)
    assert "arfr" not in done.output


def test_a_temperature_that_nobody_said_is_said_to_be_assumed(tmp_path):
    state = pg.ClassState(torch.eye(3, 64), torch.tensor([5.0, 6.0, 7.0]))
    path = save_state(tmp_path / "s", SavedState(torch.eye(64)[:3], torch.arange(3), state))
    done = run("--state", path)
    assert done.exit_code == 0, done.output
    assert "it is assumed that there is no log prior; the temperature is 0.1" in done.output
    assert "Head" not in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--realization", "original"), "must have a proven ratio bound"),
        (("--realization", "nonsense"), "nonsense"),
        (("--dtype", "float16"), "float32"),
        (("--bank", "other"), "holds no bank 'other'"),
        (("--temperature", "-1"), "temperature must be a positive finite number"),
        (("--dim", "64"), "--dim is about a potential"),
        (("--max-order", "3"), "--max-order is about a potential"),
    ],
)
def test_what_cannot_be_certified_is_explained(path, arguments, message):
    done = run("--state", path, *arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.output.replace("│", " ").split())


def test_files_that_cannot_be_read(tmp_path):
    done = run("--state", tmp_path / "nowhere")
    assert done.exit_code == 2
    assert "cannot read" in done.output
    assert "No such file" in done.output
    (tmp_path / "text").write_text("hello")
    assert "is no safetensors file" in " ".join(run("--state", tmp_path / "text").output.replace("│", " ").split())


def test_options_of_a_state_need_one():
    for option in (("--temperature", "0.1"), ("--realization", "arfr"), ("--dtype", "float32"), ("--bank", "x")):
        done = run(*option)
        assert done.exit_code == 2
        assert "needs --state" in done.output


def test_what_a_file_does_not_say_is_said(tmp_path):
    """The state_dict of a loss has neither the options of its bank nor a prior; at dimension 3 the paper's realization has no theorem."""
    loss = pg.ProCoLoss(4, 3, class_counts=[4, 3, 2, 1])
    features, labels = torch.nn.functional.normalize(torch.randn(6, 3), dim=1), torch.tensor([0, 1, 2, 3, 0, 1])
    loss(features, labels)
    save_file({"features": features, "labels": labels, **{name: t.clone() for name, t in loss.state_dict().items()}}, tmp_path / "s")
    done = run("--state", tmp_path / "s")
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert "the bank estimates concentrations by 'closed-form', capped at 100000; there is no log prior; the temperature is 0.1" in text
    assert "arfr: " in text
    assert "realization='paired'" in text
    assert "realization='arfr'" not in text


def test_labels_without_a_class_are_explained(tmp_path):
    state = pg.ClassState(torch.eye(3, 64), torch.tensor([5.0, 6.0, 7.0]))
    saved = SavedState(torch.eye(64)[:3], torch.tensor([0, 1, 7]), state, class_counts=torch.tensor([5, 6, 7]))
    done = run("--state", save_state(tmp_path / "s", saved))
    assert done.exit_code == 2
    assert "labels must lie in [0, 2]" in " ".join(done.output.replace("│", " ").split())
