"""`pairgrad bench`: the table of local costs and a few ratios, measured here. The benchmarks behind the documentation are in benchmarks/ of the repository."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch
from rich.console import Console
from rich.text import Text
from torch.nn.functional import normalize

import pairgrad as pg
from pairgrad.cli.commands import BenchOptions
from pairgrad.cli.local_costs import BASE, PAPER_SIZE, ROWS, Cost, local_costs, missing
from pairgrad.cli.output import print_table, progress, save_json
from pairgrad.ground.checks import one_of
from pairgrad.ground.devices import device_name, usable_device, wait_for
from pairgrad.ground.timing import Call, machine_line, median_seconds, threads

_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_ELEMENTS = 4096
_REALIZATIONS = ("paired", "arfr", "original", "log-miller", "scott")


def check(workload: BenchOptions) -> None:
    """Refuse a device or a dtype that cannot be used here."""
    one_of("--dtype", workload.dtype, tuple(_DTYPES))
    usable_device("--device", workload.device, _DTYPES[workload.dtype])


def _moved(tensor: torch.Tensor, workload: BenchOptions) -> torch.Tensor:
    return tensor.to(torch.device(workload.device), _DTYPES[workload.dtype])


@dataclass(frozen=True)
class Measured:
    """Median seconds by name, and over which of them the ratios are."""

    title: str
    base: str
    seconds: dict[str, float]


def run(workload: BenchOptions, console: Console) -> None:
    """Measure, print, and write down if asked for."""
    with threads(workload.threads):
        on = device_name(torch.device(workload.device))
        where = f"{on and f'{on}; '}{machine_line()}"
        results = []
        for part in (learning_step, potentials):
            with progress(console, part.__name__.replace("_", " "), 1):
                results.append(part(workload))
        with progress(console, "local costs", ROWS) as tick:
            costs = local_costs(workload, tick)
    print_costs(console, workload, costs)
    for measured in results:
        base = measured.seconds[measured.base]
        rows = [(name, f"{1e3 * seconds:.3f}", f"{seconds / base:.2f}") for name, seconds in measured.seconds.items()]
        console.print(Text(measured.title, style="bold"))
        print_table(console, ("", "milliseconds", f"over {measured.base}"), rows)
        console.print()
    console.print(Text(f"Medians of {workload.repeats} interleaved calls. {where}", style="dim"))
    given = {name: value for name, value in asdict(workload).items() if name != "json"}
    parts = {"results": [asdict(measured) for measured in results], "local_costs": [asdict(cost) for cost in costs]}
    save_json(console, workload.json, {"workload": given, "machine": where, **parts})


def print_costs(console: Console, workload: BenchOptions, costs: Sequence[Cost]) -> None:
    """The table of local costs, with the columns that other distributions add, such as the published numbers."""
    from pairgrad.cli.app import COLUMNS

    more = {heading: cells for columns in COLUMNS if columns.table == "local costs" for heading, cells in columns.load().items()}
    base = next((cost.seconds for cost in costs if cost.name == BASE), None)
    rows = []
    for cost in costs:
        ours = (
            cost.note if cost.seconds is None else f"{1e3 * cost.seconds:.4g}",
            "" if cost.bytes is None else f"{cost.bytes / 2**20:.2f}",
            "" if cost.seconds is None or base is None else f"{base / cost.seconds:.3g}",
        )
        rows.append((cost.name, *ours, *(cells.get(cost.name, "") for cells in more.values())))
    size = f"batch {workload.batch} in two views, {workload.classes} classes, dim {workload.dim}, {workload.dtype}"
    console.print(Text(f"Local costs: one step with its class statistics, {size}", style="bold"))
    print_table(console, ("", "ms", "MiB", "faster", *more), rows)
    if more and (workload.batch, workload.classes, workload.dim) != PAPER_SIZE:
        console.print(Text("The added columns are of batch {}, {} classes, dim {}.".format(*PAPER_SIZE), style="dim"))
    console.print()


def learning_step(workload: BenchOptions) -> Measured:
    """Forward and backward of the vMF cross-entropy against a filled bank, over the two matrix products that it cannot do without."""
    generator = torch.Generator().manual_seed(0)
    centres = normalize(_moved(torch.randn(workload.classes, workload.dim, generator=generator), workload), dim=1)
    state = pg.ClassState(centres, torch.full_like(centres[:, 0], workload.dim))
    features = normalize(_moved(torch.randn(workload.batch, workload.dim, generator=generator), workload), dim=1).requires_grad_()
    labels = torch.randint(workload.classes, (workload.batch,), generator=generator).to(workload.device)
    weights = _moved(torch.rand(workload.batch, workload.classes, generator=generator), workload)
    plain = features.detach()

    def products() -> None:
        torch.mm(plain, centres.T)
        torch.mm(weights, centres)

    def step(loss: Callable[..., torch.Tensor]) -> Call:
        return lambda: torch.autograd.grad(loss(features, labels, state), features)

    calls: dict[str, Call] = {"two matrix products": products, "vmf_cross_entropy with backward": step(pg.vmf_cross_entropy)}
    if workload.compiled:
        calls["the same, compiled"] = step(pg.compile(pg.vmf_cross_entropy))
    title = f"Learning step: batch {workload.batch}, {workload.classes} classes, dim {workload.dim}, {workload.dtype}"
    return Measured(title, "two matrix products", median_seconds(_finished(calls, workload), workload.repeats))


def potentials(workload: BenchOptions) -> Measured:
    """Value and slope together, by realization."""
    nu = max(workload.dim / 2 - 1, 0.5)
    x = _moved(nu * torch.logspace(-2, 2, _ELEMENTS), workload)
    calls: dict[str, Call] = {
        name: partial(pg.potential(workload.dim, name).pair, x) for name in _REALIZATIONS if not missing(name, workload.dim, x.device)
    }
    title = f"Potential: value and slope of {_ELEMENTS} numbers, dim {workload.dim}, {workload.dtype}"
    return Measured(title, "paired", median_seconds(_finished(calls, workload), workload.repeats))


def _finished(calls: dict[str, Call], workload: BenchOptions) -> dict[str, Call]:
    """On an accelerator a call is over when its work is done."""
    device = torch.device(workload.device)

    def waiting(call: Call) -> Call:
        return lambda: (call(), wait_for(device))

    return {name: waiting(call) for name, call in calls.items()}
