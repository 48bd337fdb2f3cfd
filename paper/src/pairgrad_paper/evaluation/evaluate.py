"""All that is reported of a trained network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from pairgrad.ground import one_of
from pairgrad.ood import SHOT_RULES, AccuracyReport, SCOODReport, accuracy_report, energy, msp, sc_ood, shot_groups
from pairgrad_paper.augment import pipeline
from pairgrad_paper.data import Benchmark, OODSource
from pairgrad_paper.evaluation.calibrate import CannotFit, calibrate, shortage
from pairgrad_paper.evaluation.held_out import held_out, held_out_note
from pairgrad_paper.evaluation.predict import Predicted, predict
from pairgrad_paper.models import Network
from pairgrad_paper.recipes import Recipe

PLAIN: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {"msp": msp, "energy": energy}
CALIBRATED = {"patt-paper": "paper", "patt-released": "released"}
SCORES = (*PLAIN, *CALIBRATED)


@dataclass(frozen=True)
class ScoreReport:
    """One OOD score: what it says of every source, and the accuracy of the logits it is made from."""

    score: str
    accuracy: AccuracyReport
    ood: SCOODReport | None  # None: no OOD images were found

    def to_dict(self) -> dict[str, Any]:
        return {"score": self.score, "accuracy": self.accuracy.to_dict(), "ood": None if self.ood is None else self.ood.to_dict()}


class ClassFacts(NamedTuple):
    """A class, in the order of the labels: its name, its number of training images, and its group, `"many"`, `"medium"` or `"few"`."""

    name: str
    training_images: int
    group: str


@dataclass(frozen=True)
class Evaluation:
    """Attributes:

    scores: by name, those that could be computed.
    left_out: {name of a score: why it was not computed}.
    notes: what deviates from the published protocol.
    images: the name and the number of the images that accuracy is measured on.
    shots: the rule by which classes have many, medium or few training images.
    classes: what the entries of `per_class` belong to.
    """

    scores: Mapping[str, ScoreReport]
    left_out: Mapping[str, str]
    notes: tuple[str, ...]
    images: str = "the test images"
    shots: str = "patt"
    classes: tuple[ClassFacts, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "images": self.images,
            "shots": self.shots,
            "classes": [each._asdict() for each in self.classes],
            "scores": {name: report.to_dict() for name, report in self.scores.items()},
            "left_out": dict(self.left_out),
            "notes": list(self.notes),
        }


def evaluate(
    network: Network,
    benchmark: Benchmark,
    recipe: Recipe,
    *,
    scores: Sequence[str] = SCORES,
    seed: int = 0,
    shots: str | None = None,
    tick: Callable[[str, int, int], object] | None = None,
) -> Evaluation:
    """Accuracy and OOD detection on the held-out images and every OOD source of a benchmark.

    Args:
        network: trained. benchmark: its data. recipe: for the pipelines and the long tail.
        scores: names in `SCORES`.
        seed: of the draws of the calibrations.
        shots: the rule for classes with many, medium and few training images, a name in `pairgrad.ood.SHOT_RULES`; None: that of the system's code.
        tick: is told the set of images, how many are done, and how many there are.
    """
    for name in scores:
        one_of("scores", name, SCORES)
    rule = shot_rule(recipe) if shots is None else one_of("shots", shots, SHOT_RULES)
    view = pipeline(recipe.views.test)

    def outputs(name: str, source: Any) -> Predicted:
        done = 0

        def count(more: int) -> None:
            nonlocal done
            done += more
            if tick is not None:
                tick(name, done, len(source))

        return predict(network, source, view, tick=count)

    images = held_out(benchmark, recipe)
    test = outputs("test", images)
    sources = {source.name: (source, outputs(source.name, source.images)) for source in benchmark.ood}
    labels = images.labels
    assert labels is not None
    reports, left_out = {}, {}
    notes = [*recipe.notes, *filter(None, [held_out_note(benchmark, recipe)]), *benchmark.notes]
    for name in dict.fromkeys(scores):
        if name in CALIBRATED:
            if tick is not None:
                tick(f"fit {name}", 0, 1)
            try:
                calibration = calibrate(network, benchmark, recipe, CALIBRATED[name], seed)
            except CannotFit as error:
                left_out[name] = str(error)
                continue
            if short := shortage(benchmark, recipe, CALIBRATED[name], seed):
                notes.append(f"{name} {short}")
            logits_of, score_of = (lambda p, c=calibration: c.logits(p.features)), energy
        else:
            logits_of, score_of = (lambda p: p.logits), PLAIN[name]
        reports[name] = _report(name, labels, test, sources, benchmark, logits_of, score_of, rule)
    if "patt-released" in reports:
        notes.append(_released_note(benchmark))
    return Evaluation(reports, left_out, tuple(notes), f"{images.name}, {len(images)} images", rule, _classes(benchmark, rule))


def shot_rule(recipe: Recipe) -> str:
    """The rule of the public code of a recipe's system."""
    return recipe.loss.method


def _released_note(benchmark: Benchmark) -> str:
    where = "patt-released fits its calibration on test images"
    if benchmark.name == "imagenet-lt":
        return (
            f"{where}, as the public code does on CIFAR: its accuracy and detection are not of unseen data. On ImageNet-LT the public code takes "
            "training images, and does not run"
        )
    return f"{where}, as the public code does: its accuracy and detection are not of unseen data"


def _classes(benchmark: Benchmark, rule: str) -> tuple[ClassFacts, ...]:
    groups = {label: name for name, labels in shot_groups(benchmark.class_counts, rule)._asdict().items() for label in labels}
    pairs = zip(benchmark.class_names, benchmark.class_counts, strict=True)
    return tuple(ClassFacts(name, count, groups[label]) for label, (name, count) in enumerate(pairs))


def _report(
    name: str,
    labels: torch.Tensor,
    test: Predicted,
    sources: Mapping[str, tuple[OODSource, Predicted]],
    benchmark: Benchmark,
    logits_of: Callable[[Predicted], torch.Tensor],
    score_of: Callable[[torch.Tensor], torch.Tensor],
    rule: str,
) -> ScoreReport:
    logits = logits_of(test)
    accuracy = accuracy_report(logits.argmax(1), labels, benchmark.class_counts, rule)
    found = {key: (score_of(logits_of(predicted)), source.semantic_id) for key, (source, predicted) in sources.items()}
    return ScoreReport(name, accuracy, sc_ood(score_of(logits), found) if found else None)


def accuracy_on_test(network: Network, benchmark: Benchmark, recipe: Recipe) -> dict[str, float]:
    """Accuracy of the classifier on the held-out images, and of the classes with few samples: what a learning curve shows."""
    images = held_out(benchmark, recipe)
    predicted = predict(network, images, pipeline(recipe.views.test))
    labels = images.labels
    assert labels is not None
    report = accuracy_report(predicted.logits.argmax(1), labels, benchmark.class_counts, shot_rule(recipe))
    return {"accuracy": report.accuracy, **({} if report.few is None else {"few": report.few})}
