"""Accuracy of float32 scores and gradients against ball arithmetic: writes docs/learning-accuracy.md.

python -m benchmarks.learning.accuracy                       # about a minute
python -m benchmarks.learning.accuracy --classes 6 --output /tmp/learning-accuracy.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

import pairgrad as pg
from benchmarks.learning.exact import Exact
from pairgrad.ground.files import write_atomically
from pairgrad.ground.timing import machine_line

DIMS = (128, 512, 1024)
TEMPERATURE = 0.1
GOALS = {"score": 5e-6, "score gradient": 1e-6, "loss gradient": 2e-5}
LAYOUTS = {
    "factorised, float32": {},
    "expanded, float32, recurrence in float64 (the public layout)": {"realization": "original", "geometry": "expanded"},
}


def measure(dim: int, classes: int, batch: int, seed: int) -> dict[str, dict[str, float]]:
    """Largest error per layout: of the scores absolute, of the gradients relative to their norm. Concentrations from 1 to 1e5, unit features."""
    generator = torch.Generator().manual_seed(seed)
    unit = torch.nn.functional.normalize
    mean = unit(torch.randn(classes, dim, generator=generator), dim=1)
    kappa = torch.logspace(0, 5, classes)
    labels = torch.randint(classes, (batch,), generator=generator)
    features = unit(mean[labels] + torch.randn(batch, dim, generator=generator) / dim**0.5, dim=1)
    prior = torch.log_softmax(torch.randn(classes, generator=generator), 0)
    exact = Exact.of(features, mean, kappa, TEMPERATURE)
    truth = exact.scores()
    losses = [exact.loss(i, int(y), prior.tolist())[1] for i, y in enumerate(labels)]
    state = pg.ClassState(mean, kappa)
    found = {}
    for name, options in LAYOUTS.items():
        leaf = features.clone().requires_grad_()
        scores = pg.vmf_scores(leaf, state, TEMPERATURE, **options)
        worst = 0.0
        for j in range(classes):
            (gradient,) = torch.autograd.grad(scores[:, j].sum(), leaf, retain_graph=True)
            for i in range(batch):
                right = exact.gradient(i, j)
                worst = max(worst, float((gradient[i].double() - right).norm() / right.norm()))
        total = pg.vmf_cross_entropy(leaf, labels, state, TEMPERATURE, prior, "sum", **options)
        (gradient,) = torch.autograd.grad(total, leaf)
        loss = max(float((g.double() - right).norm() / right.norm()) for g, right in zip(gradient, losses, strict=True))
        error = float((scores.detach().double() - truth).abs().max())
        found[name] = {"score": error, "score gradient": worst, "loss gradient": loss}
    return found


def page(results: dict[int, dict[str, dict[str, float]]], command: str) -> str:
    lines = [
        "# Accuracy of scores and gradients",
        "",
        f"Measured by `{command}` on {machine_line()}. Unit features, temperature {TEMPERATURE}, concentrations from 1 to 1e5, float32 inputs taken for the",
        "exact numbers they hold; truth is ball arithmetic. Errors of scores are absolute, of gradients relative in norm, the worst of all entries.",
        "",
        "| dim | layout | score | score gradient | loss gradient |",
        "|---|---|---|---|---|",
        f"| | documented bound | {GOALS['score']:.0e} | {GOALS['score gradient']:.0e} | {GOALS['loss gradient']:.0e} |",
    ]
    for dim, found in results.items():
        for name, errors in found.items():
            lines.append(f"| {dim} | {name} | " + " | ".join(f"{errors[q]:.1e}" for q in GOALS) + " |")
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.accuracy", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--classes", type=int, default=16)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parents[2] / "docs" / "learning-accuracy.md")
    options = parser.parse_args(argv)
    results = {dim: measure(dim, options.classes, options.batch, options.seed) for dim in DIMS}
    text = page(results, "python -m benchmarks.learning.accuracy")
    write_atomically(options.output, text)
    print(text)
    reached = all(found["factorised, float32"][q] <= bound for found in results.values() for q, bound in GOALS.items())
    print("within the documented bounds:", "yes" if reached else "NO")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
