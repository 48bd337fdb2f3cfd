"""`load_benchmark`: a benchmark by its name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from pairgrad.ground import one_of
from pairgrad_paper.data import cifar
from pairgrad_paper.data.benchmark import Benchmark
from pairgrad_paper.data.digits import digits_lt
from pairgrad_paper.data.files import DataRoot
from pairgrad_paper.data.listed import IMAGENET_LT, INAT18, listed_lt
from pairgrad_paper.data.long_tail import RULES, long_tail
from pairgrad_paper.data.sources import available_sources, find_outliers, load_sources, read_images, scood_notes, source_notes

_CIFAR = {"cifar10-lt": cifar.CIFAR10, "cifar100-lt": cifar.CIFAR100}
_LISTS = {"imagenet-lt": IMAGENET_LT, "inat18": INAT18}
DEFAULT_IMBALANCE: dict[str, float | None] = {"digits-lt": 20, "cifar10-lt": 100, "cifar100-lt": 100, "imagenet-lt": None, "inat18": None}
BENCHMARKS = tuple(DEFAULT_IMBALANCE)


def load_benchmark(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    imbalance: float | Literal["default"] | None = "default",
    rule: str = "first",
    verify: bool = True,
    outliers: str | None = None,
    ood: Sequence[str] | None = None,
) -> Benchmark:
    """What a run is trained and tested on, from the files of the original distributions.

    Args:
        name: "digits-lt" (comes with scikit-learn), "cifar10-lt", "cifar100-lt", "imagenet-lt" or "inat18".
        root: the folder with the data; None takes the environment variable PAIRGRAD_DATA. digits-lt needs none.
        imbalance: images of the largest class over those of the smallest, >= 1; None takes all images. By default 100 for CIFAR, 20 for digits-lt,
            and None, which is all there can be, for ImageNet-LT and iNaturalist: they come long-tailed.
        rule: which images of a class are kept, "first" (PATT) or "shuffled" (ProCo); see `long_tail_indices`.
        verify: compare the md5 of CIFAR's files with the published ones. The structure is checked in any case.
        outliers: a `.npy`, a `.npz` or a folder for outlier exposure, relative to the root; None takes what is found (see the page on data).
        ood: names of the out-of-distribution test sources; None takes all that are found.

    Raises:
        DataError: a file is missing, damaged or not as it should be. Nothing is half read.

    Examples:
        >>> load_benchmark("digits-lt").class_counts
        (117, 71, 43, 26, 15, 9, 5)
    """
    one_of("name", name, BENCHMARKS)
    one_of("rule", rule, RULES)
    if isinstance(ood, str):
        raise TypeError(f"ood must be a sequence of names or None, got the string {ood!r}: use [{ood!r}]")
    if imbalance == "default":
        imbalance = DEFAULT_IMBALANCE[name]
    if name == "digits-lt":
        return digits_lt(imbalance, rule, outliers, ood)
    data = DataRoot(root)
    if name in _CIFAR:
        return _cifar_lt(name, data, imbalance, rule, verify, outliers, ood)
    if imbalance is not None:
        raise ValueError(f"imbalance must be None for {name}, which is long-tailed as published, got {imbalance!r}")
    return listed_lt(data, _LISTS[name], outliers, ood)


def _cifar_lt(
    name: str, root: DataRoot, imbalance: float | None, rule: str, verify: bool, outliers: str | None, ood: Sequence[str] | None
) -> Benchmark:
    which = _CIFAR[name]
    whole = cifar.read_train(root, which, verify)
    test = cifar.read_test(root, which, verify)
    names = cifar.read_class_names(root, which, verify)
    train, counts = long_tail(whole, which.num_classes, imbalance, rule, which.per_class)
    notes = [whole.note] if whole.note else []
    if counts[0] != which.per_class:
        kept = f"keeps {counts[0]} images" if imbalance is None else f"keeps {counts[0]} images, the smallest class count found,"
        notes.append(f"the first class {kept} instead of {which.per_class}")
    identity = name.removesuffix("-lt")
    surrogate = find_outliers(root) if outliers is None else read_images(root, root.path / outliers)
    sources = load_sources(root, available_sources(root, identity, verify), ood)
    notes += [*cifar.departures(root, cifar.CIFAR10), *cifar.departures(root, cifar.CIFAR100), *scood_notes(root, identity, sources)]
    return Benchmark(
        name=name,
        train=train,
        test=test,
        outliers=surrogate,
        ood=sources,
        class_names=names,
        class_counts=counts,
        notes=(*notes, *source_notes(sources, surrogate)),
        files=root.facts,
    )
