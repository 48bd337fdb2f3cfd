"""`pairgrad plan`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

import torch
from rich.console import Console
from rich.text import Text

from pairgrad.cli.commands import PlanOptions
from pairgrad.cli.output import save_json
from pairgrad.distributed.calibration import Rate, calibrated
from pairgrad.distributed.collectives import call_seconds
from pairgrad.distributed.footprint import PROCESS
from pairgrad.distributed.plan import BANDWIDTH, ELEMENTWISE, FLOPS, LATENCY, Cluster, Estimate, Plan, Workload, plan_layouts
from pairgrad.ground.devices import HOST, usable_device

_SUFFIXES = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12}
_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_CLOSE = 1.01  # a prediction is no better than this
_PARTS = {
    "bank": "what stays",
    "step": "features, gradients, a tile of scores, buffers",
    "creation": "while the bank is made, before the first step",
    "process": "python and torch",
    "peak": "process, bank, and the larger of step and creation",
}
_MEASURED_ROWS = 256  # samples times views of a measurement, at most: more take as long per score


_MOST = 10**15  # classes, samples, ranks: whatever is counted
_LEAST = Fraction(1, 10**30)  # of rates and times, and the inverse of the most


class WrongOption(ValueError):
    """An option that cannot be used; the message names it, what was expected, what came and what to do."""


def run(options: PlanOptions, console: Console) -> Plan:
    """Plan, print, and write the file if one was asked for."""
    for option, value in (("--flops", options.flops), ("--elementwise", options.elementwise)):
        if options.measure and value is not None:
            raise WrongOption(f"{option} says what --measure would find out, got both: leave one of them out")
    if options.device is not None and not options.measure:
        raise WrongOption(f"--device says where --measure is to run, got --device {options.device} alone: add --measure")
    workload = _workload(options)
    cluster = _cluster(options)
    if options.measure:
        rate = _measured(options, workload, console)
        cluster = replace(cluster, flops=rate.flops, elementwise=rate.elementwise)
    plan = plan_layouts(workload, cluster)
    for line in lines(plan, options.measure):
        console.print(Text(line), soft_wrap=True)
    save_json(console, options.json, plan.to_dict())
    return plan


def _number(
    option: str, text: str, unit: str = "", example: str = "1e7", least: Fraction = _LEAST, most: Fraction = 1 / _LEAST, whole: bool = False
) -> Fraction:
    """The number that a text like 1e7, 10_000_000, 10M or 2.5G stands for, exactly."""
    match = re.fullmatch(r"([+-]?(?:\d[\d_]*\.?[\d_]*|\.\d+)(?:[eE][+-]?\d{1,3})?)([kMGT]?)", text.strip(), re.ASCII)
    if match is None:
        raise WrongOption(f"{option} must be a number, with k, M, G or T behind it if you like, got {text!r}: write e.g. {example}")
    value = Fraction(match[1].replace("_", "")) * 10 ** _SUFFIXES[match[2]]
    if not least <= value <= most or (whole and value.denominator != 1):
        kind = "a whole number from" if whole else "from"
        expected = f"{kind} {float(least):g} to {float(most):g}{f' {unit}' if unit else ''}"
        raise WrongOption(f"{option} must be {expected}, got {text!r}: write e.g. {example}")
    return value


def _workload(options: PlanOptions) -> Workload:
    def whole(name: str, least: int = 1) -> int:
        return int(_number(f"--{name}", getattr(options, name), least=Fraction(least), most=Fraction(_MOST), whole=True))

    return Workload(
        classes=whole("classes"),
        dim=whole("dim", 2),
        batch=whole("batch"),
        views=whole("views"),
        dtype=_DTYPES[_choice("--dtype", options.dtype, _DTYPES)],
        two_epochs=options.two_epochs,
        prior=options.prior,
        sample=float(_number("--sample", options.sample, "of the classes", example="0.1", most=Fraction(1))),
        exchange=_choice("--exchange", options.exchange, ("auto", "gather", "reduce")),
        inputs="replicated" if options.replicated_inputs else "sharded",
        bounded=not options.unbounded,
        static=options.static,
    )


def _cluster(options: PlanOptions) -> Cluster:
    def quantity(name: str, default: float, unit: str, example: str, least: Fraction = _LEAST) -> float:
        text = getattr(options, name)
        return default if text is None else float(_number(f"--{name}", text, unit, example, least))

    return Cluster(
        ranks=int(_number("--ranks", options.ranks, least=Fraction(1), most=Fraction(_MOST), whole=True)),
        bandwidth=quantity("bandwidth", BANDWIDTH, "bytes per second", "25e9"),
        latency=quantity("latency", LATENCY, "seconds", "2e-5", Fraction(0)),
        flops=quantity("flops", FLOPS, "operations per second", "1e13"),
        memory=None if options.memory is None else quantity("memory", 0.0, "bytes per rank", "40G"),
        elementwise=quantity("elementwise", ELEMENTWISE, "operations per score", "2000", Fraction(0)),
        process=int(quantity("process", PROCESS, "bytes", "300M", Fraction(0))),
    )


def _choice(option: str, value: str, choices: Iterable[str]) -> str:
    if value not in choices:
        raise WrongOption(f"{option} must be one of {', '.join(choices)}, got {value!r}: choose one of them")
    return value


def _measured(options: PlanOptions, workload: Workload, console: Console) -> Rate:
    try:
        device = HOST if options.device is None else usable_device("--device", options.device, workload.dtype)
    except ValueError as error:
        raise WrongOption(str(error)) from None
    rows = min(workload.views * workload.batch, _MEASURED_ROWS)
    with console.status(f"measuring {rows} rows at dim {workload.dim} on {device}, one thread"):
        return calibrated(workload.dim, rows=rows, dtype=workload.dtype, device=device)


def lines(plan: Plan, measured: bool = False) -> Iterator[str]:
    """What is printed, in lines of at most 80 characters."""
    workload, cluster = plan.workload, plan.cluster
    yield from _question(workload, cluster, measured)
    yield ""
    yield f"{'layout':>9} {'memory':>9} {'flops':>9} {'sent':>9} {'scoring':>9} {'exchange':>9} {'step':>9}"
    for layout in plan.layouts:
        note = "best" if layout is plan.best else "" if layout.fits(cluster) else "too big"
        cells = (
            _bytes(layout.memory.peak),
            f"{layout.flops:.2e}",
            _bytes(float(layout.wire)),
            _seconds(layout.scoring),
            _seconds(layout.exchanging),
            _seconds(layout.seconds),
        )
        yield f"{_name(layout):>9} {' '.join(f'{cell:>9}' for cell in cells)}  {note}".rstrip()
    for data, classes, reason in plan.refused:
        yield from _folded(f"{data} x {classes}: not possible, {reason}.")
    yield "Layout: replicas of the bank x ranks that share its classes out."
    yield "Memory, operations and bytes sent are those of one rank in one step."
    yield ""
    best = plan.best
    if best is None:
        yield from _nothing_fits(plan)
        return
    for reason in why(plan, best):
        yield from _folded(reason)
    yield ""
    yield from _memory(best)
    yield ""
    yield from _calls(best, cluster)


def _question(workload: Workload, cluster: Cluster, measured: bool) -> Iterator[str]:
    views = f", {workload.views} views" if workload.views > 1 else ""
    dtype = str(workload.dtype).removeprefix("torch.")
    yield f"{workload.classes:,} classes, dim {workload.dim}, {dtype}; batch {workload.batch:,}{views}; ranks {cluster.ranks:,}"
    special = {
        f"{100 * workload.sample:g} % of the classes sampled": workload.sample < 1,
        "two epochs in the bank": workload.two_epochs,
        "the same inputs on all ranks of a class group": workload.inputs == "replicated",
    }
    if any(special.values()):
        yield from _folded(f"With {', '.join(words for words, holds in special.items() if holds)}.")
    memory = "" if cluster.memory is None else f", {_bytes(cluster.memory)}"
    rate = f"{cluster.flops:.3g} flop/s; elementwise, {cluster.elementwise:.4g} flop per score{' (measured)' if measured else ''}"
    yield f"Rank: {rate}{memory}"
    yield f"Network: {_bytes(cluster.bandwidth)}/s from each rank, {_seconds(cluster.latency)} per message"


def why(plan: Plan, best: Estimate) -> Iterator[str]:
    """Reasons for the best layout, in sentences."""
    cluster = plan.cluster
    yield f"Best: {_name(best)}, {_seconds(best.seconds)} per step."
    yield (
        f"A rank holds {best.class_rows:,} classes, brings {best.local_rows:,} samples and scores {best.scored_rows:,}, those of its class group."
    )
    fitting = [layout for layout in plan.layouts if layout.fits(cluster)]
    if len(fitting) > 1:
        slowest = fitting[-1]
        yield (
            f"Of the layouts that fit it is the fastest; the slowest, {_name(slowest)}, takes {_seconds(slowest.seconds)}, "
            f"{_seconds(slowest.exchanging)} of it for exchange against {_seconds(best.exchanging)}."
        )
    close = [layout for layout in fitting if layout.seconds <= _CLOSE * best.seconds and layout.memory.peak < best.memory.peak]
    if close:
        yield f"Slower by less than 1 %, with less memory: {_with_memory(close)}."
    large = [layout for layout in plan.layouts if not layout.fits(cluster)]
    if large and cluster.memory is not None:
        yield f"Too big for {_bytes(cluster.memory)}: {_with_memory(large)}."
    if best.exchange is not None:
        gather = f"by gathering the rows of about {best.distinct:,} classes per rank"
        yield f"Replicas exchange class statistics {gather if best.exchange == 'gather' else f'by adding up all {best.class_rows:,} rows'}."
    if best.exchanging:
        yield f"Exchange is {_three(100 * best.exchanging / best.seconds)} % of the step."
    if best.local_rows * best.data * best.classes > plan.workload.batch and plan.workload.inputs == "sharded":
        yield f"The batch does not divide by the ranks: some bring fewer than {best.local_rows:,} samples."


def _nothing_fits(plan: Plan) -> Iterator[str]:
    memory = plan.cluster.memory
    assert memory is not None
    least = min(plan.layouts, key=lambda layout: layout.memory.peak)
    yield from _folded(f"Nothing fits {_bytes(memory)}: {_name(least)} needs least, {_bytes(least.memory.peak)} per rank.")
    if plan.needed is None:
        parts = f"a process takes {_bytes(least.memory.process)} and a step {_bytes(least.memory.step)} beside the bank"
        yield from _folded(f"More ranks alone do not help: {parts}. Take smaller batches, or ranks with more memory.")
    else:
        ranks = plan.needed.data * plan.needed.classes
        yield from _folded(f"It would fit on {ranks:,} ranks, as {_name(plan.needed)} with {_bytes(plan.needed.memory.peak)} each.")
    yield ""
    yield from _memory(least)


def _memory(layout: Estimate) -> Iterator[str]:
    yield f"Memory of a rank in {_name(layout)}:"
    for name, what in _PARTS.items():
        yield f"  {name:<9} {_bytes(getattr(layout.memory, name)):>9}  {what}"


def _calls(layout: Estimate, cluster: Cluster) -> Iterator[str]:
    if not layout.calls:
        yield "No collectives: there is one rank."
        return
    yield f"Collectives of a step in {_name(layout)}, in their order:"
    yield f"  {'':<20} {'':<14} {'ranks':>6} {'hands in':>9} {'sends':>9} {'takes':>9}"
    for call in layout.calls:
        cells = (_bytes(call.payload), _bytes(float(call.wire)), _seconds(call_seconds(call, cluster.bandwidth, cluster.latency)))
        yield f"  {call.name:<20} {call.operation:<14} {call.ranks:>6} {' '.join(f'{cell:>9}' for cell in cells)}"


def _name(layout: Estimate) -> str:
    return f"{layout.data} x {layout.classes}"


def _with_memory(layouts: Iterable[Estimate]) -> str:
    return ", ".join(f"{_name(layout)} ({_bytes(layout.memory.peak)})" for layout in layouts)


def _bytes(size: float) -> str:
    return f"{size:.0f} B" if size < 999.5 else _scaled(size, ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")))


def _seconds(seconds: float) -> str:
    return _scaled(seconds, ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")))


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    scale, unit = next((each for each in units if value >= 0.9995 * each[0]), units[-1])
    return f"{_three(value / scale)} {unit}"


def _three(value: float) -> str:
    """Three digits, more in front of the point."""
    return f"{value:.0f}" if value >= 99.95 or value == 0 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _folded(text: str, width: int = 80) -> list[str]:
    """Lines of words; a number stays with its unit, and D x C in one piece."""
    held = re.sub(r"(\d) (x \d|[a-zA-Z%]{1,2}\b)", lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in textwrap.wrap(held, width, subsequent_indent="  ")]
