"""`pairgrad plan`: which layouts of ranks fit, what travels between them, and what a step of one rank costs at least."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from pairgrad.cli.commands import PlanOptions
from pairgrad.cli.output import save_json
from pairgrad.cli.step_costs import COUNTED, GPU, GPUS, LAUNCH, PUBLISHED, WORD, Size, bank_bytes, costs, floor
from pairgrad.distributed import Call, step_calls, wire_bytes
from pairgrad.distributed.collectives import expected_distinct

SCHEMA = "pairgrad.plan/2"
_SUFFIXES = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12}
_MOST, _MOST_RANKS = 10**15, 10**6  # classes, samples, bytes; every divisor of the number of ranks is a layout
_EMPTY = "leaves ranks without classes"


class WrongOption(ValueError):
    """An option that cannot be used; the message names it, what was expected, what came and what to do."""


class Layout(NamedTuple):
    """D replicas of the class bank, each sharded over C ranks; all else is that of the fullest rank.

    Attributes:
        data, classes: D and C.
        size: of its step: the samples of its class group, the classes that it holds.
        bank, memory, sent: bytes. Memory is bank, features, gradient, what collectives receive, and the temporaries of the execution that takes most.
        calls: the collectives of a step.
        problem: why it cannot be used, or None.
    """

    data: int
    classes: int
    size: Size
    bank: int
    memory: int
    sent: float
    calls: list[Call]
    problem: str | None


class Plan(NamedTuple):
    """All layouts, and the one whose step is looked at: of those that fit it sends least; where none fits, it takes the least memory."""

    gpu: GPU
    memory: float
    layouts: list[Layout]
    shown: Layout

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data, schema "pairgrad.plan/2"; bytes, seconds and operations of one rank and one step."""
        shown, size = self.shown, self.shown.size
        sent = [[{**call.__dict__, "sent": float(call.wire)} for call in layout.calls] for layout in self.layouts]
        return {
            "schema": SCHEMA,
            "gpu": self.gpu._asdict(),
            "memory": self.memory,
            "layouts": [
                {**each._asdict(), "size": each.size._asdict(), "calls": calls} for each, calls in zip(self.layouts, sent, strict=True)
            ],
            "shown": {"data": shown.data, "classes": shown.classes, "fits": shown.problem is None},
            "floor": floor(size, self.gpu)._asdict(),
            "predicted": {name: {**cost._asdict(), "seconds": cost.seconds(size, self.gpu)} for name, cost in costs(size).items()},
            "counted": [
                {"size": at._asdict(), "execution": name, "launches": launches, "allocated": peak}
                for at, known in COUNTED.items()
                for name, (launches, peak) in known.items()
            ],
            "published": {"size": next(iter(COUNTED))._asdict(), **PUBLISHED},
        }


def run(options: PlanOptions, console: Console) -> Plan:
    """Plan, print, and write the file if one was asked for."""
    plan = planned(options)
    for line in lines(plan):
        console.print(Text(line), soft_wrap=True)
    save_json(console, options.json, plan.to_dict())
    return plan


def planned(options: PlanOptions) -> Plan:
    """Every layout D x C of the ranks, or the one that was given."""
    classes, batch, views = (_whole(f"--{name}", getattr(options, name)) for name in ("classes", "batch", "views"))
    dim = _whole("--dim", options.dim, least=2)
    if options.gpu not in GPUS:
        raise WrongOption(f"--gpu must be one of {', '.join(GPUS)}, got {options.gpu!r}: choose one of them, or the nearest")
    gpu = GPUS[options.gpu]
    memory = gpu.memory if options.memory is None else float(_whole("--memory", options.memory, example="40G"))
    ranks = [_whole("--ranks", text, most=_MOST_RANKS, example="64, or 8x8 for one layout") for text in options.ranks.split("x", 1)]
    shapes = [(ranks[0], ranks[-1])] if len(ranks) == 2 else [(ranks[0] // c, c) for c in range(1, ranks[0] + 1) if ranks[0] % c == 0]
    layouts = [_layout(Size(views, batch, classes, dim), data, shards, memory, options.two_epochs) for data, shards in shapes]
    possible = [layout for layout in layouts if layout.problem != _EMPTY]
    if not possible:
        raise WrongOption(f"--ranks must leave no rank without classes, got {options.ranks!r} for {classes:,} classes: take fewer shards")
    shown = min(possible, key=lambda each: (0, each.sent, each.memory) if each.problem is None else (1, each.memory, 0))
    return Plan(gpu, memory, layouts, shown)


def _layout(whole: Size, data: int, shards: int, memory: float, two_epochs: bool) -> Layout:
    views, dim = whole.views, whole.dim
    rows, scored, local = -(-whole.classes // shards), -(-whole.batch // data), -(-whole.batch // (data * shards))
    size, met = Size(views, scored, rows, dim), expected_distinct(whole.classes, rows, scored)
    calls = step_calls(
        data=data, classes=shards, class_rows=rows, dim=dim, itemsize=WORD, local_rows=local, scored_rows=scored, distinct=met, views=views
    )
    bank = bank_bytes(rows, dim, two_epochs=two_epochs)
    received = sum(call.payload * (call.ranks if call.operation == "all-gather" else 1) for call in calls)
    taken = bank + 2 * size.features + received + max(cost.allocated for cost in costs(size).values())
    problem = _EMPTY if (shards - 1) * rows >= whole.classes else "does not fit" if taken > memory else None
    return Layout(data, shards, size, bank, taken, float(wire_bytes(calls)), calls, problem)


def _whole(option: str, text: str, least: int = 1, most: int = _MOST, example: str = "1e7") -> int:
    """The whole number that a text like 1e7, 10_000_000, 10M or 2.5G stands for, exactly."""
    match = re.fullmatch(r"([+-]?(?:\d[\d_]*\.?[\d_]*|\.\d+)(?:[eE][+-]?\d{1,3})?)([kMGT]?)", text.strip(), re.ASCII)
    if match is None:
        raise WrongOption(f"{option} must be a number, with k, M, G or T behind it if you like, got {text!r}: write e.g. {example}")
    value = Fraction(match[1].replace("_", "")) * 10 ** _SUFFIXES[match[2]]
    if not least <= value <= most or value.denominator != 1:
        raise WrongOption(f"{option} must be a whole number from {least} to {most:g}, got {text!r}: write e.g. {example}")
    return int(value)


def lines(plan: Plan) -> Iterator[str]:
    """The page, in lines of at most 80 characters."""
    shown, size, least = plan.shown, plan.shown.size, floor(plan.shown.size, plan.gpu)
    yield f"Layouts, replicas of the bank x shards, on ranks with {_bytes(plan.memory)}:"
    yield f"{'layout':>13} {'classes held':>13} {'bank':>9} {'memory':>9} {'sent':>9}"
    for layout in plan.layouts:
        note = layout.problem or ("sends least" if layout is shown and len(plan.layouts) > 1 else "")
        cells = (f"{layout.size.classes:,}".rjust(13), *map(_bytes, (layout.bank, layout.memory, layout.sent)))
        yield f"{_name(layout):>13} {' '.join(f'{cell:>9}' for cell in cells)}  {note}".rstrip()
    yield "The bank is exact; memory and bytes sent are predicted, for one rank and step,"
    yield "without the network that makes the features."
    if shown.problem:
        yield f"Nothing fits. The bank alone needs {math.ceil(shown.bank * shown.classes / plan.memory):,} shards."
    yield ""
    yield f"One rank of {_name(shown)}: batch {size.batch:,}, views {size.views:,}, classes {size.classes:,}, dim {size.dim:,}"
    yield f"Floor on {plan.gpu.name}, predicted from data-sheet peaks: {least.flops:.3g} flop, {_bytes(least.traffic)}"
    products = ("float32", "3xtf32", "tf32", "bf16")
    step = {name: max(least.seconds[part] for part in ("traffic", "elementwise", name)) for name in products}
    for title, parts in (("beside products", ("traffic", "elementwise")), ("two products", products), ("step at least", products)):
        found = step if title == "step at least" else least.seconds
        yield f"  {title:<15} {', '.join(f'{name} {_seconds(found[name])}' for name in parts)}"
    yield ""
    yield f"Executions, predicted; {1e6 * LAUNCH:g} us per launch are assumed, caches left out:"
    yield f"  {'':<9} {'launches':>9} {'moved':>9} {'allocated':>9} {'launching':>9} {'moving':>9} {'computing':>9}"
    for name, cost in costs(size).items():
        seconds = cost.seconds(size, plan.gpu)
        cells = (_bytes(cost.moved), _bytes(cost.allocated), *(_seconds(seconds[part]) for part in ("launching", "moving", "computing")))
        yield f"  {name:<9} {cost.launches:>9,} {' '.join(f'{cell:>9}' for cell in cells)}"
    yield "  A step takes at least its slowest part. Products: float32, triton 3xtf32."
    yield ""
    yield "Counted without a GPU, launches and bytes allocated, at (views, B, K, p):"
    for at, known in COUNTED.items():
        found = ", ".join(f"{name} {launches:,} and {_bytes(peak)}" for name, (launches, peak) in known.items())
        yield f"  {tuple(at)!s:<24} {found}"
    yield f"Published: {PUBLISHED['step']}, at the first size on H100,"
    yield f"  {_seconds(PUBLISHED['seconds'])} and {_bytes(PUBLISHED['allocated'])}. Nothing of ours was timed on a GPU."
    if shown.calls:
        yield ""
        yield f"Collectives of a step in {_name(shown)}, in their order:"
        yield f"  {'':<20} {'':<14} {'ranks':>7} {'hands in':>9} {'sends':>9}"
    for call in shown.calls:
        yield f"  {call.name:<20} {call.operation:<14} {call.ranks:>7} {_bytes(call.payload):>9} {_bytes(float(call.wire)):>9}"


def _name(layout: Layout) -> str:
    return f"{layout.data} x {layout.classes}"


def _bytes(size: float) -> str:
    return f"{size:.0f} B" if size < 999.5 else _scaled(size, ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")))


def _seconds(seconds: float) -> str:
    return _scaled(seconds, ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")))


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    """Three digits, more in front of the point."""
    scale, unit = next((each for each in units if value >= 0.9995 * each[0]), units[-1])
    value /= scale
    return f"{f'{value:.0f}' if value >= 99.95 or value == 0 else f'{value:.1f}' if value >= 9.995 else f'{value:.2f}'} {unit}"
