"""Memory of one rank: the bank it holds, what a step needs besides, and what making the bank needs.

The coefficients count tensors that are alive at the same time. They were checked against the resident memory of one process whose allocator gives back what is
freed (glibc with a fixed mmap threshold); left to itself it keeps up to 140 MB more at batch 4096. `tests/distributed/test_plan.py` repeats a part of it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pairgrad.distributed.calls import Call

# Tensors of the size of all scored views: the features, the same of unit length, the sums that become the gradient, and the gradient that is handed out.
VIEW_TENSORS = 4
# Tensors of the size of all touched rows: sums by class, the old rows, the new ones, their stack over views. With the above: 8.1
# measured with one view, about 5 with two.
TOUCHED_TENSORS = 4
# A tile of scores while it is visited: product, square, score, gain, weight, the temporaries of the potential between them, and masks. 10 measured.
TILE_TENSORS = 10
# The same for the classes of the batch as earlier views saw them, with masks by view. 11 measured.
TOUCHED_TILE_TENSORS = 11
TILE_ELEMENTS, SMALLEST_TILE = 2**15, 256  # of losses/fused.py, eager
# Making a bank: random directions are drawn in blocks of this many rows, of which the draw, its normalised form and its scaled form are alive together.
DRAWN_ROWS, DRAWN_TENSORS = 65536, 3
# Then the norms are taken in float64, in blocks of as many rows: torch makes a float64 copy of sums that are not float64.
NORM_ITEMSIZE = 8
# Resident memory of a process with torch, pairgrad and a gloo group after a first small step: 264 MB on a CPU (322 MB with torch.distributed.checkpoint).
PROCESS = 270_000_000


@dataclass(frozen=True)
class Memory:
    """Bytes on one rank.

    Attributes:
        sums: sums of features in two words.
        counts: counts and norms, in float64.
        derived: concentrations and rates.
        prior: the log prior.
        next_epoch: the second set of sums and counts of a bank with two epochs.
        views: features and gradients of the samples that are scored.
        touched: rows of the classes that the batch changes.
        scores: the tile of scores that is being visited.
        copies: rows that are copied for a pass: of sampled classes, or a bank per view where most classes are touched.
        exchange: what is handed to collectives and received from them.
        creation: temporaries while the bank is made, which are gone before the first step.
        process: the interpreter and its libraries.
    """

    sums: int
    counts: int
    derived: int
    prior: int
    next_epoch: int
    views: int
    touched: int
    scores: int
    copies: int
    exchange: int
    creation: int
    process: int

    @property
    def bank(self) -> int:
        """What stays: the state of the classes held here."""
        return self.sums + self.counts + self.derived + self.prior + self.next_epoch

    @property
    def step(self) -> int:
        """What a step needs besides."""
        return self.views + self.touched + self.scores + self.copies + self.exchange

    @property
    def peak(self) -> int:
        """The most that is in use at any time."""
        return self.process + self.bank + max(self.step, self.creation)

    def to_dict(self) -> dict[str, int]:
        """Items and sums."""
        return {**asdict(self), "bank": self.bank, "step": self.step, "peak": self.peak}


def footprint(
    *,
    class_rows: int,
    dim: int,
    itemsize: int,
    scored_rows: int,
    touched_rows: int,
    calls: list[Call],
    views: int = 1,
    sampled: int | None = None,
    prior: bool = False,
    two_epochs: bool = False,
    process: int = PROCESS,
) -> Memory:
    """Memory of a rank with `class_rows` classes, for a step that scores `scored_rows` samples and changes `touched_rows` classes.

    Args:
        sampled: classes that are scored, where they are not all.
        calls: the collectives of the step.

    Examples:
        >>> memory = footprint(class_rows=1_000_000, dim=128, itemsize=4, scored_rows=64, touched_rows=64, calls=[])
        >>> memory.bank, memory.creation  # two float32 words per sum; three float32 words for each of 65536 classes
        (1048000000, 100663296)
    """
    row = dim * itemsize
    rows = views * scored_rows
    width = min(max(SMALLEST_TILE, TILE_ELEMENTS // max(rows, 1)), class_rows)
    tile = width * rows * itemsize
    apart = apart_views(views=views, class_rows=class_rows, touched_rows=touched_rows, sampled=sampled)
    apart_tile = apart * scored_rows * min(touched_rows, width) * itemsize
    copies = sampled * (row + 2 * itemsize) if sampled is not None else 0
    if sampled is None and views > 1 and not apart:
        copies = views * class_rows * (row + 2 * itemsize)
    drawn = DRAWN_TENSORS * min(DRAWN_ROWS, class_rows) * row
    normed = min(DRAWN_ROWS, class_rows) * dim * NORM_ITEMSIZE if itemsize != NORM_ITEMSIZE else 0
    return Memory(
        sums=2 * class_rows * row,
        counts=16 * class_rows,
        derived=2 * class_rows * itemsize,
        prior=class_rows * itemsize if prior else 0,
        next_epoch=class_rows * (2 * row + 8) if two_epochs else 0,
        views=VIEW_TENSORS * rows * row,
        touched=TOUCHED_TENSORS * views * touched_rows * row,
        scores=max(TILE_TENSORS * tile, TOUCHED_TILE_TENSORS * apart_tile),
        copies=copies,
        exchange=sum(buffers(call) for call in calls),
        creation=max(drawn, normed),
        process=process,
    )


def apart_views(*, views: int, class_rows: int, touched_rows: int, sampled: int | None) -> int:
    """For how many views the classes of the batch are scored apart from the others.

    The last view sees the bank as it is, and the classes of the batch with all others. Earlier views saw these as they were then. Where at least half of the
    classes are touched, every view has a bank of its own instead, and nothing is apart. Sampled classes are apart from those of the batch in every view.
    """
    if sampled is not None:
        return views
    return views - 1 if class_rows >= 2 * touched_rows else 0


def buffers(call: Call) -> int:
    """Bytes that a rank hands in and receives."""
    if call.operation == "all-gather":
        return (call.ranks + 1) * call.payload
    if call.operation == "reduce-scatter":
        return call.payload + call.payload // call.ranks
    return 2 * call.payload
