"""Every table and figure by name, with how many steps it takes: what the commands offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pairgrad.experiments import class_count, constants, counterfactual, fidelity, parity, published, two_class
from pairgrad.experiments.complexity import complexity
from pairgrad.experiments.figures import (
    class_count_control,
    clipped_defect,
    concentration_depth,
    cubic_decay,
    mechanism_controls,
    style,
    theoretical_field,
    value_and_slope,
)
from pairgrad.experiments.figures import complexity as complexity_figure
from pairgrad.experiments.published import DIMENSIONS
from pairgrad.experiments.records import Records
from pairgrad.experiments.table import Table, Tick

Item = TypeVar("Item")


class UnknownName(LookupError):
    """There is no table or figure of that name."""


@dataclass(frozen=True)
class TableRecipe:
    """`make` computes the table and calls its argument `steps` times."""

    steps: int
    make: Callable[[Tick], Table]

    def table(self, tick: Tick, records: Records) -> Table:
        return self.make(tick)


@dataclass(frozen=True)
class RecordedTable:
    """`read` makes the table from records, in a moment; it raises `NotRun` where these are not there."""

    read: Callable[[Records], Table]
    steps: int = 1

    def table(self, tick: Tick, records: Records) -> Table:
        table = self.read(records)
        tick()
        return table


@dataclass(frozen=True)
class FigureRecipe(TableRecipe):
    """`make` computes what is drawn; `draw` draws nothing but that."""

    draw: Callable[[Any, Table], Any]

    def save(self, table: Table, directory: Path) -> list[Path]:
        return _save(self.draw, table, directory)


@dataclass(frozen=True)
class RecordedFigure:
    """`read` makes from records what is drawn; `draw` draws nothing but that."""

    read: Callable[[Records], Table]
    draw: Callable[[Any, Table], Any]
    steps: int = 1

    table = RecordedTable.table

    def save(self, table: Table, directory: Path) -> list[Path]:
        return _save(self.draw, table, directory)


def _save(draw: Callable[[Any, Table], Any], table: Table, directory: Path) -> list[Path]:
    """Draw a figure and write its files."""
    plt = style.pyplot()
    with plt.rc_context(style.SETTINGS):
        figure = draw(plt, table)
        try:
            return style.save(figure, table, directory)
        finally:
            plt.close(figure)


TABLES: Mapping[str, TableRecipe | RecordedTable] = {
    "ratio-fidelity": TableRecipe(len(DIMENSIONS), fidelity.ratio_fidelity),
    "difference-fidelity": TableRecipe(len(DIMENSIONS), fidelity.difference_fidelity),
    "parity": TableRecipe(4, parity.parity),
    "constants": TableRecipe(constants.STEPS, constants.constants),
    "complexity": TableRecipe(len(DIMENSIONS), complexity),
    "two-class": TableRecipe(len(two_class.RATIOS), two_class.two_class),
    "mismatch-strength": TableRecipe(len(two_class.STRENGTHS), two_class.mismatch_strength),
    "backward-counterfactual": TableRecipe(len(published.COUNTERFACTUAL_VIEWS), counterfactual.backward_counterfactual),
    "captured-audit": TableRecipe(2 * len(counterfactual.STRETCHES), counterfactual.captured_audit),
    "precision-geometry": TableRecipe(4, counterfactual.precision_geometry),
    "class-count": TableRecipe(len(class_count.COUNTS) * len(class_count.PRIOR_RATIOS), class_count.class_count),
}

FIGURES: Mapping[str, FigureRecipe | RecordedFigure] = {
    "value-and-slope": FigureRecipe(1, value_and_slope.data, value_and_slope.draw),
    "cubic-decay": FigureRecipe(len(DIMENSIONS), cubic_decay.data, cubic_decay.draw),
    "concentration-depth": FigureRecipe(
        len(concentration_depth.DIMENSIONS) * len(concentration_depth.DEPTHS), concentration_depth.data, concentration_depth.draw
    ),
    "clipped-defect": FigureRecipe(len(clipped_defect.ORDERS), clipped_defect.data, clipped_defect.draw),
    "complexity-certificate": FigureRecipe(len(DIMENSIONS), complexity_figure.data, complexity_figure.draw),
    "class-count-control": FigureRecipe(
        len(class_count.COUNTS) * len(class_count.PRIOR_RATIOS), class_count_control.data, class_count_control.draw
    ),
    "theoretical-field": FigureRecipe(2, theoretical_field.data, theoretical_field.draw),
    "mechanism-controls": FigureRecipe(mechanism_controls.STEPS, mechanism_controls.data, mechanism_controls.draw),
}


def chosen(known: Mapping[str, Item], names: Iterable[str] | None, kind: str) -> dict[str, Item]:
    """The entries of those names, in the order of the catalogue, or all where none is named."""
    wanted = list(names or known)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UnknownName(f"no {kind} is called {', '.join(map(repr, unknown))}; there are {', '.join(known)}")
    return {name: item for name, item in known.items() if name in wanted}
