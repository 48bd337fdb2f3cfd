"""Who takes part, by name, and where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.learning.floor import Floor
from benchmarks.learning.library import LibraryStep
from benchmarks.learning.plain import PlainStep
from benchmarks.learning.step import Step
from benchmarks.learning.workload import Size, Workload

FLOOR, ORIGINAL, RECORDED, DENSE = "floor", "original", "consistent", "arfr dense"
TOUCHED, FACTORISED = "arfr touched rows", "arfr factorised"


def library_name(realization: str, *, compiled: bool) -> str:
    return f"structure-aware {realization} {'compiled' if compiled else 'eager'}"


PLAIN = (ORIGINAL, RECORDED, "log-miller", DENSE, TOUCHED, FACTORISED)
EAGER = tuple(library_name(realization, compiled=False) for realization in ("paired", "arfr"))
COMPILED = tuple(library_name(realization, compiled=True) for realization in ("paired", "arfr"))
LIBRARY = EAGER + COMPILED
ALL = (FLOOR, *LIBRARY, *reversed(PLAIN))  # in the order of a round: the fast ones next to the floor

MAKERS: Mapping[str, Callable[[Workload], Step]] = {
    FLOOR: Floor,
    ORIGINAL: lambda w: PlainStep(w, "original", "dense", "expanded"),
    RECORDED: lambda w: PlainStep(w, "consistent", "dense", "expanded", derivative="autograd"),
    "log-miller": lambda w: PlainStep(w, "log-miller", "dense", "expanded"),
    DENSE: lambda w: PlainStep(w, "arfr", "dense", "expanded"),
    TOUCHED: lambda w: PlainStep(w, "arfr", "touched", "expanded"),
    FACTORISED: lambda w: PlainStep(w, "arfr", "touched", "factorised"),
    EAGER[0]: lambda w: LibraryStep(w, "paired", compiled=False),
    EAGER[1]: lambda w: LibraryStep(w, "arfr", compiled=False),
    COMPILED[0]: lambda w: LibraryStep(w, "paired", compiled=True),
    COMPILED[1]: lambda w: LibraryStep(w, "arfr", compiled=True),
}


@dataclass(frozen=True)
class Setting:
    """A size and who is measured there, in turns; `quick` is the size of a smoke run."""

    title: str
    size: Size
    quick: Size
    contestants: tuple[str, ...]
    streaming: bool = False


SETTINGS: Mapping[str, Setting] = {
    "paper": Setting("The paper's size", Size(32, 1000, 1024), Size(4, 50, 64), ALL),
    "large": Setting("Many classes", Size(256, 8142, 1024), Size(16, 400, 64), (FLOOR, *LIBRARY)),
    "small": Setting("Few classes, small features", Size(128, 100, 128), Size(8, 20, 64), (FLOOR, *LIBRARY)),
    "streaming": Setting("A million classes", Size(128, 1_000_000, 128), Size(8, 5000, 64), (FLOOR, *LIBRARY), streaming=True),
}
