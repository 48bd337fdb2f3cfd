"""Learning states, random and searched for, and how much of each certificate they use up against ball arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import flint
import torch

import pairgrad as pg
from benchmarks.learning.exact import Exact, Terms
from pairgrad.certificates.learning import LearningCertificate
from pairgrad.ground.balls import working_precision

QUANTITIES = ("score", "sample_loss", "loss", "total_variation", "margin", "sample_gradient", "gradient", "group_loss", "group_gradient")


@dataclass(frozen=True)
class LearningState:
    """Two views of a batch, each with the class state it sees."""

    views: tuple[torch.Tensor, ...]  # (B, p)
    labels: torch.Tensor
    directions: tuple[torch.Tensor, ...]  # (K, p)
    concentrations: tuple[torch.Tensor, ...]  # (K,)
    temperature: float
    log_prior: torch.Tensor

    def to(self, dtype: torch.dtype) -> LearningState:
        views, directions, concentrations = (
            tuple(tensor.to(dtype) for tensor in tensors) for tensors in (self.views, self.directions, self.concentrations)
        )
        return replace(self, views=views, directions=directions, concentrations=concentrations, log_prior=self.log_prior.to(dtype))

    @cached_property
    def states(self) -> list[pg.ClassState]:
        return [pg.ClassState(*pair) for pair in zip(self.directions, self.concentrations, strict=True)]

    @cached_property
    def groups(self) -> dict[str, torch.Tensor]:
        return {"first": torch.arange(len(self.labels)) == 0}

    def certificate(self, realization: str) -> LearningCertificate:
        return pg.certify(self.views, self.labels, self.states, self.temperature, self.log_prior, realization, groups=self.groups)

    def exact(self) -> list[list[Terms]]:
        """In balls, for every view and sample."""
        prior = self.log_prior.tolist()
        found = []
        for view, rows, kappa in zip(self.views, self.directions, self.concentrations, strict=True):
            exact = Exact.of(view, rows, kappa, self.temperature)
            found.append([exact.terms(i, int(y), prior) for i, y in enumerate(self.labels)])
        return found


def random_state(seed: int, *, most_classes: int = 64, largest_dim: int = 2048, batch: int = 2) -> LearningState:
    """Dimensions from 8, concentrations from 0 to 1e5, priors up to 1000:1; features of any length, some nearly parallel to a class or cancelling it."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float) -> float:
        return low + (high - low) * torch.rand((), generator=generator, dtype=torch.float64).item()

    dim = round(8 * (largest_dim / 8) ** uniform(0, 1))
    classes = round(2 * (most_classes / 2) ** uniform(0, 1))
    temperature = (0.05, 0.07, 0.1, 0.5, 1.0)[int(uniform(0, 5))]
    labels = torch.randint(classes, (batch,), generator=generator)
    prior = torch.linspace(0, -math.log(10) * uniform(0, 3), classes, dtype=torch.float64)
    views, directions, concentrations = [], [], []
    for _ in range(2):
        rows = torch.nn.functional.normalize(torch.randn(classes, dim, generator=generator, dtype=torch.float64), dim=1)
        kappa = 10 ** (torch.rand(classes, generator=generator, dtype=torch.float64) * 6.5 - 1.5).clamp_max(5)
        kappa[torch.rand(classes, generator=generator) < 0.05] = 0
        features = torch.nn.functional.normalize(torch.randn(batch, dim, generator=generator, dtype=torch.float64), dim=1)
        kind = uniform(0, 1)
        if kind > 0.4:  # near a class
            features = torch.nn.functional.normalize(rows[labels] + 10 ** uniform(-9, 0) * features, dim=1)
        if kind > 0.8:  # against a class
            features = -features
        if kind > 0.9:  # so long that it cancels the class
            features = features * (kappa[labels] * temperature)[:, None].clamp(1e-3, 1e3)
        elif kind > 0.3:
            features = features * 10 ** uniform(-3, 1)
        views.append(features)
        directions.append(rows * 10 ** uniform(-2, 2))
        concentrations.append(kappa)
    return LearningState(tuple(views), labels, tuple(directions), tuple(concentrations), temperature, prior)


def errors(state: LearningState, realization: str, exact: list[list[Terms]]) -> dict[str, torch.Tensor]:
    """|computed - exact| of everything that a certificate speaks of, in the shapes it has there."""
    found: dict[str, list[list[float]]] = {name: [] for name in ("score", "sample_loss", "total_variation", "margin", "sample_gradient")}
    losses, gradients = [], []
    for view, class_state, truth in zip(state.views, state.states, exact, strict=True):
        scores = pg.vmf_scores(view, class_state, state.temperature, realization)
        logits = scores + state.log_prior
        leaf = view.clone().requires_grad_()
        rows = pg.vmf_cross_entropy(leaf, state.labels, class_state, state.temperature, state.log_prior, "none", realization)
        (gradient,) = torch.autograd.grad(rows.sum(), leaf)
        losses.append(rows.detach())
        gradients.append(gradient)
        parts = [_row_errors(state, *row) for row in zip(scores, logits, rows.detach(), gradient, truth, strict=True)]
        for name in found:
            found[name].append([part[name] for part in parts])
    result = {name: torch.tensor(values, dtype=torch.float64) for name, values in found.items()}
    exact_losses = [row.loss for view in exact for row in view]
    stacked, count = torch.stack(losses), len(exact_losses)
    result["loss"] = _distance(stacked.mean().item(), sum(exact_losses, start=flint.arb(0)) / count)
    first = [view[0].loss for view in exact]
    result["group_loss"] = _distance(stacked[:, 0].mean().item(), sum(first, start=flint.arb(0)) / len(first))
    for name, number, chosen in (("gradient", count, slice(None)), ("group_gradient", len(first), slice(0, 1))):
        result[name] = torch.tensor(
            [
                [_length((g / number).tolist(), [x / number for x in row.gradient]) for g, row in zip(mine, truth, strict=True)]
                for mine, truth in zip([g[chosen] for g in gradients], [view[chosen] for view in exact], strict=True)
            ],
            dtype=torch.float64,
        )
    return result


def bounds(certificate: LearningCertificate) -> dict[str, torch.Tensor]:
    group = certificate.groups["first"]
    return {
        "score": certificate.score.total,
        "sample_loss": certificate.sample_loss.total,
        "loss": certificate.loss.total,
        "total_variation": certificate.total_variation.total,
        "margin": certificate.margin.needed,
        "sample_gradient": certificate.sample_gradient.total,
        "gradient": certificate.gradient.total,
        "group_loss": group.loss.total,
        "group_gradient": group.gradient.total,
    }


def used(state: LearningState, realization: str) -> dict[str, float]:
    """The largest |computed - exact| / bound of every quantity; above 1, a certificate is wrong. A prediction called certain must be exact too.

    `"unbounded"` is 1 if a bound is infinite, which is no error, but says nothing.
    """
    certificate, exact = state.certificate(realization), state.exact()
    with working_precision(160):
        found = errors(state, realization, exact)
    allowed = bounds(certificate)
    shares = {name: float((found[name] / allowed[name]).max()) for name in QUANTITIES}
    shares["unbounded"] = float(any(bool(bound.isinf().any()) for bound in allowed.values()))
    for v, view in enumerate(exact):
        for i, row in enumerate(view):
            if bool(certificate.margin.unchanged[v, i]):
                best = int(certificate.margin.prediction[v, i])
                wrong = any(bool(z > row.logits[best]) for z in row.logits)
                shares["margin"] = math.inf if wrong else shares["margin"]
    return shares


def _row_errors(
    state: LearningState, scores: torch.Tensor, logits: torch.Tensor, loss: torch.Tensor, gradient: torch.Tensor, truth: Terms
) -> dict[str, float]:
    prior = state.log_prior.tolist()
    score = max(_apart(s, z - flint.arb(b)) for s, z, b in zip(scores.tolist(), truth.logits, prior, strict=True))
    computed = [flint.arb(z) for z in logits.tolist()]  # what follows from them is exact
    best = int(logits.argmax())
    weights = [(z - computed[best]).exp() for z in computed]
    total = sum(weights, start=flint.arb(0))
    variation = sum(_apart(w / total, q) for w, q in zip(weights, truth.probabilities, strict=True)) / 2
    margin = max(_apart(computed[best] - z, truth.logits[best] - w) for z, w in zip(computed, truth.logits, strict=True))
    return {
        "score": score,
        "sample_loss": _apart(loss.item(), truth.loss),
        "total_variation": variation,
        "margin": margin,
        "sample_gradient": _length(gradient.tolist(), truth.gradient),
    }


def _apart(computed: float | flint.arb, exact: flint.arb) -> float:
    """|computed - exact|, or 0 where the balls cannot tell the two apart: probabilities of 1e-50 are narrower than their radii of 1e-48."""
    return float((flint.arb(computed) - exact).abs_lower())


def _distance(computed: float, exact: flint.arb) -> torch.Tensor:
    return torch.tensor(_apart(computed, exact), dtype=torch.float64)


def _length(computed: list[float], exact: list[flint.arb]) -> float:
    return math.sqrt(sum(_apart(x, y) ** 2 for x, y in zip(computed, exact, strict=True)))


@dataclass(frozen=True)
class Plane:
    """A state whose classes and feature lie in a plane: what the search moves in. Lengths and concentrations are logarithms."""

    dim: int
    log_length: float
    log_temperature: float
    angles: tuple[float, ...]  # between feature and class
    log_concentrations: tuple[float, ...]
    biases: tuple[float, ...]

    def state(self, dtype: torch.dtype) -> LearningState:
        angles = torch.tensor(self.angles, dtype=torch.float64)
        rows = torch.zeros(len(self.angles), self.dim, dtype=torch.float64)
        rows[:, 0], rows[:, 1] = angles.cos(), angles.sin()
        feature = torch.zeros(1, self.dim, dtype=torch.float64)
        feature[0, 0] = math.exp(self.log_length)
        kappa = torch.tensor(self.log_concentrations, dtype=torch.float64).exp()
        prior = torch.tensor(self.biases, dtype=torch.float64)
        return LearningState((feature, feature), torch.tensor([0]), (rows, rows), (kappa, kappa), math.exp(self.log_temperature), prior).to(
            dtype
        )

    def moved(self, generator: torch.Generator, size: float) -> Plane:
        """A random step; the concentrations stay below 1e5 and the priors within 1000:1."""
        count = len(self.angles)
        step = (size * torch.randn(2 + 3 * count, generator=generator, dtype=torch.float64)).tolist()

        def shifted(values: tuple[float, ...], first: int, low: float, high: float) -> tuple[float, ...]:
            return tuple(min(max(value + move, low), high) for value, move in zip(values, step[first : first + count], strict=True))

        return Plane(
            self.dim,
            min(max(self.log_length + step[0], math.log(1e-3)), math.log(10)),
            min(max(self.log_temperature + step[1], math.log(0.02)), math.log(2)),
            shifted(self.angles, 2, 0.0, math.pi),
            shifted(self.log_concentrations, 2 + count, math.log(1e-3), math.log(1e5)),
            shifted(self.biases, 2 + 2 * count, -math.log(1000) / 2, math.log(1000) / 2),
        )


def random_plane(dim: int, classes: int, generator: torch.Generator) -> Plane:
    """Concentrations around nu, where the paper's expansion is least accurate."""
    draw = torch.rand(2 + 3 * classes, generator=generator, dtype=torch.float64).tolist()
    angles = tuple(math.pi * round(x) if draw[0] < 0.7 else math.pi * x for x in draw[2 : 2 + classes])
    kappas = tuple(math.log(dim / 2) + 4 * x - 2 for x in draw[2 + classes : 2 + 2 * classes])
    return Plane(dim, math.log(10) * (draw[0] - 1), math.log(10) * (draw[1] - 1), angles, kappas, (0.0,) * classes)


def estimated_share(state: LearningState, realization: str, quantity: str) -> float:
    """|computed - exact| / bound with `"paired"` in float64 in place of the exact: what a search can afford."""
    certificate = state.certificate(realization)
    view, rows, kappa, prior = state.views[0], state.directions[0], state.concentrations[0], state.log_prior

    def computed(kind: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        class_state = pg.ClassState(rows.to(dtype), kappa.to(dtype))
        leaf = view.to(dtype).requires_grad_()
        scores = pg.vmf_scores(leaf.detach(), class_state, state.temperature, kind)
        loss = pg.vmf_cross_entropy(leaf, state.labels, class_state, state.temperature, prior.to(dtype), "none", kind)
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        return {"score": scores[0].double(), "loss": loss[0].detach().double(), "gradient": gradient[0].double()}

    mine, truth = computed(realization, view.dtype), computed("paired", torch.float64)
    logits, exact = (found["score"] + prior.double() for found in (mine, truth))
    error = {
        "score": (mine["score"] - truth["score"]).abs().max(),
        "sample_loss": (mine["loss"] - truth["loss"]).abs(),
        "total_variation": (logits.softmax(0) - exact.softmax(0)).abs().sum() / 2,
        "margin": ((logits - exact) - (logits - exact)[logits.argmax()]).abs().max(),
        "sample_gradient": torch.linalg.vector_norm(mine["gradient"] - truth["gradient"]),
    }[quantity]
    return float(error / bounds(certificate)[quantity].max())


SEARCHED = ("score", "sample_loss", "total_variation", "margin", "sample_gradient")


def searched_state(quantity: str, dim: int, dtype: torch.dtype, realization: str, seed: int, *, steps: int = 60) -> LearningState:
    """A state with much of its bound used up: from the best of a few random planes, random steps that are kept when they help."""
    generator = torch.Generator().manual_seed(seed)

    def share(plane: Plane) -> float:
        return estimated_share(plane.state(dtype), realization, quantity)

    starts = [random_plane(dim, 2 + seed % 2, generator) for _ in range(12)]
    best, plane = max(((share(start), start) for start in starts), key=lambda pair: pair[0])
    size = 0.5
    for _ in range(steps):
        candidate = plane.moved(generator, size)
        reached = share(candidate)
        if reached > best:
            best, plane = reached, candidate
        else:
            size = max(size * 0.93, 0.02)
    return plane.state(dtype)
