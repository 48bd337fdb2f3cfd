"""`pairgrad demo`."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import pairgrad as pg
from pairgrad.cli import figures, tables
from pairgrad.cli.output import report
from pairgrad.experiments.catalogue import FIGURES, TABLES
from pairgrad.experiments.figures.style import pyplot
from pairgrad.ground.balls import flint

_FIGURE = "value-and-slope"


def run(output: Path) -> None:
    """Print the demonstration and write its tables and its picture into `output`."""
    flint()  # what is missing is said before anything is computed
    pyplot()
    console = Console()
    _two_slopes(console)
    _three_arms(console)
    picture = figures.make(console, {_FIGURE: FIGURES[_FIGURE]}, output)
    report(console, tables.make(console, TABLES, output) + picture)


def _two_slopes(console: Console) -> None:
    original, consistent = pg.potential(128, "original"), pg.potential(128, "consistent")
    x = torch.tensor([64 * 63.0], dtype=torch.float64)
    console.print("[bold]Same value, different slopes[/bold]  (dim 128, x/nu = 64)")
    table = Table("realization", "value it reports", "slope it supplies", "derivative of its value")
    for pot in (original, consistent, pg.potential(128)):
        value, slope = pot.pair(x)
        derivative = (consistent if pot is original else pot).slope(x)
        table.add_row(pot.realization, f"{value.item() + pot.offset:.10f}", f"{slope.item():.6f}", f"{derivative.item():.6f}")
    console.print(table)
    same = torch.equal(original.value(x), consistent.value(x))
    defect = (original.slope(x) - consistent.slope(x)).item()
    console.print(
        f"original and consistent: values equal bit for bit: {'yes' if same else 'NO'}; coherence defect of original: {defect:.3e}\n"
    )


def _three_arms(console: Console) -> None:
    """One step of a PATT loss on the features of a seeded random batch, in the three arms of the paper and with the default."""
    console.print("[bold]Same loss, different gradients[/bold]  (PATTLoss, 10 classes, dim 128, features as they come, two views of 32)")
    table = Table("realization", "loss", "gradient norm", "relative distance to consistent")
    arms = {name: _one_step(name) for name in ("original", "consistent", "arfr", "paired")}
    consistent = arms["consistent"][1]
    for name, (loss, gradient) in arms.items():
        distance = (gradient - consistent).norm() / consistent.norm()
        table.add_row(name, f"{loss.item():.10f}", f"{gradient.norm().item():.8f}", f"{distance.item():.2e}")
    console.print(table)
    same = torch.equal(arms["original"][0], arms["consistent"][0])
    console.print(f"original and consistent: losses equal bit for bit: {'yes' if same else 'NO'}\n")


def _one_step(realization: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3407)
    loss = pg.PATTLoss(
        10, 128, class_counts=[100 - 10 * k for k in range(10)], realization=realization, dtype=torch.float64, generator=generator
    )
    centres = torch.randn(10, 128, dtype=torch.float64, generator=generator)
    labels = torch.randint(10, (32,), generator=generator)
    noise = torch.randn(2, 32, 128, dtype=torch.float64, generator=generator)
    features = (0.1 * centres[labels] + 0.3 * noise).requires_grad_()
    total = loss.augmentation(features, labels)
    (gradient,) = torch.autograd.grad(total, features)
    return total.detach(), gradient
