"""Class count and priors: 15 fixed states on which neither amplifies the error of AR/FR (Figure fig:class-count-control)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from pairgrad.certificates import LearningCertificate, certify, paper_theorem, uniform_bounds
from pairgrad.losses import vmf_cross_entropy, vmf_scores
from pairgrad.sphere import ClassState
from pairgrad_paper.tables import published
from pairgrad_paper.tables.table import Check, Column, Row, Table, Tick

SEED = 3407
DIM, QUERIES, TEMPERATURE = 128, 8, 0.1
COUNTS = (10, 100, 500, 1000, 2000)
PRIOR_RATIOS = (1, 100, 1000)
CONCENTRATIONS = (10.0, 10_000.0)


@dataclass(frozen=True)
class Pool:
    """The queries and the classes that every configuration takes a beginning of."""

    features: torch.Tensor  # (8, 128), of unit length
    labels: torch.Tensor  # among the first ten classes, so that they are in every configuration
    directions: torch.Tensor  # (2000, 128)
    concentrations: torch.Tensor  # log-spaced, in random order

    def state(self, count: int) -> ClassState:
        return ClassState(self.directions[:count], self.concentrations[:count])


def pool() -> Pool:
    """The queries and classes of which every configuration takes the first ones."""
    generator = torch.Generator().manual_seed(SEED)

    def directions(count: int) -> torch.Tensor:
        return torch.nn.functional.normalize(torch.randn(count, DIM, generator=generator, dtype=torch.float64), dim=1)

    features, rows = directions(QUERIES), directions(max(COUNTS))
    low, high = map(math.log, CONCENTRATIONS)
    kappa = torch.linspace(low, high, max(COUNTS), dtype=torch.float64).exp()[torch.randperm(max(COUNTS), generator=generator)]
    return Pool(features, torch.randint(min(COUNTS), (QUERIES,), generator=generator), rows, kappa)


def log_prior(count: int, ratio: float) -> torch.Tensor:
    """Log-linear from the first class to the last, whose probability is `ratio` times smaller."""
    return torch.log_softmax(torch.linspace(0, -math.log(ratio), count, dtype=torch.float64), 0)


@dataclass(frozen=True)
class Configuration:
    """What was found for one class count and one prior ratio."""

    score_error: float
    loss_error: float
    certificate: LearningCertificate
    reference: LearningCertificate  # of what the errors are measured against


def configuration(given: Pool, count: int, ratio: float) -> Configuration:
    """The errors of AR/FR in float64 against `"paired"`, whose own error is certified to be far below them."""
    state, prior = given.state(count), log_prior(count, ratio)
    scores = {name: vmf_scores(given.features, state, TEMPERATURE, name) for name in ("arfr", "paired")}
    losses = {
        name: vmf_cross_entropy(given.features, given.labels, state, TEMPERATURE, prior, realization=name) for name in ("arfr", "paired")
    }
    certificates = {name: certify(given.features, given.labels, state, TEMPERATURE, prior, name) for name in ("arfr", "paired")}
    return Configuration(
        float((scores["arfr"] - scores["paired"]).abs().max()),
        float((losses["arfr"] - losses["paired"]).abs()),
        certificates["arfr"],
        certificates["paired"],
    )


def class_count(tick: Tick = lambda: None) -> Table:
    """The table: errors of AR/FR and their bounds for every number of classes and every ratio of priors."""
    given, reference = pool(), 0.0
    epsilon = paper_theorem(DIM // 2 - 1).bound or math.inf
    paper = uniform_bounds(torch.ones(1), epsilon, TEMPERATURE)
    found: list[Row] = []
    for count in COUNTS:
        for ratio in PRIOR_RATIOS:
            one = configuration(given, count, ratio)
            reference = max(reference, float(one.reference.score.total.max()), float(one.reference.loss.total))
            found.append(
                {
                    "classes": count,
                    "prior_ratio": ratio,
                    "score_error": one.score_error,
                    "score_certificate": float(one.certificate.score.total.max()),
                    "score_bound": float(paper.score),
                    "loss_error": one.loss_error,
                    "loss_certificate": float(one.certificate.loss.total),
                    "loss_bound": float(paper.loss),
                }
            )
            tick()
    table = tuple(found)

    def below(error: str, bound: str) -> bool:
        return all(float(row[error] or 0) <= float(row[bound] or 0) for row in table)

    spread = {count: {row["score_error"] for row in table if row["classes"] == count} for count in COUNTS}
    return Table(
        name="class-count",
        title="Neither the number of classes nor the priors amplify the error",
        caption=(
            f"Errors of AR/FR at {len(table)} fixed states: {QUERIES} unit queries in dimension {DIM}, the first K classes of one pool of {max(COUNTS)} with "
            f"concentrations from {CONCENTRATIONS[0]:g} to {CONCENTRATIONS[1]:g} (seed {SEED}), log-linear priors, tau = {TEMPERATURE:g}. Largest score "
            "error and error of the mean cross-entropy; what `pairgrad.certify` proves of this state, rounding included; and the bounds that Theorem "
            "thm:patt gives for every state with unit features."
        ),
        label="fig:class-count-control",
        columns=(
            Column("classes", "K", "d"),
            Column("prior_ratio", "prior ratio", "d"),
            Column("score_error", "largest score error", ".2e"),
            Column("score_certificate", "certified here", ".2e", upwards=True),
            Column("score_bound", "thm:patt", ".2e"),
            Column("loss_error", "error of the mean loss", ".2e"),
            Column("loss_certificate", "mean loss, certified here", ".2e", upwards=True),
            Column("loss_bound", "mean loss, thm:patt", ".2e"),
        ),
        rows=table,
        checks=(
            Check(
                "no error above what is certified here",
                below("score_error", "score_certificate") and below("loss_error", "loss_certificate"),
            ),
            Check(
                "no certificate above the bound of thm:patt",
                below("score_certificate", "score_bound") and below("loss_certificate", "loss_bound"),
            ),
            Check(
                f"the bounds of thm:patt are the published {published.CLASS_COUNT_SCORE.text} and {published.CLASS_COUNT_LOSS.text}",
                published.CLASS_COUNT_SCORE.same_digits(float(paper.score)) and published.CLASS_COUNT_LOSS.same_digits(float(paper.loss)),
            ),
            Check("the largest score error is the same for all prior ratios", all(len(values) == 1 for values in spread.values())),
        ),
        notes=(
            f"Exact values are those of realization 'paired' in float64, whose scores and mean losses are certified to {reference:.1e} here.",
            "The paper does not print its class counts or labels: the counts here are ours, the labels are drawn from the first ten classes.",
        ),
    )
