"""The 15 configurations of Figure class-count-control."""

from __future__ import annotations

import pytest
import torch
from benchmarks.learning.exact import Exact

from pairgrad.losses import vmf_scores
from pairgrad_paper.tables import class_count


@pytest.fixture(scope="module")
def table():
    return class_count.class_count()


def test_all_configurations_satisfy_the_published_bounds(table):
    assert len(table.rows) == 15
    for row in table.rows:
        assert 0 < row["score_error"] <= row["score_certificate"] <= row["score_bound"]
        assert 0 < row["loss_error"] <= row["loss_certificate"] <= row["loss_bound"]
        assert (f"{row['score_bound']:.2e}", f"{row['loss_bound']:.2e}") == ("4.00e-05", "8.00e-05")
    assert all(check.held for check in table.checks), table.checks


def test_the_certificate_does_not_grow_with_the_classes(table):
    scores, losses = table.numbers("score_certificate"), table.numbers("loss_certificate")
    assert max(scores) <= 1.2 * min(scores)
    assert max(losses) <= 2 * min(losses)


def test_sets_are_beginnings_of_one_pool():
    pool = class_count.pool()
    assert torch.equal(pool.state(100).mean_direction, pool.directions[:100])
    assert pool.labels.max() < 10
    assert pool.concentrations.min() == pytest.approx(10)
    assert pool.concentrations.max() == pytest.approx(10_000)
    assert not torch.equal(pool.concentrations, pool.concentrations.sort().values)
    for ratio in class_count.PRIOR_RATIOS:
        prior = class_count.log_prior(50, ratio).exp()
        assert prior.sum().item() == pytest.approx(1)
        assert (prior.max() / prior.min()).item() == pytest.approx(ratio)


def test_what_the_errors_are_measured_against_is_exact():
    """A sample of queries and of the 2000 classes, in ball arithmetic."""
    pool = class_count.pool()
    chosen = torch.arange(0, 2000, 97)
    scores = vmf_scores(pool.features[:2], pool.state(2000), class_count.TEMPERATURE, "paired")[:, chosen]
    exact = Exact.of(pool.features[:2], pool.directions[chosen], pool.concentrations[chosen], class_count.TEMPERATURE).scores()
    assert (scores - exact).abs().max() < 1e-13
