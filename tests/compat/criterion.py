"""A small model of ProCo's public criterion, batches for it, and the tolerances that follow from both."""

from __future__ import annotations

import torch
from scipy import special
from torch.nn import functional as F

from pairgrad.compat.proco import ProCoLoss

K, P, TAU, CAP = 6, 64, 0.1, 1e5
U = 2.0**-53  # unit roundoff of float64
U32 = 2.0**-24

# A mean of unit features: some ten roundings, relative to 1.
MEAN = 16 * U
# kappa = p R / (1 - R^2) multiplies the rounding of R by (1 + R^2) / (1 - R^2), at most 40 for the lengths R <= 0.975 here that the cap does not take.
KAPPA = 40 * 32 * U
# The model subtracts two potentials of the size of r <= 1.1e5, each with some ten roundings of that size, and so has the error; ours has less.
LOGITS = 16 * 1.1e5 * U
# Each coordinate of the gradient: a sum over K classes of terms below 1 / tau, with ratios near 1 and vectors of length 1 that carry some ten roundings.
# The ratio of the finite recurrence has two roundings per step, which do not grow; 2 nu = 62 steps.
GRADIENT = K / TAU * 128 * U
# A mean over rows of cross-entropies below 200: both sides round logits below 300 some ten times.
LOSS = 16 * 300 * U


# Known: where r = 0 exactly, the factorised score takes r = sqrt(smallest normal number), at which the source's stabiliser log(r + 1e-20) is far from log r;
# the realization's own convention is to leave it out at 0.

# The model: two independent estimators, of which the old one is scored after both have seen the batch


class Estimator:
    def __init__(self, mean: torch.Tensor) -> None:
        """With a random initial mean of length 0.9, and its concentration p * 90 / 19."""
        self.Ave, self.Amount = mean.double().clone(), torch.zeros(len(mean), dtype=torch.float64)
        self.kappa = torch.full((len(mean),), mean.shape[1] * 90 / 19, dtype=torch.float64)

    def update(self, features: torch.Tensor, labels: torch.Tensor) -> None:
        for label in range(len(self.Ave)):
            mine = features.detach().double()[labels == label]
            m, n = len(mine), self.Amount[label].item()
            if m:
                weight = m / (m + n)
                self.Ave[label] = (1 - weight) * self.Ave[label] + weight * mine.mean(0)
            self.Amount[label] += m

    def update_kappa(self, cap: float = CAP) -> None:
        length = self.Ave.norm(dim=1)
        kappa = self.Ave.shape[1] * length / (1 - length**2)
        self.kappa = torch.where((kappa > cap) | (kappa < 0), cap, kappa)


class Criterion:
    """The public call: update the old estimator, update the new one, derive the old one's concentrations, score."""

    def __init__(self, ours: ProCoLoss, potential=None) -> None:
        self.old, self.new = Estimator(ours.estimator_old.Ave), Estimator(ours.estimator.Ave)
        self.temperature, self.potential = ours.temperature, potential or exact

    def __call__(self, features: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
        if labels is not None:
            self.old.update(features, labels)
            self.new.update(features, labels)
            self.old.update_kappa()
        return self.potential(self.radii(features)) - self.potential(self.old.kappa)

    def resultants(self, features: torch.Tensor) -> torch.Tensor:
        direction = self.old.Ave / self.old.Ave.norm(dim=1, keepdim=True).clamp_min(1e-12)
        return (self.old.kappa[:, None] * direction) + (features.detach().double() / self.temperature)[:, None]

    def radii(self, features: torch.Tensor) -> torch.Tensor:
        return self.resultants(features).norm(dim=2)

    def next_epoch(self, ours: ProCoLoss) -> None:
        """The new estimator becomes the old one; the next is as random as ours."""
        self.old, self.new = self.new, Estimator(ours.estimator.Ave)


def exact(x: torch.Tensor, dim: int = P) -> torch.Tensor:
    """Phi(x), by scipy's Bessel functions, where these do not underflow."""
    nu = dim / 2 - 1
    array = x.detach().numpy()
    return torch.from_numpy(special.ive(nu, array)).log() + x - nu * x.log()


def finite(x: torch.Tensor, dim: int = P) -> tuple[torch.Tensor, torch.Tensor]:
    """The finite recurrence b_{i-1} = (2 i / x) b_i + b_{i+1} from M = 2 nu: the value the public code computes, and the slope it supplies. Nothing
    overflows at this dimension."""
    nu = dim // 2 - 1
    upper, lower, b = torch.zeros_like(x), torch.ones_like(x), {}
    for i in range(2 * nu, 0, -1):
        b[i] = lower
        upper, lower = lower, 2 * i / x * lower + upper
    b[0] = lower
    log_i0e = torch.from_numpy(special.i0e(x.numpy())).log()
    return log_i0e + (b[nu] / b[0]).log() + x - nu * torch.log(x + 1e-20), b[nu + 1] / b[nu]


# Batches: every epoch leaves classes out, has singletons (R = 1) and, by the scale, lengths above 1


def batches(scale: float = 1.0, epochs: int = 3, dim: int = P, dtype: torch.dtype = torch.float64):
    centres = F.normalize(torch.randn(K, dim, dtype=dtype), dim=1)
    absent = ([5], [4, 5], [0])  # class 5 comes in the last epoch only
    for epoch in range(epochs):
        for step in range(3):
            present = [label for label in range(K) if label not in absent[epoch]]
            labels = torch.tensor([present[i % len(present)] for i in range(len(present) + step)])  # singletons in the first step
            features = F.normalize(centres[labels] + 0.08 * torch.randn(len(labels), dim, dtype=dtype), dim=1)
            yield epoch, step, scale * features, labels


def build(dim: int = P, dtype: torch.dtype | None = torch.float64, **options) -> ProCoLoss:
    return ProCoLoss(dim, TAU, K, dtype=dtype, **options)


def random_batch(size: int = 8, dim: int = P, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    return F.normalize(torch.randn(size, dim, dtype=dtype), dim=1), torch.arange(size) % K


def bits(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All buffers, the derived ones included."""
    return {name: tensor.clone() for name, tensor in module.named_buffers()}


def assert_same_bits(module: torch.nn.Module, before: dict[str, torch.Tensor]) -> None:
    after = dict(module.named_buffers())
    assert after.keys() == before.keys()
    for name, tensor in before.items():
        assert torch.equal(after[name], tensor), name


def assert_agree(estimator, model: Estimator) -> None:
    assert torch.equal(estimator.Amount, model.Amount)
    scale = model.Ave.norm(dim=1).amax().clamp_min(1).item()
    torch.testing.assert_close(estimator.Ave.double(), model.Ave, rtol=0, atol=MEAN * scale)
