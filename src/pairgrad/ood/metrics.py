"""How well scores tell in-distribution (ID) from out-of-distribution (OOD) samples: AUROC, AUPR, and FPR95 in three conventions.

A score is OOD-ness everywhere in this package: higher means more out-of-distribution. Every metric depends on the order of the scores and on their
ties alone, is counted in integers, and is a fraction between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pairgrad.ground.checks import one_of
from pairgrad.ood.inputs import Array, score_array

CONVENTIONS = ("patt", "sc-ood", "openood")
AUPR_RULES = ("average-precision", "trapezoid")


def auroc(id_scores: Array, ood_scores: Array) -> float:
    """The probability that an OOD sample has a higher score than an ID sample, ties counted half.

    It is the same whichever of the two sets is called positive, and equals scikit-learn's `roc_auc_score`. The pairs are counted in integers, so the
    only rounding is that of one division.

    Args:
        id_scores: OOD-ness of the ID samples, (N,).
        ood_scores: OOD-ness of the OOD samples, (M,).

    Examples:
        >>> import numpy as np
        >>> auroc(np.array([0.1, 0.2, 0.5]), np.array([0.5, 0.9]))
        0.9166666666666666
    """
    return _Ranks(id_scores, ood_scores).auroc()


def aupr_out(id_scores: Array, ood_scores: Array, *, rule: str = "average-precision") -> float:
    """The area under the precision-recall curve with OOD as the positive class.

    The curve has a point for every distinct score: all samples with that score or a higher one are called OOD.

    Args:
        id_scores: OOD-ness of the ID samples, (N,).
        ood_scores: OOD-ness of the OOD samples, (M,).
        rule: `"average-precision"`, the sum of recall steps times the precision reached, as scikit-learn's `average_precision_score` and the PATT and
            PASCL evaluators; or `"trapezoid"`, straight lines between the points and from recall 0 at precision 1, as SC-OOD and OpenOOD.
    """
    return _Ranks(id_scores, ood_scores).aupr_out(one_of("rule", rule, AUPR_RULES))


def aupr_in(id_scores: Array, ood_scores: Array, *, rule: str = "average-precision") -> float:
    """The area under the precision-recall curve with ID as the positive class: samples with a score or a lower one are called ID.

    Args:
        id_scores: OOD-ness of the ID samples, (N,).
        ood_scores: OOD-ness of the OOD samples, (M,).
        rule: as for `aupr_out`.
    """
    return _Ranks(id_scores, ood_scores).aupr_in(one_of("rule", rule, AUPR_RULES))


def fpr95(id_scores: Array, ood_scores: Array, convention: str) -> float:
    """The false-positive rate at 95% recall, by the convention named; the three give different numbers for the same scores.

    A threshold is always one of the scores, and samples that share a score are on the same side of it.

    `"patt"`, also of PASCL and of outlier exposure: OOD is positive, called so at or above the threshold. The threshold is the one whose OOD recall is
    nearest to 0.95, below or above. All thresholds between two OOD scores have one recall: the lowest of them counts, which has the most false
    positives, except at full recall, where it is the highest. Two recalls are equally near only if M is an odd multiple of 10; then float64 decides,
    as it does in the public evaluator: the smaller of |recall - 0.95| as computed, and the higher recall if even these are equal. The rate is of ID.

    `"openood"`, version 1.5: OOD is positive, called so at or above the threshold. The highest threshold with recall of at least 0.95, among those
    where the ROC curve turns. A point at which it does not turn, with the same numbers of ID and of OOD samples added before and after, is passed
    over, as scikit-learn's `roc_curve` does; that matters only where ID and OOD samples share scores. The rate is of ID.

    `"sc-ood"`: ID is positive. The threshold is the ID score of rank floor(0.95 N) from the most ID-like one (the only one if N is 1). The rate is of
    OOD: those strictly more ID-like than the threshold, so an OOD sample that ties with the threshold is not counted.

    Args:
        id_scores: OOD-ness of the ID samples, (N,).
        ood_scores: OOD-ness of the OOD samples, (M,).
        convention: `"patt"`, `"sc-ood"` or `"openood"`. There is no default: a number without its convention cannot be compared.

    Examples:
        >>> import numpy as np
        >>> inside, outside = np.array([5, 5, 4, 3, 2, 2, 1, 0, 0, 0]), np.array([5] * 19 + [1])
        >>> [fpr95(inside, outside, convention) for convention in ("patt", "openood", "sc-ood")]
        [0.6, 0.2, 0.05]
    """
    return _Ranks(id_scores, ood_scores).fpr95(one_of("convention", convention, CONVENTIONS))


@dataclass(frozen=True)
class OODMetrics:
    """The metrics of one set of ID scores against one set of OOD scores.

    Attributes:
        auroc: area under the ROC curve.
        aupr_in: area under the precision-recall curve, ID positive.
        aupr_out: area under the precision-recall curve, OOD positive.
        fpr95: false-positive rate at 95% recall, by convention: `"patt"`, `"sc-ood"` and `"openood"`.
    """

    auroc: float
    aupr_in: float
    aupr_out: float
    fpr95: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {"auroc": self.auroc, "aupr_in": self.aupr_in, "aupr_out": self.aupr_out, "fpr95": dict(self.fpr95)}


def ood_metrics(id_scores: Array, ood_scores: Array, *, aupr: str = "average-precision") -> OODMetrics:
    """All metrics of this module at once.

    Args:
        id_scores: OOD-ness of the ID samples, (N,).
        ood_scores: OOD-ness of the OOD samples, (M,).
        aupr: the rule for both areas under the precision-recall curve, `"average-precision"` or `"trapezoid"`; see `aupr_out`.
    """
    one_of("aupr", aupr, AUPR_RULES)
    ranks = _Ranks(id_scores, ood_scores)
    rates = {convention: ranks.fpr95(convention) for convention in CONVENTIONS}
    return OODMetrics(ranks.auroc(), ranks.aupr_in(aupr), ranks.aupr_out(aupr), rates)


class _Ranks:
    """Both sets sorted once, and the curves counted from them."""

    def __init__(self, id_scores: Array, ood_scores: Array) -> None:
        self.inside = np.sort(score_array("id_scores", id_scores))
        self.outside = np.sort(score_array("ood_scores", ood_scores))
        self.levels = np.unique(np.concatenate([self.inside, self.outside]))  # ascending

    def at_or_above(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of OOD and of ID samples at or above each level, from the highest level down."""
        outside, inside = (s.size - np.searchsorted(s, self.levels[::-1], "left") for s in (self.outside, self.inside))
        return outside, inside

    def at_or_below(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of OOD and of ID samples at or below each level, from the lowest level up."""
        outside, inside = (np.searchsorted(s, self.levels, "right") for s in (self.outside, self.inside))
        return outside, inside

    def auroc(self) -> float:
        twice = sum(int(np.searchsorted(self.inside, self.outside, side).sum()) for side in ("left", "right"))
        return twice / (2 * self.inside.size * self.outside.size)

    def aupr_out(self, rule: str) -> float:
        outside, inside = self.at_or_above()
        return _area(outside, inside, rule)

    def aupr_in(self, rule: str) -> float:
        outside, inside = self.at_or_below()
        return _area(inside, outside, rule)

    def fpr95(self, convention: str) -> float:
        return {"patt": self._nearest_recall, "openood": self._first_recall, "sc-ood": self._kept}[convention]()

    def _nearest_recall(self) -> float:
        found, false = self.at_or_above()
        last = int(np.searchsorted(found, found[-1]))  # the first level with full recall; the ones below it are not on the curve
        distance = np.abs(found[: last + 1] / found[-1] - 0.95)[::-1]  # from full recall down: argmin takes the first of equals
        return int(false[last - int(np.argmin(distance))]) / self.inside.size

    def _first_recall(self) -> float:
        found, false = self.at_or_above()
        turns = np.ones(found.size, dtype=bool)
        turns[1:-1] = (np.diff(found, 2) != 0) | (np.diff(false, 2) != 0)
        enough = 20 * found >= 19 * found[-1]
        return int(false[int(np.argmax(turns & enough))]) / self.inside.size

    def _kept(self) -> float:
        rank = max(19 * self.inside.size // 20, 1)
        return int(np.searchsorted(self.outside, self.inside[rank - 1], "left")) / self.outside.size


def _area(positive: np.ndarray, negative: np.ndarray, rule: str) -> float:
    """The area under a precision-recall curve with these numbers of positives and negatives, both growing from point to point."""
    precision = positive / (positive + negative)
    steps = np.diff(positive, prepend=0)
    if rule == "trapezoid":
        precision = (precision + np.concatenate([[1.0], precision[:-1]])) / 2
    return float((steps * precision).sum() / positive[-1])
