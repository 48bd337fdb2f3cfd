r"""What a training step must cost on a GPU, and what each execution makes of it: one page of arithmetic for `pairgrad plan`.

A step scores N = V B rows of features, of dimension p, against K classes in float32. The floor is a roofline: no step is faster than its memory traffic, its
two matrix products or its elementwise work at the peak rates of the data sheet. The costs of executions are predictions. Their coefficients are counts: of
operations on fake CUDA tensors (`tests/device/recording.py`) for eager, of generated code (`tests/device/inductor_fake.py`) for compiled.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from pairgrad.ground import devices
from pairgrad.losses.fused.plan import SMALLEST_TILE, Sizes, sizes
from pairgrad.losses.fused.triton import parts_of, tiles_for

WORD = 4  # bytes of a float32


class GPU(NamedTuple):
    """Peaks of the vendor's data sheet: dense operations per second, bytes per second, bytes. What a kernel reaches is less."""

    name: str
    float32: float
    tf32: float
    bf16: float
    bandwidth: float
    memory: float


GPUS = {
    "a100": GPU("A100 80GB SXM", 19.5e12, 156e12, 312e12, 2.039e12, 80e9),
    "h100": GPU("H100 SXM", 67e12, 495e12, 990e12, 3.35e12, 80e9),
    "h200": GPU("H200 SXM", 67e12, 495e12, 990e12, 4.8e12, 141e9),
    "b200": GPU("B200 HGX", 75e12, 1.1e15, 2.25e15, 8e12, 180e9),
    "mi300x": GPU("MI300X", 163.4e12, 653.7e12, 1307.4e12, 5.3e12, 192e9),
}
LAUNCH = 5e-6  # seconds that the host takes to launch an operation, assumed; about 2e-6 in a CUDA graph
_CLOCK = 1.7 / 1.98  # of the boost clock that float32 peaks are counted with; of an H100 under load, assumed for all
_INSTRUCTIONS = 63  # float32 instructions per score, counted in the sm_90 machine code of a kernel with the AR/FR backward


class Size(NamedTuple):
    """The step of one rank."""

    views: int
    batch: int
    classes: int
    dim: int

    @property
    def scores(self) -> int:
        """Rows of features times classes."""
        return self.views * self.batch * self.classes

    @property
    def features(self) -> int:
        """Bytes of all features."""
        return WORD * self.views * self.batch * self.dim

    @property
    def class_rows(self) -> int:
        """Bytes of one float32 word of all class sums."""
        return WORD * self.classes * self.dim


class Floor(NamedTuple):
    """What no step can go below: bytes of memory traffic, operations of the two matrix products, seconds by part and by precision of the products."""

    traffic: int
    flops: int
    seconds: dict[str, float]


def floor(size: Size, gpu: GPU) -> Floor:
    """The roofline of a step: classes read once, features read, their gradient written, touched rows of the bank read and written."""
    touched = 8 * WORD * min(size.batch, size.classes) * size.dim
    traffic, flops = size.class_rows + 2 * size.features + touched, 4 * size.scores * size.dim
    parts = {"traffic": traffic / gpu.bandwidth, "elementwise": size.scores * _INSTRUCTIONS / (gpu.float32 / 2 * _CLOCK)}
    rates = {"float32": gpu.float32, "3xtf32": gpu.tf32 / 3, "tf32": gpu.tf32, "bf16": gpu.bf16}
    return Floor(traffic, flops, {**parts, **{name: flops / rate for name, rate in rates.items()}})


class Cost(NamedTuple):
    """What an execution does in a step: operations that the host starts on the device, bytes that these read and write, bytes that are allocated at the most
    (beside features, gradient and bank), passes of a matrix product over all classes (the floor has two), and their precision.
    """

    launches: int
    moved: int
    allocated: int
    products: int
    precision: str

    def seconds(self, size: Size, gpu: GPU) -> dict[str, float]:
        """Of launching, moving and computing; a step takes as long as the largest, at least."""
        least = floor(size, gpu).seconds
        computing = self.products / 2 * least[self.precision] + (self.products - 1) * least["elementwise"]
        parts = {"launching": self.launches * LAUNCH, "moving": self.moved / gpu.bandwidth, "computing": computing}
        return {**parts, "at_least": max(parts.values())}


def costs(size: Size) -> dict[str, Cost]:
    """By execution. Predictions: within 15 % of what is counted for `paired` without shift, dimensions from 64 on and one to three views."""
    tiles = sizes(devices.GPU)
    return {"eager": _eager(size, tiles), "compiled": _compiled(size, tiles), "triton": _triton(size)}


# Eager operations on a tile of scores, from this dimension on: expansions are longer at small dimensions.
_TILE_OPERATIONS = {1024: 70, 512: 71, 256: 83, 128: 90, 64: 99, 0: 129}


def _eager(size: Size, tiles: Sizes) -> Cost:
    rows, small = size.views * size.batch, size.dim < 64
    tile = min(max(SMALLEST_TILE, tiles.eager // rows), size.classes)
    number = math.ceil(size.classes / tile)
    each = next(count for dim, count in _TILE_OPERATIONS.items() if size.dim >= dim)
    beside = 113 if size.views > 1 else 89  # bank, unit length, loss
    # the classes of the batch, as earlier views saw them
    again = 0 if number == 1 else 1 if size.views == 1 else max(2, math.ceil(size.batch / tile))
    scores = size.scores + (size.views - 1) * size.batch**2 * (size.classes >= 2 * size.batch)
    moved = (8.5 if small else 6.8) * each * scores + 2 * size.class_rows + beside * size.features * 2 / 3
    allocated = (18 if small else 9) * WORD * tile * rows + 4 * size.features
    return Cost(beside + each * (number + again), round(moved), allocated, 2, "float32")


def _compiled(size: Size, tiles: Sizes) -> Cost:
    number = min(math.ceil(size.scores / tiles.in_graph), math.ceil(size.classes / SMALLEST_TILE))
    moved = 20 * size.scores + 2 * size.class_rows + (20 + 2 * number) * size.features
    allocated = 2 * WORD * math.ceil(size.scores / number) + (2 if number == 1 else 5) * size.features
    return Cost(4 + 6 * size.views + 4 * number, moved, allocated, 2, "float32")


def _triton(size: Size) -> Cost:
    rows = size.views * size.batch
    tiles = tiles_for(rows, size.classes, 9)
    parts, _ = parts_of(tiles, rows, size.dim, size.classes, True)
    parts += size.views > 1
    number = math.ceil(rows / tiles.samples) * (
        math.ceil(size.classes / tiles.classes) + math.ceil(size.batch / tiles.classes) * (size.views > 1)
    )
    # a tile reads its features once and its classes twice, and reads and writes partial sums of the gradient; these are then read once more
    each = WORD * size.dim * (3 * tiles.samples + 2 * tiles.classes)
    partial = parts * (size.features + 3 * WORD * rows)
    touched = size.features + 2 * WORD * rows + 2 * WORD * size.batch  # of each view, and the first entry of each class
    return Cost(6, number * each + partial + 12 * size.features, partial + touched + 2 * WORD * rows, 2, "3xtf32")


# Beside predictions: launches and bytes allocated at (V, B, K, p), counted without a GPU, never timed; and the time that the paper publishes.
COUNTED = {
    Size(2, 32, 1000, 1024): {"eager": (175, 2_953_600), "compiled": (20, 1_048_964)},
    Size(2, 1024, 100_000, 512): {"eager": (3724, 165_897_893), "compiled": (40, 251_061_925)},
    Size(2, 128, 1_000_000, 128): {"eager": (5863, 154_887_749), "compiled": (54, 228_859_461)},
}
PUBLISHED = {"step": "structure-aware AR/FR, of the paper", "gpu": "h100", "seconds": 206e-6, "allocated": 32 << 20}  # at the first size


def bank_bytes(classes: int, dim: int, *, two_epochs: bool = False) -> int:
    """Bytes of a float32 class bank: sums in two words, counts and norms in float64, concentrations and rates; with two epochs the sums and counts again.

    Examples:
        >>> bank_bytes(1000, 16), bank_bytes(1000, 16, two_epochs=True)
        (152000, 288000)
    """
    row = 2 * WORD * dim
    return classes * (row + 16 + 2 * WORD + (row + 8 if two_epochs else 0))
