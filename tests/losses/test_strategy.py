"""A loss works with any strategy: four public methods are all that it asks for, and all that a strategy needs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import pairgrad as pg
from pairgrad.losses import Step

SOURCE = Path(pg.__file__).parent
COUNTS = [5, 4, 3, 2, 1]


class Halved:
    """As one of two processes that bring the same samples would: each has half of every mean."""

    whole, num_classes = True, 5

    def __init__(self) -> None:
        self.told: list[str] = []

    @contextmanager
    def checking(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.told.append(type(error).__name__)
            raise

    def loss(self, step: Step) -> torch.Tensor:
        return step.loss() / 2

    def share_of_mean(self, mean: torch.Tensor, size: int, rows: str) -> torch.Tensor:
        return mean / 2

    def set_prior(self, log_prior: torch.Tensor) -> torch.Tensor:
        return log_prior


@pytest.mark.parametrize("kind", [pg.ProCoLoss, pg.PATTLoss])
def test_a_strategy_of_ones_own(kind: type) -> None:
    whole, halved, strategy = (*(kind(5, 8, class_counts=COUNTS, generator=torch.Generator().manual_seed(0)) for _ in range(2)), Halved())
    term = halved.augmentation if isinstance(halved, pg.PATTLoss) else halved
    term.use(term.bank, strategy)
    views, labels, logits = torch.randn(2, 4, 8) / 4, torch.tensor([0, 1, 2, 4]), torch.randn(4, 5)
    outliers = (torch.randn(3, 5),) if kind is pg.PATTLoss else ()
    for _ in range(2):
        torch.testing.assert_close(halved(views, labels, logits, *outliers), whole(views, labels, logits, *outliers) / 2)
    assert torch.equal(halved.bank.sums, whole.bank.sums)
    before = halved.bank.sums.clone()
    with pytest.raises(ValueError, match="labels must lie in"):
        halved(views, labels + 5, logits, *outliers)
    with pytest.raises(ValueError, match="features must be finite"):
        halved(views / 0, labels, logits, *outliers)
    assert strategy.told == ["ValueError", "ValueError"]
    assert torch.equal(halved.bank.sums, before)


def _reached(folder: str, names: set[str]) -> list[str]:
    """Where code of a folder reads a private attribute of a thing that is not its own."""
    found = []
    for path in sorted((SOURCE / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                owner = node.value
                if isinstance(owner, ast.Name) and owner.id in names:
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno} {ast.unparse(node)}")
    return found


def test_losses_and_ranks_do_not_reach_into_each_other() -> None:
    assert _reached("distributed", {"loss", "step", "bank", "problem", "options"}) == []
    assert _reached("losses", {"strategy", "bank", "step", "state"}) == []
    for path in (SOURCE / "losses").rglob("*.py"):
        assert "pairgrad.distributed" not in "".join(
            ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, (ast.Import, ast.ImportFrom))
        )
