"""Figure learning-curves: the realizations trained on CIFAR on a CPU, epoch by epoch, and the defect that the monitor saw on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pairgrad_paper.figures.seeds import over_seeds
from pairgrad_paper.figures.style import BLUE, GREEN, GREY, PURPLE, VERMILION, open_axes
from pairgrad_paper.records import Line, Record, Records
from pairgrad_paper.tables.not_run import NotRun
from pairgrad_paper.tables.seeds import by_seed, system_of
from pairgrad_paper.tables.study import COMMANDS, LABEL, NEEDS, of_the_study, order
from pairgrad_paper.tables.table import Cell, Column, Row, Table, number

_TITLE = "Learning curves of the realizations, scaled down to a CPU"
_ARMS: dict[str, dict[str, Any]] = {
    "original": {"color": VERMILION, "marker": "o", "label": "original: clipped backward"},
    "consistent": {"color": BLUE, "marker": "s", "label": "consistent: derivative of the same forward"},
    "arfr": {"color": GREEN, "marker": "^", "label": "AR/FR: built as a pair"},
    "paired": {"color": PURPLE, "marker": "D", "label": "paired"},
}
_KEYS = ("train_total", "train_vmf", "test_accuracy", "test_few")
_FLOOR = 1e-17  # of the drawn defect: where "none found" stands


def read(records: Records) -> Table:
    """Epochs and looks of the runs of one recipe and version of the code: of several, those with the most realizations and runs."""
    runs = sorted(
        records.of("run", lambda record: of_the_study(record) and any(line["kind"] == "epoch" for line in record.lines)), key=order
    )
    groups: dict[tuple[str, str], list[Record]] = {}
    for group in by_seed(records, runs):
        groups.setdefault((system_of(group), group.version), []).extend(group.runs.values())
    if not groups:
        raise NotRun(_TITLE, LABEL, (COMMANDS[0], COMMANDS[2]), NEEDS)
    (_, version), chosen = max(groups.items(), key=lambda item: (len({record.facts["realization"] for record in item[1]}), len(item[1])))
    recipe = chosen[0].facts["recipe"]
    name, epochs = recipe["name"], recipe["epochs"]
    seeds = sorted({record.facts["seed"] for record in chosen})
    left = [
        f"{record.name} ({records.version(record)})" for record in runs if record.facts["recipe"]["name"] == name and record not in chosen
    ]
    several = len(seeds) > 1
    stopped = [record.facts for record in chosen if record.one("end").get("ending", "finished") != "finished"]
    unfinished = [f"{facts['realization']} of seed {facts['seed']}" if several else facts["realization"] for facts in stopped]
    over = ": lines are means over seeds, bands one standard deviation to each side" if several else ""
    return Table(
        name="learning-curves",
        title=_TITLE,
        caption=(
            f"{name}, {epochs} epochs, seed{'s' * several} {', '.join(map(str, seeds))}{over}. Above: mean training loss and its vMF term. Below: accuracy "
            "on test images, of all "
            "classes and of those with few training images; and the coherence defect of the vMF term's backward, as the monitor found it during training. "
            "It marks at the foot of the axis what it found coherent; it looks as often as asked while that takes 2 % of the training time at most, so "
            "that functions that take long to replay are looked at less often. Where one curve is seen for all realizations, they lie on one another."
            + (f" Not finished: {', '.join(unfinished)}." if unfinished else "")
        ),
        label=LABEL,
        columns=(
            *(Column(key, key.replace("_", " ")) for key in ("realization", "seed", "part", "epoch", "step")),
            *(Column(key, key.replace("_", " "), ".4f") for key in _KEYS),
            Column("defect", "defect", ".3e"),
            Column("verdict", "verdict"),
        ),
        rows=tuple(row for record in chosen for row in _rows(record)),
        notes=(_words(len(seeds), version, left),),
    )


def _words(seeds: int, version: str, left: Sequence[str]) -> str:
    spread = (
        "One seed, so no error bars: differences between the curves say nothing about which realization is better. "
        if seeds == 1
        else f"{seeds} seeds: what the curves say about realizations is what `cifar-study-differences` says with intervals. "
    )
    drawn = f" Not drawn, because no mean is over two settings or two versions of the code: {', '.join(left)}." if left else ""
    return (
        f"Scaled down from the paper's system in backbone, batches and epochs. {spread}What differs between the arms for certain is the lower right panel. "
        f"Runs of {version}.{drawn}"
    )


def _rows(record: Record) -> Sequence[Row]:
    who = {"realization": record.facts["realization"], "seed": record.facts["seed"]}
    epochs = [
        {
            **who,
            "part": "epoch",
            "epoch": line["epoch"] + 1,
            "step": line["step"],
            **{key: line.get(key) for key in _KEYS},
            "defect": None,
            "verdict": None,
        }
        for line in record.of("epoch")
    ]
    per_epoch = epochs[0]["step"]
    empty: dict[str, Cell] = dict.fromkeys(_KEYS)
    looks = [
        {
            **who,
            "part": "look",
            "epoch": line["step"] / per_epoch,
            "step": line["step"],
            **empty,
            "defect": found["defect"],
            "verdict": found["verdict"],
        }
        for line in record.lines
        if line["kind"] == "coherence" and (found := _worst(line)) is not None
    ]
    return [*epochs, *looks]


def _worst(line: Line) -> Line | None:
    """Of the functions that the monitor looked at, the one with the largest defect."""
    known = [function for function in line["functions"] if function["defect"] is not None]
    return max(known, key=lambda function: function["defect"], default=None)


def draw(plt: Any, table: Table) -> Any:
    figure, ((loss, vmf), (accuracy, defect)) = plt.subplots(2, 2, figsize=(9.6, 7.0))
    _curves(loss, table, "train_total")
    loss.set(title="Training loss", ylabel="mean over the epoch")
    _curves(vmf, table, "train_vmf")
    vmf.set(title="Its vMF term", ylabel="mean over the epoch")
    _curves(accuracy, table, "test_accuracy", scale=100, marked=True)
    _curves(accuracy, table, "test_few", scale=100, ls="--", marked=True)
    accuracy.plot([], [], color=GREY, label="all classes")
    accuracy.plot([], [], color=GREY, ls="--", label="classes with few images")
    accuracy.legend(loc="upper left")
    accuracy.set(title="Accuracy on test images", ylabel="percent", ylim=(0, 1.25 * accuracy.get_ylim()[1]))
    _defects(defect, table)
    for axes in (loss, vmf, accuracy, defect):
        axes.set_xlabel("epoch")
        axes.set_xlim(left=0)
    open_axes(loss, vmf, accuracy, defect)
    handles = [plt.Line2D([], [], lw=1.8, ms=5, **_ARMS[name]) for name in _names(table)]
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.legend(handles=handles, loc="lower center", ncols=len(handles))
    return figure


def _names(table: Table) -> list[str]:
    return [name for name in _ARMS if name in table.column("realization")]


def _curves(axes: Any, table: Table, key: str, scale: float = 1.0, ls: str = "-", marked: bool = False) -> None:
    for name in _names(table):
        rows = [row for row in table.rows if (row["realization"], row["part"]) == (name, "epoch") and row[key] is not None]
        every = max(1, len({row["epoch"] for row in rows}) // 8)
        shape = {"marker": _ARMS[name]["marker"], "markevery": every, "ms": 4} if marked else {}
        over_seeds(axes, rows, "epoch", key, scale=scale, deviations=True, color=_ARMS[name]["color"], ls=ls, lw=1.6, **shape)


def _defects(axes: Any, table: Table) -> None:
    """Every seed has a curve of its own: a run looks as often as its time lets it."""
    height = _FLOOR
    for name in _names(table):
        style = {"color": _ARMS[name]["color"], "marker": _ARMS[name]["marker"]}
        looks = [row for row in table.rows if (row["realization"], row["part"]) == (name, "look")]
        largest = max((number(row, "defect") for row in looks), default=0.0)
        for seed in dict.fromkeys(row["seed"] for row in looks):
            rows = [row for row in looks if row["seed"] == seed]
            places = [row["epoch"] for row in rows]
            if largest > _FLOOR:
                axes.plot(places, [max(number(row, "defect"), _FLOOR) for row in rows], lw=1.2, ms=5, **style)
            else:
                axes.plot(places, [height] * len(rows), ls="", ms=5, mfc="none", **style)
        if largest > _FLOOR:
            axes.annotate(
                f"{largest:.2e}",
                (max(number(row, "epoch") for row in looks), largest),
                xytext=(0, -14),
                textcoords="offset points",
                ha="right",
                color=style["color"],
            )
        else:
            height *= 10  # beside one another, not on one another
    axes.set_yscale("log")
    axes.set_ylim(_FLOOR / 10, 1)
    axes.set_yticks([10.0**power for power in range(-12, 1, 3)])
    axes.minorticks_off()
    axes.axhspan(_FLOOR / 10, 1e-14, color=GREY, alpha=0.15, lw=0)
    axes.text(0.98, 2e-14, "coherent: no defect found", transform=axes.get_yaxis_transform(), fontsize=9, va="bottom", ha="right")
    axes.set(title="Coherence defect during training", ylabel="|supplied $-$ derivative of the value|")
