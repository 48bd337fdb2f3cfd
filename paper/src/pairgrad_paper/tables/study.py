"""Our study of the three realizations on CIFAR in a size that a CPU can train: scaled down, and read as that.

It is made from the records of runs of the recipes `...-cpu`: what each arm reached by its last update, over all classes and by shot group, and how well it
tells images of other sources apart. Means are over seeds and over one version of the code; the differences between arms are of runs of one seed. With one
seed there are no error bars, and nothing is said about which arm is better.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from pairgrad_paper.records import Record, Records
from pairgrad_paper.tables.not_run import NotRun
from pairgrad_paper.tables.seeds import LEVEL, PERCENT, Seeds, Spread, by_seed, half_width, system_of, t_quantile, versions_note
from pairgrad_paper.tables.table import Cell, Check, Column, Row, Table, mean_columns
from pairgrad_paper.tables.task_tables import final_scores

LABEL = "tab:task-summary"
ARMS = ("original", "consistent", "arfr", "paired")
_REFERENCE = ARMS[0]
_RECIPE = "patt-cifar10-lt-if100-cpu"
_SEEDS = (3407, 3408, 3409)
COMMANDS = (
    f"pairgrad train {_RECIPE} {' '.join(f'--realization {arm}' for arm in ARMS)} {' '.join(f'--seed {seed}' for seed in _SEEDS)}",
    f"pairgrad evaluate runs/{_RECIPE}-*",
    f"pairgrad collect runs/{_RECIPE}-* --records records",
)
NEEDS = "The CIFAR files, and half an hour to an hour for each of the twelve runs on one core"
_TITLE = "Realizations trained on CIFAR, scaled down to a CPU"
_SYSTEMS = {"patt": "PATT", "proco": "ProCo"}
_ACCURACIES = ("accuracy", "many", "medium", "few")
_DETECTION = ("auroc", "aupr_in", "aupr_out")
_CONVENTIONS = ("patt", "sc-ood", "openood")
_COMPARED = {"accuracy": "accuracy", "auroc": "AUROC", "fpr95_patt": "FPR95, patt"}
Values = Mapping[str, float | None]


def of_the_study(record: Record) -> bool:
    """Whether a run is of a recipe for CPUs."""
    return str(record.facts["recipe"]["name"]).endswith("-cpu")


def order(record: Record) -> tuple[Any, ...]:
    """By recipe and number of epochs, then realization, then seed."""
    facts = record.facts
    arm = facts["realization"]
    return facts["recipe"]["name"], facts["recipe"]["epochs"], ARMS.index(arm) if arm in ARMS else len(ARMS), facts["seed"]


def cifar_study(records: Records) -> Table:
    """A row for each realization and score: means over seeds."""
    groups = _evaluated(records, _TITLE)
    return Table(
        name="cifar-study",
        title=_TITLE,
        caption=(
            "Percent, mean ± standard deviation over seeds. Accuracy over all test images and over the classes with many, some and few training images, of "
            "the logits that the score is made from; detection as the unweighted mean over the sources of foreign images; minutes of training. "
            + _size(groups)
        ),
        label=LABEL,
        columns=(
            *_identity(groups),
            *(column for key in _ACCURACIES for column in mean_columns(key, key, ".2f")),
            *_detection_columns(),
            *_run_columns(),
            *mean_columns("minutes", "minutes", ".0f"),
        ),
        rows=tuple(_row(group, score) for group in groups for score in _scores(group)),
        checks=_checks(groups),
        notes=_notes(groups),
    )


def cifar_study_differences(records: Records) -> Table:
    """A row for each realization but the original one, and score: means of differences between runs of one seed."""
    title = f"Differences from {_REFERENCE} by seed, in the CIFAR runs scaled down to a CPU"
    groups = _evaluated(records, title)
    rows = tuple(row for pair in _pairs(groups) for row in _difference_rows(*pair))
    if not rows:
        raise NotRun(title, LABEL, COMMANDS, NEEDS)
    compared = [group for group in groups if any(group in pair for pair in _pairs(groups))]
    return Table(
        name="cifar-study-differences",
        title=title,
        caption=(
            f"Percentage points: the realization less {_REFERENCE}, both trained with one seed, by one version of the code, on the same batches; mean over "
            f"the seeds that both have, and its {PERCENT} confidence interval by Student's t. {_size(compared)}"
        ),
        label=LABEL,
        columns=(
            *_identity(compared),
            Column("runs", "seeds", "d"),
            *(column for key, heading in _COMPARED.items() for column in _difference_columns(key, heading)),
            *_run_columns()[2:],
            Column("epochs", "epochs", shown=False),
        ),
        rows=rows,
        notes=(*_interval_notes(rows, groups), *_notes(compared, _SCALED_DOWN)),
    )


def cifar_study_ood(records: Records) -> Table:
    """A row for each realization, score and source: means over seeds."""
    title = "Detection by source, in the CIFAR runs scaled down to a CPU"
    groups = _evaluated(records, title)
    return Table(
        name="cifar-study-ood",
        title=title,
        caption=(
            "Percent, mean ± standard deviation over seeds, by realization, score and source of foreign images; ID and OOD count the images on each side. "
            + _size(groups)
        ),
        label=LABEL,
        columns=(
            *_identity(groups),
            Column("source", "source"),
            Column("num_id", "ID"),
            Column("num_ood", "OOD"),
            *_detection_columns(),
            *_run_columns(),
        ),
        rows=tuple(row for group in groups for score in _scores(group) for row in _sources(group, score)),
        notes=_notes(groups),
    )


def _evaluated(records: Records, title: str) -> list[Seeds]:
    found = sorted(records.of("run", lambda record: of_the_study(record) and bool(final_scores(record))), key=order)
    if not found:
        raise NotRun(title, LABEL, COMMANDS, NEEDS)
    return by_seed(records, found)


def _scores(group: Seeds) -> list[str]:
    """The scores that any of the runs has."""
    return list(dict.fromkeys(score for record in group.runs.values() for score in final_scores(record)))


def _identity(groups: Sequence[Seeds]) -> tuple[Column, ...]:
    """The version is a column where a reader needs it: where one system has several."""
    several = any(len({group.version for group in each}) > 1 for each in _by_system(groups).values())
    return (
        Column("system", "system"),
        Column("realization", "realization"),
        Column("version", "version of the code", shown=several),
        Column("score", "score"),
    )


def _run_columns(shown: bool = True) -> tuple[Column, ...]:
    return (
        Column("epochs", "epochs"),
        Column("runs", "seeds", "d", shown),
        Column("seeds", "which seeds", shown=False),
        Column("recipe", "recipe", shown=False),
    )


def _detection_columns() -> Iterator[Column]:
    for key, heading in zip(_DETECTION, ("AUROC", "AUPR in", "AUPR out"), strict=True):
        yield from mean_columns(key, heading, ".2f")
    for name in _CONVENTIONS:
        yield from mean_columns(f"fpr95_{name}", f"FPR95, {name}", ".2f", shown=name == "patt")


def _difference_columns(key: str, heading: str) -> tuple[Column, ...]:
    return (
        Column(key, heading, "+.2f"),
        Column(f"{key}_interval", f"{PERCENT} interval"),
        Column(f"{key}_low", f"{heading}, low", ".4f", shown=False),
        Column(f"{key}_high", f"{heading}, high", ".4f", shown=False),
        Column(f"{key}_by_seed", f"{heading}, by seed", shown=False),
    )


def _who(group: Seeds, score: str) -> dict[str, Cell]:
    recipe = group.first.facts["recipe"]
    return {
        "system": _SYSTEMS.get(recipe["loss"]["method"], recipe["loss"]["method"]),
        "realization": group.first.facts["realization"],
        "version": group.version,
        "score": score,
        "epochs": recipe["epochs"],
        "runs": sum(score in final_scores(record) for record in group.runs.values()),
        "seeds": " ".join(str(seed) for seed, record in group.runs.items() if score in final_scores(record)),
        "recipe": recipe["name"],
    }


def _values(record: Record, score: str) -> Values:
    """In percent: every accuracy, and the means of detection over the sources."""
    report = final_scores(record).get(score)
    if report is None:
        return {}
    accuracy = {key: _percent(report["accuracy"][key]) for key in _ACCURACIES}
    return {**accuracy, **_detection(None if report["ood"] is None else report["ood"]["mean"])}


def _row(group: Seeds, score: str) -> Row:
    cells: dict[str, Cell] = _who(group, score)
    for key in (*_ACCURACIES, *_DETECTION, *(f"fpr95_{name}" for name in _CONVENTIONS)):
        cells |= group.over(lambda record, key=key: _values(record, score).get(key)).cells(key)
    return {**cells, **group.over(lambda record: record.one("end")["minutes"] if score in final_scores(record) else None).cells("minutes")}


def _sources(group: Seeds, score: str) -> Iterator[Row]:
    """A row for each source, with the runs that have it."""
    found: dict[tuple[Any, ...], list[Values]] = {}
    for record in group.runs.values():
        report = final_scores(record).get(score, {"ood": None})
        for source in report["ood"]["sources"] if report["ood"] is not None else ():
            found.setdefault((source["source"], source["num_id"], source["num_ood"]), []).append(_detection(source))
    for (source, num_id, num_ood), metrics in found.items():
        cells: dict[str, Cell] = {**_who(group, score), "runs": len(metrics), "source": source, "num_id": num_id, "num_ood": num_ood}
        for key in metrics[0]:
            cells |= Spread.of(each[key] for each in metrics).cells(key)
        yield cells


def _pairs(groups: Sequence[Seeds]) -> Iterator[tuple[Seeds, Seeds]]:
    """Each group with the reference of its system and version, if there is one."""
    references = {(system_of(group), group.version): group for group in groups if group.first.facts["realization"] == _REFERENCE}
    for group in groups:
        reference = references.get((system_of(group), group.version))
        if reference is not None and group is not reference:
            yield reference, group


def _difference_rows(reference: Seeds, group: Seeds) -> Iterator[Row]:
    common = [seed for seed in group.runs if seed in reference.runs]
    for score in _scores(group):
        cells: dict[str, Cell] = _who(group, score)
        paired = {seed: (_values(group.runs[seed], score), _values(reference.runs[seed], score)) for seed in common}
        paired = {seed: pair for seed, pair in paired.items() if all(pair)}
        if not paired:
            continue
        cells |= {"runs": len(paired), "seeds": " ".join(map(str, paired))}
        for key in _COMPARED:
            cells |= _difference(key, {seed: (own.get(key), other.get(key)) for seed, (own, other) in paired.items()})
        yield cells


def _difference(key: str, paired: Mapping[int, tuple[float | None, float | None]]) -> dict[str, Cell]:
    """The mean, its interval, and the difference of each seed."""
    found = {seed: own - other for seed, (own, other) in paired.items() if own is not None and other is not None}
    mean, half = Spread.of(found.values()).mean, half_width(list(found.values()))
    low, high = (None, None) if mean is None or half is None else (mean - half, mean + half)
    return {
        key: mean,
        f"{key}_interval": None if low is None else f"{low:+.2f} to {high:+.2f}",
        f"{key}_low": low,
        f"{key}_high": high,
        f"{key}_by_seed": "; ".join(f"{seed}: {difference:+.4f}" for seed, difference in found.items()),
    }


def _interval_notes(rows: Sequence[Row], groups: Sequence[Seeds]) -> tuple[str, ...]:
    """How wide the intervals are and why, how many exclude zero, and which runs have no partner."""
    counts = sorted({int(str(row["runs"])) for row in rows})
    several = [count for count in counts if count > 1]
    notes = []
    if not several:
        notes.append("One seed: there are no intervals, and a difference of two single runs is not a ranking of the realizations.")
    else:
        widths = "; ".join(
            f"with {n} seeds t = {t_quantile(n - 1):.2f}, so that an interval reaches {t_quantile(n - 1) / n**0.5:.2f} standard deviations of the "
            "differences to each side" + (" and is wide" if n <= 5 else "")
            for n in several
        )
        known = [(row[f"{key}_low"], row[f"{key}_high"]) for row in rows for key in _COMPARED]
        intervals = [(low, high) for low, high in known if isinstance(low, float) and isinstance(high, float)]
        apart = sum(low > 0 or high < 0 for low, high in intervals)
        notes.append(
            f"Student's t over seeds: {widths}. {apart} of the {len(intervals)} intervals exclude zero; if no realization differed from {_REFERENCE} in "
            f"anything, {100 * (1 - LEVEL):.0f} % of them would be expected to, about {(1 - LEVEL) * len(intervals):.0f} of {len(intervals)}. "
            "They are not independent: they are of the same runs."
        )
    alone = _without_partner(groups)
    return (*notes, *((f"In no difference: {'; '.join(alone)}.",) if alone else ()))


def _without_partner(groups: Sequence[Seeds]) -> list[str]:
    """The runs that have no run of the other side of the same seed and version."""
    partners = {id(group): set(reference.runs) for reference, group in _pairs(groups)}
    texts = []
    for group in groups:
        name = group.first.facts["realization"]
        if name != _REFERENCE and (missing := [seed for seed in group.runs if seed not in partners.get(id(group), set())]):
            system = group.first.facts["recipe"]["name"]
            texts.append(
                f"{name} of {system}, seed{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} ({group.version}): no {_REFERENCE} to compare it with"
            )
    return texts


def _detection(metrics: dict[str, Any] | None) -> dict[str, float | None]:
    rates = {} if metrics is None else metrics["fpr95"]
    cells = {key: None if metrics is None else _percent(metrics[key]) for key in _DETECTION}
    return {**cells, **{f"fpr95_{name}": _percent(rates.get(name)) for name in _CONVENTIONS}}


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


def _runs(groups: Iterable[Seeds]) -> list[Record]:
    return [record for group in groups for record in group.runs.values()]


def _size(groups: Sequence[Seeds]) -> str:
    """How many runs, and of what."""
    runs = _runs(groups)
    recipes = list(dict.fromkeys(record.facts["recipe"]["name"] for record in runs))
    seeds = sorted({record.facts["seed"] for record in runs})
    backbones = ", ".join(dict.fromkeys(str(record.facts["recipe"]["model"]["backbone"]) for record in runs))
    words = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}"
    return f"{len(runs)} runs of {', '.join(recipes)} (backbone {backbones}), {words}."


def _by_system(groups: Sequence[Seeds]) -> dict[str, list[Seeds]]:
    """The groups by recipe and number of epochs."""

    def key(group: Seeds) -> str:
        recipe = group.first.facts["recipe"]
        return f"{recipe['name']}, {recipe['epochs']} epochs"

    return {name: list(each) for name, each in groupby(groups, key=key)}


def _checks(groups: Sequence[Seeds]) -> tuple[Check, ...]:
    """Whether runs that are compared began alike, and were evaluated on the same images."""
    alike: dict[tuple[Any, ...], list[Any]] = {}
    images: dict[str, list[Any]] = {}
    for system, each in _by_system(groups).items():
        for record in _runs(each):
            alike.setdefault((system, record.facts["seed"]), []).append((record.facts["recipe"], record.facts["data"]))
            for score, report in final_scores(record).items():
                sources = () if report["ood"] is None else tuple((s["source"], s["num_id"], s["num_ood"]) for s in report["ood"]["sources"])
                images.setdefault(f"{system}, {score}", []).append(sources)
    return (
        Check("runs of one recipe and seed have the same settings, training images and outliers", _equal(alike.values())),
        Check("runs of one recipe were evaluated on the same sources and numbers of images", _equal(images.values())),
    )


def _equal(groups: Iterable[Sequence[Any]]) -> bool:
    return all(each == group[0] for group in groups for each in group)


_SCALED_DOWN = (
    "Scaled down from the paper's system: a small backbone, smaller batches and fewer epochs, so these numbers do not stand beside the published "
    "ones."
)


def _notes(groups: Sequence[Seeds], first: str = "") -> tuple[str, ...]:
    runs = _runs(groups)
    data = list(dict.fromkeys(note for record in runs for note in record.facts.get("notes", ())))
    return (
        first
        or f"{_SCALED_DOWN} {_spread(groups)} {_groups(runs)} The accuracy of `patt-paper` and `patt-released` is that of the calibrated logits; "
        "`patt-released` is fitted on test images, as the public code does, and is not a result on unseen data.",
        versions_note(_by_system(groups)),
        *((f"What the runs say of their data: {'; '.join(data)}.",) if data else ()),
        f"Made by: {'; '.join(f'`{command}`' for command in dict.fromkeys(record.command for record in runs))}",
    )


def _groups(runs: Sequence[Record]) -> str:
    """By which rule classes have many, medium and few training images; a record from before there were two has that of PATT's code."""
    rules: dict[str, list[str]] = {}
    for record in runs:
        system = _SYSTEMS[record.facts["recipe"]["loss"]["method"]]
        for line in record.lines:
            if line["kind"] == "evaluation" and system not in rules.setdefault(line.get("shots", "patt"), []):
                rules[line.get("shots", "patt")].append(system)
    words = "; ".join(f"{', '.join(systems)} by the rule of {_SYSTEMS[rule]}'s code" for rule, systems in rules.items())
    return f"Classes are grouped by their training images: {words}." if words else ""


def _spread(groups: Sequence[Seeds]) -> str:
    """What the error bars are, and where there are none."""
    if all(len(group.runs) == 1 for group in groups):
        return "One seed: there are no error bars, and a difference between two rows is not a ranking of the realizations."
    alone = [f"{group.first.facts['realization']} of {group.first.facts['recipe']['name']}" for group in groups if len(group.runs) == 1]
    counts = sorted({len(group.runs) for group in groups if len(group.runs) > 1})
    words = " or ".join(map(str, counts))
    single = f" Rows of one run ({', '.join(dict.fromkeys(alone))}) have no error bar." if alone else ""
    return (
        f"{words} seeds: the deviation is that of a sample (n - 1), and is itself uncertain with so few.{single} How far realizations differ is told "
        "by the differences of runs of one seed, in `cifar-study-differences`."
    )
