"""Defects at the radii that training visits, from the first batch on (fig:proco-state-distribution)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import pairgrad as pg
from pairgrad.sphere import ClassBank
from pairgrad_paper.captured.capture import Captured, capture
from pairgrad_paper.captured.source import Source
from pairgrad_paper.captured.view import RULES

NOTABLE = 1e-6
LEVELS = tuple(-16 + 0.25 * number for number in range(65))  # of log10 |defect|
FIRST = "first batch"


def states_lines(source: Source, every: int = 1) -> Iterator[dict[str, Any]]:
    """Lines `capture` and `cumulative` at the first batch and at every checkpoint between two epochs.

    Queries are those of the next batch, each view at the class state that it is scored against, and a bank is looked at as the checkpoint has it. Of the
    first batch both are those of its first view, which is what the paper counts there: 25,600 radii, 256 queries of 100 classes. With the second view every
    class that has an image has two samples, and none is a singleton any more.

    Args:
        every: take checkpoints after a multiple of this many epochs, and the last.
    """
    first = capture(source.trainer(0)).of_first_view()
    yield from _both(FIRST, first, first.banks[0])
    for step in wanted_steps(source, every):
        trainer = source.trainer(step)
        yield from _both(f"epoch {trainer.epoch}", capture(trainer), trainer.objective.bank)


def wanted_steps(source: Source, every: int = 1) -> list[int]:
    """Of the checkpoints at the end of an epoch, those after a multiple of `every`, and the last."""
    per_epoch = len(source.benchmark.train) // source.recipe.batch_size
    whole = [step for step in source.steps if step > 0 and step % per_epoch == 0]
    return [step for step in whole if step // per_epoch % every == 0 or step == whole[-1]]


def _both(when: str, captured: Captured, bank: ClassBank) -> Iterator[dict[str, Any]]:
    yield from _described(when, captured, "queries", _radii(captured), _concentrations(captured), captured.banks[0])
    seen = bank.concentration.double()[bank.counts > 0]
    yield from _described(when, captured, "bank", seen, seen, bank)


def _radii(captured: Captured) -> torch.Tensor:
    return torch.cat([view.field().radius.flatten() for view in captured.views.values()])


def _concentrations(captured: Captured) -> torch.Tensor:
    return torch.cat([view.concentration for view in captured.views.values()])


def defects(dim: int, radii: torch.Tensor) -> torch.Tensor:
    """|supplied slope - derivative of the finite potential| in float64, with the recurrence started at 2 nu (eq. coherence-defect)."""
    supplied, own = (pg.potential(dim, rule).slope(radii.double()) for rule in RULES)
    return (supplied - own).abs()


def _described(
    when: str, captured: Captured, what: str, radii: torch.Tensor, concentrations: torch.Tensor, bank: ClassBank
) -> Iterator[dict[str, Any]]:
    found, scaled = defects(bank.dim, radii), radii / (bank.dim / 2 - 1)
    place = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0], dtype=torch.float64)
    names = ("minimum", "lower", "median", "upper", "maximum")
    yield {
        "kind": "capture",
        "when": when,
        "step": captured.step,
        "epoch": captured.epoch,
        "what": what,
        "count": len(found),
        **dict(zip(names, torch.quantile(found, place).tolist(), strict=True)),
        "above": (found > NOTABLE).double().mean().item(),
        "capped": (concentrations >= bank.rule.cap).double().mean().item(),
        "singletons": int((bank.counts == 1).sum()),
        **dict(zip(("radius_low", "radius_median", "radius_high"), torch.quantile(scaled, place[::2]).tolist(), strict=True)),
    }
    yield {
        "kind": "cumulative",
        "when": when,
        "what": what,
        "level": list(LEVELS),
        "share": [(found <= 10**level).double().mean().item() for level in LEVELS],
    }
