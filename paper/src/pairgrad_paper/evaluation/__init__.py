"""Evaluating a trained network: accuracy by shot group, OOD detection by source, score and convention.

`run` opens a trained run, `predict` collects its outputs, `evaluate` makes the numbers; `calibrate` fits on `held_out` samples.
"""

from pairgrad_paper.evaluation.evaluate import SCORES, ClassFacts, Evaluation, ScoreReport, accuracy_on_test, evaluate
from pairgrad_paper.evaluation.held_out import held_out
from pairgrad_paper.evaluation.predict import Predicted, predict
from pairgrad_paper.evaluation.run import Trained, evaluate_run

__all__ = [
    "SCORES",
    "ClassFacts",
    "Evaluation",
    "Predicted",
    "ScoreReport",
    "Trained",
    "accuracy_on_test",
    "evaluate",
    "evaluate_run",
    "held_out",
    "predict",
]
