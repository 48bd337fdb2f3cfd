"""The paper's arms on digits-lt, trained to the end: that learning is seen, and how much of it."""

import pytest

from pairgrad_paper.evaluation import evaluate
from pairgrad_paper.recipes import recipe_named
from pairgrad_paper.training import Trainer, load_data

# With AR/FR and the default and eight seeds each the worst were 97.1 %, 93.3 % and 94.0 %: a range over seeds, which never decides whether numerics are right.
ACCURACY, FEW, AUROC = 0.95, 0.90, 0.92


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("realization", ["original", "consistent", "arfr"])
def test_learning_is_seen(realization, seed):
    recipe = recipe_named("digits-lt")
    benchmark = load_data(recipe, None)
    trainer = Trainer(recipe, benchmark, realization, seed)
    for batch in trainer.batches.stream(0, trainer.steps):
        trainer.update(batch)
    report = evaluate(trainer.network, benchmark, recipe, scores=["energy"]).scores["energy"]
    assert report.accuracy.accuracy >= ACCURACY
    assert report.accuracy.few >= FEW
    assert report.ood.mean.auroc >= AUROC
