"""Time and peak memory of an audit, each in a process of its own.

The peak is the resident set's high-water mark, which Linux lets a process reset: once around the function with its first and second derivatives, which is
its own need, and once around the audit. Elsewhere the mark cannot be reset, and what the process never exceeded before is not seen.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tests.coherence.zoo import independent, ours, reported
from torch import nn

import pairgrad
from pairgrad.coherence import audit
from pairgrad.ground.timing import threads

ROOT = Path(__file__).resolve().parents[2]
MEMORY_GOAL = 200.0  # MiB beyond the function's own need
CLASSES, DIM, BATCH = 100, 128, 32


@dataclass(frozen=True)
class Cost:
    """Of the first audit in a new process; memory in MiB."""

    name: str
    headline: str
    seconds: float
    seconds_goal: float
    evaluations: int
    own: float
    peak: float

    @property
    def beyond(self) -> float:
        return max(0.0, self.peak - self.own)


def erfcx() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    return torch.special.erfcx, (torch.tensor(0.7, dtype=torch.float64, requires_grad=True),)


def potential() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    return pairgrad.potential(dim=DIM).value, (torch.tensor(50.0, dtype=torch.float64, requires_grad=True),)


def cross_entropy(realization: str, dtype: torch.dtype) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    directions = torch.nn.functional.normalize(torch.randn(CLASSES, DIM, generator=generator, dtype=torch.float64), dim=-1)
    concentrations = torch.exp(torch.empty(CLASSES, dtype=torch.float64).uniform_(2, 7, generator=generator))
    state = pairgrad.ClassState(directions.to(dtype), concentrations.to(dtype))
    labels = torch.randint(CLASSES, (BATCH,), generator=generator)
    noise = torch.randn(BATCH, DIM, generator=generator, dtype=torch.float64)
    features = torch.nn.functional.normalize(directions[labels] + 0.1 * noise, dim=-1).to(dtype).requires_grad_()
    return lambda x: pairgrad.vmf_cross_entropy(x, labels, state, realization=realization), (features,)


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        first = [nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        self.long = nn.Sequential(*first, nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        shortcut = [nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width)]
        self.short = nn.Sequential(*shortcut) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.long(x) + self.short(x))


def resnet18() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    """In training mode, at the size of ImageNet."""
    torch.manual_seed(0)
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
    body = [block for before, width, stride in widths for block in (Block(before, width, stride), Block(width, width, 1))]
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)), (
        torch.randn(2, 3, 224, 224, requires_grad=True),
    )


# name: (what makes the function and its inputs, the goal in seconds)
CASES: dict[str, tuple[Callable[[], tuple[Callable[..., Any], tuple[torch.Tensor, ...]]], float]] = {
    "erfcx, one number": (erfcx, 2.0),
    f"potential(dim={DIM}).value, one number": (potential, 2.0),
} | {
    f"vmf_cross_entropy, {realization}, {CLASSES} classes, p = {DIM}, batch {BATCH}, {str(dtype).removeprefix('torch.')}": (
        partial(cross_entropy, realization, dtype),
        30.0,
    )
    for dtype in (torch.float64, torch.float32)
    for realization in ("paired", "original")
}


WHOLE = "ResNet18, float32, (2, 3, 224, 224), training"
CASES[WHOLE] = resnet18, 60.0
OPTIONS: dict[str, dict[str, Any]] = {WHOLE: {"effort": "whole"}}
MANY, MANY_GOAL = 100, 60.0  # functions, and seconds for all of them


def measure(names: Sequence[str] = tuple(CASES)) -> list[Cost]:
    """One process after the other."""
    found = []
    for i, name in enumerate(names):
        if sys.stderr.isatty():
            print(f"\rcost: {i + 1} of {len(names)}", end="" if i + 1 < len(names) else "\n", file=sys.stderr, flush=True)
        child = subprocess.run(
            [sys.executable, "-m", "benchmarks.auditor.cost", "--case", name], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
        found.append(Cost(**json.loads(child.stdout.splitlines()[-1])))
    return found


def one(name: str) -> Cost:
    """In this process."""
    make, goal = CASES[name]
    with threads(1):
        fn, inputs = make()
        _with_derivatives(fn, inputs)  # what is loaded on first use is nobody's need
        before = _reset()
        _with_derivatives(fn, inputs)
        own = _peak() - before
        before = _reset()
        started = time.process_time()  # which other work on the machine does not change
        report = audit(fn, inputs, **OPTIONS.get(name, {}))
        seconds = time.process_time() - started
        peak = _peak() - before
    return Cost(name, report.headline, seconds, goal, report.evaluations, max(0.0, own), max(0.0, peak))


def _with_derivatives(fn: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> None:
    """Value, gradient, and the gradient of the gradient's sum."""
    gradients = torch.autograd.grad(fn(*inputs).sum(), inputs, create_graph=True)
    total = torch.stack([gradient.sum() for gradient in gradients]).sum()
    if total.requires_grad:
        torch.autograd.grad(total, inputs, allow_unused=True)


def _reset() -> float:
    """Sets the high-water mark back to what is resident now, in MiB."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return _status("VmRSS")


def _peak() -> float:
    try:
        return _status("VmHWM")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/self/status has no {field}")


def many() -> dict[str, float]:
    """Seconds of processor time for audits of many small functions: the first right ones of the zoo that are custom Functions or compositions of such."""
    fit = [s for s in (*independent.SPECIMENS, *ours.SPECIMENS, *reported.SPECIMENS) if not isinstance(s.right(), nn.Module)]

    def seconds(**options: Any) -> float:
        spent = 0.0
        for specimen in fit[:MANY]:
            fn, inputs = specimen.right(), specimen.inputs(0, torch.float64)
            started = time.process_time()
            audit(fn, inputs, effort="quick", constraints=specimen.constraints, dtype=torch.float64, **specimen.options | options)
            spent += time.process_time() - started
        return spent

    with threads(1), warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # some functions of the zoo give them
        audit(torch.sin, torch.ones(2))  # what is loaded on first use
        return {"audited": seconds(cache=False), "audited and kept": seconds(cache=folder), "kept before": seconds(cache=folder)}


def many_table(spent: dict[str, float]) -> str:
    held = "held" if spent["audited"] < MANY_GOAL else "**not held**"
    lines = [
        'Audits of the first of the zoo, one after the other, at `effort="quick"` on one thread, in seconds of processor time. The goal is less than',
        f"{MANY_GOAL:g} s for all of them, without kept results: {held}. A few cannot be described, and are audited every time.",
        "",
        "| " + " | ".join(spent) + " |",
        "|" + "---|" * len(spent),
        "| " + " | ".join(f"{value:.3g}" for value in spent.values()) + " |",
    ]
    return "\n".join(lines) + "\n"


def table(costs: Sequence[Cost]) -> str:
    lines = [
        'The first audit in a new process, after torch and pairgrad are loaded, with its defaults (ResNet18: `effort="whole"`), on one thread, in seconds of',
        "processor time. Own need: the peak of the resident set around the function with its first and second derivatives; beyond it: what the audit's peak",
        "is above that.",
        "",
        "| function | verdict | seconds | goal | calls | own need, MiB | beyond it, MiB | goal |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cost in costs:
        time_held = "held" if cost.seconds < cost.seconds_goal else "**not held**"
        memory_held = "held" if cost.beyond <= MEMORY_GOAL else "**not held**"
        memory = f"at most {MEMORY_GOAL:g}: {memory_held}" if cost.name not in OPTIONS else "none: copies of all parameters"
        lines.append(
            f"| {cost.name} | {cost.headline} | {cost.seconds:.2f} | under {cost.seconds_goal:g}: {time_held} | {cost.evaluations} | {cost.own:.1f} | "
            f"{cost.beyond:.1f} | {memory} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.auditor.cost", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", choices=tuple(CASES), help="measure this one here, and print it as JSON")
    options = parser.parse_args(argv)
    print(json.dumps(asdict(one(options.case))) if options.case else f"{table(measure())}\n{many_table(many())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
