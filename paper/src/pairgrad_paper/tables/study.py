"""Our study of the three realizations on CIFAR in a size that a CPU can train: scaled down, and read as that.

It is made from the records of runs of the recipes `...-cpu`: what each arm reached by its last update, over all classes and by shot group, and how well it
tells images of other sources apart. With one seed there are no error bars, and nothing is said about which arm is better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pairgrad_paper.records import Record, Records
from pairgrad_paper.tables.not_run import NotRun
from pairgrad_paper.tables.table import Cell, Check, Column, Row, Table
from pairgrad_paper.tables.task_tables import final_scores

LABEL = "tab:task-summary"
ARMS = ("original", "consistent", "arfr", "paired")
_RECIPE = "patt-cifar10-lt-if100-cpu"
COMMANDS = (
    f"pairgrad train {_RECIPE} --realization original --realization consistent --realization arfr",
    f"pairgrad evaluate runs/{_RECIPE}-*",
    f"pairgrad collect runs/{_RECIPE}-* --records records",
)
NEEDS = "The CIFAR files, and half an hour to an hour for each arm on one core"
_TITLE = "Three realizations trained on CIFAR, scaled down to a CPU"
_SYSTEMS = {"patt": "PATT", "proco": "ProCo"}
_DETECTION = ("auroc", "aupr_in", "aupr_out")
_CONVENTIONS = ("patt", "sc-ood", "openood")


def of_the_study(record: Record) -> bool:
    """Whether a run is of a recipe for CPUs."""
    return str(record.facts["recipe"]["name"]).endswith("-cpu")


def order(record: Record) -> tuple[Any, ...]:
    """By recipe and number of epochs, then realization, then seed."""
    facts = record.facts
    arm = facts["realization"]
    return facts["recipe"]["name"], facts["recipe"]["epochs"], ARMS.index(arm) if arm in ARMS else len(ARMS), facts["seed"]


def cifar_study(records: Records) -> Table:
    """A row for each run and score."""
    runs = _evaluated(records, _TITLE)
    rows = tuple(_row(record, name, report) for record in runs for name, report in final_scores(record).items())
    return Table(
        name="cifar-study",
        title=_TITLE,
        caption=(
            "Percent. Accuracy over all test images and over the classes with many, some and few training images, of the logits that the score is made from; "
            "detection as the unweighted mean over the sources of foreign images; minutes of training. " + _size(runs)
        ),
        label=LABEL,
        columns=(
            *_identity(),
            *(Column(key, key, ".2f") for key in ("accuracy", "many", "medium", "few")),
            *_detection_columns(),
            *_run_columns(runs),
            Column("minutes", "minutes", ".0f"),
        ),
        rows=rows,
        checks=_checks(runs),
        notes=_notes(runs),
    )


def cifar_study_ood(records: Records) -> Table:
    """A row for each run, score and source."""
    title = "Detection by source, in the CIFAR runs scaled down to a CPU"
    runs = _evaluated(records, title)
    rows = tuple(row for record in runs for name, report in final_scores(record).items() for row in _sources(record, name, report))
    return Table(
        name="cifar-study-ood",
        title=title,
        caption=f"Percent, by realization, score and source of foreign images; ID and OOD count the images on each side. {_size(runs)}",
        label=LABEL,
        columns=(
            *_identity(),
            Column("source", "source"),
            Column("num_id", "ID"),
            Column("num_ood", "OOD"),
            *_detection_columns(),
            *_run_columns(runs),
        ),
        rows=rows,
        notes=_notes(runs),
    )


def _evaluated(records: Records, title: str) -> list[Record]:
    found = sorted(records.of("run", lambda record: of_the_study(record) and bool(final_scores(record))), key=order)
    if not found:
        raise NotRun(title, LABEL, COMMANDS, NEEDS)
    return found


def _identity() -> tuple[Column, ...]:
    return (Column("system", "system"), Column("realization", "realization"), Column("score", "score"))


def _run_columns(runs: Sequence[Record]) -> tuple[Column, ...]:
    """The seed is a column where there are several: the caption says it anyway, and a narrow table can be read."""
    several = len({record.facts["seed"] for record in runs}) > 1
    return (Column("epochs", "epochs"), Column("seed", "seed", shown=several), Column("recipe", "recipe", shown=False))


def _detection_columns() -> Iterator[Column]:
    yield from (Column(key, heading, ".2f") for key, heading in zip(_DETECTION, ("AUROC", "AUPR in", "AUPR out"), strict=True))
    yield from (Column(f"fpr95_{name}", f"FPR95, {name}", ".2f", shown=name == "patt") for name in _CONVENTIONS)


def _who(record: Record, score: str) -> dict[str, Cell]:
    facts = record.facts
    recipe = facts["recipe"]
    return {
        "system": _SYSTEMS.get(recipe["loss"]["method"], recipe["loss"]["method"]),
        "realization": facts["realization"],
        "score": score,
        "seed": facts["seed"],
        "epochs": recipe["epochs"],
        "recipe": recipe["name"],
    }


def _row(record: Record, score: str, report: dict[str, Any]) -> Row:
    accuracy = {key: _percent(report["accuracy"][key]) for key in ("accuracy", "many", "medium", "few")}
    found = None if report["ood"] is None else report["ood"]["mean"]
    return {**_who(record, score), **accuracy, **_detection(found), "minutes": record.one("end")["minutes"]}


def _sources(record: Record, score: str, report: dict[str, Any]) -> Iterator[Row]:
    for source in report["ood"]["sources"] if report["ood"] is not None else ():
        sizes = {key: source[key] for key in ("source", "num_id", "num_ood")}
        yield {**_who(record, score), **sizes, **_detection(source)}


def _detection(metrics: dict[str, Any] | None) -> dict[str, Cell]:
    rates = {} if metrics is None else metrics["fpr95"]
    cells: dict[str, Cell] = {key: None if metrics is None else _percent(metrics[key]) for key in _DETECTION}
    return {**cells, **{f"fpr95_{name}": _percent(rates.get(name)) for name in _CONVENTIONS}}


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


def _size(runs: Sequence[Record]) -> str:
    """How many runs, and of what."""
    recipes = list(dict.fromkeys(record.facts["recipe"]["name"] for record in runs))
    seeds = sorted({record.facts["seed"] for record in runs})
    backbones = ", ".join(dict.fromkeys(str(record.facts["recipe"]["model"]["backbone"]) for record in runs))
    words = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}"
    return f"{len(runs)} runs of {', '.join(recipes)} (backbone {backbones}), {words}."


def _checks(runs: Sequence[Record]) -> tuple[Check, ...]:
    """Whether arms that are compared began alike."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for record in runs:
        facts = record.facts
        groups.setdefault((facts["recipe"]["name"], facts["recipe"]["epochs"], facts["seed"]), []).append((facts["recipe"], facts["data"]))
    return (
        Check(
            "runs of one recipe and seed have the same settings, training images and outliers",
            all(each == group[0] for group in groups.values() for each in group),
        ),
    )


def _notes(runs: Sequence[Record]) -> tuple[str, ...]:
    seeds = {record.facts["seed"] for record in runs}
    spread = (
        "One seed: there are no error bars, and a difference between two rows is not a ranking of the realizations."
        if len(seeds) == 1
        else f"{len(seeds)} seeds: differences between rows should be read beside those between seeds."
    )
    data = list(dict.fromkeys(note for record in runs for note in record.facts.get("notes", ())))
    return (
        "Scaled down from the paper's system: a small backbone, smaller batches and fewer epochs, so these numbers do not stand beside the published ones. "
        f"{spread} The accuracy of `patt-paper` and `patt-released` is that of the calibrated logits; `patt-released` is fitted on test images, as the "
        "public code does, and is not a result on unseen data.",
        *((f"What the runs say of their data: {'; '.join(data)}.",) if data else ()),
        f"Made by: {'; '.join(f'`{command}`' for command in dict.fromkeys(record.command for record in runs))}",
    )
