"""A training in miniature: the features of one batch are descended themselves, under two backward rules from one start."""

from __future__ import annotations

from typing import NamedTuple

import torch

import pairgrad as pg

DIM, CLASSES = 128, 10
_RATE = 1.0


class Seen(NamedTuple):
    """Both rules at one state, and how far the descents are apart.

    Attributes:
        loss: that `consistent` reports.
        same_bits: whether `original` reports the same.
        gradients: how far the two gradients are apart, over the length of that of `consistent`.
        descents: how far the two descents are apart, over the length of the start.
    """

    loss: float
    same_bits: bool
    gradients: float
    descents: float


class Miniature:
    """`original` and `consistent` from the same features and the same class bank; `step` is one update of each."""

    def __init__(self) -> None:
        self.start, self.labels = _batch()
        self._losses = {name: _loss(name) for name in ("original", "consistent")}
        self._features = dict.fromkeys(self._losses, self.start)
        self._other = _loss("original")  # takes the state of `consistent`

    def step_of(self, realization: str) -> tuple[pg.PATTLoss, torch.Tensor, torch.Tensor]:
        """Loss, features and labels of the first step, as `certify_step` takes them."""
        return _loss(realization), self.start, self.labels

    def look(self) -> Seen:
        """Put both rules to the state that `consistent` has reached. The class banks stay as they are."""
        here, features = self._losses["consistent"], self._features["consistent"]
        before = {key: value.clone() for key, value in here.state_dict().items()}
        self._other.load_state_dict(before)
        loss, gradient = _gradient(here, features, self.labels)
        other_loss, other = _gradient(self._other, features, self.labels)
        here.load_state_dict(before)
        apart = self._features["original"] - features
        return Seen(
            loss.item(),
            torch.equal(loss, other_loss),
            float((other - gradient).norm() / gradient.norm()),
            float(apart.norm() / self.start.norm()),
        )

    def step(self) -> None:
        """One update of each descent, with its own gradient."""
        for name, loss in self._losses.items():
            self._features[name] = self._features[name] - _RATE * _gradient(loss, self._features[name], self.labels)[1]


def _loss(realization: str) -> pg.PATTLoss:
    counts = [100 - 10 * k for k in range(CLASSES)]
    generator = torch.Generator().manual_seed(3407)
    return pg.PATTLoss(CLASSES, DIM, class_counts=counts, realization=realization, dtype=torch.float64, generator=generator)


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3407)
    centres = torch.randn(CLASSES, DIM, dtype=torch.float64, generator=generator)
    labels = torch.randint(CLASSES, (32,), generator=generator)
    noise = torch.randn(2, 32, DIM, dtype=torch.float64, generator=generator)
    return 0.1 * centres[labels] + 0.3 * noise, labels


def _gradient(loss: pg.PATTLoss, features: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    features = features.clone().requires_grad_()
    total = loss.augmentation(features, labels)
    return total.detach(), torch.autograd.grad(total, features)[0]
