"""Forks of a run: local gaps at shared states, and how far the branches are apart in the end."""

from __future__ import annotations

import math
from statistics import median

from pairgrad_paper.records import Line, Record, Records
from pairgrad_paper.tables import published
from pairgrad_paper.tables.captured_source import counted, forks, stand_in, system, to_be_met
from pairgrad_paper.tables.table import Cell, Check, Column, Row, Table

_TITLE = "Forks of a PATT run: local gaps and what becomes of them"
CONTROL = "arfr from consistent"  # two coherent branches, which differ in the finite start of the recurrence alone
LABEL = "fig:patt-trajectory"
_SHOWN = (1, 2, 5, 10, 20)  # updates after which the control is told, besides the last


def fork_summary(records: Records) -> Table:
    """A row per start and branch."""
    found = forks(records, _TITLE, LABEL)
    rows = tuple(row for start, record in found.items() for row in _rows(start, record))
    return Table(
        name="fork-summary",
        title=_TITLE,
        caption=(
            "From one state, branches that differ in the realization alone see the same augmented tensors. Probes, at states of the "
            '"original" branch: at how many "consistent" has the same scores and loss in every bit; the largest difference of the loss of '
            "the others; and the gap of the gradient, medians: length of the difference from the consistent gradient over its length, of "
            'the supplied one in the row "consistent", of the branch\'s own in the others; left: what the best factor for the whole '
            'leaves. In the end: distance from the "original" branch (in the last rows of a start, between coherent branches), over its '
            "length, of parameters and of features of fixed images, and the mean of 1 - cos of these features; mean total loss of the last "
            "tenth of the updates."
        ),
        label=LABEL,
        columns=_COLUMNS,
        rows=rows,
        checks=(*fork_checks(found), *_separated(found)),
        notes=(
            *fork_notes(found),
            *control_note(found),
            f"The paper says of its {published.FORK_PROBES.text} probes per fork that scores and losses are equal in every bit and gradient gaps of the "
            f"order of {published.FORK_GAP_ORDER.text}, and shows the distances in a figure.",
        ),
    )


def fork_checks(found: dict[str, Record]) -> tuple[Check, ...]:
    """The number of probes, bitwise equality at each, and the order of the gaps."""
    probes = [line for record in found.values() for line in record.of("probe")]
    wanted = [len(record.of("probe")) == float(published.FORK_PROBES) for record in found.values()]
    return (
        counted(f"{published.FORK_PROBES.text} probes, as in the paper,", wanted),
        counted("scores and losses of original and consistent equal in every bit", [_equal(p) for p in probes]),
        *to_be_met(
            next(iter(found.values())),
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


def _rows(start: str, record: Record) -> list[Row]:
    rows = [_row(start, record, branch) for branch in record.facts["branches"] if branch != "original"]
    for name, lines in controls(record).items():
        rows.append({**dict.fromkeys(rows[0]), "start": start, "branch": name, **_distances(lines[-1])})
    return rows


def controls(record: Record) -> dict[str, list[Line]]:
    """Distances between two coherent branches, where there are any, by what is measured from what."""
    found: dict[str, list[Line]] = {}
    for line in record.lines:
        if line["kind"] == "control":
            reference, branch = line["between"]
            found.setdefault(f"{branch} from {reference}", []).append(line)
    return found


def control_note(found: dict[str, Record]) -> tuple[str, ...]:
    """How far the branches are apart that share a backward, beside those that do not: after the first update, and in the end."""
    texts = []
    for start, record in found.items():
        for name, lines in controls(record).items():
            if equal(lines):
                texts.append(
                    f'{start} start, "{name}": equal in every bit wherever measured, {len(lines)} times, last after {lines[-1]["step"]} updates'
                )
            elif name == CONTROL:
                own = {line["step"]: line["parameter"] for line in record.of("distance") if line["branch"] == "consistent"}
                pairs = [(line["step"], own[line["step"]], line["parameter"]) for line in lines if line["step"] > 0 and line["step"] in own]
                shown = [pair for pair in pairs if pair[0] in _SHOWN or pair is pairs[-1]]
                texts.append(
                    f'{start} start, "consistent from original" and "{name}": '
                    + ", ".join(f"{mine:.2g} and {theirs:.2g} after {step}{_times(mine, theirs)}" for step, mine, theirs in shown)
                )
    if not texts:
        return ()
    return (
        "Control: training amplifies any difference. Coherent branches differ at one state by far less than the two backward rules do (loss difference and "
        "feature gap in the table), and what becomes of that is measured beside it: what a distance says about the backward rule, it says where it is "
        f"larger than the control. Distances of parameters: {'; '.join(texts)}.",
    )


def _times(mine: float, theirs: float) -> str:
    return f" ({mine / theirs:.3g} times)" if theirs else ""


def equal(lines: list[Line]) -> bool:
    """Whether nothing that was measured between two branches differs."""
    return not any(line["parameter"] or line["feature"] for line in lines)


def _row(start: str, record: Record, branch: str) -> Row:
    probes = record.of("probe")
    last = [line for line in record.of("distance") if line["branch"] == branch][-1]
    consistent = branch == "consistent"
    gap, loss_gap = ("feature_gap", "") if consistent else (f"{branch}_gap", f"{branch}_loss_gap")
    gaps = [p[gap] for p in probes if gap in p]  # probes look at four realizations, and a branch may be of another
    return {
        "start": start,
        "branch": branch,
        "probes": len(probes),
        "equal": sum(_equal(p) for p in probes) if consistent else None,
        "loss_difference": max((p[loss_gap] for p in probes if loss_gap in p), default=None),
        "feature_gap_low": min(gaps, default=None),
        "feature_gap": median(gaps) if gaps else None,
        "feature_gap_high": max(gaps, default=None),
        "feature_residual": _median(probes, "feature_residual") if consistent else None,
        "parameter_gap": _median(probes, "parameter_gap") if consistent else None,
        "parameter_residual": _median(probes, "parameter_residual") if consistent else None,
        **_distances(last),
        **_losses(record, branch),
    }


def _distances(line: Line) -> dict[str, Cell]:
    return {
        "updates": line["step"],
        "parameter_distance": line["parameter"],
        "feature_distance": line["feature"],
        "feature_cosine": line["feature_cosine"],
    }


def _equal(probe: Line) -> bool:
    return probe["scores_equal"] and probe["loss_equal"]


def _median(probes: list[Line], key: str) -> float:
    return median(p[key] for p in probes)


def _losses(record: Record, branch: str) -> dict[str, Cell]:
    """Mean total loss of the last tenth of the updates, of the branch and of the original one."""
    late = [line for line in record.lines if line["kind"] == "loss" and line["step"] > 0.9 * record.facts["updates"]]
    means = {}
    for key, name in (("loss", branch), ("original_loss", "original")):
        totals = [line["total"] for line in late if line["branch"] == name]
        means[key] = sum(totals) / len(totals) if totals else None
    return means


_COLUMNS = (
    Column("start", "start"),
    Column("branch", "branch"),
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
    Column("parameter_distance", "parameter distance", ".4f"),
    Column("feature_distance", "feature distance", ".4f"),
    Column("feature_cosine", "1 - cos", ".2e"),
    Column("loss", "late loss", ".4f"),
    Column("original_loss", "late loss of original", ".4f"),
)


def _separated(found: dict[str, Record]) -> tuple[Check, ...]:
    """Where the two rules part, and that the control is not what parts them: after one update, before it is amplified."""
    held = []
    for record in found.values():
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


def fork_notes(found: dict[str, Record]) -> tuple[str, ...]:
    """What was run, once where all forks are of one system."""
    first, *rest = found.values()
    if all(system(record) == system(first) for record in rest):
        notes = (" ".join([stand_in(first, "resnet18", also=rest), *map(_begun, found.values())]),)
    else:
        notes = tuple(f"{stand_in(record, 'resnet18')} {_begun(record)}" for record in found.values())
    return notes if rest else (*notes, "There is a record of one of the paper's two starts only.")


def _begun(record: Record) -> str:
    if record.facts["start"] == "random":
        return f"Random start: {record.facts['updates']} updates from the initial parameters."
    return f"Trained start: a state after {record.facts['start_step']} updates, and {record.facts['updates']} further ones."
