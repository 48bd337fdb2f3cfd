"""Figure efficiency-compact (fig:efficiency-compact): time against memory of the local step, published on an H100 and ours on what was measured."""

from __future__ import annotations

from typing import Any

from pairgrad_paper.figures.style import BLACK, BLUE, GREEN, GREY, PURPLE, VERMILION, open_axes
from pairgrad_paper.records import Records
from pairgrad_paper.tables.local_costs import CPU_COMMANDS, DENSE, ORIGINAL, STRUCTURED, cost_record, costs, machine_name, missing_notes
from pairgrad_paper.tables.not_run import NotRun
from pairgrad_paper.tables.published import H100_MEBIBYTES, H100_MILLISECONDS
from pairgrad_paper.tables.table import Column, Row, Table, number

_TITLE = "Time against memory of the local step"
_LABEL = "fig:efficiency-compact"
_STYLES: dict[str, dict[str, Any]] = {
    ORIGINAL: {"color": VERMILION, "marker": "o"},
    "Consistent recurrence": {"color": PURPLE, "marker": "s"},
    "Log-domain Miller": {"color": GREY, "marker": "v"},
    DENSE: {"color": BLUE, "marker": "^"},
    STRUCTURED: {"color": GREEN, "marker": "*"},
}
_PANELS = {"published": "Published: one H100", "cpu": "Ours: a CPU", "gpu": "Ours: a GPU"}


def read(records: Records) -> Table:
    """Five ways to compute the step, as published and on each machine that was measured."""
    cpu, gpu = (cost_record(records, device) for device in ("cpu", "cuda"))
    measured = {machine: record for machine, record in (("cpu", cpu), ("gpu", gpu)) if record is not None}
    if not measured:
        raise NotRun(_TITLE, _LABEL, CPU_COMMANDS, "A quarter of an hour on a CPU that does nothing else")
    published = (
        {"machine": "published", "method": name, "milliseconds": float(H100_MILLISECONDS[name]), "mebibytes": float(H100_MEBIBYTES[name])}
        for name in H100_MILLISECONDS
    )
    ours = (
        {"machine": machine, "method": name, "milliseconds": found[name]["median_ms"], "mebibytes": found[name]["peak_mib"]}
        for machine, found in ((machine, costs(record)) for machine, record in measured.items())
        for name in H100_MILLISECONDS
        if name in found
    )
    where = "; ".join(f"{machine_name(record)}, {record.facts['date']}" for record in measured.values())
    return Table(
        name="efficiency-compact",
        title=_TITLE,
        caption=(
            "Median time and additional peak memory of a forward and backward of the vMF term with class statistics, B = 32, K = 1000, p = 1024. Left: as "
            f"printed in the paper. Right: measured on {where}. Arrows: from the original recurrence to AR/FR "
            "in the same dense layout, and on to structure-aware execution."
        ),
        label=_LABEL,
        columns=(
            Column("machine", "machine"),
            Column("method", "realization"),
            Column("milliseconds", "ms", ".4g"),
            Column("mebibytes", "MiB", ".4g"),
        ),
        rows=(*published, *ours),
        notes=("The panels are of different machines; factors can be compared, milliseconds cannot.", *missing_notes(cpu, gpu)),
    )


def draw(plt: Any, table: Table) -> Any:
    shown = [machine for machine in _PANELS if machine in table.column("machine")]
    figure, panels = plt.subplots(1, len(shown), figsize=(5.0 * len(shown), 4.9))
    for axes, machine in zip(panels, shown, strict=True):
        points = {str(row["method"]): row for row in table.rows if row["machine"] == machine}
        _panel(axes, points)
        axes.set(title=_PANELS[machine], xlabel="milliseconds, median (log scale)", ylabel="additional peak memory, MiB (log scale)")
    open_axes(*panels)
    handles = [plt.Line2D([], [], ls="", ms=11 if name == STRUCTURED else 8, label=name, **style) for name, style in _STYLES.items()]
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), columnspacing=1.2, handletextpad=0.3)
    return figure


def _panel(axes: Any, points: dict[str, Row]) -> None:
    axes.set(xscale="log", yscale="log")
    for name, row in points.items():
        x, y = number(row, "milliseconds"), number(row, "mebibytes")
        axes.plot(x, y, ls="", ms=16 if name == STRUCTURED else 9, zorder=3, **_STYLES[name])
    low, high = axes.get_xlim()
    axes.set_xlim(low / 3, high * 3)
    low, high = axes.get_ylim()
    axes.set_ylim(low / 2.5, high * 4)
    for start, end, above in ((ORIGINAL, DENSE, True), (DENSE, STRUCTURED, False)):
        if start in points and end in points:
            _arrow(axes, points[start], points[end], above)
    if ORIGINAL in points and STRUCTURED in points:
        time, memory = (number(points[ORIGINAL], key) / number(points[STRUCTURED], key) for key in ("milliseconds", "mebibytes"))
        axes.text(
            0.03,
            0.97,
            f"together: {_factor(time)} faster, {_factor(memory)} less memory",
            transform=axes.transAxes,
            va="top",
            fontsize=10,
            fontweight="bold",
            color=BLACK,
        )


def _arrow(axes: Any, start: Row, end: Row, above: bool) -> None:
    (x0, y0), (x1, y1) = ((number(row, "milliseconds"), number(row, "mebibytes")) for row in (start, end))
    axes.annotate(
        "", (x1, y1), xytext=(x0, y0), arrowprops={"arrowstyle": "-|>", "lw": 1.4, "color": BLACK, "shrinkA": 7, "shrinkB": 9}, zorder=2
    )
    words = f"{_factor(x0 / x1)} faster"
    if y0 / y1 > 1.5:
        words += f",\n{_factor(y0 / y1)} less memory"
    place = ((x0 * x1) ** 0.5, (y0 * y1) ** 0.5)
    offset, align = ((0, 9), {"ha": "center", "va": "bottom"}) if above else ((10, -4), {"ha": "left", "va": "top"})
    axes.annotate(words, place, xytext=offset, textcoords="offset points", fontsize=10, **align)


def _factor(value: float) -> str:
    return f"{value:.1f}×" if value < 100 else f"{value:,.0f}×"
