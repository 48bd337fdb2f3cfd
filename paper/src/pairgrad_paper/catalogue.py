"""Every table and figure by name, with how many steps it takes: what the commands offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pairgrad_paper.figures import (
    class_count_control,
    clipped_defect,
    concentration_depth,
    cubic_decay,
    efficiency_compact,
    learning_curves,
    mechanism_controls,
    overview,
    patt_measured_field,
    patt_trajectory,
    proco_state_distribution,
    regime_scaling,
    style,
    theoretical_field,
    value_and_slope,
)
from pairgrad_paper.figures import complexity as complexity_figure
from pairgrad_paper.recipes import UnknownName
from pairgrad_paper.records import RecordError, Records
from pairgrad_paper.tables import class_count, constants, fidelity, local_costs, numbers, parity, study, task_tables, two_class
from pairgrad_paper.tables.backward import backward_counterfactual, precision_geometry
from pairgrad_paper.tables.captured_audit import captured_audit
from pairgrad_paper.tables.complexity import complexity
from pairgrad_paper.tables.fork_summary import fork_summary
from pairgrad_paper.tables.not_run import NotRun
from pairgrad_paper.tables.one_step_replay import one_step_replay
from pairgrad_paper.tables.paper_items import PAPER, named
from pairgrad_paper.tables.proco_states import proco_states
from pairgrad_paper.tables.published import DIMENSIONS
from pairgrad_paper.tables.table import Row, Table, Tick

Item = TypeVar("Item")


@dataclass(frozen=True)
class TableRecipe:
    """`make` computes the table and calls its argument `steps` times."""

    steps: int
    make: Callable[[Tick], Table]

    def table(self, tick: Tick, records: Records) -> Table:
        if self.make not in _MADE:
            _MADE[self.make] = self.make(tick)
        else:
            for _ in range(self.steps):
                tick()
        return _MADE[self.make]


_MADE: dict[Callable[[Tick], Table], Table] = {}  # what is computed takes nothing, so that it is computed once in a process


@dataclass(frozen=True)
class RecordedTable:
    """`read` makes the table from records, in a moment; it raises `NotRun` where these are not there."""

    read: Callable[[Records], Table]
    steps: int = 1

    def table(self, tick: Tick, records: Records) -> Table:
        try:
            table = self.read(records)
        except (KeyError, IndexError, TypeError) as error:
            raise RecordError(
                f"a record in {records.directory} has not what its kind has ({type(error).__name__}: {error}): make it again with this version of pairgrad"
            ) from error
        tick()
        return table


@dataclass(frozen=True)
class SummaryTable:
    """`make` takes the rows of other items by name, `sources`, as far as these were run."""

    sources: tuple[str, ...]
    make: Callable[[Mapping[str, Sequence[Row]]], Table]

    @property
    def steps(self) -> int:
        return len(self.sources)

    def table(self, tick: Tick, records: Records) -> Table:
        found: dict[str, Sequence[Row]] = {}
        for name in self.sources:
            with suppress(NotRun):
                found[name] = {**TABLES, **FIGURES}[name].table(lambda: None, records).rows
            tick()
        return self.make(found)


@dataclass(frozen=True)
class FigureRecipe(TableRecipe):
    """`make` computes what is drawn; `draw` draws nothing but that."""

    draw: Callable[[Any, Table], Any]

    def save(self, table: Table, directory: Path) -> list[Path]:
        return _save(self.draw, table, directory)

    def picture(self, table: Table, kind: str) -> bytes:
        return _picture(self.draw, table, kind)


@dataclass(frozen=True)
class RecordedFigure:
    """`read` makes from records what is drawn; `draw` draws nothing but that."""

    read: Callable[[Records], Table]
    draw: Callable[[Any, Table], Any]
    steps: int = 1

    table = RecordedTable.table

    def save(self, table: Table, directory: Path) -> list[Path]:
        return _save(self.draw, table, directory)

    def picture(self, table: Table, kind: str) -> bytes:
        return _picture(self.draw, table, kind)


@contextmanager
def _drawn(draw: Callable[[Any, Table], Any], table: Table) -> Iterator[Any]:
    plt = style.pyplot()
    with plt.rc_context(style.SETTINGS), style.same_on_every_cpu():
        figure = draw(plt, table)
        for _ in range(2):  # panels of a fixed aspect find their place in the second round
            figure.canvas.draw()
        figure.set_layout_engine("none")  # what a layout engine has placed it would place again, and elsewhere, for every file
        try:
            yield figure
        finally:
            plt.close(figure)


def _save(draw: Callable[[Any, Table], Any], table: Table, directory: Path) -> list[Path]:
    """Draw a figure and write its files."""
    with _drawn(draw, table) as figure:
        return style.save(figure, table, directory)


def _picture(draw: Callable[[Any, Table], Any], table: Table, kind: str) -> bytes:
    """Draw a figure: the bytes of its file of that kind."""
    with _drawn(draw, table) as figure:
        return style.picture(figure, table, kind)


TABLES: Mapping[str, TableRecipe | RecordedTable | SummaryTable] = {
    "ratio-fidelity": TableRecipe(len(DIMENSIONS), fidelity.ratio_fidelity),
    "difference-fidelity": TableRecipe(len(DIMENSIONS), fidelity.difference_fidelity),
    "parity": TableRecipe(4, parity.parity),
    "constants": TableRecipe(constants.STEPS, constants.constants),
    "complexity": RecordedTable(complexity),
    "two-class": TableRecipe(len(two_class.RATIOS), two_class.two_class),
    "mismatch-strength": TableRecipe(len(two_class.STRENGTHS), two_class.mismatch_strength),
    "backward-counterfactual": RecordedTable(backward_counterfactual),
    "captured-audit": RecordedTable(captured_audit),
    "precision-geometry": RecordedTable(precision_geometry),
    "one-step-replay": RecordedTable(one_step_replay),
    "fork-summary": RecordedTable(fork_summary),
    "proco-states": RecordedTable(proco_states),
    "class-count": TableRecipe(len(class_count.COUNTS) * len(class_count.PRIOR_RATIOS), class_count.class_count),
    "task-summary": RecordedTable(task_tables.task_summary),
    "task-complete": RecordedTable(task_tables.task_complete),
    "cifar-study": RecordedTable(study.cifar_study),
    "cifar-study-differences": RecordedTable(study.cifar_study_differences),
    "cifar-study-ood": RecordedTable(study.cifar_study_ood),
    "h100-local": RecordedTable(local_costs.h100_local),
    "numbers": SummaryTable(numbers.SOURCES, numbers.numbers),
}

FIGURES: Mapping[str, FigureRecipe | RecordedFigure] = {
    "value-and-slope": FigureRecipe(1, value_and_slope.data, value_and_slope.draw),
    "cubic-decay": FigureRecipe(len(DIMENSIONS), cubic_decay.data, cubic_decay.draw),
    "concentration-depth": FigureRecipe(
        len(concentration_depth.DIMENSIONS) * len(concentration_depth.DEPTHS), concentration_depth.data, concentration_depth.draw
    ),
    "clipped-defect": FigureRecipe(len(clipped_defect.ORDERS), clipped_defect.data, clipped_defect.draw),
    "complexity-certificate": RecordedFigure(complexity_figure.data, complexity_figure.draw),
    "class-count-control": FigureRecipe(
        len(class_count.COUNTS) * len(class_count.PRIOR_RATIOS), class_count_control.data, class_count_control.draw
    ),
    "theoretical-field": FigureRecipe(2, theoretical_field.data, theoretical_field.draw),
    "mechanism-controls": FigureRecipe(mechanism_controls.STEPS, mechanism_controls.data, mechanism_controls.draw),
    "patt-trajectory": RecordedFigure(patt_trajectory.read, patt_trajectory.draw),
    "patt-measured-field": RecordedFigure(patt_measured_field.read, patt_measured_field.draw),
    "regime-scaling": RecordedFigure(regime_scaling.read, regime_scaling.draw),
    "proco-state-distribution": RecordedFigure(proco_state_distribution.read, proco_state_distribution.draw),
    "overview": FigureRecipe(overview.STEPS, overview.data, overview.draw),
    "learning-curves": RecordedFigure(learning_curves.read, learning_curves.draw),
    "efficiency-compact": RecordedFigure(efficiency_compact.read, efficiency_compact.draw),
}


def chosen(known: Mapping[str, Item], names: Iterable[str] | None, kind: str) -> dict[str, Item]:
    """The entries of those names, in the order of the catalogue, or all where none is named.

    A name is one of the catalogue, or a LaTeX label of the paper, with or without `tab:` or `fig:`.
    """
    found = {name: named(name, known) for name in names or known}
    unknown = [name for name, meant in found.items() if not meant]
    if unknown:
        near = list(dict.fromkeys(one for name in unknown for one in _nearest(name, known)))
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        hint = _elsewhere(unknown, kind) or hint
        raise UnknownName(f"no {kind} is called {', '.join(map(repr, unknown))}; there are {', '.join(known)}{hint}")
    wanted = {name for meant in found.values() for name in meant}
    return {name: item for name, item in known.items() if name in wanted}


def _elsewhere(unknown: list[str], kind: str) -> str:
    """Where a word that is unknown here is known: a figure was asked for as a table, or the other way round."""
    other, catalogue = ("figure", FIGURES) if kind == "table" else ("table", TABLES)
    words = [word for name in unknown if (meant := named(name, catalogue)) for word in ("--only", meant[0])]
    return f"; {' and '.join(words[1::2])} is a {other}: pairgrad {other}s {' '.join(words)}" if words else ""


def _nearest(name: str, known: Iterable[str]) -> list[str]:
    """Names of the catalogue that look like a word, or that stand beside a label that does."""
    bare = name.partition(":")[2] or name
    labels = {item.label.partition(":")[2]: item.label for item in PAPER.values()}
    beside = {short: [each for each in known if each in PAPER[label].names] for short, label in labels.items()}
    words = {**{each: [each] for each in known}, **beside}
    return [one for word in get_close_matches(bare, list(words), n=2) for one in words[word]]
