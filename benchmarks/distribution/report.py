"""The page docs/distribution-benchmarks.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import metadata

from benchmarks.distribution.contestants import CHEAPER, NONE, PAIRGRAD, PEERS, POWER, SCIPY, TFP
from benchmarks.distribution.places import (
    BATCH,
    COLUMNS,
    CONSTRUCTION,
    ENTROPY,
    ENTROPY_GRADIENT,
    FIT,
    KL,
    LOG_PROB,
    LOG_PROB_GRADIENT,
    QUANTITIES,
    SAMPLE,
)
from benchmarks.distribution.rows import Cell, Row
from benchmarks.markdown import table

GOAL, BAR, CHEAPER_BAR = 1.0, 0.7, 0.5
_PACKAGES = {SCIPY: "scipy", "JAX": "jax", TFP: "tensorflow-probability", POWER: "power_spherical"}
_NOTES = {
    CONSTRUCTION: "The object alone, of one distribution and of 1,000; scipy's hold one each. TFP's is not compiled, and does not look at its arguments; "
    "pairgrad reads them to see that they are unit vectors, all of the time that p = 4096 takes.",
    SAMPLE: "n draws from one distribution. From p = 3 on scipy makes a dense rotation for every call, in time proportional to p³; at p = 2 it is a loop in "
    "C that NumPy has for the circle.",
    LOG_PROB: "Of n directions under one distribution. At n = 1 a compiled call of TFP takes less than ten microseconds, which is as long as it takes eager "
    "code to look at the shapes, dtypes and lengths of its arguments.",
    LOG_PROB_GRADIENT: "The sum over n directions and its gradient in the directions, the mean direction and the concentration. scipy has none. "
    "torch's autograd takes 20 microseconds for the gradient of a single multiplication, longer than TFP's compiled call for all of it.",
    ENTROPY: "Of one distribution and of 1,000 with one mean direction and concentrations from κ to 2 κ.",
    ENTROPY_GRADIENT: "With the gradient in the concentration. scipy has none.",
    KL: "Between one pair of distributions, and 1,000 pairs. Neither scipy nor TFP has it.",
    FIT: "Maximum likelihood from n directions, at κ = p/2. TFP has none.",
    BATCH: "1,000 distributions, concentrations from κ to 2 κ, each at one direction. scipy takes one distribution at a time, in a loop.",
}


def versions() -> str:
    return ", ".join(f"{name} {_version(package)}" for name, package in _PACKAGES.items())


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def microseconds(cell: Cell) -> str:
    value = 1e6 * cell.samples.median
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ratio(row: Row, peer: str, bar: float = GOAL) -> str:
    """Below the bar in bold; with a dagger where the result is wrong."""
    cell, value = row.cells.get(peer), row.ratio(peer)
    if cell is None or value is None:
        return NONE if cell is None else cell.note
    text = f"{value:,.0f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.1g}"
    return (f"**{text}**" if value < bar else text) + "†" * cell.wrong


def line(row: Row) -> str:
    """For the terminal."""
    others = (f"{name} {ratio(row, name)}" for name in row.cells if name != PAIRGRAD and row.cells[name].note != NONE)
    return f"{row.place}: {microseconds(row.cells[PAIRGRAD])} µs; {', '.join(others)}"


def _peers(quantity: str, rows: list[Row]) -> list[str]:
    """Peers that have the quantity, installed or not."""
    return [name for name in PEERS if any(row.cells[name].note != NONE for row in rows if row.place.quantity == quantity)]


def _label(quantity: str, column: tuple[int, bool]) -> str:
    count, fresh = column
    both = {(count, True), (count, False)} <= set(COLUMNS[quantity])
    made = "" if not both else ", made in the call" if fresh else ", made before"
    return f"n = {count:,}{made}: µs"


def _by_line(rows: Iterable[Row]) -> dict[tuple[str, int], dict[tuple[int, bool], Row]]:
    found: dict[tuple[str, int], dict[tuple[int, bool], Row]] = {}
    for row in rows:
        found.setdefault((row.place.dtype, row.place.dim), {})[row.place.column] = row
    return found


def times(quantity: str, rows: list[Row]) -> str:
    """The table of a quantity: dtypes and dimensions down, sizes across."""
    peers = _peers(quantity, rows)
    header = ["dtype", "p", "κ", *(name for column in COLUMNS[quantity] for name in (_label(quantity, column), *peers))]
    lines = []
    for (dtype, dim), cells in _by_line(row for row in rows if row.place.quantity == quantity).items():
        kappa = next(iter(cells.values())).place.kappa
        entries = [dtype, str(dim), f"{kappa:g}"]
        for column in COLUMNS[quantity]:
            row = cells[column]
            few = f" (n = {row.place.count:,})" if row.place.count != column[0] else ""
            entries += [microseconds(row.cells[PAIRGRAD]) + few, *(ratio(row, name) for name in peers)]
        lines.append(entries)
    return table(header, lines, 1)


def cheaper(rows: list[Row]) -> str:
    """Ratios to distributions that are not von Mises-Fisher, or not of vectors."""
    header, lines = ["", "peer", "dtype", "p", "n: ratio"], []
    for quantity in (SAMPLE, LOG_PROB):
        for name in CHEAPER:
            for (dtype, dim), cells in _by_line(row for row in rows if row.place.quantity == quantity and name in row.cells).items():
                entries = (
                    f"{row.place.count:,}{', made in the call' if row.place.fresh else ''}: {ratio(row, name, CHEAPER_BAR)}"
                    for row in cells.values()
                )
                lines.append([quantity, name, dtype, str(dim), "; ".join(entries)])
    return table(header, lines, 5)


def _counts(name: str, ratios: list[float], bars: tuple[float, float]) -> list[str]:
    goal, bar = bars
    ahead, near = sum(r >= goal for r in ratios), sum(bar <= r < goal for r in ratios)
    return [name, str(len(ratios)), str(ahead), str(near), str(len(ratios) - ahead - near)]


def _all(rows: list[Row], names: Iterable[str], wanted: Callable[[Cell], bool] = lambda cell: True) -> list[list[float]]:
    """Per row the ratios to those peers that were timed and are wanted."""
    found = ([row.ratio(name) for name in names if name in row.cells and wanted(row.cells[name])] for row in rows)
    return [some for ratios in found if (some := [r for r in ratios if r is not None])]


def summary(rows: list[Row]) -> str:
    bars = (GOAL, BAR)
    lines = [
        _counts("the fastest of scipy and TFP", [min(r) for r in _all(rows, PEERS)], bars),
        _counts("the fastest whose result is right", [min(r) for r in _all(rows, PEERS, lambda cell: not cell.wrong)], bars),
        *(_counts(name, [r for (r,) in _all(rows, (name,))], bars) for name in PEERS),
    ]
    goals = table(("against", "rows", "ratio of 1 or more", "0.7 to 1", "below 0.7"), lines, 1)
    other = []
    for name in CHEAPER:
        ratios = [r for (r,) in _all(rows, (name,))]
        within = sum(r >= CHEAPER_BAR for r in ratios)
        other.append([name, str(len(ratios)), str(within), str(len(ratios) - within)])
    return goals + "\n\n" + table(("against a cheaper function", "rows", "ratio of 0.5 or more", "below 0.5"), other, 1)


def behind(rows: list[Row]) -> str:
    """Every ratio below its bar, the smallest first."""
    found = []
    for row in rows:
        for names, bar in ((PEERS, BAR), (CHEAPER, CHEAPER_BAR)):
            for name in names:
                value = row.ratio(name)
                if value is not None and value < bar:
                    found.append((value, row, name))
    if not found:
        return "There are none."
    found.sort(key=lambda entry: entry[0])
    lines = [
        [str(row.place), name, microseconds(row.cells[PAIRGRAD]), microseconds(row.cells[name]), ratio(row, name, 0.0)]
        for _, row, name in found
    ]
    return table(("row", "peer", "pairgrad, µs", "peer, µs", "ratio"), lines, 2)


def accuracy(rows: list[Row]) -> str:
    """Per quantity and dtype the largest error of results that are not wrong."""
    header, lines = ("", "dtype", PAIRGRAD, *PEERS), []
    for quantity in QUANTITIES:
        for dtype in dict.fromkeys(row.place.dtype for row in rows):
            chosen = [row for row in rows if (row.place.quantity, row.place.dtype) == (quantity, dtype)]
            entries = [_worth([row.cells[name] for row in chosen], "s.e." if quantity == SAMPLE else "eps") for name in (PAIRGRAD, *PEERS)]
            if any(entry != NONE for entry in entries):
                lines.append([quantity, dtype, *entries])
    return table(header, lines, 2)


def _worth(cells: list[Cell], unit: str) -> str:
    verdicts = [cell.verdict for cell in cells if cell.verdict is not None]
    if not verdicts:
        return NONE
    wrong = sum(verdict.wrong for verdict in verdicts)
    errors = [verdict.error for verdict in verdicts if not verdict.wrong and verdict.error is not None]
    parts = ((errors, f"{max(errors, default=0.0):.1f} {unit}"), (wrong, f"**{wrong} of {len(verdicts)} wrong**"))
    return ", ".join(text for some, text in parts if some)


def wrong(rows: list[Row]) -> str:
    """Wrong results: contestant, quantity and dtype, with what came in which dimension."""
    found: dict[tuple[str, str, str], dict[str, list[int]]] = {}
    for row in rows:
        for name, cell in row.cells.items():
            if cell.verdict is not None and cell.verdict.wrong:
                texts = found.setdefault((name, row.place.quantity, row.place.dtype), {})
                dims = texts.setdefault(cell.verdict.text, [])
                if row.place.dim not in dims:
                    dims.append(row.place.dim)
    if not found:
        return "There are none."
    lines = [
        [*key, "; ".join(f"{text} (p = {', '.join(map(str, dims))})" for text, dims in texts.items())]
        for key, texts in sorted(found.items())
    ]
    return table(("peer", "", "dtype", "result"), lines, 4)


def page(rows: list[Row], measured: dict[str, str]) -> str:
    """`measured` says how: command, machine, timing."""
    present = [quantity for quantity in QUANTITIES if any(row.place.quantity == quantity for row in rows)]
    tables = "\n\n".join(f"### {quantity}\n\n{_NOTES[quantity]}\n\n{times(quantity, rows)}" for quantity in present)
    return f"""# VonMisesFisher beside scipy and TensorFlow Probability

This page is written by `{measured["command"]}` from its record in `benchmarks/results/`; edits are lost.

Times of [`VonMisesFisher`][pairgrad.VonMisesFisher] in eager mode, `scipy.stats.vonmises_fisher`, and the `VonMisesFisher` of TensorFlow Probability
(TFP) on JAX, compiled; and what their results are worth. A row is a quantity in a dtype and in p dimensions, of n directions or distributions. A ratio is the
peer's time over pairgrad's: above 1 pairgrad is faster; below 1 it is in bold. A dagger (†) marks a peer's [wrong result](#wrong-results).

## Summary

The goal is a ratio of 1 or more in every row, the bar 0.7; against the [cheaper functions](#cheaper-functions), 0.5.

{summary(rows)}

### Below the bar

{behind(rows)}

## How it was measured

- **Machine:** {measured["machine"]}.
- **Timing:** one thread. {measured["timing"]} TFP's compilation is not counted.
- **Objects:** unless a column says otherwise, samples, log_prob, entropies and divergences are of an object made before: pairgrad may have kept what
  depends on the parameters alone, and in TFP's program they are constants. Where the object is made in the call, they are arguments of TFP's program.
  Construction and fits make objects, and so do the rows with a gradient.
- **Checks:** as each library has them by default. pairgrad and scipy check the parameters, and that directions have length 1; TFP checks nothing;
  `power_spherical` and torch check what torch's distributions do.
- **float32:** every contestant gets float32 arrays. scipy multiplies in float32 and computes the normaliser in float64, because its concentration is a Python
  number. JAX runs without 64-bit types, for with them TFP computes parts in float64.
- **Gradients:** `torch.autograd.grad` of the sum, and `jax.value_and_grad` of it under `jax.jit`.

## Times

{tables}

## Cheaper functions

What a user may take instead, with the goal of at most twice its time: `PowerSpherical` of the package `power_spherical`, another distribution, whose
density is a power and whose draws need no rejection; and `torch.distributions.VonMises`, the same distribution at p = 2, of angles instead of vectors
and without an entropy. Ratios below 0.5 are in bold.

{cheaper(rows)}

## Accuracy

The largest error over all rows of a quantity and dtype, results that are wrong left out.

{accuracy(rows)}

**log_prob** (of the first direction) and **entropy** (of the first distribution) are compared with ball arithmetic, in eps of the dtype and of the sum of
the absolute values of the terms in their definition, and so is the gradient of **log_prob** in the concentration; the gradient of the **entropy**, the
**KL divergence** and a **fit** (with the maximum of the likelihood) relative to themselves. A **sample** of 100 or more is judged by how many standard errors
its mean cosine is away from the exact one. Gradients in the vectors are not compared: they depend on how a density is continued off the sphere.

### Wrong results

Infinities and NaN; fits that are off by more than 1 %; samples more than 5 standard errors away, which happens to a right sampler once in 1.7 million; and
other numbers that have lost half of their digits.

{wrong(rows)}
"""
