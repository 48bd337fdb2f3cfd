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
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

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
        report = audit(fn, inputs)
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


def table(costs: Sequence[Cost]) -> str:
    lines = [
        "The first audit in a new process, after torch and pairgrad are loaded, with its defaults and on one thread, in seconds of processor time. Own",
        "need: the peak of the resident set around the function with its first and second derivatives; beyond it: what the audit's peak is above that.",
        "",
        "| function | verdict | seconds | goal | calls | own need, MiB | beyond it, MiB | goal |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cost in costs:
        time_held = "held" if cost.seconds < cost.seconds_goal else "**not held**"
        memory_held = "held" if cost.beyond <= MEMORY_GOAL else "**not held**"
        lines.append(
            f"| {cost.name} | {cost.headline} | {cost.seconds:.2f} | under {cost.seconds_goal:g}: {time_held} | {cost.evaluations} | {cost.own:.1f} | "
            f"{cost.beyond:.1f} | at most {MEMORY_GOAL:g}: {memory_held} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.auditor.cost", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", choices=tuple(CASES), help="measure this one here, and print it as JSON")
    options = parser.parse_args(argv)
    print(json.dumps(asdict(one(options.case))) if options.case else table(measure()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
