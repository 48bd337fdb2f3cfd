"""How fast this machine scores: the two numbers of a plan that depend on it and not on the network."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from pairgrad.distributed.footprint import SMALLEST_TILE, TILE_ELEMENTS
from pairgrad.ground.checks import integer_at_least
from pairgrad.ground.devices import HOST, wait_for
from pairgrad.ground.timing import threads as on_threads
from pairgrad.losses import vmf_cross_entropy
from pairgrad.sphere import ClassBank

_CLASSES = 8192  # many tiles, and a bank of a few megabytes: larger ones take the same time per score
_REPEATS = 5  # of which the fastest counts: whatever else runs on the machine only adds


class Rate(NamedTuple):
    """Operations per second in matrix products of a pass, and the elementwise work per score in such operations, as in `Cluster`."""

    flops: float
    elementwise: float


def calibrated(
    dim: int,
    *,
    rows: int = 256,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = HOST,
    threads: int = 1,
    classes: int = _CLASSES,
    tick: Callable[[], None] = lambda: None,
) -> Rate:
    r"""The rate of the scoring pass, loss and gradient of `rows` samples against a bank, measured here and now in a second or two.

    A pass takes \((4p + e) / f\) seconds per score, with f operations per second and e of elementwise work. The pass is timed, and its matrix products
    alone, in the same tiles: f is the rate of the products, and e stands for the rest.

    Args:
        dim: p.
        rows: samples times views that are scored together.
        dtype: of the bank.
        device: where to measure.
        threads: of the CPU, while this runs.
        classes: of the bank; few suffice.
        tick: called after each of the two measurements.
    """
    integer_at_least("dim", dim, 2)
    integer_at_least("rows", rows, 1)
    integer_at_least("classes", classes, 1)
    with on_threads(integer_at_least("threads", threads, 1)):
        timed = _Pass(dim, rows, dtype, torch.device(device), classes)
        whole = timed.fastest(timed.whole)
        tick()
        products = timed.fastest(timed.products)
        tick()
    return solved(dim, whole / (rows * classes), products / (rows * classes))


def solved(dim: int, whole: float, products: float) -> Rate:
    """Rate and elementwise work from the seconds per score of a pass and of its products.

    Examples:
        >>> solved(128, 2.56e-8, 0.64e-8)  # products of 4 x 128 operations, and three times as long for the rest
        Rate(flops=80000000000.0, elementwise=1536.0)
    """
    flops = 4 * dim / min(products, whole)  # of two clocks on a busy machine the second may say more
    return Rate(float(f"{flops:.4g}"), float(f"{whole * flops - 4 * dim:.4g}"))


class _Pass:
    """What is timed."""

    def __init__(self, dim: int, rows: int, dtype: torch.dtype, device: torch.device, classes: int) -> None:
        generator = torch.Generator().manual_seed(0)
        features = torch.nn.functional.normalize(torch.randn(rows, dim, dtype=dtype, generator=generator), dim=1)
        self.bank = ClassBank(classes, dim, dtype=dtype, device=device)
        self.features = features.to(device).requires_grad_()
        self.labels = torch.randint(classes, (rows,), generator=generator).to(device)
        self.tile = max(SMALLEST_TILE, TILE_ELEMENTS // rows)

    def whole(self) -> None:
        vmf_cross_entropy(self.features, self.labels, self.bank, max_norm=1.001).backward()

    @torch.no_grad()
    def products(self) -> None:
        push = torch.zeros_like(self.features)
        for rows in self.bank.sums.split(self.tile):
            push = torch.addmm(push, self.features @ rows.mT, rows)

    def fastest(self, run: Callable[[], None]) -> float:
        run()  # the first call plans and allocates
        seconds = []
        for _ in range(_REPEATS):
            start = time.perf_counter()
            run()
            wait_for(self.labels.device)
            seconds.append(time.perf_counter() - start)
        return min(seconds)
