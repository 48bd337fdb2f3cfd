"""Accuracy of `"paired"` against ball arithmetic on random states: writes docs/accuracy.md.

python -m benchmarks.accuracy                      # 20,000 states per dtype, some minutes
python -m benchmarks.accuracy --states 500 --output /tmp/accuracy.md
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from fractions import Fraction

import flint
import numpy as np
import torch

import pairgrad as pg
from pairgrad.ground.files import write_atomically
from pairgrad.potentials.reference import Balls

QUANTITIES = ("slope", "value", "difference", "secant", "complement", "curvature")
GROUPS = ((2, 4), (5, 7), (8, 32), (33, 512), (513, 4096), (4097, 100_000))
PROMISED = {
    torch.float64: {q: "5e-13" if q == "curvature" else "1.2e-15" for q in QUANTITIES},
    torch.float32: {q: "5e-5" if q == "curvature" else "4e-7 (7e-7 below dim 8)" for q in QUANTITIES},
}


def relative_error(got: float, ball: flint.arb) -> float:
    return float(abs((flint.arb(got) - ball) / ball)) if math.isfinite(got) else math.inf


def measure(dtype: torch.dtype, states: int, seed: int) -> dict[tuple[str, tuple[int, int]], float]:
    """Largest relative error per quantity and group of dimensions; the groups are drawn alike, x log-uniform over sixteen decades."""
    rng = np.random.default_rng(seed)
    worst: dict[tuple[str, tuple[int, int]], float] = defaultdict(float)
    for index in range(states):
        group = GROUPS[index % len(GROUPS)]
        dim = int(rng.integers(group[0], group[1] + 1))
        pot, balls = pg.potential(dim), Balls(Fraction(dim, 2) - 1, 30)
        decades = (-8.0, 8.0) if index // len(GROUPS) % 2 else (-1.5, 2.5)
        x = torch.tensor([max(dim / 2 - 1, 0.5) * 10 ** rng.uniform(*decades)], dtype=dtype)
        b = x * (1 + 10 ** rng.uniform(-12, 2))
        zero = torch.zeros_like(x)
        for quantity in QUANTITIES:
            points = (x, b) if quantity in ("difference", "secant") else (x,)
            if len(points) == 2 and bool(b == x):
                continue
            truth = balls.apply("difference", zero, x) if quantity == "value" else balls.apply(quantity, *points)
            error = relative_error(getattr(pot, quantity)(*points).item(), truth[0])
            worst[quantity, group] = max(worst[quantity, group], error)
        if sys.stderr.isatty() and index % 50 == 0:
            print(f"\r{dtype}: {index}/{states}", end="", file=sys.stderr)
    return worst


def page(results: dict[torch.dtype, dict[tuple[str, tuple[int, int]], float]], states: int) -> str:
    lines = [
        "# Accuracy",
        "",
        'What `"paired"` promises, and the largest relative errors found against ball arithmetic (python-flint, enclosures of 30 digits) on',
        f"{states:,} random states per dtype: dimensions drawn alike from each group, odd ones included, x / max(nu, 1/2) log-uniform in",
        "[1e-8, 1e8] (every other state in [0.03, 300]), (b - a) / a log-uniform in [1e-12, 1e2]. `value` counts from value(0) = 0.",
        "float32 means computed in float32.",
        "",
        "Measured again by `python -m benchmarks.accuracy`; checked by `make test` on a grid and on 400 random states per dtype, by `make test-all` on 20,000.",
        f"This page: torch {torch.__version__.split('+')[0]}, CPU. Per operation the unit roundoff is 1.1e-16 in float64 and 6.0e-8 in float32.",
    ]
    for dtype, worst in results.items():
        name = str(dtype).removeprefix("torch.")
        lines += [
            "",
            f"## {name}",
            "",
            "| quantity | promised | " + " | ".join(f"dim {a}-{b}" for a, b in GROUPS) + " |",
            "|---" * (len(GROUPS) + 2) + "|",
        ]
        for quantity in QUANTITIES:
            cells = " | ".join(f"{worst[quantity, group]:.1e}" for group in GROUPS)
            lines.append(f"| {quantity} | {PROMISED[dtype][quantity]} | {cells} |")
    lines += [
        "",
        "## What the numbers are about",
        "",
        'The errors above are of the floating-point kernel against the exact function: truncation and rounding together. With `order="auto"` the truncation is',
        "proven to be below 1.5 units of rounding, relative, at every dimension ([certificates](certificates.md)). `ratio_bound()` is that theorem: it is",
        "about the formulas in exact arithmetic alone, and `pairgrad prove --dim DIM` proves it again.",
        "",
        "The gradient of `secant` with respect to its end points is a quadrature of the curvature where the points are close and a difference quotient",
        "elsewhere: relative to itself it loses about x / nu roundings (8 % in float32 at x/nu = 3e5). The gradients of `value`,",
        "`difference`, `slope` and `complement`",
        "are the kernels themselves.",
        "",
        "Outside of the range of the table the same bounds hold, plus a few units of the smallest subnormal number: see",
        "[the ends of the range](numerics.md#ends-of-the-range).",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the accuracy of the paired potential against ball arithmetic.")
    parser.add_argument("--states", type=int, default=20_000, help="random states per dtype")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--output", default="docs/accuracy.md")
    options = parser.parse_args()
    results = {dtype: measure(dtype, options.states, options.seed) for dtype in (torch.float64, torch.float32)}
    print(f"written: {write_atomically(options.output, page(results, options.states))}")


if __name__ == "__main__":
    main()
