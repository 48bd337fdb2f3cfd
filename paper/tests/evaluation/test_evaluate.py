"""All that is reported of a network, against the parts it is made of."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import NoReturn

import pytest
import torch

from pairgrad.ood import accuracy_report, energy, msp, sc_ood
from pairgrad_paper.augment import pipeline
from pairgrad_paper.data import ArrayImages, Benchmark, DataError, OODSource
from pairgrad_paper.evaluation import SCORES, accuracy_on_test, evaluate, held_out, predict
from pairgrad_paper.evaluation.calibrate import calibrate
from pairgrad_paper.models import Network
from pairgrad_paper.training import Trainer

from .small import digits, network, recipe

RECIPE = recipe()
TEST = pipeline("digits-test")


def two_sources() -> Benchmark:
    """Some of the first source's images count as in-distribution; the second is the outliers."""
    images = digits().ood[0].images
    mask = torch.zeros(len(images), dtype=torch.bool)
    mask[::3] = True
    photos = OODSource("photos", digits().outliers.subset(range(40)))  # pyright: ignore[reportOptionalMemberAccess]
    return replace(digits(), ood=(OODSource("near", images, mask), photos))


def test_the_plain_scores() -> None:
    net, benchmark = network(), two_sources()
    found = evaluate(net, benchmark, RECIPE, scores=("msp", "energy"))
    assert list(found.scores) == ["msp", "energy"]
    assert not found.left_out
    test = predict(net, benchmark.test, TEST).logits
    near, photos = (predict(net, source.images, TEST).logits for source in benchmark.ood)
    labels = benchmark.test.labels
    assert labels is not None
    for name, score in (("msp", msp), ("energy", energy)):
        report = found.scores[name]
        assert report.score == name
        assert report.accuracy == accuracy_report(test.argmax(1), labels, benchmark.class_counts)
        expected = sc_ood(score(test), {"near": (score(near), benchmark.ood[0].semantic_id), "photos": (score(photos), None)})
        assert report.ood == expected
    assert found.scores["msp"].ood != found.scores["energy"].ood


def test_semantically_known_images_count_as_known() -> None:
    report = evaluate(network(), two_sources(), RECIPE, scores=("msp",)).scores["msp"].ood
    assert report is not None
    near, photos = report.sources
    size = len(digits().ood[0].images)
    known = -(-size // 3)
    assert (near.num_id, near.num_ood) == (len(digits().test) + known, size - known)
    assert (photos.num_id, photos.num_ood) == (len(digits().test), 40)
    assert report.mean.auroc == pytest.approx((near.metrics.auroc + photos.metrics.auroc) / 2)


@pytest.mark.parametrize(("name", "form"), [("patt-paper", "paper"), ("patt-released", "released")])
def test_calibrated_scores(name: str, form: str) -> None:
    """Predictions and scores come from the calibrated logits."""
    net = network()
    report = evaluate(net, digits(), RECIPE, scores=(name,), seed=5).scores[name]
    calibration = calibrate(net, digits(), RECIPE, form, 5)
    test, near = (predict(net, images, TEST).features for images in (digits().test, digits().ood[0].images))
    logits = calibration.logits(test)
    labels = digits().test.labels
    assert labels is not None
    assert report.accuracy == accuracy_report(logits.argmax(1), labels, digits().class_counts)
    assert report.ood == sc_ood(energy(logits), {"held-out-digits": (energy(calibration.logits(near)), None)})


def test_everything_once() -> None:
    ticks: list[tuple[str, int, int]] = []
    found = evaluate(network(), digits(), RECIPE, seed=1, tick=lambda *given: ticks.append(given))
    assert tuple(found.scores) == SCORES == ("msp", "energy", "patt-paper", "patt-released")
    assert ("test", 420, 420) in ticks
    assert ("held-out-digits", 500, 533) in ticks
    assert ("held-out-digits", 533, 533) in ticks
    assert {name for name, _, _ in ticks} == {"test", "held-out-digits", "fit patt-paper", "fit patt-released"}
    content = found.to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert list(content) == ["images", "shots", "classes", "scores", "left_out", "notes"]
    entry = content["scores"]["msp"]
    assert list(entry) == ["score", "accuracy", "ood"]
    assert set(entry["accuracy"]) == {"accuracy", "balanced", "many", "medium", "few", "per_class"}
    assert len(entry["accuracy"]["per_class"]) == 7
    (source,) = entry["ood"]["sources"]
    assert set(source) == {"source", "num_id", "num_ood", "auroc", "aupr_in", "aupr_out", "fpr95"}
    assert set(source["fpr95"]) == set(entry["ood"]["mean"]["fpr95"]) == {"patt", "sc-ood", "openood"}
    again = evaluate(network(), digits(), RECIPE, seed=1)
    assert again == found
    assert evaluate(network(), digits(), RECIPE, seed=2) != found


def test_notes() -> None:
    noted = replace(digits(), notes=("something is missing",))
    assert evaluate(network(), noted, RECIPE, scores=("msp", "patt-paper")).notes == ("something is missing",)
    plain, released = evaluate(network(), noted, RECIPE, scores=("msp", "patt-released")).notes
    assert plain == "something is missing"
    assert released.startswith("patt-released fits its calibration on test images")


def test_notes_of_the_recipe_and_of_too_few_outliers() -> None:
    outliers = digits().outliers
    assert outliers is not None
    few = replace(digits(), notes=(), outliers=outliers.subset(range(100)))
    told = evaluate(network(), few, replace(RECIPE, notes=("scaled down",)), scores=("msp", "patt-paper")).notes
    assert told == ("scaled down", "patt-paper is fitted on 100 images of each side instead of 286: there are 100 outliers")


def test_classes_have_names_and_groups() -> None:
    found = evaluate(network(), digits(), RECIPE, scores=("msp",))
    assert [each.name for each in found.classes] == list(digits().class_names)
    assert [each.training_images for each in found.classes] == list(digits().class_counts)
    assert [each.group for each in found.classes] == ["many"] * 2 + ["medium"] * 3 + ["few"] * 2
    assert found.images == "digits test, 420 images"
    assert found.to_dict()["classes"][0] == {"name": "0", "training_images": 117, "group": "many"}


def test_groups_of_classes_are_those_of_the_system() -> None:
    """ProCo's code has fixed limits, PATT's thirds; either can be had of both."""
    patt, proco = RECIPE, replace(RECIPE, loss=replace(RECIPE.loss, method="proco"))
    for which, shots, groups in (
        (patt, None, [2, 3, 2]),
        (proco, None, [1, 3, 3]),  # 117 | 71, 43, 26 | 15, 9, 5
        (patt, "proco", [1, 3, 3]),
        (proco, "patt", [2, 3, 2]),
    ):
        found = evaluate(network(), digits(), which, scores=("msp",), shots=shots)
        assert [sum(each.group == group for each in found.classes) for group in ("many", "medium", "few")] == groups
        by_class, few = found.scores["msp"].accuracy.per_class, groups[2]
        assert found.scores["msp"].accuracy.few == pytest.approx(sum(each or 0 for each in by_class[-few:]) / few)
        assert found.to_dict()["shots"] == (shots or which.loss.method)
    assert accuracy_on_test(network(), digits(), proco)["few"] == pytest.approx(sum(each or 0 for each in by_class[-3:]) / 3)
    with pytest.raises(ValueError, match="shots must be one of 'patt', 'proco', got 'thirds'"):
        evaluate(network(), digits(), RECIPE, shots="thirds")


def test_which_images_are_evaluated() -> None:
    """The paper's accuracy of PATT on ImageNet-LT is of the validation list, ProCo's of the test list."""
    test = digits().test
    assert isinstance(test, ArrayImages)
    validation = replace(test.subset(range(0, 420, 2)), name="ImageNet-LT validation")
    both = replace(digits(), name="imagenet-lt", validation=validation)
    patt, proco = RECIPE, replace(RECIPE, loss=replace(RECIPE.loss, method="proco"))
    found = evaluate(network(), both, patt, scores=("msp", "patt-released"))
    assert found.images == "ImageNet-LT validation, 210 images"
    labels = validation.labels
    assert labels is not None
    predictions = predict(network(), validation, TEST).logits.argmax(1)
    assert found.scores["msp"].accuracy == accuracy_report(predictions, labels, both.class_counts)
    assert found.scores["msp"].ood is not None
    assert found.scores["msp"].ood.sources[0].num_id == 210
    assert accuracy_on_test(network(), both, patt)["accuracy"] == found.scores["msp"].accuracy.accuracy
    assert found.notes[-1].startswith("patt-released fits its calibration on test images, as the public code does on CIFAR")
    assert found.notes[-1].endswith("On ImageNet-LT the public code takes training images, and does not run")
    assert held_out(both, proco) is test
    assert held_out(replace(both, name="cifar10-lt"), patt) is test
    (note, *_) = evaluate(network(), replace(both, validation=None), patt, scores=("msp",)).notes
    assert note == "the paper evaluates PATT on the validation list of ImageNet-LT, which is missing: digits test is in its place"
    only = replace(both, test=validation, validation=None)  # the loader's answer to a missing test list
    assert evaluate(network(), only, patt, scores=("msp",)).notes == digits().notes


def test_scores_in_the_order_asked_for_and_once() -> None:
    assert list(evaluate(network(), digits(), RECIPE, scores=("energy", "msp", "energy")).scores) == ["energy", "msp"]


def test_what_is_left_out_and_why() -> None:
    cosine = evaluate(network(classifier="cosine"), digits(), RECIPE)
    assert cosine.left_out == {"patt-paper": "the classifier is not linear", "patt-released": "the classifier is not linear"}
    assert list(cosine.scores) == ["msp", "energy"]
    assert cosine.notes == digits().notes  # nothing was fitted on test images
    without = evaluate(network(), replace(digits(), outliers=None), RECIPE, scores=("energy", "patt-paper"))
    assert without.left_out == {"patt-paper": "there are no outlier images"}
    dead = network()
    torch.nn.init.zeros_(dead.classifier.weight)
    assert evaluate(dead, digits(), RECIPE, scores=("msp", "patt-paper")).left_out["patt-paper"].startswith("the fitted vector is constant")


def test_without_ood_images() -> None:
    found = evaluate(network(), replace(digits(), ood=()), RECIPE)
    assert [report.ood for report in found.scores.values()] == [None] * 4
    assert found.to_dict()["scores"]["msp"]["ood"] is None


def test_damaged_data_are_no_reason_to_leave_a_score_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> NoReturn:
        raise DataError("a.png is damaged")

    monkeypatch.setattr(sys.modules["pairgrad_paper.evaluation.evaluate"], "calibrate", broken)
    with pytest.raises(DataError, match=r"a\.png is damaged"):
        evaluate(network(), digits(), RECIPE)


def test_an_unknown_score_is_refused_before_anything_is_computed() -> None:
    class Never(Network):
        def forward(self, images: torch.Tensor) -> NoReturn:
            raise AssertionError("computed")

    net = network()
    net.__class__ = Never
    with pytest.raises(ValueError, match=r"scores must be one of 'msp', 'energy', 'patt-paper', 'patt-released', got 'odin'"):
        evaluate(net, digits(), RECIPE, scores=("msp", "odin"))


def test_a_learning_curve() -> None:
    net = network()
    report = evaluate(net, digits(), RECIPE, scores=("msp",)).scores["msp"].accuracy
    assert accuracy_on_test(net, digits(), RECIPE) == {"accuracy": report.accuracy, "few": report.few}
    balanced = replace(digits(), class_counts=(20,) * 7)  # nobody has few
    assert set(accuracy_on_test(net, balanced, RECIPE)) == {"accuracy"}


def test_training_helps() -> None:
    trainer = Trainer(recipe("epochs=4"), digits(), "arfr", 1)
    untrained = accuracy_on_test(trainer.network, digits(), RECIPE)["accuracy"]
    for batch in trainer.batches.stream(0, trainer.steps):
        trainer.update(batch)
    trained = evaluate(trainer.network, digits(), RECIPE, scores=("msp",)).scores["msp"]
    assert untrained < 0.35  # chance is 1/7
    assert trained.accuracy.accuracy > untrained + 0.15
    assert trained.ood is not None
    assert trained.ood.mean.auroc > 0.5
