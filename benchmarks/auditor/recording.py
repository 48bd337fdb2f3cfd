"""What recording costs: a step of a ResNet18, one recorded call, and memory over 100,000 steps."""

from __future__ import annotations

import gc
import itertools
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.autograd import Function

import pairgrad
from pairgrad.coherence.causes.recorder import Recorder
from pairgrad.ground.timing import machine_line

BATCH, SIDE, CLASSES = 32, 32, 10
SHARE_GOAL = 1.03
CALL_GOAL = 20.0  # microseconds
STEPS = 100_000


class Relu(Function):
    """The rectifier with a backward of its own: the custom backward that a ResNet calls most often, on its largest tensors."""

    @staticmethod
    def forward(ctx, x):
        y = x.clamp(min=0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * (y > 0)


class Rectifier(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Relu.apply(x)


class Block(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside))
        self.second = nn.Sequential(nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside))
        self.beside = (
            nn.Identity()
            if stride == 1 and inside == outside
            else nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Relu.apply(self.second(Relu.apply(self.first(x))) + self.beside(x))


def resnet18() -> nn.Module:
    """He et al. (2016) for images of 32 x 32: 17 rectifiers, 11.2 million parameters."""
    widths = (64, 64, 128, 256, 512)
    stages = [
        block
        for i, (inside, outside) in enumerate(itertools.pairwise(widths))
        for block in (Block(inside, outside, 1 if i == 0 else 2), Block(outside, outside, 1))
    ]
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1, bias=False),
        nn.BatchNorm2d(64),
        Rectifier(),
        *stages,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, CLASSES),
    )


@dataclass(frozen=True)
class Step:
    """Seconds of a step: medians of plain and recorded ones in turn, totals with the copies of the first steps; and what the recording says afterwards."""

    pairs: int
    plain: float
    recorded: float
    total_plain: float
    total_recorded: float
    report: str
    audit_seconds: float

    @property
    def ratio(self) -> float:
        return self.recorded / self.plain


def step(pairs: int = 20, audit_seconds: float = 60.0) -> Step:
    torch.manual_seed(0)
    model = resnet18()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(BATCH, 3, SIDE, SIDE), torch.randint(CLASSES, (BATCH,))

    def run() -> float:
        started = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        return time.perf_counter() - started

    run()
    recording = pairgrad.record()
    plain, recorded = [], []
    for _ in range(pairs):
        plain.append(run())
        with recording:
            recorded.append(run())
    started = time.perf_counter()
    report = recording.audit(seconds=audit_seconds)
    taken = time.perf_counter() - started
    return Step(pairs, statistics.median(plain), statistics.median(recorded), sum(plain), sum(recorded), str(report), taken)


class OldStyle(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output


class NewStyle(Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output


@dataclass(frozen=True)
class Call:
    """Microseconds that one apply with its backward takes, and takes more when recorded: medians over rounds, each with all three in turn."""

    style: str
    calls: int  # of Python functions that are intercepted
    plain: float
    passed_by: float
    kept: float


def call(function: type[Function], style: str, calls: int, rounds: int = 21, repeats: int = 1000) -> Call:
    x = torch.randn(8, requires_grad=True)
    cotangent = torch.ones(8)

    def run() -> float:
        started = time.perf_counter()
        for _ in range(repeats):
            torch.autograd.grad(function.apply(x), x, cotangent)
        return (time.perf_counter() - started) / repeats * 1e6

    def recorded(limit: int) -> float:
        recorder = Recorder(limit, whole=2, memory=2**28)
        with recorder:
            return run()

    run()
    taken = [(run(), recorded(1), recorded(10**9)) for _ in range(rounds)]
    plain = statistics.median(entry[0] for entry in taken)
    passed_by, kept = (statistics.median(entry[k] - entry[0] for entry in taken) for k in (1, 2))
    return Call(style, calls, plain, passed_by, kept)


@dataclass(frozen=True)
class Memory:
    steps: int
    held: int  # bytes of copies in the end
    grown: int  # KiB by which the resident set's high-water mark rose after a fifth of the steps


def memory(steps: int = STEPS) -> Memory:
    recording = pairgrad.record(loss=False)
    x = torch.randn(64, requires_grad=True)
    mark = 0
    with recording:
        for k in range(steps):
            torch.autograd.grad(OldStyle.apply(x).sum(), x)
            if k == steps // 5:
                gc.collect()
                mark = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Memory(steps, recording._recorder.held(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - mark)


def measure(say: Callable[[str], None] = lambda text: None) -> tuple[Memory, list[Call], Step]:
    say("memory over 100,000 steps")
    kept = memory()
    say("one call")
    calls = [call(OldStyle, "forward(ctx, ...)", 2), call(NewStyle, "forward(...) and setup_context", 3)]
    say("a step of a ResNet18")
    return kept, calls, step()


def good(kept: Memory, calls: list[Call], taken: Step) -> bool:
    return taken.ratio <= SHARE_GOAL and all(one.kept / one.calls <= CALL_GOAL for one in calls) and kept.grown < 4096


def page(kept: Memory, calls: list[Call], taken: Step, command: str) -> str:
    rows = "\n".join(
        f"| `{one.style}` | {one.plain:.1f} | {one.passed_by:.1f} | {one.kept:.1f} | {one.kept / one.calls:.1f} |" for one in calls
    )
    extra = taken.total_recorded - taken.total_plain
    return f"""# What recording costs

<!-- Written by `{command}`; do not edit. -->

Measured with `{command}` on {machine_line()}, one thread. How to record: [the user guide](auditing.md).

## A training step

ResNet18 (11.2 million parameters) on {BATCH} images of {SIDE} x {SIDE}, FP32, SGD, with all 17 rectifiers as custom Functions: {taken.pairs} plain and
{taken.pairs} recorded steps in turn, in one process.

| | seconds per step, median | ratio | goal |
|---|---|---|---|
| plain | {taken.plain:.4f} | | |
| recorded | {taken.recorded:.4f} | {taken.ratio:.4f} | {SHARE_GOAL} |

The first steps copy the states that are kept, and the first of all keeps what the loss depends on: over all {taken.pairs} recorded steps that is
{extra:.2f} s more than {taken.total_plain:.1f} s. It does not come again. After the run, `recording.audit(seconds=60)` took {taken.audit_seconds:.0f} s
and said:

```
{taken.report}
```

## A call

One `apply` on 8 numbers with its backward, in microseconds: alone, and what recording adds if the visit is passed by (nearly all are, in a long run) or
kept. Two Python functions are intercepted, three with `setup_context`; the last column is per function. Goal: {CALL_GOAL:.0f}.

| style | alone | more, passed by | more, kept | kept, per intercepted call |
|---|---|---|---|---|
{rows}

## Memory

After {kept.steps:,} recorded steps of a function of 64 numbers: {kept.held / 1024:.1f} KiB of copies; the high-water mark of the process rose by
{kept.grown} KiB over the last four fifths of them.
"""
