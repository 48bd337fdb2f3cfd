"""Forks of a run: local gaps at shared states, and how far the branches are apart in the end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import fmean, median

from pairgrad_paper.records import Line, Record, Records
from pairgrad_paper.tables import published
from pairgrad_paper.tables.captured_source import counted, forks, others_than_forks, stand_in, system, to_be_met
from pairgrad_paper.tables.seeds import Seeds, Spread
from pairgrad_paper.tables.table import Cell, Check, Column, Row, Table, mean_columns

_TITLE = "Forks of a PATT run: local gaps and what becomes of them"
CONTROL = "arfr from consistent"  # two coherent branches, which differ in the finite start of the recurrence alone
LABEL = "fig:patt-trajectory"
_SHOWN = (1, 2, 5, 10, 20)  # updates after which the control is told, besides the last


def fork_summary(records: Records) -> Table:
    """A row per start and branch, over all seeds."""
    found = forks(records, _TITLE, LABEL)
    rows = tuple(row for start, group in found.items() for row in _rows(start, group))
    return Table(
        name="fork-summary",
        title=_TITLE,
        caption=(
            "From one state, branches that differ in the realization alone see the same augmented tensors. Probes, at states of the "
            '"original" branch, of all seeds together: at how many "consistent" has the same scores and loss in every bit; the largest difference of '
            "the loss of the others; and the gap of the gradient, medians: length of the difference from the consistent gradient over its length, of "
            'the supplied one in the row "consistent", of the branch\'s own in the others; left: what the best factor for the whole '
            'leaves. In the end, mean ± standard deviation over seeds: distance from the "original" branch (in the last rows of a start, between '
            "coherent branches), over its length, of parameters and of features of fixed images, and the mean of 1 - cos of these features; mean total loss "
            "of the last tenth of the updates."
        ),
        label=LABEL,
        columns=_COLUMNS,
        rows=rows,
        checks=(*fork_checks(found), *_separated(found)),
        notes=(
            *fork_notes(found),
            *spread_note(found),
            *others_than_forks(records, found),
            *control_note(found),
            f"The paper says of its {published.FORK_PROBES.text} probes per fork that scores and losses are equal in every bit and gradient gaps of the "
            f"order of {published.FORK_GAP_ORDER.text}, and shows the distances in a figure.",
        ),
    )


def all_of(found: Mapping[str, Seeds]) -> list[Record]:
    """The forks from all starts, of all seeds."""
    return [record for group in found.values() for record in group.runs.values()]


def fork_checks(found: Mapping[str, Seeds]) -> tuple[Check, ...]:
    """The number of probes, bitwise equality at each, and the order of the gaps."""
    probes = _lines(all_of(found), "probe")
    wanted = [len(record.of("probe")) == float(published.FORK_PROBES) for record in all_of(found)]
    return (
        counted(f"{published.FORK_PROBES.text} probes, as in the paper,", wanted),
        counted("scores and losses of original and consistent equal in every bit", [_equal(p) for p in probes]),
        *to_be_met(
            all_of(found)[0],
            counted(
                f"gap of the feature gradient of the order of {published.FORK_GAP_ORDER.text}, as in the paper,",
                [_of_the_order(p["feature_gap"]) for p in probes],
            ),
            counted(
                f"gap of the parameter gradient of the order of {published.FORK_GAP_ORDER.text}",
                [_of_the_order(p["parameter_gap"]) for p in probes],
            ),
        ),
    )


def _of_the_order(gap: float) -> bool:
    """Whether the logarithm rounds to that of the printed power of ten."""
    return gap > 0 and round(math.log10(gap / float(published.FORK_GAP_ORDER))) == 0


def _rows(start: str, group: Seeds) -> list[Row]:
    rows = [_row(start, group, branch) for branch in group.first.facts["branches"] if branch != "original"]
    names = list(dict.fromkeys(name for record in group.runs.values() for name in controls(record)))
    for name in names:
        lasts = [controls(record)[name][-1] for record in group.runs.values() if name in controls(record)]
        rows.append({**dict.fromkeys(rows[0]), "start": start, "branch": name, "forks": len(lasts), **_distances(lasts)})
    return rows


def controls(record: Record) -> dict[str, list[Line]]:
    """Distances between two coherent branches, where there are any, by what is measured from what."""
    found: dict[str, list[Line]] = {}
    for line in record.lines:
        if line["kind"] == "control":
            reference, branch = line["between"]
            found.setdefault(f"{branch} from {reference}", []).append(line)
    return found


def control_note(found: Mapping[str, Seeds]) -> tuple[str, ...]:
    """How far the branches are apart that share a backward, beside those that do not: after the first update, and in the end."""
    texts = [f"{start} start, {text}" for start, group in found.items() for text in _control_texts(list(group.runs.values()))]
    if not texts:
        return ()
    return (
        "Control: training amplifies any difference. Coherent branches differ at one state by far less than the two backward rules do (loss difference and "
        "feature gap in the table), and what becomes of that is measured beside it: what a distance says about the backward rule, it says where it is "
        f"larger than the control. Distances of parameters{', means over seeds and the range of the quotients' * _several(found)}: {'; '.join(texts)}.",
    )


def _control_texts(records: list[Record]) -> list[str]:
    texts = []
    for name in dict.fromkeys(name for record in records for name in controls(record)):
        lines = [line for record in records for line in controls(record).get(name, [])]
        if equal(lines):
            texts.append(f'"{name}": equal in every bit wherever measured, {len(lines)} times, last after {lines[-1]["step"]} updates')
        elif name == CONTROL:
            pairs = _beside_control(records)
            shown = [step for step in pairs if step in _SHOWN or step == max(pairs)]
            told = (
                f"{fmean(own for own, _ in pairs[step]):.2g} and {fmean(c for _, c in pairs[step]):.2g} after {step}{_times(pairs[step])}"
                for step in shown
            )
            texts.append(f'"consistent from original" and "{name}": ' + ", ".join(told))
    return texts


def _beside_control(records: list[Record]) -> dict[int, list[tuple[float, float]]]:
    """By update, of each fork that has both: the distance of the consistent branch, and that of the control."""
    pairs: dict[int, list[tuple[float, float]]] = {}
    for record in records:
        own = {line["step"]: line["parameter"] for line in record.of("distance") if line["branch"] == "consistent"}
        for line in controls(record).get(CONTROL, []):
            if line["step"] > 0 and line["step"] in own:
                pairs.setdefault(line["step"], []).append((own[line["step"]], line["parameter"]))
    return pairs


def _times(pairs: list[tuple[float, float]]) -> str:
    quotients = [own / control for own, control in pairs if control]
    if not quotients:
        return ""
    low, high = f"{min(quotients):.3g}", f"{max(quotients):.3g}"
    return f" ({low} times)" if low == high else f" ({low} to {high} times)"


def _several(found: Mapping[str, Seeds]) -> bool:
    return any(len(group.runs) > 1 for group in found.values())


def spread_note(found: Mapping[str, Seeds]) -> tuple[str, ...]:
    """What the error bars are, and where there are none."""
    counts = {start: len(group.runs) for start, group in found.items()}
    if not _several(found):
        return ("One seed: there are no error bars.",)
    words = ", ".join(f"{count} from the {start} start" for start, count in counts.items())
    return (f"Seeds: {words}. The deviation is that of a sample (n - 1), and is itself uncertain with so few.",)


def equal(lines: list[Line]) -> bool:
    """Whether nothing that was measured between two branches differs."""
    return not any(line["parameter"] or line["feature"] for line in lines)


def _row(start: str, group: Seeds, branch: str) -> Row:
    records = list(group.runs.values())
    probes = _lines(records, "probe")
    lasts = [[line for line in record.of("distance") if line["branch"] == branch][-1] for record in records]
    consistent = branch == "consistent"
    gap, loss_gap = ("feature_gap", "") if consistent else (f"{branch}_gap", f"{branch}_loss_gap")
    gaps = [p[gap] for p in probes if gap in p]  # probes look at four realizations, and a branch may be of another
    return {
        "start": start,
        "branch": branch,
        "forks": len(records),
        "probes": len(probes),
        "equal": sum(_equal(p) for p in probes) if consistent else None,
        "loss_difference": max((p[loss_gap] for p in probes if loss_gap in p), default=None),
        "feature_gap_low": min(gaps, default=None),
        "feature_gap": median(gaps) if gaps else None,
        "feature_gap_high": max(gaps, default=None),
        "feature_residual": _median(probes, "feature_residual") if consistent else None,
        "parameter_gap": _median(probes, "parameter_gap") if consistent else None,
        "parameter_residual": _median(probes, "parameter_residual") if consistent else None,
        **_distances(lasts),
        **Spread.of(_late_loss(record, branch) for record in records).cells("loss"),
        **Spread.of(_late_loss(record, "original") for record in records).cells("original_loss"),
    }


def _distances(lasts: list[Line]) -> dict[str, Cell]:
    cells: dict[str, Cell] = {"updates": lasts[0]["step"]}
    for key, name in (("parameter_distance", "parameter"), ("feature_distance", "feature"), ("feature_cosine", "feature_cosine")):
        cells |= Spread.of(line[name] for line in lasts).cells(key)
    return cells


def _lines(records: Iterable[Record], kind: str) -> list[Line]:
    return [line for record in records for line in record.of(kind)]


def _equal(probe: Line) -> bool:
    return probe["scores_equal"] and probe["loss_equal"]


def _median(probes: list[Line], key: str) -> float:
    return median(p[key] for p in probes)


def _late_loss(record: Record, branch: str) -> float | None:
    """Mean total loss of the last tenth of the updates."""
    late = [line for line in record.lines if line["kind"] == "loss" and line["step"] > 0.9 * record.facts["updates"]]
    totals = [line["total"] for line in late if line["branch"] == branch]
    return sum(totals) / len(totals) if totals else None


_COLUMNS = (
    Column("start", "start"),
    Column("branch", "branch"),
    Column("forks", "seeds", "d"),
    Column("probes", "probes", "d"),
    Column("equal", "equal in every bit", "d"),
    Column("loss_difference", "loss difference", ".1e"),
    Column("feature_gap_low", "feature gap, smallest", ".3e", shown=False),
    Column("feature_gap", "feature gap", ".3e"),
    Column("feature_gap_high", "feature gap, largest", ".3e", shown=False),
    Column("feature_residual", "left", ".1e"),
    Column("parameter_gap", "parameter gap", ".3e"),
    Column("parameter_residual", "left", ".1e"),
    Column("updates", "updates", "d"),
    *mean_columns("parameter_distance", "parameter distance", ".4f"),
    *mean_columns("feature_distance", "feature distance", ".4f"),
    *mean_columns("feature_cosine", "1 - cos", ".2e"),
    *mean_columns("loss", "late loss", ".4f"),
    *mean_columns("original_loss", "late loss of original", ".4f"),
)


def _separated(found: Mapping[str, Seeds]) -> tuple[Check, ...]:
    """Where the two rules part, and that the control is not what parts them: after one update, before it is amplified."""
    held = []
    for record in all_of(found):
        own = [line for line in record.of("distance") if line["branch"] == "consistent" and line["step"] > 0]
        first = own[0]
        control = [line["parameter"] for line in controls(record).get(CONTROL, []) if line["step"] == first["step"]]
        held.append(
            first["parameter"] > 0 and own[-1]["parameter"] > first["parameter"] and all(first["parameter"] > 10 * c for c in control)
        )
    text = (
        "the consistent branch is away from the original one after the first update, by ten times the control, and further away in the end,"
    )
    return (counted(text, held),)


def fork_notes(found: Mapping[str, Seeds]) -> tuple[str, ...]:
    """What was run, once where all forks are of one system."""
    _, *rest = found
    words = {system(*group.runs.values()) for group in found.values()}
    if len(words) == 1:
        record, *also = all_of(found)
        notes = (" ".join([stand_in(record, "resnet18", also=also), *map(_begun, found.values())]),)
    else:
        notes = tuple(_noted(group) for group in found.values())
    return notes if rest else (*notes, "There is a record of one of the paper's two starts only.")


def _noted(group: Seeds) -> str:
    record, *also = group.runs.values()
    return f"{stand_in(record, 'resnet18', also=also)} {_begun(group)}"


def _begun(group: Seeds) -> str:
    facts = group.first.facts
    if facts["start"] == "random":
        return f"Random start: {facts['updates']} updates from the initial parameters."
    return f"Trained start: a state after {facts['start_step']} updates, and {facts['updates']} further ones."
