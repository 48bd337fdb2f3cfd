"""A vMF classifier that learns its classes' concentrations, and one whose concentrations are at the cap, on embeddings of newsgroup posts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import pairgrad as pg
from benchmarks.matter.arms import ARFR, ARMS, CONSISTENT, CONTROL, ORIGINAL, PAIRED, Arm
from benchmarks.matter.regression import moved
from benchmarks.matter.trial import Trial

POSTS = "text/newsgroups20_minilm384.npz"
CLASSES, EPOCHS, BATCH, RATE = 20, 3, 128, 1e-2  # the epochs by the held-out likelihood of `paired`, before another arm was looked at
START = 30.0  # concentration of every class; from the dimension, as many epochs overfit
CAP, CAP_DIM, CAP_EPOCHS, CAP_RATE = 1e5, 128, 20, 0.1
BINS = 15  # of the calibration error


class Learned(nn.Module):
    """Logits kappa_j mu_j' x - Phi(kappa_j): the log density of each class, with an arm's potential."""

    def __init__(self, arm: Arm, dim: int) -> None:
        super().__init__()
        self.potential = arm.of(dim)
        self.directions = nn.Parameter(torch.randn(CLASSES, dim) / dim**0.5)
        self.log_kappa = nn.Parameter(torch.full((CLASSES,), START).log())

    def forward(self, features: Tensor) -> Tensor:
        kappa = self.log_kappa.double().exp()
        return kappa * (features @ F.normalize(self.directions, dim=-1).T).double() - self.potential(kappa)


@lru_cache(maxsize=1)
def posts(data_root: Path, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Embeddings of length 1 and their groups; three tenths are for testing."""
    with np.load(data_root / POSTS, allow_pickle=False) as file:
        features, labels = F.normalize(torch.from_numpy(file["X"]).float(), dim=-1), torch.from_numpy(file["y"]).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    test, train = order.split([3 * len(order) // 10, len(order) - 3 * len(order) // 10])
    return features[train], labels[train], features[test], labels[test]


def learned(arm: Arm, data_root: Path, seed: int) -> dict[str, float]:
    features, labels, test, truth = posts(data_root, seed)
    torch.manual_seed(seed)
    model = Learned(arm, features.shape[1])
    if arm is CONTROL:
        moved(model)
    optimizer = torch.optim.Adam([{"params": [model.directions]}, {"params": [model.log_kappa], "lr": 10 * RATE}], RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(labels)).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(model(features[rows]), labels[rows]).backward()
            optimizer.step()
        schedule.step()
    with torch.no_grad():
        return scored(model(test), truth) | {"kappa": model.log_kappa.exp().median().item()}


def scored(logits: Tensor, truth: Tensor) -> dict[str, float]:
    """Percent right, nats, and the expected calibration error in percent."""
    sure, guess = logits.softmax(-1).max(-1)
    right = (guess == truth).double()
    bins = (sure * BINS).long().clamp(max=BINS - 1)
    gaps = [((bins == index) * (right - sure)).sum().abs().item() for index in range(BINS)]
    return {
        "accuracy": 100 * right.mean().item(),
        "nats": F.cross_entropy(logits, truth).item(),
        "calibration": 100 * sum(gaps) / len(truth),
    }


def capped(arm: Arm, data_root: Path, seed: int) -> dict[str, float]:
    """Plain SGD on a linear map of the embeddings, beside classes whose concentrations stay at the cap of a class bank."""
    features, labels, test, truth = posts(data_root, seed)
    torch.manual_seed(seed)
    model = nn.Linear(features.shape[1], CAP_DIM, bias=False)
    state = pg.ClassState(F.normalize(torch.randn(CLASSES, CAP_DIM), dim=-1), torch.full((CLASSES,), CAP))
    how: dict[str, Any] = {"temperature": 0.1, "realization": PAIRED.name if arm is CONTROL else arm.name, "scalar_dtype": torch.float64}
    if arm is CONTROL:
        moved(model)
    optimizer = torch.optim.SGD(model.parameters(), CAP_RATE)
    for _ in range(CAP_EPOCHS):
        for rows in torch.randperm(len(labels)).split(BATCH):
            optimizer.zero_grad()
            pg.vmf_cross_entropy(F.normalize(model(features[rows]), dim=-1), labels[rows], state, **how).backward()
            optimizer.step()
    with torch.no_grad():
        return scored(pg.vmf_scores(F.normalize(model(test), dim=-1), state, **how).double(), truth) | {"kappa": CAP}


def classes(seeds: int, few: bool, data_root: Path | None) -> Iterator[Trial]:
    if few or data_root is None:
        return
    for seed in range(seeds):
        for arm in ARMS:
            yield Trial("classes", "newsgroups, p = 384", arm.name, seed, partial(learned, arm, data_root, seed))
        for arm in (PAIRED, CONTROL, ARFR, CONSISTENT, ORIGINAL):
            yield Trial("cap", "newsgroups, p = 128", arm.name, seed, partial(capped, arm, data_root, seed))
