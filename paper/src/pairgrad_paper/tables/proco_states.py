"""A ProCo run: coherence defects at the concentrations that training visits."""

from __future__ import annotations

from pairgrad_paper.records import Line, Record, Records
from pairgrad_paper.tables import published
from pairgrad_paper.tables.captured_source import counted, others, stand_in, states
from pairgrad_paper.tables.table import Check, Column, Row, Table

_TITLE = "Coherence defects over a ProCo run"
LABEL = "fig:proco-state-distribution"
SPREAD = ("minimum", "lower", "median", "upper", "maximum")


def proco_states(records: Records) -> Table:
    """A row per capture, of queries and of the class bank."""
    record = states(records, _TITLE, LABEL)
    return Table(
        name="proco-states",
        title=_TITLE,
        caption=(
            "Absolute differences between the supplied slope and the derivative of the finite potential (start 2 nu, float64) at the radii of queries and "
            f"at the concentrations of the class bank: extrema, quartiles and median, and the share above {published.PROCO_SCALE:g}, beside the "
            "published one."
        ),
        label=LABEL,
        columns=(
            Column("when", "when"),
            Column("what", "what"),
            Column("step", "step", "d", shown=False),
            Column("epoch", "epoch", "d", shown=False),
            Column("count", "count", "d"),
            *(Column(key, name, ".1e") for key, name in zip(SPREAD, ("smallest", "25 %", "median", "75 %", "largest"), strict=True)),
            Column("above", "above 1e-6", ".1%"),
            Column("above_published", "published"),
            Column("capped", "at the cap", ".1%"),
            Column("singletons", "classes with one sample", "d"),
            Column("radius_low", "smallest x/nu", ".3g"),
            Column("radius_median", "median x/nu", ".3g"),
            Column("radius_high", "largest x/nu", ".4g"),
        ),
        rows=tuple(_row(line) for line in record.of("capture")),
        checks=state_checks(record),
        notes=(*state_notes(record), *others(records, record)),
    )


def _row(line: Line) -> Row:
    keys = (
        "when",
        "what",
        "step",
        "epoch",
        "count",
        *SPREAD,
        "above",
        "capped",
        "singletons",
        "radius_low",
        "radius_median",
        "radius_high",
    )
    return {key: line[key] for key in keys} | {"above_published": f"{published.PROCO_FIRST_BATCH.text} %" if _first(line) else None}


def _first(line: Line) -> bool:
    return line["what"] == "queries" and line["when"] == "first batch"


def state_checks(record: Record) -> tuple[Check, ...]:
    """What the paper says of the first batch and of late states."""
    captures = record.of("capture")
    queries = [line for line in captures if line["what"] == "queries"]
    later = [line for line in captures if line["when"] != "first batch"]
    worst = max((line["maximum"] for line in later), default=0.0)
    shares = [line["above"] for line in queries if _first(line)]
    text = ", ".join(f"{share:.0%}" for share in shares)
    return (
        counted(
            f"some queries of the first batch above {published.PROCO_SCALE:g} ({text}; published {published.PROCO_FIRST_BATCH.text} %),",
            [share > 0 for share in shares],
        ),
        counted(
            f"no defect above {published.PROCO_SCALE:g} in the captures after the first batch (the largest {worst:.1e}),",
            [line["above"] == 0 for line in later],
        ),
    )


def state_notes(record: Record) -> tuple[str, ...]:
    """What to know of the record, and what of the figure is not run."""
    facts = record.facts
    classes = len(facts["data"]["class_counts"])
    return (
        f"{stand_in(record, 'resnet32', 'cifar100-lt')} p = {facts['dim']}, temperature {facts['temperature']:g}.",
        f"With {classes} classes the share of the first batch moves in steps of {1 / classes:.0%}: all queries have a defect at a class with one sample and "
        "hardly any elsewhere, so it is close to the share of such classes.",
        "The paper's panels of ImageNet queries and of the iNaturalist class bank are not run: they take these data sets and GPUs. RECIPE is "
        "proco-imagenet-lt or proco-inat18, or proco-cifar100-lt-if100 for the first panel in full size: "
        "`pairgrad train RECIPE --realization original --checkpoint-every 10 --checkpoint-minutes 100000 --keep 20`, then "
        "`pairgrad states runs/RECIPE-original-seed3407 --output states.jsonl`, then "
        "`pairgrad collect states.jsonl --records records`, and this again with `--records records`.",
    )
