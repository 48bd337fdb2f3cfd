"""A table as data: what is compared, where the paper prints it, columns that know their format, rows, checks and notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pairgrad.ground import rounded_up
from pairgrad_paper.tables.published import Printed

Cell = float | int | str | bool | None
Row = Mapping[str, Cell]
Tick = Callable[[], object]  # called after each step of a computation, for a progress bar


@dataclass(frozen=True)
class Column:
    """`key` names it in the CSV, `heading` for a reader; numbers are shown in the format `spec` and stored whole."""

    key: str
    heading: str
    spec: str = ""
    shown: bool = True  # False: in the CSV alone
    upwards: bool = False  # a bound: rounded up, so that what is shown is one too
    floor: float = 0.0  # what is smaller is rounding, which differs between machines: its digits are not shown
    rounding: bool = False  # errors that are rounding themselves: those of another processor are of the same size, in other digits
    deviation: str = ""  # the key of the column that has the standard deviation of what is a mean

    def of(self, row: Row) -> str:
        """The cell of a row as it is shown: a mean with its standard deviation, where there is one."""
        text = self.text(row[self.key])
        deviation = row[self.deviation] if self.deviation else None
        return text if deviation is None else f"{text} ± {self.text(deviation)}"

    def text(self, cell: Cell) -> str:
        if cell is None:
            return ""
        if isinstance(cell, bool):
            return "yes" if cell else "no"
        if not isinstance(cell, str) and abs(cell) < self.floor:
            return f"< {self.floor:.0e}"
        if self.upwards and not isinstance(cell, str):
            digits = int(self.spec[1:-1]) + 1  # of a format such as ".2e"
            cell = float(rounded_up(cell, digits))
        return cell if isinstance(cell, str) else format(cell, self.spec)


@dataclass(frozen=True)
class Check:
    """A statement about the rows, and whether it holds."""

    text: str
    held: bool

    def __str__(self) -> str:
        return f"{self.text}: {'yes' if self.held else 'NO'}"


@dataclass(frozen=True)
class Table:
    """`name` is that of its files; `label` is the LaTeX label of what it stands beside; `caption` says what is compared with what.

    `parts` say in short what the rows say; they stand before these, and in a terminal instead of them.
    """

    name: str
    title: str
    caption: str
    label: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    parts: tuple[Table, ...] = ()

    def __post_init__(self) -> None:
        keys = {column.key for column in self.columns}
        for row in self.rows:
            if set(row) != keys:
                raise ValueError(f"table {self.name!r}: a row and the columns differ in {sorted(keys ^ set(row))}")

    @property
    def shown(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.shown)

    def column(self, key: str) -> list[Cell]:
        return [row[key] for row in self.rows]

    def numbers(self, key: str) -> list[float]:
        """A column of numbers, whether they are ours or printed."""
        return [float(cell) for cell in self.column(key) if cell is not None]


def mean_columns(key: str, heading: str, spec: str, *, shown: bool = True) -> tuple[Column, Column]:
    """A mean over seeds, shown with its standard deviation, which has a column of its own in the CSV."""
    return Column(key, heading, spec, shown, deviation=f"{key}_deviation"), Column(f"{key}_deviation", f"{heading}, deviation", spec, False)


def number(row: Row, key: str) -> float:
    """The cell of a row that must be a number."""
    cell = row[key]
    if not isinstance(cell, (int, float)):
        raise TypeError(f"{key} is {cell!r}, not a number")
    return float(cell)


def compared_columns(
    key: str, heading: str, spec: str, *, error: str = "", printed: str = "", shown: bool = True
) -> tuple[Column, Column, Column, Column]:
    """Ours, the printed number, ours over printed, and whether the digits agree (in the CSV); `error` ends the key of ours."""
    return (
        Column(key + error, heading, spec),
        Column(f"{key}_published", printed or f"{heading}, published", "", shown),
        Column(f"{key}_ratio", "ours / published", ".4f", shown),
        Column(f"{key}_same_digits", "same digits", "", False),
    )


def compared(key: str, ours: float, printed: Printed, *, error: str = "") -> dict[str, Cell]:
    """The cells of `compared_columns`."""
    return {
        key + error: ours,
        f"{key}_published": printed.text,
        f"{key}_ratio": ours / float(printed),
        f"{key}_same_digits": printed.same_digits(ours),
    }


def same_digits(name: str, rows: tuple[Row, ...], key: str) -> Check:
    """How many of the rows agree with the paper in all printed digits; held if all do."""
    agreeing = sum(bool(row[f"{key}_same_digits"]) for row in rows)
    return Check(f"{name}: equal to the published value in all printed digits in {agreeing} of {len(rows)} rows", agreeing == len(rows))
