"""The page docs/learning-benchmarks.md, from the records alone."""

from __future__ import annotations

from itertools import pairwise

from benchmarks.learning import figure, growth, tables
from benchmarks.learning.contestants import COMPILED, DENSE, EAGER, ORIGINAL, SETTINGS
from benchmarks.learning.floor import TILE
from benchmarks.learning.published import H100_MILLISECONDS
from benchmarks.learning.record import Row, Run, ratio
from benchmarks.learning.session import GROWTH
from benchmarks.learning.workload import TEMPERATURE

_INTRODUCTION = (
    "A step takes two views of a batch of B images with K classes and features of dimension p. Each view updates the class banks and is then scored "
    "with all classes; the loss is the mean of the two cross-entropies with the log prior, and its gradient goes back to the features of both views. All "
    "of that is timed; the backbone, data loading and putting the state back are not. The *floor* is what no step can do without: two float32 matrix "
    "products over both views stacked, (2B, p) by (p, K) and (2B, K) by (K, p), into memory that is there already, and the sums and counts of the "
    "labelled rows."
)
_LAYOUT = (
    "*Dense layout* is that of the public code, written anew: class means of both banks through a (B, K, p) product of features and assignments, "
    "radii as norms of (B, K, p) resultants, potentials in float64, autograd. *Structure-aware* is `pairgrad.ProCoLoss`."
)


def page(runs: dict[str, Run], record_name: str) -> str:
    """The whole page; `runs` by protocol, one of them at least."""
    run = runs.get("interleaved") or runs["paper"]
    parts = [
        "# Benchmarks of the learning step",
        f"This page is written by `python -m benchmarks.learning` from [its records]({record_name}); edits are lost.",
        _INTRODUCTION,
    ]
    if run.interrupted:
        parts.append("The run was interrupted: what it had not reached is missing below.")
    if run.quick:
        parts.append("**A smoke run, at other sizes and with few repetitions: its numbers mean nothing.**")
    else:
        parts += ["## Goals", tables.goals_table(run)]
    parts += _sizes(run)
    if run.find("paper", ORIGINAL):
        parts += [
            "## Where it comes from",
            "Each line switches one more thing on; times, and factors of the same rounds.",
            tables.attribution(run),
            _published_factors(),
        ]
    if run.growth:
        parts += _growth(run)
    paper = runs.get("paper")
    if paper is not None and paper is not run:
        parts += ["## The paper's protocol", _protocol(paper), tables.costs(paper, "paper", published=not paper.quick)]
    parts += ["## How it was measured", _method(run)]
    failures = "\n".join(filter(None, (tables.not_measured(each) for each in runs.values())))
    if failures:
        parts += ["## Not measured", failures]
    return "\n\n".join(parts) + "\n"


def _sizes(run: Run) -> list[str]:
    parts = []
    for name, setting in SETTINGS.items():
        rows = [row for row in run.rows if row.setting == name and row.measured]
        if rows:
            parts += [f"## {setting.title}: (B, K, p) = {rows[0].size}"]
            if setting.streaming:
                parts.append(
                    f"One cumulative bank. The floor makes its products over tiles of {TILE:,} classes, so that no (B, K) matrix exists."
                )
            parts.append(tables.costs(run, name, published=name == "paper" and not run.quick))
            if name == "paper":
                parts.append(_LAYOUT)
            parts += _losses(rows)
    return parts


def _published_factors() -> str:
    times = [float(H100_MILLISECONDS[name]) for name in (ORIGINAL, DENSE, COMPILED[1])]
    evaluator, rest = (tables.digits(above / below, "×") for above, below in pairwise(times))
    return (
        f"The paper has two of these factors, on an H100: {evaluator} for the evaluator and {rest} for the rest together "
        f"(`{H100_MILLISECONDS.label}`)."
    )


def _losses(rows: list[Row]) -> list[str]:
    losses = {row.contestant: row.loss for row in rows if row.loss is not None}
    if not losses:
        return []
    reference = losses.get(ORIGINAL, next(iter(losses.values())))
    apart = max(abs(loss / reference - 1) for loss in losses.values())
    return [f"Loss: {reference:.6f}; no contestant's differs from it by more than {apart:.1e} of it."] if len(losses) > 1 else []


def _growth(run: Run) -> list[str]:
    middle = growth.centre(quick=run.quick)
    return [
        "## Growth",
        f"Exponents of time and of peak increment in each size, the others held at (B, K, p) = {middle}: least squares on logarithms, "
        f"{len(growth.sizes(middle))} sizes in all. An exponent below 1 says that part of the cost does not depend on the size.",
        tables.exponents(run),
        *_without_page_faults(run),
        f"![Time of a step against classes, dimension and batch](assets/{figure.NAME})",
    ]


def _without_page_faults(run: Run) -> list[str]:
    """The middle of the growth measurement beside the table above it."""
    middle = growth.centre(quick=run.quick)
    original, eager = (
        next((r for r in run.growth if (r.size, r.contestant) == (middle, n) and r.measured), None) for n in (ORIGINAL, EAGER[0])
    )
    if not run.kept_memory or original is None:
        return []
    factor = ratio(original, eager)
    beside = f", {tables.digits(factor, '×')} the {tables.LABELS[EAGER[0]]} step" if factor is not None else ""
    return [
        "Here the allocator keeps the memory it has, so that no run pays for page faults. At the middle the original then takes "
        f"{tables.digits(1e3 * original.median)} ms{beside}."
    ]


def _protocol(run: Run) -> str:
    return (
        f"Seed {run.seed}, {run.warmups} warm-ups, {run.repeats} repetitions, state restored outside the measurement, medians, on the device `{run.device}`. "
        f"`{run.command}`, {run.date}, {_machine(run)}."
    )


def _machine(run: Run) -> str:
    return ", ".join(f"{name}: {value}" for name, value in run.machine.items())


def _method(run: Run) -> str:
    lines = [
        f"- **Command:** `{run.command}`, {run.date}.",
        *(f"- **{name}:** {value}" for name, value in run.machine.items()),
        f"- **State:** every class has been seen twice, seed {run.seed}, mean resultant lengths around 0.9; temperature {TEMPERATURE}, "
        "long-tailed prior. Before each run the state is put back, outside the measurement, and from the same state the same loss must come, bit "
        "for bit.",
        f"- **Time:** {_clock(run)} Each contestant has a process of its own. After {run.warmups} warm-ups, which include compilation, all of a size take "
        f"turns, {_rounds(run)}. A short run is made once untimed just before, so that it does not pay for the caches its neighbour emptied. Times are "
        "medians; factors are medians of the quotients within a round.",
        f"- **Spread:** half of the contestants have an interquartile range below {_typical_spread(run):.0%} of their median.",
        f"- **Peak increment:** {_memory(run)}",
    ]
    if run.device == "cpu":
        lines.append(
            "- **In the kernel:** the share of the CPU time that the operating system took. The C library's allocator, left as it is, takes a large tensor "
            "from the system anew each time, and on this machine its page faults can cost as much as the arithmetic."
        )
    if run.growth:
        kept = ", with an allocator that keeps the memory it has: no page faults" if run.kept_memory else ""
        lines.append(f"- **Growth:** {GROWTH.least} to {GROWTH.repeats} repetitions per point{kept}.")
    return "\n".join(lines)


def _rounds(run: Run) -> str:
    limit = "" if run.budget is None else f", fewer where they would take more than {run.budget:g} s"
    return f"{run.repeats} rounds{limit}"


def _clock(run: Run) -> str:
    if run.device == "cpu":
        return "CPU time of the process, on one thread."
    return "Wall clock with the device synchronised; the compiled step is replayed as a CUDA graph."


def _memory(run: Run) -> str:
    if run.device != "cpu":
        return "the allocator's peak above what was allocated before the run, plus what a captured graph reserves for good."
    return (
        "the largest running total of torch's CPU allocator within the step, above that at its beginning, from the allocation events of "
        "`torch.profiler` (`profile_memory`). It counts operators, backward and compiled code, and not the scratch space that MKL takes from the system. "
        "`tests/benchmarks/test_learning_benchmark.py` holds it against known patterns of all three kinds."
    )


def _typical_spread(run: Run) -> float:
    spreads = sorted(row.spread for row in run.rows if row.measured)
    return spreads[len(spreads) // 2] if spreads else 0.0
