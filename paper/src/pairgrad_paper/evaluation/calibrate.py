"""Fitting PATT's feature calibration to a trained network, on the split and with the sampling of its form."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from pairgrad.ground import one_of
from pairgrad.ood import FORMS, FeatureCalibration, class_balanced_indices
from pairgrad_paper.augment import pipeline
from pairgrad_paper.data import Benchmark, FileImages, Images, long_tail_counts, long_tail_indices
from pairgrad_paper.evaluation.held_out import held_out
from pairgrad_paper.evaluation.predict import predict
from pairgrad_paper.models import Network
from pairgrad_paper.recipes import Recipe
from pairgrad_paper.training.seeds import generator, stream_seed

BATCH = 1000  # of the public code on CIFAR
LARGE = 30_000  # samples of each source on ImageNet-LT, in batches of LARGE_BATCH
LARGE_BATCH = 100
_LARGE_BENCHMARKS = ("imagenet-lt", "inat18")


class CannotFit(ValueError):
    """There is no calibration of this network on these data; the message says why."""


class _Plan(NamedTuple):
    images: Images
    indices: torch.Tensor
    batch: int


def calibrate(network: Network, benchmark: Benchmark, recipe: Recipe, form: str, seed: int) -> FeatureCalibration:
    """A fitted calibration of the network, on the CPU.

    Args:
        network: trained. benchmark: its data. recipe: for the pipeline and the long tail.
        form: `"paper"`: on the long-tailed training split, by a fixed order in which the classes take turns; or `"released"`: on the test split, cut
            long-tailed as the training split was, with draws that favour no class. Outliers are the first in order; on ImageNet-LT the paper
            balances these too, so there the folders of the pictures, which are their classes, take turns.
        seed: of the order, the draws and the pipeline.

    Raises:
        CannotFit: the classifier is not linear, there are no outliers, the tail leaves a class without test images, or the fitted vector is constant.
    """
    one_of("form", form, tuple(FORMS))
    if not isinstance(network.classifier, nn.Linear):
        raise CannotFit("the classifier is not linear")
    if benchmark.outliers is None:
        raise CannotFit("there are no outlier images")
    plan = _plan(benchmark, recipe, form, seed)
    size, batch = _whole(min(len(plan.indices), len(benchmark.outliers)), plan.batch)
    view = pipeline(recipe.views.calibration)
    others = _outlier_indices(benchmark, benchmark.outliers, form, size, seed)
    inside = predict(network, plan.images, view, indices=plan.indices[:size], seed=stream_seed(seed, "calibration"))
    outside = predict(network, benchmark.outliers, view, indices=others, seed=stream_seed(seed, "calibration", "outliers"))
    assert plan.images.labels is not None
    labels = plan.images.labels[plan.indices[:size]]
    fitted = FeatureCalibration.of(network.classifier, benchmark.class_counts, form=form).cpu()
    pairs = (
        (inside.features[i : i + batch], labels[i : i + batch], outside.features[i : i + batch], outside.logits[i : i + batch])
        for i in range(0, size, batch)
    )
    try:
        return fitted.fit(pairs)
    except ValueError as error:
        raise CannotFit(str(error)) from error


def shortage(benchmark: Benchmark, recipe: Recipe, form: str, seed: int) -> str:
    """A sentence if there are too few outliers for all the pairs that the form asks for; empty if there are enough."""
    assert benchmark.outliers is not None
    plan = _plan(benchmark, recipe, form, seed)
    wanted, _ = _whole(len(plan.indices), plan.batch)
    size, _ = _whole(min(wanted, len(benchmark.outliers)), plan.batch)
    return (
        f"is fitted on {size} images of each side instead of {wanted}: there are {len(benchmark.outliers)} outliers"
        if size < wanted
        else ""
    )


def _whole(size: int, batch: int) -> tuple[int, int]:
    """As many as fill whole batches, and the size of these; one batch if there are fewer than one."""
    batch = min(batch, size)
    return size - size % batch, batch


def _outlier_indices(benchmark: Benchmark, outliers: Images, form: str, size: int, seed: int) -> torch.Tensor:
    if FORMS[form].split == "train" and benchmark.name in _LARGE_BENCHMARKS and isinstance(outliers, FileImages):
        folders = [path.rpartition("/")[0] for path in outliers.paths]
        numbers = {folder: number for number, folder in enumerate(sorted(set(folders)))}
        return class_balanced_indices(torch.tensor([numbers[folder] for folder in folders]), size, seed % 2**32)
    return torch.arange(size)


def _plan(benchmark: Benchmark, recipe: Recipe, form: str, seed: int) -> _Plan:
    large = benchmark.name in _LARGE_BENCHMARKS
    batch = LARGE_BATCH if large else BATCH
    if FORMS[form].split == "train":
        labels = benchmark.train.labels
        assert labels is not None
        size = LARGE if large else len(labels)
        return _Plan(benchmark.train, class_balanced_indices(labels, size, seed % 2**32), batch)
    test = held_out(benchmark, recipe)
    labels = test.labels
    assert labels is not None
    tail = torch.arange(len(labels))
    if recipe.data.imbalance is not None:
        most = int(torch.bincount(labels, minlength=len(benchmark.class_names)).min())
        try:
            counts = long_tail_counts(most, len(benchmark.class_names), recipe.data.imbalance)
        except ValueError as error:
            raise CannotFit(f"of {most} test images in each class, {error}") from error
        tail = long_tail_indices(labels, counts, "shuffled")
    weights = 1 / torch.bincount(labels[tail], minlength=len(benchmark.class_names)).double()
    size = LARGE if large else len(tail)
    drawn = torch.multinomial(weights[labels[tail]], size, replacement=True, generator=generator(seed, "calibration-draw"))
    return _Plan(test, tail[drawn], batch)
