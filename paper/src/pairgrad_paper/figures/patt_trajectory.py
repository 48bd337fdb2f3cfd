"""Figure patt-trajectory: gradient gaps at shared states, and how far apart the branches of a fork get."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pairgrad_paper.figures.seeds import over_seeds
from pairgrad_paper.figures.style import BLACK, BLUE, GREEN, GREY, PURPLE, VERMILION, open_axes
from pairgrad_paper.records import Record, Records
from pairgrad_paper.tables import published
from pairgrad_paper.tables.captured_source import forks, others_than_forks
from pairgrad_paper.tables.fork_summary import CONTROL, LABEL, control_note, controls, fork_checks, fork_notes, spread_note
from pairgrad_paper.tables.table import Cell, Column, Row, Table, number

_TITLE = "Equal losses, other gradients, other trajectories"
_PROBE = ("feature_gap", "parameter_gap", "feature_residual", "parameter_residual", "scores_equal", "loss_equal")
_DISTANCE = ("parameter_distance", "feature_distance", "feature_cosine")
_STARTS = {"random": "Random start", "trained": "Trained start"}
_APART = 0.05  # marks of a curve, in diagonals of the panel
_BRANCHES: dict[str, dict[str, Any]] = {
    CONTROL: {"color": GREY, "lw": 2.2},
    "consistent": {"color": VERMILION, "lw": 2.2},
    "arfr": {"color": GREEN, "lw": 0.8, "marker": "o", "ms": 5, "mfc": "none", "markevery": _APART},
    "paired": {"color": PURPLE, "lw": 0.8, "marker": "s", "ms": 5, "mfc": "none", "markevery": _APART},
}


def read(records: Records) -> Table:
    """A row per probe, and per branch and measured distance."""
    found = forks(records, _TITLE, LABEL)
    rows = [row for start, group in found.items() for record in group.runs.values() for row in _rows(start, record)]
    distances = "; ".join(
        f"{start} start: parameters {_last(rows, start, 'parameter')}, features {_last(rows, start, 'feature')}" for start in found
    )
    return Table(
        name="patt-trajectory",
        title=_TITLE,
        caption=(
            "Branches of a PATT run that differ in the realization alone and see the same augmented tensors, from a random and from an intermediate "
            "state. Left, as in the paper: gaps between the supplied gradient and the consistent one at shared states, where scores and losses are equal in "
            "every bit, with respect to the features (vMF loss) and to all parameters (total loss); hollow: what the best overall factor "
            "leaves. Right: distances from the original branch after separate updates, over its length, of the parameters and of features of fixed "
            'images; thick "consistent", which differs in its backward alone, thin with marks "arfr" and "paired", which replace value and slope '
            "together; grey, as a control, how far apart two coherent branches are, whose gradients differ far less. Over several seeds: means, and bands "
            "from the smallest to the largest. Both axes are logarithmic on the right. "
            f'Distances of "consistent" in the end: {distances}; the learning rate falls on the way, and with it what an update can add. The paper prints no '
            "distances and speaks of substantial separation."
        ),
        label=LABEL,
        columns=(
            Column("start", "start"),
            Column("seed", "seed"),
            Column("part", "part"),
            Column("step", "step", "d"),
            Column("branch", "branch"),
            *(Column(key, key.replace("_", " "), ".3e") for key in (*_PROBE, *_DISTANCE)),
        ),
        rows=tuple(rows),
        checks=fork_checks(found),
        notes=(*fork_notes(found), *spread_note(found), *others_than_forks(records, found), *control_note(found)),
    )


def _rows(start: str, record: Record) -> list[Row]:
    who = {"start": start, "seed": record.facts["seed"]}
    rows = [_row(who, "probe", line["step"], **{key: line[key] for key in _PROBE}) for line in record.of("probe")]
    measured = [(line["branch"], line) for line in record.of("distance")]
    measured += [(name, line) for name, lines in controls(record).items() for line in lines]
    for branch, line in measured:
        distances = {key: line[key.removesuffix("_distance")] for key in _DISTANCE}
        rows.append(_row(who, "distance", line["step"], branch, **distances))
    return rows


def _row(who: Row, part: str, step: int, branch: str | None = None, **cells: Cell) -> Row:
    return {**who, "part": part, "step": step, "branch": branch} | {key: cells.get(key) for key in (*_PROBE, *_DISTANCE)}


def _last(rows: list[Row], start: str, what: str) -> str:
    """The distances of the consistent branches in the end, from the smallest to the largest."""
    own = [row for row in rows if row["start"] == start and row["branch"] == "consistent"]
    step = max(number(row, "step") for row in own)
    found = sorted(number(row, f"{what}_distance") for row in own if row["step"] == step)
    low, high = f"{found[0]:.3f}", f"{found[-1]:.3f}"
    return low if low == high else f"{low} to {high}"


def draw(plt: Any, table: Table) -> Any:
    starts = [start for start in _STARTS if start in table.column("start")]
    size = (10.0, 3.3 * len(starts) + 1.2)
    figure, panels = plt.subplots(len(starts), 2, figsize=size, squeeze=False, sharex="col", sharey="col", layout="constrained")
    for start, (left, right) in zip(starts, panels, strict=True):
        rows = [row for row in table.rows if row["start"] == start]
        probes = [row for row in rows if row["part"] == "probe"]
        _gaps(left, probes)
        _distances(right, [row for row in rows if row["part"] == "distance"])
        equal = sum(row["scores_equal"] is row["loss_equal"] is True for row in probes)
        left.set_title(
            f"{_STARTS[start]}: gradient gaps at shared states\n(scores and losses equal in every bit at {equal} of {len(probes)})"
        )
        right.set_title(f"{_STARTS[start]}: distance from the original branch\n(same augmented tensors, separate updates)")
    for axes in panels[-1]:
        axes.set_xlabel("updates since the fork")
        axes.xaxis.set_tick_params(labelbottom=True)
    handles, labels = panels[-1][0].get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda at: "parameters" in labels[at])  # features first, then parameters
    _below(panels[-1][0], [handles[at] for at in order])
    _legend(panels[-1][1], _ordered(table.rows), _coinciding(table.rows))
    open_axes(*panels.flat)
    return figure


def _gaps(axes: Any, probes: list[Row]) -> None:
    for key, colour, marker, label in (("feature", VERMILION, "o", "features"), ("parameter", BLUE, "s", "parameters")):
        style = {"color": colour, "marker": marker, "ms": 4}
        over_seeds(axes, probes, "step", f"{key}_gap", lw=1.0, label=f"gap, {label}", **style)
        over_seeds(
            axes, probes, "step", f"{key}_residual", lw=0.7, ls=":", mfc="white", label=f"after the best overall factor, {label}", **style
        )
    order = float(published.FORK_GAP_ORDER)
    axes.axhline(order, color=GREY, lw=1.2, ls="--", zorder=1, label="order that the paper states")
    axes.set_yscale("log")
    axes.set_ylabel("relative difference of gradients")


def _distances(axes: Any, rows: list[Row]) -> None:
    for branch in _ordered(rows):
        own = [row for row in rows if row["branch"] == branch and number(row, "step") > 0]
        for key, line in (("parameter_distance", "-"), ("feature_distance", "--")):
            over_seeds(axes, own, "step", key, positive=True, ls=line, **_style(branch))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylabel("relative distance")


def _ordered(rows: Iterable[Row]) -> list[str]:
    """The branches that there are, in the order in which they are drawn over one another; of those that coincide, the first."""
    rows = list(rows)
    found = {str(row["branch"]) for row in rows if row["branch"] is not None and row["parameter_distance"]}
    found -= {name for others in _coinciding(rows).values() for name in others}
    return [*sorted(found - set(_BRANCHES)), *(name for name in _BRANCHES if name in found)]


def _coinciding(rows: Iterable[Row]) -> dict[str, list[str]]:
    """The branches whose distances are those of another at every place, by that other."""
    curves: dict[tuple[tuple[Cell, ...], ...], list[str]] = {}
    by_branch: dict[str, list[tuple[Cell, ...]]] = {}
    for row in rows:
        if row["part"] == "distance":
            by_branch.setdefault(str(row["branch"]), []).append((row["start"], row["seed"], row["step"], *(row[key] for key in _DISTANCE)))
    for name in sorted(by_branch, key=lambda name: list(_BRANCHES).index(name) if name in _BRANCHES else -1):
        curves.setdefault(tuple(by_branch[name]), []).append(name)
    return {first: others for first, *others in curves.values() if others}


def _style(branch: str) -> dict[str, Any]:
    return _BRANCHES.get(branch, {"color": BLACK, "lw": 1.0})


def _legend(axes: Any, branches: list[str], coinciding: dict[str, list[str]]) -> None:
    """Colours for branches and line styles for what is measured."""
    handles = []
    for name in reversed(branches):
        others = coinciding.get(name, [])
        label = f"control: {name}" if name == CONTROL else " = ".join([name, *others]) + (" (one curve)" if others else "")
        handles.append(axes.plot([], [], label=label, **_style(name))[0])
    handles += [axes.plot([], [], color=BLACK, ls=line, label=name)[0] for name, line in (("parameters", "-"), ("features", "--"))]
    _below(axes, handles)


def _below(axes: Any, handles: list[Any]) -> None:
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.2))
