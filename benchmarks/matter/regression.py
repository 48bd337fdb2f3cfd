"""A network predicts a direction and how concentrated it is, from simulated inputs (the truth is known) and from the spelling of a word.

The loss is the negative log-likelihood with an arm's potential; every arm is judged by the exact density. The word's direction is its GloVe vector's.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import pairgrad as pg
from benchmarks.matter.arms import ARMS, CONTROL, Arm, exact_potential
from benchmarks.matter.one import with_orders
from benchmarks.matter.trial import Trial

CAPS = 0.9  # of the probability is in the cap that should hold the truth
ANGLES = 4000  # of the grid that caps are integrated on
INPUTS, TRAIN, TEST = 8, 8000, 4000
MIDDLE, SPREAD = 1000.0, 1.2  # of the true concentrations: the median, and the standard deviation of the logarithm
SIZES = {"up to 300": (0.0, 300.0), "300 to 3000": (300.0, 3000.0), "above 3000": (3000.0, math.inf)}  # of a true concentration
WORDS = "text/glove6b_50d_10000.npz"
BUCKETS = 2048  # of letter n-grams
EPOCHS, BATCH, RATE = 25, 128, 2e-2
OF_WORDS = {
    "epochs": 16,
    "rate": 2e-3,
    "hidden": 128,
    "dropout": 0.5,
}  # by the held-out likelihood of `paired`, before another arm was looked at


@dataclass(frozen=True)
class Data:
    """Inputs and unit vectors, and for simulated ones the true concentrations."""

    inputs: Tensor
    directions: Tensor
    test_inputs: Tensor
    test_directions: Tensor
    test_kappa: Tensor | None = None


@lru_cache(maxsize=1)
def simulated(dim: int, seed: int, train: int = TRAIN, test: int = TEST) -> Data:
    """Mean directions are those of an affine map of the inputs, and the logarithm of the concentration is linear: the network can learn the truth."""
    torch.manual_seed(1000 + seed)
    inputs = torch.randn(train + test, INPUTS)
    centre = 3 * math.sqrt(dim) * F.normalize(torch.randn(dim), dim=0)  # away from 0, where a direction would turn too fast to be learned
    means = F.normalize((centre + inputs @ torch.randn(INPUTS, dim) / math.sqrt(INPUTS)).double(), dim=-1)
    kappa = MIDDLE * (SPREAD * inputs[:, 0].double()).exp()
    directions = pg.VonMisesFisher(means, kappa).sample()
    return Data(inputs[:train], directions[:train], inputs[train:], directions[train:], kappa[train:])


@lru_cache(maxsize=1)
def words(data_root: Path, seed: int) -> Data:
    """A fifth for testing. A word's input counts its letter n-grams of two to four letters in buckets."""
    with np.load(data_root / WORDS, allow_pickle=False) as file:
        names, vectors = _arrays(file)
    inputs = torch.zeros(len(names), BUCKETS)
    for row, name in enumerate(names):
        text = f"<{name}>"
        for size in (2, 3, 4):
            for start in range(len(text) - size + 1):
                inputs[row, zlib.crc32(text[start : start + size].encode()) % BUCKETS] += 1
    inputs /= inputs.norm(dim=1, keepdim=True)
    directions = F.normalize(vectors - vectors.mean(0), dim=-1)
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed))
    test, train = order.split([len(names) // 5, len(names) - len(names) // 5])
    return Data(inputs[train], directions[train], inputs[test], directions[test])


def _arrays(file: np.lib.npyio.NpzFile) -> tuple[list[str], Tensor]:
    found = {array.dtype.kind: array for array in (file[name] for name in file.files)}
    texts = found.get("U", found.get("S"))
    assert texts is not None
    return [text.decode() if isinstance(text, bytes) else str(text) for text in texts.tolist()], torch.from_numpy(found["f"]).double()


class Network(nn.Module):
    """A direction, and the logarithm of a concentration over p, by a network each; without hidden units both are linear in the inputs."""

    def __init__(self, inputs: int, dim: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.dim = dim
        self.direction = nn.Linear(inputs, dim) if not hidden else _layers(inputs, hidden, dim, dropout)
        self.concentration = nn.Linear(inputs, 1) if not hidden else _layers(inputs, 32, 1, dropout)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        logarithm = self.concentration(inputs).squeeze(-1).double()
        return F.normalize(self.direction(inputs).double(), dim=-1), self.dim * logarithm.clamp(max=16).exp()


def _layers(inputs: int, hidden: int, outputs: int, dropout: float) -> nn.Module:
    return nn.Sequential(nn.Dropout(dropout), nn.Linear(inputs, hidden), nn.SiLU(), nn.Dropout(dropout), nn.Linear(hidden, outputs))


def trained(arm: Arm, data: Data, seed: int, epochs: int, rate: float = RATE, hidden: int = 0, dropout: float = 0.0) -> Network:
    """By Adam, with a rate that falls to 0; the same start and batches for every arm."""
    torch.manual_seed(seed)
    dim = data.directions.shape[1]
    network, potential = Network(data.inputs.shape[1], dim, hidden, dropout), arm.of(dim)
    if arm is CONTROL:
        moved(network)
    optimizer = torch.optim.Adam(network.parameters(), rate)
    steps = epochs * math.ceil(len(data.inputs) / BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    order = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(data.inputs), generator=order).split(BATCH):
            direction, kappa = network(data.inputs[rows])
            loss = (potential(kappa) - kappa * (direction * data.directions[rows]).sum(-1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return network.eval()


def moved(network: nn.Module) -> None:
    """Every weight by up to a part in a million, with a generator of its own."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1 + 1e-6 * (2 * torch.rand(parameter.shape, generator=generator) - 1))


@torch.no_grad()
def judged(network: Network, data: Data) -> dict[str, float]:
    """Held-out nats by the exact density, the share of caps of CAPS that hold the truth, and the error of concentrations."""
    direction, kappa = network(data.test_inputs)
    cosine = (direction * data.test_directions).sum(-1)
    nats = exact_potential(network.dim)(kappa) - kappa * cosine
    found = {
        "nats": nats.mean().item(),
        "coverage": (beyond(network.dim, kappa, cosine) >= 1 - CAPS).double().mean().item(),
        "kappa": kappa.median().item(),
        "cosine": cosine.mean().item(),
    }
    if data.test_kappa is not None:
        for name, (least, most) in SIZES.items():
            chosen = (data.test_kappa > least) & (data.test_kappa <= most)
            found[name] = (kappa / data.test_kappa)[chosen].median().item()
    return found


def beyond(dim: int, kappa: Tensor, cosine: Tensor) -> Tensor:
    """The probability of a larger angle to the mean direction, by the trapezoidal rule around the most likely angle."""
    mode = torch.atan2(torch.full_like(kappa, dim - 2).sqrt(), kappa.sqrt()) if dim > 2 else torch.zeros_like(kappa)
    width = 12 / torch.sqrt(kappa + dim)
    low, high = (mode - width).clamp(min=0), (mode + width).clamp(max=math.pi)
    share = torch.linspace(0, 1, ANGLES, dtype=torch.float64)
    result = []
    for rows in torch.arange(len(kappa)).split(256):
        angle = low[rows, None] + (high - low)[rows, None] * share
        log_density = kappa[rows, None] * (angle.cos() - 1) + (dim - 2) * angle.sin().clamp(min=1e-300).log()
        density = (log_density - log_density.amax(1, keepdim=True)).exp()
        larger = angle >= cosine[rows, None].clamp(-1, 1).acos()
        result.append((density * larger).sum(1) / density.sum(1))
    return torch.cat(result)


def regression(seeds: int, few: bool, data_root: Path | None) -> Iterator[Trial]:
    """p = 3 and p = 128, and words in p = 50."""
    for seed in range(seeds):
        settings: dict[str, Callable[[], Data]] = {
            "simulated, p = 128": partial(simulated, 128, seed, *((512, 512) if few else ())),
        }
        if not few:
            settings["simulated, p = 3"] = partial(simulated, 3, seed)
        if data_root is not None:
            settings["words, p = 50"] = partial(words, data_root, seed)
        for setting, data in settings.items():
            dim = int(setting.split(" = ")[1])
            how: dict[str, Any] = OF_WORDS if setting.startswith("words") else {"epochs": 2 if few else EPOCHS}
            for arm in with_orders(ARMS, dim):
                yield Trial("regression", setting, arm.name, seed, partial(_measured, arm, data, seed, how))


def _measured(arm: Arm, data: Callable[[], Data], seed: int, how: dict[str, Any]) -> dict[str, float]:
    return judged(trained(arm, data(), seed, **how), data())
