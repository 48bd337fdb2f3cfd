"""The record of frozen states: every line against a direct computation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import pairgrad as pg
from pairgrad_paper.captured import Captured, Source, capture, frozen_record
from pairgrad_paper.captured.record import default_steps
from pairgrad_paper.captured.replay import Step, learning_rate
from pairgrad_paper.records import Record, read, write
from pairgrad_paper.runs import RunError

from .small import source, train_run

PLACE = {"kind", "step", "view"}
KEYS = {
    "state": PLACE
    | {"epoch", "queries", "capped", "classes", "loss"}
    | {f"{what}_{part}" for what in ("radius", "feature_norm") for part in ("low", "median", "high")},
    "counterfactual": PLACE | {"score", "loss", "defect", "relative", "largest", "mean_loss"},
    "audit": PLACE | {"finite_score", "arfr_score", "paired_score", "clipped_slope", "defect"},
    "cross": PLACE | {"precision", "geometry", "score", "loss", "relative", "largest", "defect"},
    "field_facts": PLACE | {"query", "label", "size", "half_width", "explained", "median_mismatch", "scores_equal", "losses_equal"},
    "field": {"kind", "i", "j", "x", "y", "loss", "consistent", "supplied", "mismatch", "one_minus_cosine"},
    "query": {"kind", "view", "index", "before", "after", "scaling", "label"},
    "replay": {"kind", "step", "loss_equal", "scores_equal", "total_loss", "parameters", "optimizer"}
    | {f"{what}_{part}" for what in ("gradient", "update") for part in ("gap", "scaling", "residual")},
}
STEPS = (8, 16)
BATCH = 48


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return source(train_run(tmp_path_factory.mktemp("runs")))


@pytest.fixture(scope="module")
def record(run: Source, tmp_path_factory: pytest.TempPathFactory) -> Record:
    path = tmp_path_factory.mktemp("records") / "frozen-digits.jsonl"
    made = frozen_record(run, STEPS, BATCH)
    assert made.name == "frozen-digits"
    write(path, made)
    assert read(path) == made
    return read(path)


@pytest.fixture(scope="module")
def last(run: Source) -> Captured:
    return capture(run.trainer(STEPS[-1]), BATCH)


def test_lines_and_keys(record: Record) -> None:
    assert record.record == "frozen"
    assert set(record.facts) == {"recipe", "realization", "seed", "batch_size", "steps", "data"}
    assert record.facts["steps"] == list(STEPS)
    assert (record.facts["realization"], record.facts["batch_size"]) == ("arfr", BATCH)
    wanted = {"state": 4, "counterfactual": 4, "audit": 4, "cross": 4, "field_facts": 1, "field": 625, "query": 2 * BATCH, "replay": 2}
    assert {kind: len(record.of(kind)) for kind in KEYS} == wanted
    assert len(record.lines) == sum(wanted.values())
    for line in record.lines:
        assert set(line) == KEYS[line["kind"]]
    assert [(line["step"], line["view"]) for line in record.of("audit")] == [(step, view) for step in STEPS for view in (2, 3)]
    assert {line["step"] for kind in ("cross", "field_facts") for line in record.of(kind)} == {STEPS[-1]}


def test_states(record: Record, last: Captured) -> None:
    for line, view in zip(record.of("state")[2:], last.views.values(), strict=True):
        classes = view.state.classes()
        vectors = (classes.rates[:, None] * classes.rows).double()[None] + view.features.double()[:, None] / 0.1
        radii = torch.linalg.vector_norm(vectors, dim=-1) / 63
        assert line["radius_low"] == pytest.approx(radii.min().item(), rel=1e-5)
        assert line["radius_high"] == pytest.approx(radii.max().item(), rel=1e-5)
        assert line["radius_low"] < line["radius_median"] < line["radius_high"]
        assert line["feature_norm_high"] == pytest.approx(torch.linalg.vector_norm(view.features, dim=1).max().item(), rel=1e-6)
        assert line["capped"] == int((classes.concentration == 1e5).sum())
        assert (line["classes"], line["queries"], line["epoch"]) == (7, 7 * BATCH, 2)


def test_only_the_gradient_changes(record: Record, last: Captured) -> None:
    for line in (*record.of("counterfactual"), *record.of("cross")):
        assert line["score"] == line["loss"] == 0
        assert 0 < line["relative"] < 2 * line["defect"]
        assert 0 < line["largest"] < line["relative"]
    view = last.views[2]
    radii = view.field().radius
    supplied, own = (pg.potential(128, name).slope(radii) for name in ("original", "consistent"))
    assert record.of("counterfactual")[2]["defect"] == pytest.approx((supplied - own).abs().max().item(), rel=1e-9)
    cells = {(line["precision"], line["geometry"]): line["relative"] for line in record.of("cross")}
    assert set(cells) == {(a, b) for a in ("float32", "float64") for b in ("expanded", "factorised")}
    assert cells["float64", "expanded"] == pytest.approx(cells["float64", "factorised"], rel=1e-8)
    assert cells["float32", "expanded"] == record.of("counterfactual")[2]["relative"]
    assert cells["float32", "expanded"] != cells["float64", "expanded"]


def test_audit(record: Record, last: Captured) -> None:
    for line in record.of("audit"):
        assert line["paired_score"] < 1e-12 < line["finite_score"]
        assert line["arfr_score"] < line["finite_score"]
    view, line = last.views[3], record.of("audit")[3]
    exact, original = pg.potential(128), pg.potential(128, "original")
    radii, kappa = view.field().radius, view.concentration
    assert line["clipped_slope"] == pytest.approx((original.slope(radii) - exact.slope(radii)).abs().max().item(), rel=1e-9)
    error = original.difference(kappa, radii) - exact.difference(kappa, radii)
    assert line["finite_score"] == pytest.approx(error.abs().max().item(), rel=1e-6)


def gradient(last: Captured, view: int, features: torch.Tensor, label: torch.Tensor, rule: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and gradient of one query by autograd in float64."""
    leaf = features.double()[None].requires_grad_()
    loss = pg.vmf_cross_entropy(
        leaf, label[None], last.banks[view - 2], 0.1, last.log_prior, realization=rule, geometry="expanded", geometry_dtype=torch.float64
    )
    return loss.detach(), torch.autograd.grad(loss, leaf)[0][0]


def test_field(record: Record, last: Captured) -> None:
    facts, points = record.one("field_facts"), record.of("field")
    assert facts["scores_equal"] is facts["losses_equal"] is True
    assert (facts["size"], facts["query"], facts["view"], facts["label"]) == (25, 0, 2, int(last.labels[0]))
    features = last.features[0].double()
    variance, directions = torch.linalg.eigh(torch.cov(features.T))
    assert facts["explained"] == pytest.approx((variance[[-1, -2]] / variance.sum()).tolist(), rel=1e-9)
    assert facts["half_width"] == pytest.approx(3 * variance[-1].sqrt().item(), rel=1e-9)
    assert [(p["i"], p["j"]) for p in points] == [(i, j) for i in range(25) for j in range(25)]
    assert [points[0]["x"], points[24]["y"], points[24 * 25]["x"]] == pytest.approx(
        [-facts["half_width"], facts["half_width"], facts["half_width"]]
    )
    u, v = directions[:, -1], directions[:, -2]
    u, v = (d * d[d.abs().argmax()].sign() for d in (u, v))
    for number in (12 * 25 + 12, 3 * 25 + 20):
        point = points[number]
        place = features[0] + point["x"] * u + point["y"] * v
        (loss, own), (_, supplied) = (gradient(last, 2, place, last.labels[0], rule) for rule in ("consistent", "original"))
        assert point["loss"] == pytest.approx(loss.item(), rel=1e-9)
        a, b = (torch.stack((g @ u, g @ v)) for g in (own, supplied))
        assert point["consistent"] == pytest.approx(a.tolist(), rel=1e-7)
        assert point["supplied"] == pytest.approx(b.tolist(), rel=1e-7)
        assert point["mismatch"] == pytest.approx(((b - a).norm() / a.norm()).item(), rel=1e-5)
    for point in points[::40]:
        (ax, ay), (bx, by) = point["consistent"], point["supplied"]
        angle = math.atan2(ax * by - ay * bx, ax * bx + ay * by)  # of the recorded gradients, whose rounding is 1e-16 of their length
        assert point["one_minus_cosine"] == pytest.approx(2 * math.sin(angle / 2) ** 2, rel=1e-2, abs=1e-24)
    assert facts["median_mismatch"] == sorted(p["mismatch"] for p in points)[312]


def test_queries(record: Record, last: Captured) -> None:
    lines = record.of("query")
    assert [(line["view"], line["index"]) for line in lines] == [(view, index) for view in (2, 3) for index in range(BATCH)]
    for line in (lines[0], lines[BATCH + 5]):
        index = line["index"]
        assert line["label"] == int(last.labels[index])
        a, b = (
            gradient(last, line["view"], last.features[line["view"] - 2, index], last.labels[index], rule)[1]
            for rule in ("consistent", "original")
        )
        scaling = (a @ b) / (a @ a)
        assert line["before"] == pytest.approx(((b - a).norm() / a.norm()).item(), rel=1e-5)
        assert line["scaling"] == pytest.approx(scaling.item(), rel=1e-9)
        assert line["after"] == pytest.approx(((b - scaling * a).norm() / b.norm()).item(), rel=1e-3, abs=1e-12)
    assert all(line["after"] < line["before"] for line in lines)


def test_replay(record: Record, run: Source) -> None:
    first, second = record.of("replay")
    assert (first["step"], second["step"]) == STEPS
    updated: list[Any] = []
    for rule in ("original", "consistent"):
        trainer = run.trainer(STEPS[0], rule)
        total = trainer.update(trainer.batches.batch(trainer.step)).read()["total"]
        updated.append((total, torch.cat([p.grad.flatten().double() for p in trainer.network.parameters() if p.grad is not None])))
    (total, b), (other, a) = updated
    assert total == other == pytest.approx(first["total_loss"], rel=1e-7)
    assert first["gradient_gap"] == pytest.approx(((b - a).norm() / a.norm()).item(), rel=1e-9)
    for line in (first, second):
        assert line["loss_equal"] is line["scores_equal"] is True
        assert 0 < line["gradient_residual"] < line["gradient_gap"]
        assert 0 < line["update_residual"] <= line["update_gap"] * (1 + 1e-9)
        assert line["parameters"] == sum(p.numel() for p in run.trainer(0).network.parameters())
    # the second is after the end of the run, with the rate of its second epoch, which is that of the first
    assert first["optimizer"] == second["optimizer"] == "Adam(lr=0.0025)"


def test_a_step_is_that_of_the_trainer(run: Source) -> None:
    trainer = run.trainer(8)
    before = [p.detach().double() for p in trainer.network.parameters()]
    step = Step.of(run.trainer(8))
    trainer.update(trainer.batches.batch(8))
    for old, new, change in zip(before, trainer.network.parameters(), step.update, strict=True):
        torch.testing.assert_close(old + change, new.detach().double(), rtol=0, atol=1e-6)
    assert max(change.abs().max().item() for change in step.update) > 1e-3
    assert learning_rate(run.trainer(0)) == 5e-3


def test_default_steps(run: Source) -> None:
    assert run.steps == (0, 8, 16)
    assert default_steps(run) == (8, 16)
    with pytest.raises(RunError, match="no checkpoint of update 5; it has 0, 8, 16"):
        run.trainer(5)
