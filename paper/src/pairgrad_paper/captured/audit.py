"""How far scores and slopes of a captured view are from exact ones (tab:captured-audit)."""

from __future__ import annotations

from collections.abc import Iterable

import torch

import pairgrad as pg
from pairgrad.ground import flint, working_precision
from pairgrad.potentials import Balls
from pairgrad.sphere import squared_increment
from pairgrad_paper.captured.view import View

SAMPLE = 40  # pairs of a view at which float64 is compared with balls, beside those with the largest discrepancies


def audited(view: View) -> dict[str, float]:
    """Largest absolute discrepancies over all pairs of a query and a class, in float64.

    Scores of the finite recurrence and of AR/FR are held against those of `"paired"`, and these against balls, where the others are worst and at some
    pairs spread over the view.
    """
    field, exact = view.field(), pg.potential(view.dim)
    truth, finite, arfr = (view.scores(name) for name in ("paired", "original", "arfr"))
    errors = [(scores - truth).abs() for scores in (finite, arfr)]
    return {
        "finite_score": errors[0].max().item(),
        "arfr_score": errors[1].max().item(),
        "paired_score": ball_error(view, truth, spread(truth, errors)),
        "clipped_slope": (field.slope - exact.slope(field.radius)).abs().max().item(),
        "defect": field.radial_defect.abs().max().item(),
    }


def spread(truth: torch.Tensor, errors: Iterable[torch.Tensor]) -> list[int]:
    """Positions in the flat (B, K) scores: where each of the errors is largest, and some others."""
    return sorted({int(e.argmax()) for e in errors} | set(range(0, truth.numel(), max(1, truth.numel() // SAMPLE))))


def ball_error(view: View, scores: torch.Tensor, positions: Iterable[int]) -> float:
    """Largest |score - ball| at these positions of the flat scores (B, K)."""
    classes = view.state.classes().to(torch.float64)
    squared = squared_increment(view.features.double(), classes, view.temperature).flatten()
    arb, balls = flint().arb, Balls(pg.potential(view.dim).nu, 25)
    worst = 0.0
    for position in positions:
        with working_precision(256):
            kappa = arb(classes.concentration[position % view.state.num_classes].item())
            radius = (kappa * kappa + arb(squared[position].item())).sqrt()
            error = abs(arb(scores.flatten()[position].item()) - balls.difference_ball(kappa, radius))
        worst = max(worst, float(error))
    return worst
