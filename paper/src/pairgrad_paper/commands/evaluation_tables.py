"""What `pairgrad evaluate` prints: tables that fit 80 columns, in percent."""

from __future__ import annotations

import statistics
from collections.abc import Sequence, Set

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pairgrad.ground import printable
from pairgrad_paper.evaluation import SCORES, Evaluation, ScoreReport, Trained
from pairgrad_paper.recipes import RECIPES, Recipe
from pairgrad_paper.recipes.settings import keys

Shown = tuple[Trained, Evaluation]

_WIDE = 120  # columns from which on a mean and its deviation stand on one line
_LOGITS = {"as they are": ("energy", "msp"), "calibrated, paper": ("patt-paper",), "calibrated, released code": ("patt-released",)}


def show(console: Console, trained: Trained, evaluation: Evaluation, conventions: Sequence[str], told: Set[str] = frozenset()) -> None:
    """Tables of one run: accuracy, and OOD detection by score and source; and its notes, but for those that were `told` already."""
    console.print(Text(printable(f"{trained.run.path.absolute().name}, after {trained.step} updates"), style="bold"), soft_wrap=True)
    accuracy = _table("logits", "accuracy", "many", "medium", "few", "balanced")
    for words, names in _LOGITS.items():
        found = [evaluation.scores[name].accuracy for name in names if name in evaluation.scores]
        if found:
            a = found[0]
            accuracy.add_row(words, *map(_percent, (a.accuracy, a.many, a.medium, a.few, a.balanced)))
    if accuracy.row_count:
        _print(console, f"accuracy on {evaluation.images}, %", accuracy, _groups(evaluation))
    if any(report.ood is not None for report in evaluation.scores.values()):
        _print(console, "OOD detection, %", _detection(evaluation, conventions))
    for name, why in evaluation.left_out.items():
        console.print(Text(printable(f"{name} was left out: {why}")))
    for note in evaluation.notes:
        if note not in told:
            console.print(Text(printable(f"note: {note}")))
    if not told.isdisjoint(evaluation.notes):
        console.print(Text("other notes as above"))


def _groups(evaluation: Evaluation) -> str:
    """How many classes have many, medium and few training images, and how many that is."""
    parts = []
    for group in ("many", "medium", "few"):
        counts = sorted(each.training_images for each in evaluation.classes if each.group == group)
        if counts:
            parts.append(f"{group}: {len(counts)} classes of {counts[0]} to {counts[-1]} training images")
    return f"by the rule of {evaluation.shots}, {'; '.join(parts)}"


def _detection(evaluation: Evaluation, conventions: Sequence[str]) -> Table:
    table = _table("score\n  source", "ID", "OOD", "AUROC", "AUPR\nin", "AUPR\nout", *_rates(conventions))
    for name, report in evaluation.scores.items():
        if report.ood is None:
            continue
        rows = report.ood.rows()
        table.add_row(name)
        for row in rows[:1] if len(rows) == 2 else rows:  # the mean of one source is that source
            sizes = ["" if row[key] is None else str(row[key]) for key in ("num_id", "num_ood")]
            numbers = [_percent(row[key]) for key in ("auroc", "aupr_in", "aupr_out", *(f"fpr95 {c}" for c in conventions))]
            table.add_row(Text(f"  {row['source']}"), *sizes, *numbers)
    return table


def compare(console: Console, results: Sequence[Shown], conventions: Sequence[str]) -> None:
    """A table for each recipe as it was set, a row for each score and realization: means over the runs, and their standard deviation."""
    recipes: dict[str, dict[tuple[str, str], list[ScoreReport]]] = {}
    for trained, evaluation in results:
        groups = recipes.setdefault(f"{_title(trained.recipe)}, after {trained.step} updates", {})
        for name, report in evaluation.scores.items():
            groups.setdefault((name, trained.realization), []).append(report)
    between = " ± " if console.width >= _WIDE else "\n± "
    for title in sorted(recipes):
        heads = ("score", "realization", "runs", "accuracy", "few", "AUROC", *_rates(conventions))
        table = _table(*heads, words=2)
        for name, realization in sorted(recipes[title], key=lambda key: (SCORES.index(key[0]), key[1])):
            reports = recipes[title][name, realization]
            columns = [[r.accuracy.accuracy for r in reports], [r.accuracy.few for r in reports]]
            columns.append([r.ood.mean.auroc if r.ood else None for r in reports])
            columns += [[r.ood.mean.fpr95[convention] if r.ood else None for r in reports] for convention in conventions]
            table.add_row(name, realization, str(len(reports)), *(_spread(column, between) for column in columns))
        _print(console, f"{title}: mean ± standard deviation over runs, %", table)


def _title(recipe: Recipe) -> str:
    """The name of a recipe, and what was changed in it; the seed is another run of the same."""
    plain = keys(RECIPES[recipe.name]) if recipe.name in RECIPES else {}
    changes = [f"{key}={value}" for key, value in keys(recipe).items() if key != "seed" and plain.get(key, value) != value]
    return f"{recipe.name}{' with ' if changes else ''}{', '.join(changes)}"


def _print(console: Console, title: str, table: Table, below: str = "") -> None:
    console.print(Text(title, style="italic"))
    console.print(table)
    if below:
        console.print(Text(below, style="dim"))
    console.print()


def _table(*heads: str, words: int = 1) -> Table:
    """The first columns have words, the others numbers."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number < words else "right", vertical="top", no_wrap=number >= words)
    return table


def _rates(conventions: Sequence[str]) -> list[str]:
    return [f"FPR95\n{convention}" for convention in conventions]


def _percent(fraction: float | None) -> str:
    return "–" if fraction is None else f"{100 * fraction:.2f}"


def _spread(fractions: Sequence[float | None], between: str) -> str:
    known = [100 * fraction for fraction in fractions if fraction is not None]
    if not known:
        return "–"
    mean = statistics.fmean(known)
    return f"{mean:.2f}" if len(known) < 2 else f"{mean:.2f}{between}{statistics.stdev(known):.2f}"
