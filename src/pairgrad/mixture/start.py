"""Where EM starts, and where components start again that have lost their rows."""

from __future__ import annotations

import numpy as np
import torch

from pairgrad.ground.devices import widest
from pairgrad.mixture.em import Statistics, only_highest
from pairgrad.mixture.rows import Rows

STARTS = ("k-means++", "random")
_DISTINCT = 1e-6  # of one minus a cosine: rows closer than this are taken for one place
_AHEAD = 8  # seeds whose candidates are drawn and compared with all rows at once
_NUMBERS = 2**25  # of the distances of such candidates, at most
_CANDIDATES = 64  # badly explained rows looked at per component that is to be placed


class Draws:
    """Rows drawn with probability proportional to a mass, in an order that depends on the rows and not on their places.

    Rows are ordered by their product with a fixed vector. So a row with weight 2 is as good as two rows, a row with weight 0 as good as none, and a
    permutation changes nothing: the same random numbers fall on the same directions.
    """

    def __init__(self, rows: Rows, weights: torch.Tensor | None, random: np.random.RandomState) -> None:
        self.rows, self.random = rows, random
        probe = torch.from_numpy(np.random.RandomState(0).standard_normal((rows.features, 1)))
        probe = probe.t().to(rows.dtype).to(rows.device)
        keys = torch.cat([rows.products(start, stop, probe) for start, stop in rows.chunks(1, None)], 1).squeeze(0)
        self.order = torch.argsort(keys, stable=True)
        ones = torch.ones(rows.count, dtype=widest(rows.device), device=rows.device)
        self.weights = ones if weights is None else weights

    def __call__(self, mass: torch.Tensor, count: int) -> torch.Tensor:
        """`count` independent row numbers, by inversion of the distribution function."""
        edges = mass[self.order].cumsum(0)
        points = torch.from_numpy(self.random.random_sample(count)).to(edges.dtype).to(edges.device) * edges[-1]
        points = torch.minimum(points, torch.nextafter(edges[-1], edges.new_zeros(())))  # it may round up to the end, where no row is
        return self.order[torch.searchsorted(edges, points, right=True)]


def seeds(rows: Rows, weights: torch.Tensor | None, components: int, how: str, random: np.random.RandomState) -> torch.Tensor:
    """Numbers of the rows whose directions the components start from.

    `"k-means++"`: each is drawn with probability proportional to its weight times one minus its cosine with the nearest seed so far, the best of
    2 + log(components) draws (Arthur and Vassilvitskii, 2007). Draws for several seeds share one product with the rows: when its turn comes, a candidate
    is accepted with the probability to which its distance has shrunk since it was drawn, which leaves the distribution as it is.
    `"random"`: drawn by weight, without repetition of a direction.
    """
    draw = Draws(rows, weights, random)
    chosen = draw(draw.weights, 1)
    if how == "random":
        mass = draw.weights.clone()
        for _ in range(components - 1):
            mass[_distances(rows, chosen[-1:])[0] == 0] = 0.0  # of rows that coincide too: a row with weight 2 is as good as two rows
            chosen = torch.cat([chosen, draw(mass if float(mass.sum()) > 0 else draw.weights, 1)])
        return chosen
    trials = 2 + int(np.log(components))
    distance = _distances(rows, chosen)[0].to(draw.weights.dtype)
    candidates, distances, before, luck = chosen[:0], distance[:0, None], distance[:0], distance[:0]
    while len(chosen) < components:
        accepted = ((luck * before < distance[candidates]) | (before == 0)).nonzero().squeeze(1)[:trials]
        if len(accepted) < trials:
            mass = draw.weights * distance
            ahead = min(_AHEAD, components - len(chosen), _NUMBERS // (rows.count * trials))
            candidates = draw(mass if float(mass.sum()) > 0 else draw.weights, trials * max(1, ahead))
            distances, before = _distances(rows, candidates), distance[candidates]
            luck = torch.from_numpy(random.random_sample(len(candidates))).to(distance.dtype).to(distance.device)
            continue
        nearer = torch.minimum(distances[accepted].to(distance.dtype), distance)
        best = int((nearer @ draw.weights).argmin())
        distance = nearer[best].clone()
        chosen = torch.cat([chosen, candidates[accepted[best : best + 1]]])
        rest = int(accepted[-1]) + 1
        candidates, distances, before, luck = candidates[rest:], distances[rest:], before[rest:], luck[rest:]
    return chosen


def _distances(rows: Rows, chosen: torch.Tensor) -> torch.Tensor:
    """One minus the cosines of some of the rows with all, (some, n); rounding, which makes coincident rows differ, is taken for 0."""
    seeds = rows.take(chosen)
    distances = torch.empty(len(chosen), rows.count, dtype=rows.dtype, device=rows.device)
    for start, stop in rows.chunks(len(chosen), None):
        distances[:, start:stop] = 1 - rows.products(start, stop, seeds)
    return torch.threshold_(distances, 8 * torch.finfo(rows.dtype).eps, 0.0)


def nearest(rows: Rows, weights: torch.Tensor | None, directions: torch.Tensor) -> Statistics:
    """Statistics of the rows, each given to the nearest of some directions."""
    places, k = directions.to(rows.dtype).to(rows.device), len(directions)
    sums = torch.zeros(k, rows.features, dtype=widest(rows.device), device=rows.device)
    masses = torch.zeros(k, dtype=sums.dtype, device=rows.device)
    for start, stop in rows.chunks(k, None):
        cosines = rows.products(start, stop, places)
        shares = only_highest(cosines, cosines.amax(0))
        if weights is not None:
            shares.mul_(weights[start:stop].to(shares.dtype))
        masses += shares.sum(1)
        sums += rows.sums(start, stop, shares)
    return Statistics(masses.cpu().double(), sums.cpu().double())


def light(weights: torch.Tensor, min_weight: float, dtype: torch.dtype) -> list[int]:
    """Numbers of the components with less than `min_weight` of the weight, or with none: less than a rounding of it."""
    masses = weights.numpy()
    return np.flatnonzero(masses / masses.sum() < max(min_weight, torch.finfo(dtype).eps)).tolist()


def reseed(statistics: Statistics, which: list[int], densities: torch.Tensor, rows: Rows, weights: torch.Tensor | None) -> Statistics:
    """Statistics with some components placed anew, at the rows that are explained worst.

    A component gets an equal share of the weight, the direction of its row and the mean resultant length of all components; the shares of the others
    are scaled down to make room.
    """
    masses, sums = statistics.weights.clone(), statistics.sums.clone()
    whole, k = masses.sum(), masses.numel()
    resultant = (torch.linalg.vector_norm(sums, dim=1).sum() / whole).clamp(max=1.0)
    share = 1 / k
    kept = torch.ones(k, dtype=torch.bool)
    kept[which] = False
    scale = (1 - share * len(which)) * whole / masses[kept].sum()
    masses, sums = masses * scale, sums * scale
    for component, direction in zip(which, _worst(densities, rows, weights, len(which)), strict=True):
        masses[component] = share * whole
        sums[component] = share * whole * resultant * direction
    return Statistics(masses, sums)


def _worst(densities: torch.Tensor, rows: Rows, weights: torch.Tensor | None, count: int) -> list[torch.Tensor]:
    """Directions of the `count` rows of lowest density, in different places as far as there are any."""
    usable = densities if weights is None else torch.where(weights > 0, densities, torch.inf)
    positive = rows.count if weights is None else int((weights > 0).sum())
    candidates = torch.topk(usable, min(positive, _CANDIDATES * count), largest=False).indices
    chosen, found = torch.empty(count, rows.features, dtype=torch.float64), 0
    for some in candidates.split(_CANDIDATES):  # sparse rows are dense once they are taken: never many at a time
        for direction in rows.take(some).cpu().double():
            if bool((chosen[:found] @ direction < 1 - _DISTINCT).all()):
                chosen[found] = direction
                found += 1
            if found == count:
                return list(chosen)
    return [chosen[i % found] for i in range(count)]
