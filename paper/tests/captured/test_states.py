"""Defects over training: where they are looked at, and what the lines say."""

from __future__ import annotations

from pathlib import Path

import mpmath
import pytest
import torch

from pairgrad_paper.captured import Source, capture, states_record
from pairgrad_paper.captured.states import LEVELS, defects, wanted_steps
from pairgrad_paper.records import Record, read, write
from paper.tests.finite import finite_start

from .small import source, train_run

CAPTURE = {"kind", "when", "step", "epoch", "what", "count", "minimum", "lower", "median", "upper", "maximum"} | {
    "above",
    "capped",
    "singletons",
    "radius_low",
    "radius_median",
    "radius_high",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return source(train_run(tmp_path_factory.mktemp("runs"), "proco", "original"))


@pytest.fixture(scope="module")
def record(run: Source, tmp_path_factory: pytest.TempPathFactory) -> Record:
    made = states_record(run)
    assert made.name == "proco-digits-states"
    path = write(tmp_path_factory.mktemp("records") / f"{made.name}.jsonl", made)
    assert read(path) == made
    return made


def test_lines_and_keys(record: Record) -> None:
    assert record.record == "states"
    assert set(record.facts) == {"recipe", "realization", "seed", "dim", "temperature", "data"}
    assert (record.facts["dim"], record.facts["temperature"]) == (64, 0.1)
    places = [(when, what) for when in ("first batch", "epoch 1", "epoch 2") for what in ("queries", "bank")]
    assert [(line["when"], line["what"]) for line in record.of("capture")] == places
    assert [(line["when"], line["what"]) for line in record.of("cumulative")] == places
    assert len(record.lines) == 12
    for line in record.of("capture"):
        assert set(line) == CAPTURE
        values = [line[key] for key in ("minimum", "lower", "median", "upper", "maximum")]
        assert values == sorted(values)
        assert 0 < line["radius_low"] <= line["radius_median"] <= line["radius_high"]
    assert [line["step"] for line in record.of("capture")] == [0, 0, 8, 8, 16, 16]
    # the first batch is one view of 32 images, later ones two; of 7 classes
    assert [line["count"] for line in record.of("capture") if line["what"] == "queries"] == [32 * 7, 64 * 7, 64 * 7]


def test_distribution_functions(record: Record) -> None:
    for line, capture_line in zip(record.of("cumulative"), record.of("capture"), strict=True):
        assert line["level"] == list(LEVELS)
        assert (line["level"][0], line["level"][-1], len(line["level"])) == (-16, 0, 65)
        assert line["share"] == sorted(line["share"])
        assert line["share"][-1] == 1
        assert 1 - line["share"][LEVELS.index(-6)] == pytest.approx(capture_line["above"], abs=1e-12)


def test_singletons_of_the_first_batch_are_at_the_cap(record: Record, run: Source) -> None:
    first, bank = record.of("capture")[:2]
    state = capture(run.trainer(0)).banks[0]
    alone = state.counts == 1
    assert first["singletons"] == bank["singletons"] == int(alone.sum()) > 0
    assert (state.concentration[alone] == 1e5).all()
    assert first["capped"] == pytest.approx(first["singletons"] / 7)
    assert bank["count"] == int((state.counts > 0).sum())
    assert bank["radius_high"] == 1e5 / 31
    assert first["above"] >= first["capped"]  # every query of a class at the cap
    assert record.of("capture")[4]["singletons"] == 0
    assert record.of("capture")[4]["capped"] == 0


def test_bank_as_the_checkpoint_has_it(record: Record, run: Source) -> None:
    line = record.of("capture")[3]
    bank = run.trainer(8).objective.bank
    assert line["radius_high"] == pytest.approx(bank.concentration.max().item() / 31, rel=1e-12)
    assert line["maximum"] == defects(64, bank.concentration.double()).max().item()


def test_defects_against_mpmath() -> None:
    points = (31 * 0.5, 31 * 20.0, 1e5)
    with mpmath.workdps(40):
        finite = [finite_start(31, 62, mpmath.mpf(x)) for x in points]
        wanted = [float(abs(min(each.raw_ratio, 1) - each.derivative)) for each in finite]
    found = defects(64, torch.tensor(points)).tolist()
    assert found == pytest.approx(wanted, rel=1e-8, abs=2e-15)
    assert wanted[2] > 1e-6


def test_which_checkpoints(run: Source, tmp_path: Path) -> None:
    assert wanted_steps(run) == [8, 16]
    assert wanted_steps(run, 2) == [16]
    assert wanted_steps(run, 3) == [16]
    stopped = source(train_run(tmp_path, "proco", "original", stop_at=11))
    assert 11 in stopped.steps
    assert wanted_steps(stopped) == [8]  # not within an epoch
