"""`pairgrad certify` as a user runs it."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import partial

import pytest
import torch
from safetensors.torch import save_file

import pairgrad as pg
from pairgrad.certificates import SavedState, load_state, save_state, shot_groups
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


def words(done) -> str:
    return " ".join(done.output.replace("│", " ").split())


def test_the_whole_summary(path):
    done = pairgrad("certify", path)
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
    done = run(path, "--realization", "paired", "--dtype", "float64", "--temperature", 0.2)
    assert done.exit_code == 0, done.output
    certificate = pg.certify(saved.views, saved.labels, saved.state, 0.2, saved.log_prior, "paired", geometry_dtype=torch.float64)
    row = next(line.split() for line in done.output.splitlines() if line.startswith("mean loss"))
    assert row[2] == rounded_up(float(certificate.loss.total), 3)
    assert "arfr" not in done.output


def test_a_temperature_that_nobody_said_is_said_to_be_assumed(tmp_path):
    state = pg.ClassState(torch.eye(3, 64), torch.tensor([5.0, 6.0, 7.0]))
    path = save_state(tmp_path / "s", SavedState(torch.eye(64)[:3], torch.arange(3), state))
    done = run(path)
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
        (("--temperature", "-1"), "--temperature must be a positive finite number, got -1.0"),
    ],
)
def test_what_cannot_be_certified_is_explained(path, arguments, message):
    done = run(path, *arguments)
    assert done.exit_code == 2
    assert message in words(done)


def test_files_that_cannot_be_read(tmp_path, path):
    (tmp_path / "text").write_text("hello")
    (tmp_path / "text.pt").write_text("hello")
    torch.save({"bank.sums": Fraction(1, 3)}, tmp_path / "object.pt")
    for name, message in (
        ("nowhere", "cannot read {}: No such file or directory"),
        ("nowhere.pt", "cannot read {}: No such file or directory"),
        ("text", "{} is not a safetensors file"),
        ("text.pt", "{} cannot be read: it is not a file that torch.save wrote"),
        ("object.pt", "nothing in it is executed"),
    ):
        done = run(tmp_path / name)
        assert done.exit_code == 2
        assert message.format(tmp_path / name) in words(done)
    for option in ("--features", "--labels", "--class-counts"):
        done = run(path, option, tmp_path / "nowhere.json")
        assert done.exit_code == 2
        assert f"{option}: cannot read {tmp_path / 'nowhere.json'}: No such file or directory" in words(done)
        assert "read from .safetensors, .pt, .pth and .json files" in words(run(path, option, tmp_path / "text"))


@pytest.fixture
def trained():
    """A loss after some updates, and a batch."""
    generator = torch.Generator().manual_seed(3)
    loss = pg.ProCoLoss(4, 32, class_counts=COUNTS, temperature=0.2, estimator="mle", cap=500.0)
    labels = torch.arange(40) % 4
    features = torch.nn.functional.normalize(torch.eye(32)[labels] + 0.2 * torch.randn(40, 32, generator=generator), dim=1)
    loss(features, labels)
    return loss, features[:12], labels[:12]


COUNTS = [200, 50, 40, 5]
near = partial(pytest.approx, rel=1e-5)  # float32, whose sums can be taken in several orders


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
@pytest.mark.parametrize("saved", ["bank", "loss", "checkpoint"])
def test_the_bank_and_the_batch_in_files_of_their_own(tmp_path, trained, saved, kind):
    """The bounds are those of pg.certify, with the prior and the groups of the counts; estimator, cap and temperature are in the state."""
    loss, features, labels = trained
    tensors = {name: t.clone() for name, t in (loss.bank if saved == "bank" else loss).state_dict().items()}
    write = torch.save if kind == "pt" else save_file
    if saved == "checkpoint":
        tensors = {"criterion": tensors} if kind == "pt" else {f"criterion.{name}": t for name, t in tensors.items()}
        tensors |= {"model": {"weight": torch.ones(2)}, "epoch": 3} if kind == "pt" else {"model.weight": torch.ones(2)}
    write(tensors, tmp_path / f"state.{kind}")
    write(features if kind == "pt" else {"x": features}, tmp_path / f"features.{kind}")
    write({"labels": labels, "features": features}, tmp_path / f"batch.{kind}")
    (tmp_path / "counts.json").write_text(json.dumps(COUNTS))
    done = run(
        *(tmp_path / f"state.{kind}", "--features", tmp_path / f"features.{kind}", "--labels", tmp_path / f"batch.{kind}"),
        *(
            "--class-counts",
            tmp_path / "counts.json",
            *(("--temperature", 0.2) if saved == "bank" else ()),
            "--realization",
            "paired",
            "--json",
            tmp_path / "new" / "b.json",
        ),
    )
    assert done.exit_code == 0, done.output
    counts = torch.tensor(COUNTS)
    prior, groups = counts.double().log() - counts.sum().double().log(), shot_groups(labels, counts)
    wanted = pg.certify(features, labels, loss.bank, 0.2, prior, "paired", groups=groups)
    data = json.loads((tmp_path / "new" / "b.json").read_text())
    assert data["schema"] == "pairgrad.certificate/1"
    assert (data["state"], data["temperature"]) == (str(tmp_path / f"state.{kind}"), 0.2)
    assert data["assumed"] == []
    (found,) = data["certificates"]
    assert found["realization"] == "paired"
    for name in ("score", "sample_loss", "loss", "total_variation", "sample_gradient", "gradient"):
        bound = getattr(wanted, name)
        assert found[name] == near({part: getattr(bound, part).max().item() for part in ("total", "truncation", "rounding")})
    assert found["mean_loss"] == near(wanted.mean_loss.item())
    assert found["ratio_bound"] == pg.potential(32).ratio_bound(torch.float32)
    unchanged, smallest, needed = (getattr(wanted.margin, name) for name in ("unchanged", "observed", "needed"))
    wanted_margin = {"predictions": 12, "unchanged": int(unchanged.sum()), "smallest": smallest.min().item(), "needed": needed.max().item()}
    assert found["margin"] == near(wanted_margin, abs=2e-6)  # a difference of logits of size 10
    assert list(found["groups"]) == ["head", "medium", "tail"]
    for name, group in wanted.groups.items():
        assert found["groups"][name]["size"] == group.size
        assert found["groups"][name]["loss"]["total"] == near(group.loss.total.item())
        assert found["groups"][name]["gradient"]["total"] == near(group.gradient.total.max().item())
    assert "with a log prior" in done.output
    assert "by --class-counts" in done.output
    row = next(line.split() for line in done.output.splitlines() if line.startswith("mean loss"))
    assert row[2:] == [rounded_up(found["loss"][part], 3) for part in ("total", "truncation", "rounding")]
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["b.json"]


def test_a_bound_that_is_infinite_is_null_in_the_data(tmp_path):
    """A feature that cancels a concentrated class, of which float32 knows nothing."""
    directions = torch.nn.functional.normalize(torch.ones(2, 64) + torch.eye(2, 64), dim=1)
    state = pg.ClassState(directions, torch.tensor([1e8, 1e8]))
    path = save_state(tmp_path / "s", SavedState(-1e8 * directions, torch.arange(2), state, 1.0))
    done = run(path, "--realization", "paired", "--json", tmp_path / "b.json")
    assert done.exit_code == 0, done.output
    certificate = pg.certify(-1e8 * directions, torch.arange(2), state, 1.0, None, "paired")
    assert certificate.sample_gradient.total.max() == torch.inf
    (found,) = json.loads((tmp_path / "b.json").read_text())["certificates"]
    assert found["sample_gradient"]["total"] is None


def test_wrong_batches_are_explained(tmp_path, trained):
    loss, features, labels = trained
    torch.save(loss.state_dict(), tmp_path / "loss.pt")
    torch.save(pg.ProCoLoss(4, 32).state_dict(), tmp_path / "new.pt")
    torch.save({name: t * float("nan") for name, t in loss.state_dict().items()}, tmp_path / "nan.pt")
    torch.save({"sums": torch.ones(4, 32), "counts": torch.ones(4), "compensation": torch.ones(4)}, tmp_path / "odd.pt")
    torch.save({"weight": torch.ones(2)}, tmp_path / "model.pt")
    for name, value in (
        ("features", features),
        ("labels", labels),
        ("narrow", features[:, :8]),
        ("fewer", labels[:3]),
        ("other", labels + 2),
        ("halves", labels / 2),
        ("counts", torch.ones(3)),
        ("several", {"a": labels, "b": labels}),
        ("nothing", {}),
    ):
        torch.save(value, tmp_path / f"{name}.pt")
    for state, given, message in (
        ("loss", {}, "loss.pt holds no tensor 'features': give the features of the batch with --features FILE"),
        ("loss", {"features": "features"}, "loss.pt holds no tensor 'labels': give the labels of the batch with --labels FILE"),
        (
            "loss",
            {"features": "narrow", "labels": "labels"},
            "features must have shape (batch, dim=32), got a float32 tensor of shape (12, 8)",
        ),
        ("loss", {"features": "features", "labels": "fewer"}, "labels must have shape (12,), one per row of features"),
        ("loss", {"features": "features", "labels": "other"}, "labels must lie in [0, 3], got values from 2 to 5"),
        ("loss", {"features": "features", "labels": "halves"}, "labels must be an integer torch tensor"),
        ("loss", {"features": "features", "labels": "labels", "class-counts": "counts"}, "one for each of the 4 classes, got"),
        (
            "loss",
            {"features": "several", "labels": "labels"},
            "several.pt must hold one tensor, or one named 'features', got a dict with a, b",
        ),
        ("loss", {"features": "nothing", "labels": "labels"}, "nothing.pt must hold one tensor"),
        ("new", {"features": "features", "labels": "labels"}, "has no samples, all counts are 0: save it after it was updated"),
        (
            "nan",
            {"features": "features", "labels": "labels"},
            "nan.pt cannot be used: bank.sums of class 0 must be finite numbers in torch.float32, got nan",
        ),
        ("odd", {"features": "features", "labels": "labels"}, "sums and compensation in"),
        ("model", {"features": "features", "labels": "labels"}, "must hold a bank (sums, compensation, counts) or mean_direction"),
    ):
        options = [word for name, file in given.items() for word in (f"--{name}", tmp_path / f"{file}.pt")]
        done = run(tmp_path / f"{state}.pt", *options)
        assert done.exit_code == 2, (state, given, done.output)
        assert message in words(done)


def test_what_a_file_does_not_say_is_said(tmp_path):
    """A state without its options, and without a prior; at dimension 3 the paper's realization has no theorem."""
    loss = pg.ProCoLoss(4, 3, class_counts=[4, 3, 2, 1])
    features, labels = torch.nn.functional.normalize(torch.randn(6, 3), dim=1), torch.tensor([0, 1, 2, 3, 0, 1])
    loss(features, labels)
    state = {name: t.clone() for name, t in loss.state_dict().items() if "_extra_state" not in name}
    save_file({"features": features, "labels": labels, **state}, tmp_path / "s")
    done = run(tmp_path / "s")
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert "the bank estimates concentrations by 'closed-form', capped at 100000; there is no log prior; the temperature is 0.1" in text
    assert "arfr: " in text
    assert "realization='paired'" in text
    assert "realization='arfr'" not in text


def test_labels_without_a_class_are_explained(tmp_path):
    state = pg.ClassState(torch.eye(3, 64), torch.tensor([5.0, 6.0, 7.0]))
    saved = SavedState(torch.eye(64)[:3], torch.tensor([0, 1, 7]), state, class_counts=torch.tensor([5, 6, 7]))
    done = run(save_state(tmp_path / "s", saved))
    assert done.exit_code == 2
    assert "labels must lie in [0, 2]" in words(done)
