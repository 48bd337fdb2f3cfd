"""The best classes of a feature where no rank holds all of them, without a score per class."""

from __future__ import annotations

import torch

from pairgrad.distributed.bank import DistributedClassBank
from pairgrad.distributed.cross_entropy import ShardedClassState
from pairgrad.distributed.meeting import number_of
from pairgrad.ground.checks import integer_at_least
from pairgrad.ground.precision import full_precision
from pairgrad.losses.cross_entropy import checked_per_class
from pairgrad.losses.options import Options
from pairgrad.losses.scores import plain_scores
from pairgrad.potentials import Potential
from pairgrad.sphere.inputs import checked_features

_SCORES = 2**22  # scores held at a time


@torch.no_grad()
def top_classes(
    features: torch.Tensor,
    state: DistributedClassBank | ShardedClassState,
    k: int = 1,
    temperature: float = 0.1,
    log_prior: torch.Tensor | None = None,
    realization: str | Potential = "paired",
) -> tuple[torch.Tensor, torch.Tensor]:
    """The k classes with the largest scores of every feature, and these scores: (B, k) each, the best first. A collective.

    Args:
        features: (B, p), of this rank; with `inputs="sharded"` every rank gets the answer for its own.
        state: a bank that was distributed, or a `ShardedClassState`.
        k: at most the number of classes.
        temperature: tau.
        log_prior: (K,), of all classes, added to the scores.
        realization: of the potential.
    """
    layout, meeting, classes = state.layout, state.meeting, state.classes()
    with meeting.refusing(classes.rows.device):
        k = integer_at_least("k", k, 1)
        if k > layout.num_classes:
            raise ValueError(f"k must be at most the number of classes, {layout.num_classes}, got {k}")
        features = checked_features(features, state.dim, classes.rows, single=True)
        options = Options.checked(state.dim, temperature, realization)
        dtype = options.dtype(features, classes)
        log_prior = checked_per_class("log_prior", log_prior, layout.num_classes, classes.rows, dtype)
    nobody = torch.zeros(len(features), dtype=torch.int64, device=features.device)
    samples = meeting.together(
        features.to(dtype)[None],
        nobody,
        gradient=False,
        asked=number_of("top", k, float(options.temperature), options.potential.realization, log_prior is None),
    )
    meeting.total(1, len(nobody), features.device)  # the other replicas hear of it if one refused
    view, rows = samples.views[0], len(samples.labels)
    lowest = torch.finfo(dtype).min  # above what stands for no class at all: a class that cannot occur is a class
    best = view.new_full((rows, k), -torch.inf)
    which = torch.full((rows, k), -1, dtype=torch.int64, device=view.device)
    width = max(k, _SCORES // max(rows, 1))
    with full_precision(view.device.type):
        for first in range(0, layout.rows, width):
            last = min(first + width, layout.rows)
            scores = plain_scores(view, classes.tile(first, last), options, dtype)
            if log_prior is not None:
                scores = (scores + log_prior[layout.first + first : layout.first + last]).clamp_min(lowest)
            numbers = torch.arange(layout.first + first, layout.first + last, device=view.device).expand(rows, -1)
            best, which = _best(torch.cat([best, scores], 1), torch.cat([which, numbers], 1), k)
    group = layout.classes
    if group.size > 1:
        best = group.gather("top scores", best).view(group.size, rows, k).transpose(0, 1).reshape(rows, -1)
        which = group.gather("top classes", which).view(group.size, rows, k).transpose(0, 1).reshape(rows, -1)
        best, which = _best(best, which, k)
    own = slice(samples.first, samples.first + len(features))
    return which[own], best[own].masked_fill(best[own] == lowest, -torch.inf)


def _best(scores: torch.Tensor, numbers: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, places = scores.topk(k, dim=1)
    return values, numbers.gather(1, places)
