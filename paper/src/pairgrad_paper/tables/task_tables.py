"""The complete tasks (tab:task-summary, tab:task-complete): what is published of seven settings, and beside it what our own full-size runs gave.

Ours are the records of runs of the full recipes, as they are, evaluated after their last update: the paper evaluates final weights. Accuracy and detection
are those of the score `patt-paper`, whose calibration is fitted on the long-tailed training split (app:current-protocol), and FPR95 is in PATT's own
convention. A setting that nobody ran says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pairgrad_paper.recipes import RECIPES
from pairgrad_paper.records import Record, Records
from pairgrad_paper.tables import published
from pairgrad_paper.tables.published import TASK_METRICS, TASK_REALIZATIONS
from pairgrad_paper.tables.seeds import Seeds, Spread, by_seed, versions_note
from pairgrad_paper.tables.table import Cell, Column, Row, Table

NOT_RUN = "not run"
SCORE, CONVENTION = "patt-paper", "patt"
SETTINGS = tuple(dict.fromkeys(recipe for recipe, _, _ in published.TASK_MEAN))
_HEADINGS = {"accuracy": "accuracy", "auroc": "AUROC", "fpr95": "FPR95"}
_ARMS = {"original": "original", "consistent": "consistent", "arfr": "AR/FR"}


def task_summary(records: Records) -> Table:
    """Accuracy and AUROC."""
    return _table(records, "task-summary", "tab:task-summary", TASK_METRICS[:2])


def task_complete(records: Records) -> Table:
    """Accuracy, AUROC and FPR95."""
    return _table(records, "task-complete", "tab:task-complete", TASK_METRICS)


def final_scores(record: Record) -> Mapping[str, Any]:
    """By score, what the evaluation after the last update of a finished run found; empty if there is none."""
    end = record.one("end")
    if end.get("ending", "finished") != "finished":
        return {}
    scores: dict[str, Any] = {}
    for line in record.lines:
        if line["kind"] == "evaluation" and line["step"] == end["step"]:
            scores = {**line["scores"], **scores}
    return scores


def is_full(record: Record) -> bool:
    """Whether a run is of a full recipe of the paper, with no setting changed but the seed."""
    given = record.facts["recipe"]
    if given["name"] not in SETTINGS:
        return False
    plain = json.loads(json.dumps(asdict(RECIPES[given["name"]])))
    return all(plain.get(key) == value for key, value in given.items() if key not in ("seed", "summary", "notes"))


def _table(records: Records, name: str, label: str, metrics: Sequence[str]) -> Table:
    full = records.of("run", is_full)
    used = [record for record in full if SCORE in final_scores(record)]
    groups = by_seed(records, used)
    rows = tuple(_row(recipe, metric, groups) for recipe in SETTINGS for metric in metrics)
    done = sum(row[f"{arm}_runs"] != 0 for row in rows if row["metric"] == "accuracy" for arm in TASK_REALIZATIONS)
    measured = f"Of the {len(SETTINGS) * len(TASK_REALIZATIONS)} cells of a metric, {done} were run here." if done else "None was run here."
    return Table(
        name=name,
        title=f"Classification and detection after complete training{', with FPR95' if 'fpr95' in metrics else ''}",
        caption=(
            f"Percent, mean ± standard deviation over runs: published, and ours with the recipes as they are (ResNet18 or ResNet50, 100 epochs). {measured}"
        ),
        label=label,
        columns=tuple(_columns()),
        rows=rows,
        notes=(*_protocol(), *_versions(groups), *_deviations(used), *_how_to_run(used)),
    )


def _columns() -> Iterable[Column]:
    yield from (
        Column("dataset", "data"),
        Column("imbalance", "imbalance factor"),
        Column("metric", "metric"),
        Column("recipe", "recipe", shown=False),
    )
    for arm, words in _ARMS.items():
        yield Column(f"{arm}_published", f"{words}, published")
        yield Column(f"{arm}", f"{words}, ours")
        yield from (
            Column(f"{arm}_{key}", f"{words}, {key}", shown=False)
            for key in ("published_mean", "published_deviation", "mean", "deviation", "runs")
        )


def _row(recipe: str, metric: str, groups: Sequence[Seeds]) -> Row:
    data = RECIPES[recipe].data
    row: dict[str, Cell] = {
        "dataset": {"cifar10-lt": "CIFAR-10-LT", "cifar100-lt": "CIFAR-100-LT", "imagenet-lt": "ImageNet-LT"}[data.benchmark],
        "imbalance": None if data.imbalance is None else int(data.imbalance),
        "metric": _HEADINGS[metric],
        "recipe": recipe,
    }
    for arm in TASK_REALIZATIONS:
        key = (recipe, metric, arm)
        mean = published.TASK_MEAN[key].text
        deviation = published.TASK_DEVIATION[key].text if key in set(published.TASK_DEVIATION) else None
        found = {
            group.version: [value for record in group.runs.values() if (value := _percent(final_scores(record), metric)) is not None]
            for group in groups
            if (group.first.facts["recipe"]["name"], group.first.facts["realization"]) == (recipe, arm)
        }
        ours = {version: values for version, values in found.items() if values}
        one = Spread.of(next(iter(ours.values()))) if len(ours) == 1 else Spread(None, None)  # of two versions there is no mean
        row |= {
            f"{arm}_published": mean if deviation is None else f"{mean} ± {deviation}",
            arm: _in_words(ours),
            f"{arm}_published_mean": mean,
            f"{arm}_published_deviation": deviation,
            f"{arm}_mean": one.mean,
            f"{arm}_deviation": one.deviation,
            f"{arm}_runs": sum(map(len, ours.values())),
        }
    return row


def _percent(scores: Mapping[str, Any], metric: str) -> float | None:
    report = scores[SCORE]
    if metric == "accuracy":
        return 100 * report["accuracy"]["accuracy"]
    if report["ood"] is None:
        return None
    mean = report["ood"]["mean"]
    return 100 * (mean["auroc"] if metric == "auroc" else mean["fpr95"][CONVENTION])


def _in_words(values: Mapping[str, Sequence[float]]) -> str:
    """The mean of each version of the code; the version is named where there are several."""
    texts = []
    for version, found in values.items():
        spread = Spread.of(found)
        mean = f"{spread.mean:.2f}" if spread.deviation is None else f"{spread.mean:.2f} ± {spread.deviation:.2f}"
        texts.append(f"{mean} ({len(found)} run{'s' * (len(found) > 1)}{f', {version}' if len(values) > 1 else ''})")
    return "; ".join(texts) or NOT_RUN


def _protocol() -> tuple[str, ...]:
    return (
        f"Ours are of the score `{SCORE}`: the energy of logits after PATT's feature calibration, fitted on members of the long-tailed training split alone, "
        f"classes balanced, as the paper says; accuracy is that of the same logits. FPR95 is in the convention `{CONVENTION}`, that of PATT's evaluator, "
        "detection is the unweighted mean over the SC-OOD sources, and the weights are those after the last epoch. The standard deviation is that of a "
        "sample (n - 1). The paper prints none for ImageNet-LT.",
    )


def _versions(groups: Sequence[Seeds]) -> tuple[str, ...]:
    """Which code made the runs."""
    systems: dict[str, list[Seeds]] = {}
    for group in groups:
        systems.setdefault(group.first.facts["recipe"]["name"], []).append(group)
    return (versions_note(systems),) if systems else ()


def _deviations(records: Sequence[Record]) -> tuple[str, ...]:
    """What the runs say of their data, where these are not those of the paper."""
    notes = dict.fromkeys(f"{record.facts['recipe']['name']}: {note}." for record in records for note in record.facts.get("notes", ()))
    return (f"The runs say of their data: {' '.join(notes)}",) if notes else ()


def _how_to_run(records: Sequence[Record]) -> tuple[str, ...]:
    ran = {(record.facts["recipe"]["name"], record.facts["realization"]) for record in records}
    missing = [recipe for recipe in SETTINGS if any((recipe, arm) not in ran for arm in TASK_REALIZATIONS)]
    if not missing:
        return ()
    arms = " ".join(f"--realization {arm}" for arm in TASK_REALIZATIONS)
    train = f"pairgrad train RECIPE {arms} --seed 0 --seed 1 --seed 2"
    return (
        f'"{NOT_RUN}": these are runs for GPUs, a CIFAR recipe has nine of 100 epochs. RECIPE is one of {", ".join(missing)}. '
        f"`{train}`, then `pairgrad evaluate runs/RECIPE-*`, then `pairgrad collect runs/RECIPE-* --records records`, and this table again with "
        "`pairgrad tables --records records`. What a CPU can do is in `cifar-study`.",
    )
