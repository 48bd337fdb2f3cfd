"""What the local step costs (tab:h100-local): published on an H100, and ours, measured by `python -m benchmarks.learning` on the same workload."""

from __future__ import annotations

from pairgrad_paper.records import Line, Record, Records
from pairgrad_paper.tables import published
from pairgrad_paper.tables.published import H100_MEBIBYTES, H100_MILLISECONDS
from pairgrad_paper.tables.table import Cell, Check, Column, Row, Table

LABEL = "tab:h100-local"
ORIGINAL, DENSE, STRUCTURED = "Original recurrence", "AR/FR", "Structure-aware AR/FR"
NOT_RUN = "not run"
CPU_COMMANDS = (
    "python -m benchmarks.learning --parts paper --output costs/learning.md",
    "pairgrad collect costs/learning.json --records records",
)
H100_COMMANDS = (
    "python -m benchmarks.learning --protocol paper --output costs-h100/learning.md",
    "pairgrad collect costs-h100/learning.json --records records",
)
_OURS_ALONE = {
    "arfr touched rows": "AR/FR, statistics of touched rows alone",
    "arfr factorised": "AR/FR, touched rows and factorised geometry",
    "structure-aware arfr eager": "Structure-aware AR/FR, not compiled",
    "structure-aware paired eager": "Structure-aware paired, not compiled",
    "structure-aware paired compiled": "Structure-aware paired",
}  # measured here and not in the paper


def h100_local(records: Records) -> Table:
    """A row for each of the paper's, and for what is measured here besides."""
    cpu, gpu = cost_record(records, "cpu"), cost_record(records, "cuda")
    names = [*H100_MILLISECONDS, *(name for name in _OURS_ALONE.values() if any(name in costs(record) for record in (cpu, gpu)))]
    rows = tuple(_row(name, cpu, gpu) for name in names)
    return Table(
        name="h100-local",
        title="Time and memory of the local step",
        caption=(
            "One forward and backward of the vMF term with its class statistics, B = 32, K = 1000, p = 1024: median time, peak of the memory that it takes in "
            f"addition, and how many times faster it is than the original recurrence on the same machine (ours: the median "
            f"over rounds in which both ran). Ours on the CPU: {_where(cpu)}; on a GPU: "
            f"{_where(gpu)}."
        ),
        label=LABEL,
        columns=(
            Column("method", "realization"),
            *_columns("published", "published, H100"),
            *_columns("cpu", "ours, CPU"),
            *_columns("gpu", "ours, GPU"),
        ),
        rows=rows,
        checks=_checks(),
        notes=_notes(cpu, gpu),
    )


def cost_record(records: Records, device: str) -> Record | None:
    """What was measured on a kind of device; of several protocols the paper's."""
    found = records.of("cost", lambda record: record.facts["device"] == device and not record.facts["quick"])
    return min(found, key=lambda record: record.facts["protocol"] != "paper", default=None)


def costs(record: Record | None) -> dict[str, Line]:
    """The lines that were measured, by their name in the paper's table or in ours."""
    named = ((line["published_name"] or _OURS_ALONE.get(line["method"]), line) for line in (record.of("cost") if record else ()))
    return {name: line for name, line in named if name is not None and line["median_ms"] is not None}


def machine_name(record: Record) -> str:
    """What it was measured on."""
    return str(record.environment["device"]["name"] if record.facts["device"] == "cuda" else record.facts["machine"]["CPU"])


def _columns(key: str, words: str) -> tuple[Column, Column, Column]:
    return (
        Column(f"{key}_ms", f"{words}, ms", ".4g"),
        Column(f"{key}_mib", f"{words}, MiB", ".2f"),
        Column(f"{key}_faster", "times faster", ".3g" if key != "published" else ""),
    )


def _row(name: str, cpu: Record | None, gpu: Record | None) -> Row:
    row: dict[str, Cell] = {"method": name, "published_ms": None, "published_mib": None, "published_faster": None}
    if name in set(H100_MILLISECONDS):
        faster = float(H100_MILLISECONDS[ORIGINAL]) / float(H100_MILLISECONDS[name])
        row |= {
            "published_ms": H100_MILLISECONDS[name].text,
            "published_mib": H100_MEBIBYTES[name].text,
            "published_faster": f"{faster:.4g}" if faster > 100 else f"{faster:.3g}",
        }
    for key, record in (("cpu", cpu), ("gpu", gpu)):
        found = costs(record)
        line = found.get(name)
        row |= {
            f"{key}_ms": NOT_RUN if line is None else line["median_ms"],
            f"{key}_mib": None if line is None else line["peak_mib"],
            f"{key}_faster": None if line is None else line["faster"],
        }
    return row


def _checks() -> tuple[Check, ...]:
    """Whether the quotients of the text are those of the table's numbers."""
    ms = {name: float(H100_MILLISECONDS[name]) for name in H100_MILLISECONDS}
    mib = {name: float(H100_MEBIBYTES[name]) for name in H100_MEBIBYTES}
    quotients = (
        (published.H100_EVALUATOR, ms[ORIGINAL] / ms[DENSE]),
        (published.H100_EXECUTION, ms[DENSE] / ms[STRUCTURED]),
        (published.H100_BOTH, ms[ORIGINAL] / ms[STRUCTURED]),
        (published.H100_MEMORY, mib[ORIGINAL] / mib[STRUCTURED]),
    )
    listed = ", ".join(printed.text for printed, _ in quotients)
    return (
        Check(f"the published factors {listed} are the quotients of the published numbers", all(p.same_digits(q) for p, q in quotients)),
    )


def _where(record: Record | None) -> str:
    if record is None:
        return NOT_RUN
    facts = record.facts
    return (
        f"{machine_name(record)}, torch {facts['machine']['torch']}, {facts['machine']['threads']} thread(s), {facts['warmups']} warm-ups and "
        f"up to {facts['repeats']} repetitions, {facts['date']}"
    )


def _notes(cpu: Record | None, gpu: Record | None) -> tuple[str, ...]:
    notes = [
        "A CPU and an H100 are different machines: quotients within a column can be compared, and even they need not agree. Memory is what the step "
        "allocates above what is there before it."
    ]
    found = costs(cpu)
    if {ORIGINAL, DENSE, STRUCTURED} <= set(found):
        original, dense, structured = (found[name]["median_ms"] for name in (ORIGINAL, DENSE, STRUCTURED))
        most = "On this CPU the dense layout, not the recurrence, takes most of the time: " if dense > original / 2 else ""
        notes.append(
            f"{most}{'with' if most else 'With'} AR/FR in the same layout {dense:.0f} of {original:.0f} ms are "
            f"left ({found[DENSE]['faster']:.1f} times faster; published on the H100: {published.H100_EVALUATOR.text}). Structure-aware execution brings that "
            f"to {structured:.1f} ms ({dense / structured:.0f} times; published: {published.H100_EXECUTION.text})."
        )
    return (*notes, *missing_notes(cpu, gpu))


def missing_notes(cpu: Record | None, gpu: Record | None) -> tuple[str, ...]:
    """What to type for a machine on which nothing was measured."""
    return tuple(
        f"Ours on the {device}: {NOT_RUN}. On such a machine, in a checkout: {', then '.join(f'`{command}`' for command in commands)}."
        for record, device, commands in ((cpu, "CPU", CPU_COMMANDS), (gpu, "GPU", H100_COMMANDS))
        if record is None
    )
