"""The calibration of a network: which images each form looks at, how many, in which pairs, and when there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pairgrad.ood import class_balanced_indices
from pairgrad_paper.data import ArrayImages, Benchmark, FileImages, long_tail_counts, long_tail_indices
from pairgrad_paper.evaluation import Predicted
from pairgrad_paper.evaluation import calibrate as calibrating
from pairgrad_paper.evaluation.calibrate import CannotFit, calibrate, shortage
from pairgrad_paper.recipes import RECIPES

from .small import Linear, Untouchable, digits, labelled, network, recipe

FORMS = ("paper", "released")
DIM = 6


def inverted(images: Any) -> ArrayImages:
    return replace(images, images=255 - images.images)


def scale(benchmark: Benchmark, form: str, seed: int = 0, *settings: str) -> torch.Tensor:
    return calibrate(network(), benchmark, recipe(*settings), form, seed).scale


def test_the_papers_form_sees_training_images_only() -> None:
    whole = scale(digits(), "paper")
    without = replace(digits(), test=Untouchable(), ood=())
    assert torch.equal(scale(without, "paper"), whole)
    assert not torch.equal(scale(replace(digits(), train=inverted(digits().train)), "paper"), whole)
    assert not torch.equal(scale(replace(digits(), outliers=inverted(digits().outliers)), "paper"), whole)


def test_the_released_form_sees_test_images_only() -> None:
    whole = scale(digits(), "released")
    without = replace(digits(), train=Untouchable(), ood=())
    assert torch.equal(scale(without, "released"), whole)
    assert not torch.equal(scale(replace(digits(), test=inverted(digits().test)), "released"), whole)
    assert not torch.equal(scale(replace(digits(), outliers=inverted(digits().outliers)), "released"), whole)


@pytest.mark.parametrize("form", FORMS)
def test_it_is_scaled_and_follows_from_the_seed(form: str) -> None:
    first = scale(digits(), form, 1)
    assert first.min() == 0
    assert first.max() == 2
    torch.manual_seed(9)
    assert torch.equal(scale(digits(), form, 1), first)
    assert not torch.equal(scale(digits(), form, 2), first)
    assert torch.equal(scale(digits(), form, 2**63 - 1), scale(digits(), form, 2**63 - 1))  # the largest seed will do


class Recorder:
    """In place of `predict`: features and logits by position, and a list of what was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, benchmark: Benchmark) -> None:
        generator = torch.Generator().manual_seed(1)
        self.tables = {
            id(images): torch.rand(len(images), DIM, generator=generator)
            for images in (benchmark.train, benchmark.test, benchmark.outliers)
            if images is not None
        }
        self.asked: list[tuple[Any, torch.Tensor, str, int]] = []
        monkeypatch.setattr(calibrating, "predict", self)

    def __call__(self, net: Any, images: Any, view: Any, *, indices: torch.Tensor, seed: int) -> Predicted:
        self.asked.append((images, indices, view.name, seed))
        features = self.tables[id(images)][indices]
        return Predicted(net.classifier(features).detach(), features)


def like(name: str, train: torch.Tensor, test: torch.Tensor, outliers: int) -> Benchmark:
    classes = int(test.max()) + 1
    return Benchmark(
        name=name,
        train=labelled(train),
        test=labelled(test),
        outliers=labelled(torch.zeros(outliers, dtype=torch.int64)),
        ood=(),
        class_names=tuple(map(str, range(classes))),
        class_counts=tuple(torch.bincount(train).tolist()),
    )


def like_cifar(classes: int, outliers: int = 20_000) -> Benchmark:
    counts = torch.tensor(long_tail_counts(50_000 // classes, classes, 100))
    test = torch.arange(10_000) % classes
    return like(f"cifar{classes}-lt", torch.arange(classes).repeat_interleave(counts), test, outliers)


def by_hand(net: Any, recorder: Recorder, benchmark: Benchmark, batch: int, released: bool) -> np.ndarray:
    """S by the recursion of the public code, or by the mean, in plain numpy."""
    (images, chosen, *_), (outliers, others, *_) = recorder.asked
    weight, bias = (p.detach().double().numpy() for p in (net.classifier.weight, net.classifier.bias))
    prior = np.array(benchmark.class_counts) / sum(benchmark.class_counts)
    f, labels = recorder.tables[id(images)][chosen].double().numpy(), images.labels[chosen].numpy()
    g = recorder.tables[id(outliers)][others].double().numpy()
    guesses = (g @ weight.T + bias).argmax(1)
    total = np.zeros(DIM)
    for t, start in enumerate(range(0, len(f), batch)):
        part = slice(start, start + batch)
        inside = (f[part] * weight[labels[part]] / prior[labels[part], None]).mean(0)
        outside = (g[part] * weight[guesses[part]] / prior[guesses[part], None]).mean(0)
        total = (t if released else 1) * total + inside - outside
    return 2 * (total - total.min()) / (total.max() - total.min())


@pytest.mark.parametrize(
    ("classes", "form", "available", "pairs"),
    [(10, "paper", 12406, 12), (100, "paper", 10847, 10), (10, "released", 2478, 2), (100, "released", 2131, 2)],
)
def test_sizes_on_cifar(classes: int, form: str, available: int, pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = like_cifar(classes)
    recorder = Recorder(monkeypatch, benchmark)
    net: Any = Linear(classes, DIM)
    fitted = calibrate(net, benchmark, RECIPES[f"patt-cifar{classes}-lt-if100"], form, 3)
    (images, chosen, view, seed), (outliers, others, other_view, other_seed) = recorder.asked
    assert images is (benchmark.train if form == "paper" else benchmark.test)
    assert outliers is benchmark.outliers
    assert view == other_view == "patt-cifar-calibration"
    assert seed != other_seed
    assert int(fitted.pairs) == pairs
    assert len(chosen) == 1000 * pairs  # incomplete batches are dropped
    assert torch.equal(others, torch.arange(1000 * pairs))  # the first outliers, in order
    assert images.labels is not None
    labels = images.labels
    if form == "paper":
        assert len(labels) == available
        assert torch.equal(chosen, class_balanced_indices(labels, available, 3)[: 1000 * pairs])
    else:
        tail = long_tail_indices(labels, long_tail_counts(10_000 // classes, classes, 100), "shuffled")
        assert len(tail) == available
        assert set(chosen.tolist()) <= set(tail.tolist())
        # Classes are drawn alike: counts are binomial(2000, 1/K); six standard deviations.
        counts, expected = torch.bincount(labels[chosen], minlength=classes).double(), 2000 / classes
        assert (counts - expected).abs().max() <= 6 * expected**0.5
    np.testing.assert_allclose(fitted.scale.numpy(), by_hand(net, recorder, benchmark, 1000, form == "released"), atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_sizes_on_imagenet(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """30,000 of each side in batches of 100, whatever the sizes of the sets."""
    train = torch.arange(100).repeat_interleave(torch.arange(100, 0, -1) * 8)
    benchmark = like("imagenet-lt", train, torch.arange(35_000) % 100, 31_000)
    recorder = Recorder(monkeypatch, benchmark)
    net: Any = Linear(100, DIM)
    fitted = calibrate(net, benchmark, RECIPES["patt-imagenet-lt"], form, 0)
    (images, chosen, view, _), (_, others, other_view, _) = recorder.asked
    assert images is (benchmark.train if form == "paper" else benchmark.test)
    assert len(chosen) == len(others) == 30_000
    assert int(fitted.pairs) == 300
    assert view == other_view == "imagenet-test"
    if form == "paper":
        assert torch.bincount(train[chosen]).tolist() == [300] * 100
        np.testing.assert_allclose(fitted.scale.numpy(), by_hand(net, recorder, benchmark, 100, False), atol=1e-6)
    assert bool(fitted.scale.isfinite().all())  # the recursion of the public code would have overflowed


def test_outliers_of_imagenet_come_from_all_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper balances both sides; the first pictures of a list in order would be of its first classes only. The released code takes those."""
    train = torch.arange(100).repeat_interleave(torch.arange(100, 0, -1) * 8)
    benchmark = like("imagenet-lt", train, torch.arange(35_000) % 100, 0)
    paths = tuple(f"n{number:03}/{k}.jpg" for number in range(500) for k in range(100))
    benchmark = replace(benchmark, outliers=FileImages("outliers", Path(), paths))
    for form in FORMS:
        recorder = Recorder(monkeypatch, benchmark)
        calibrate(Linear(100, DIM), benchmark, RECIPES["patt-imagenet-lt"], form, 0)  # pyright: ignore[reportArgumentType]
        others = recorder.asked[1][1]
        if form == "paper":
            assert torch.bincount(others // 100).tolist() == [60] * 500
            assert len(set(others.tolist())) == 30_000
        else:
            assert torch.equal(others, torch.arange(30_000))


def test_the_released_form_sees_the_images_that_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """On ImageNet-LT PATT's are the validation list; its training split stays the paper's."""
    train = torch.arange(100).repeat_interleave(torch.arange(100, 0, -1) * 8)
    benchmark = like("imagenet-lt", train, torch.arange(35_000) % 100, 31_000)
    benchmark = replace(benchmark, validation=labelled(torch.arange(20_000) % 100))
    recorder = Recorder(monkeypatch, benchmark)
    recorder.tables[id(benchmark.validation)] = recorder.tables[id(benchmark.test)]
    for form, images in (("released", benchmark.validation), ("paper", benchmark.train)):
        recorder.asked.clear()
        calibrate(Linear(100, DIM), benchmark, RECIPES["patt-imagenet-lt"], form, 0)  # pyright: ignore[reportArgumentType]
        assert recorder.asked[0][0] is images


def test_too_few_outliers_are_told() -> None:
    full = RECIPES["patt-cifar10-lt-if100"]
    assert shortage(like_cifar(10, 3500), full, "paper", 3) == (
        "is fitted on 3000 images of each side instead of 12000: there are 3500 outliers"
    )
    assert shortage(like_cifar(10, 300), full, "paper", 3).startswith("is fitted on 300 images of each side instead of 12000")
    assert shortage(like_cifar(10, 12_000), full, "paper", 3) == ""
    assert shortage(like_cifar(10, 3500), full, "released", 3) == ""


@pytest.mark.parametrize(("outliers", "pairs", "size"), [(3500, 3, 1000), (300, 1, 300)])
def test_few_outliers(outliers: int, pairs: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = like_cifar(10, outliers)
    recorder = Recorder(monkeypatch, benchmark)
    net: Any = Linear(10, DIM)
    fitted = calibrate(net, benchmark, RECIPES["patt-cifar10-lt-if100"], "paper", 3)
    assert int(fitted.pairs) == pairs
    assert [len(indices) for _, indices, _, _ in recorder.asked] == [pairs * size, pairs * size]
    np.testing.assert_allclose(fitted.scale.numpy(), by_hand(net, recorder, benchmark, size, False), atol=1e-6)


def test_the_released_tail_and_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = like_cifar(10)
    sizes = []
    for name in ("patt-cifar10-lt-if10", "patt-cifar10-lt-if50"):
        recorder = Recorder(monkeypatch, benchmark)
        net: Any = Linear(10, DIM)
        fitted = calibrate(net, benchmark, RECIPES[name], "released", 3).scale.numpy()
        sizes.append(len(recorder.asked[0][1]))
        np.testing.assert_allclose(fitted, by_hand(net, recorder, benchmark, 1000, True), atol=1e-6)
        # Two batches weigh the same in both forms; four do not.
        equal = np.allclose(fitted, by_hand(net, recorder, benchmark, 1000, False), atol=1e-4)
        assert equal == (sizes[-1] == 2000)
    assert sizes == [4000, 2000]  # of 4084 and 2796


@pytest.mark.parametrize("form", FORMS)
def test_when_there_is_none(form: str) -> None:
    with pytest.raises(CannotFit, match=r"^the classifier is not linear$"):
        calibrate(network(classifier="cosine"), digits(), recipe(), form, 0)
    with pytest.raises(CannotFit, match=r"^there are no outlier images$"):
        calibrate(network(), replace(digits(), outliers=None), recipe(), form, 0)
    dead = network()
    torch.nn.init.zeros_(dead.classifier.weight)
    with pytest.raises(CannotFit, match=r"^the fitted vector is constant"):
        calibrate(dead, digits(), recipe(), form, 0)


def test_a_tail_that_leaves_a_class_without_test_images() -> None:
    thin = recipe("data.imbalance=100")
    with pytest.raises(CannotFit, match=r"^of 60 test images in each class, imbalance 100 leaves class 6 without images"):
        calibrate(network(), digits(), thin, "released", 0)
    assert calibrate(network(), digits(), thin, "paper", 0).fitted


def test_an_unknown_form() -> None:
    with pytest.raises(ValueError, match=r"form must be one of 'paper', 'released', got 'best'"):
        calibrate(network(), digits(), recipe(), "best", 0)
