"""The two gradients over a plane through one captured query (fig:patt-measured-field), and of every query on its own (fig:regime-scaling)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from pairgrad_paper.captured.view import RULES, View

SIZE = 25
DEVIATIONS = 3


@dataclass(frozen=True)
class Plane:
    """Points f + x u + y v around a query f, for the two leading principal directions u, v of the features of its view."""

    centre: torch.Tensor  # (p,)
    directions: torch.Tensor  # (2, p), orthonormal
    half_width: float
    explained: tuple[float, float]  # shares of the variance

    @classmethod
    def through(cls, view: View, query: int = 0) -> Plane:
        """To each side three standard deviations of the features along the first direction: the plane reaches beyond most of them."""
        features = view.features.double()
        _, lengths, directions = torch.linalg.svd(features - features.mean(0), full_matrices=False)
        variances = lengths.square() / (len(features) - 1)
        first, second = (variances[:2] / variances.sum()).tolist()
        # the sign of a principal direction is anybody's choice: the largest coordinate is made positive
        largest = directions[:2].gather(1, directions[:2].abs().argmax(1, keepdim=True))
        return cls(features[query], directions[:2] * largest.sign(), DEVIATIONS * variances[0].sqrt().item(), (first, second))

    def offsets(self, size: int = SIZE) -> torch.Tensor:
        """(size * size, 2), x slowly and y fast."""
        line = torch.linspace(-self.half_width, self.half_width, size, dtype=torch.float64)
        return torch.cartesian_prod(line, line)


def measured_field(view: View, query: int = 0, size: int = SIZE) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Facts of the plane, and a row for each of its points: the loss of the query there, and both gradients along the two directions."""
    plane = Plane.through(view, query)
    offsets = plane.offsets(size)
    place = replace(view, features=plane.centre + offsets @ plane.directions, labels=view.labels[query].repeat(len(offsets)))
    field = place.field()
    own, gap = field.consistent @ plane.directions.T, field.gap @ plane.directions.T
    supplied = own + gap
    length = torch.linalg.vector_norm
    mismatch = length(gap, dim=1) / length(own, dim=1)
    sine = (own[:, 0] * gap[:, 1] - own[:, 1] * gap[:, 0]) / (length(own, dim=1) * length(supplied, dim=1))
    cosine = (own * supplied).sum(1) / (length(own, dim=1) * length(supplied, dim=1))
    turned = torch.where(cosine > 0, sine.square() / (1 + cosine), 1 - cosine)
    facts = {
        "query": query,
        "label": int(view.labels[query]),
        "size": size,
        "half_width": plane.half_width,
        "explained": list(plane.explained),
        "median_mismatch": mismatch.median().item(),
        "scores_equal": torch.equal(*(place.scores(rule) for rule in RULES)),
        "losses_equal": torch.equal(*(place.losses(rule) for rule in RULES)),
    }
    columns = zip(offsets.tolist(), field.loss.tolist(), own.tolist(), supplied.tolist(), mismatch.tolist(), turned.tolist(), strict=True)
    rows = [
        {
            "i": number // size,
            "j": number % size,
            "x": x,
            "y": y,
            "loss": loss,
            "consistent": a,
            "supplied": b,
            "mismatch": relative,
            "one_minus_cosine": angle,
        }
        for number, ((x, y), loss, a, b, relative, angle) in enumerate(columns)
    ]
    return facts, rows


def queries(view: View) -> Iterator[dict[str, Any]]:
    """For each query the relative gap of its two gradients, and what is left of it after the best scaling c* of the consistent one."""
    field = view.field()
    columns = zip(field.relative_gap.tolist(), field.residual.tolist(), field.scaling.tolist(), view.labels.tolist(), strict=True)
    for index, (before, after, scaling, label) in enumerate(columns):
        yield {"index": index, "before": before, "after": after, "scaling": scaling, "label": label}
