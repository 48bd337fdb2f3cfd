"""OOD metrics per source and their mean, as SC-OOD prescribes: what a source contains of the ID classes counts as ID."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pairgrad.ground.checks import describe, one_of
from pairgrad.ood.inputs import Array, mask_array, score_array
from pairgrad.ood.metrics import AUPR_RULES, CONVENTIONS, OODMetrics, ood_metrics

_COLUMNS = ("auroc", "aupr_in", "aupr_out", *(f"fpr95 {convention}" for convention in CONVENTIONS))


@dataclass(frozen=True)
class SourceMetrics:
    """One source: its metrics, and how many scores stood on each side.

    Attributes:
        source: its name.
        metrics: of these ID and OOD scores.
        num_id: ID test scores and the semantically ID scores of the source.
        num_ood: the other scores of the source.
    """

    source: str
    metrics: OODMetrics
    num_id: int
    num_ood: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return {"source": self.source, "num_id": self.num_id, "num_ood": self.num_ood, **self.metrics.to_dict()}


@dataclass(frozen=True)
class SCOODReport:
    """Metrics by source and their unweighted mean. `print(report)` shows them as rows, in percent.

    Attributes:
        sources: in the order given.
        mean: over the sources, each counted once whatever its size.
    """

    sources: tuple[SourceMetrics, ...]
    mean: OODMetrics

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each source and one for the mean, whose name is "mean"; fractions, not percent."""
        rows: list[dict[str, Any]] = [
            {"source": s.source, "num_id": s.num_id, "num_ood": s.num_ood, **_flat(s.metrics)} for s in self.sources
        ]
        return [*rows, {"source": "mean", "num_id": None, "num_ood": None, **_flat(self.mean)}]

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON."""
        return {"sources": [s.to_dict() for s in self.sources], "mean": self.mean.to_dict()}

    def __str__(self) -> str:
        head = ("source", "ID", "OOD", *_COLUMNS)
        lines = [(r["source"], _count(r["num_id"]), _count(r["num_ood"]), *(f"{100 * r[c]:.2f}" for c in _COLUMNS)) for r in self.rows()]
        widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]
        return "\n".join(_line(line, widths) for line in (head, *lines))


def sc_ood(id_scores: Array, sources: Mapping[str, tuple[Array, Array | None]], *, aupr: str = "average-precision") -> SCOODReport:
    """Evaluate ID test scores against several OOD sources, as SC-OOD does.

    For each source the ID side is the ID test scores together with the scores of its semantically ID entries (a cat among the Places images), the
    OOD side its other scores.

    Args:
        id_scores: OOD-ness of the ID test samples, (N,).
        sources: by name, the OOD-ness of its entries, (M,), and which of them are semantically ID: booleans (M,), in the benchmark's lists
            `sc_label >= 0`; None if none is.
        aupr: the rule for AUPR, as for `ood_metrics`; SC-OOD's own code uses `"trapezoid"`.

    Raises:
        ValueError: no sources, or a source without OOD entries.

    Examples:
        >>> inside = np.array([0.1, 0.2, 0.3, 0.4])
        >>> near = np.array([0.2, 0.5, 0.6]), np.array([True, False, False])
        >>> report = sc_ood(inside, {"near": near, "far": (np.array([0.35, 0.9]), None)})
        >>> [(s.source, s.num_id, s.num_ood, s.metrics.auroc) for s in report.sources], report.mean.auroc
        ([('near', 5, 2, 1.0), ('far', 4, 2, 0.875)], 0.9375)
    """
    inside = score_array("id_scores", id_scores)
    one_of("aupr", aupr, AUPR_RULES)
    if not isinstance(sources, Mapping):
        raise TypeError(f"sources must be a mapping from names to pairs (scores, semantically ID or None), got {describe(sources)}")
    if not sources:
        raise ValueError("sources must hold at least one source, got none: give {name: (scores, semantically ID or None)}")
    results = tuple(_evaluated(inside, name, entry, aupr) for name, entry in sources.items())
    return SCOODReport(results, mean_metrics([result.metrics for result in results]))


def mean_metrics(metrics: Sequence[OODMetrics]) -> OODMetrics:
    """The unweighted mean of every metric."""
    if not isinstance(metrics, (tuple, list)) or not all(isinstance(entry, OODMetrics) for entry in metrics):
        raise TypeError(f"metrics must be a sequence of OODMetrics, as ood_metrics returns them, got {describe(metrics)}")
    if not metrics:
        raise ValueError("metrics must hold at least one entry, got none")
    count = len(metrics)
    return OODMetrics(
        sum(m.auroc for m in metrics) / count,
        sum(m.aupr_in for m in metrics) / count,
        sum(m.aupr_out for m in metrics) / count,
        {convention: sum(m.fpr95[convention] for m in metrics) / count for convention in CONVENTIONS},
    )


def _evaluated(inside: np.ndarray, name: str, entry: Any, aupr: str) -> SourceMetrics:
    if not isinstance(entry, tuple) or len(entry) != 2:
        raise TypeError(f"sources[{name!r}] must be a pair (scores, semantically ID or None), got {type(entry).__name__}")
    scores = score_array(f"sources[{name!r}][0]", entry[0])
    known = np.zeros(scores.size, dtype=bool) if entry[1] is None else mask_array(f"sources[{name!r}][1]", entry[1], scores.size)
    outside = scores[~known]
    if not outside.size:
        raise ValueError(f"sources[{name!r}] must have an OOD entry, but all {scores.size} are semantically ID: leave it out of sources")
    inside = np.concatenate([inside, scores[known]])
    return SourceMetrics(name, ood_metrics(inside, outside, aupr=aupr), inside.size, outside.size)


def _flat(metrics: OODMetrics) -> dict[str, float]:
    values = metrics.to_dict()
    rates = values.pop("fpr95")
    return {**values, **{f"fpr95 {convention}": rate for convention, rate in rates.items()}}


def _count(number: int | None) -> str:
    return "" if number is None else str(number)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(cells, widths, strict=True)))
    return "  ".join([first, *rest]).rstrip()
