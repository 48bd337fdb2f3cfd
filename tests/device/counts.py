"""Steps whose device operations are counted, at sizes that matter."""

from __future__ import annotations

from typing import Any

import torch

import pairgrad as pg
from tests.device.cases import DEVICE, Built, Case, features, labels

CASES: dict[str, Case] = {}


def _proco(batch: int = 32, classes: int = 1000, dim: int = 1024, **options: Any) -> Case:
    """The second step of a loss with two views: forward and backward."""

    def run(built: Built) -> None:
        loss = pg.ProCoLoss(classes, dim, class_counts=[5.0] * classes, device=DEVICE, **options)
        loss(features(2, batch, dim), labels(batch, classes)).backward()
        x, y = features(2, batch, dim), labels(batch, classes)
        built()
        loss(x, y).backward()

    return run


def _update(dim: int, dtype: torch.dtype) -> Case:
    def run(built: Built) -> None:
        bank = pg.ClassBank(1000, dim, estimator="mle", device=DEVICE, dtype=dtype)
        x, y = features(32, dim, learn=False, dtype=dtype), labels(32, 1000)
        built()
        bank.update(x, y)

    return run


DIMENSIONS = (16, 17, 24, 32, 64, 128, 1024)
CASES["eager ProCo step"] = _proco()
CASES["eager ProCo step, many classes"] = _proco(1024, 100_000, 512)
CASES["triton ProCo step"] = _proco(execution="triton")
CASES["triton ProCo step without checks"] = _proco(execution="triton", validate=False)
CASES["eager ProCo step, mle"] = _proco(estimator="mle")
for _dim in DIMENSIONS:
    for _dtype in (torch.float32, torch.float64):
        CASES[f"mle update {_dim} {str(_dtype).removeprefix('torch.')}"] = _update(_dim, _dtype)
