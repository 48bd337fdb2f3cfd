"""digits-lt: small, fixed, and without leaks between its parts."""

import hashlib

import numpy as np
import pytest
import torch

from pairgrad_paper.data import DataError, load_benchmark

datasets = pytest.importorskip("sklearn.datasets")
pytest.importorskip("PIL")


@pytest.fixture(scope="module")
def digits():
    return load_benchmark("digits-lt")


def test_parts(digits):
    assert digits.class_counts == (117, 71, 43, 26, 15, 9, 5)
    assert digits.class_names == tuple("0123456")
    assert torch.bincount(digits.train.labels).tolist() == list(digits.class_counts)
    assert torch.bincount(digits.test.labels).tolist() == [60] * 7
    (source,) = digits.ood
    assert source.name == "held-out-digits"
    assert source.semantic_id is None
    assert len(source.images) == 533
    assert sorted(set(source.images.labels.tolist())) == [7, 8, 9]
    for images in (digits.train, digits.test, source.images, digits.outliers):
        assert images.images.shape[1:] == (1, 8, 8)
        assert images.images.dtype == torch.uint8


def test_the_parts_come_from_disjoint_images(digits):
    """All 1797 digits differ from each other, so equal pixels mean the same image."""
    pixels, labels = datasets.load_digits(return_X_y=True)
    known = {tuple(row): int(label) for row, label in zip(np.rint(pixels * 255 / 16).astype(int).tolist(), labels, strict=True)}
    assert len(known) == 1797
    rows = {}
    for name, images in (("train", digits.train), ("test", digits.test), ("ood", digits.ood[0].images)):
        rows[name] = [tuple(row) for row in images.images.flatten(1).tolist()]
        assert len(set(rows[name])) == len(rows[name])
        assert [known[row] for row in rows[name]] == images.labels.tolist()
    assert not set(rows["train"]) & set(rows["test"])
    assert not set(rows["train"]) & set(rows["ood"])


def test_the_scale_uses_all_of_a_byte(digits):
    assert digits.train.images.min() == 0
    assert digits.train.images.max() == 255
    assert set(digits.test.images.unique().tolist()) == {round(v * 255 / 16) for v in range(17)}


def test_it_is_the_same_every_time(digits):
    again = load_benchmark("digits-lt")
    for a, b in ((digits.train, again.train), (digits.test, again.test), (digits.outliers, again.outliers)):
        assert torch.equal(a.images, b.images)
    assert digits.files == again.files
    # A change here changes every result on digits-lt.
    assert hashlib.md5(digits.train.images.numpy().tobytes()).hexdigest() == "bf4ad8a48353690fa277ea96df82d4ff"
    assert hashlib.md5(digits.test.images.numpy().tobytes()).hexdigest() == "b90ac3cb227d9022ead96c5d5538bcfd"


def is_piece(patch, picture):
    """Whether a patch is somewhere in a grey picture; half a grey value is the rounding to bytes."""
    windows = np.lib.stride_tricks.sliding_window_view(picture, (8, 8))
    near = np.abs(windows[..., 0, 0] - patch[0, 0]) <= 0.5 + 1e-9
    return bool((np.abs(windows[near] - patch) <= 0.5 + 1e-9).all(axis=(1, 2)).any())


def test_patches_are_pieces_of_the_photographs(digits):
    """At every scale, against averages taken block by block."""
    assert digits.outliers.images.shape == (8000, 1, 8, 8)
    patches = digits.outliers.images.numpy().astype(float).reshape(2, 4, 1000, 8, 8)
    for photograph, of_photograph in zip(datasets.load_sample_images().images, patches, strict=True):
        grey = photograph @ np.array([0.299, 0.587, 0.114])
        for scale, of_scale in zip((1, 2, 4, 8), of_photograph, strict=True):
            rows = range(0, grey.shape[0] - scale + 1, scale)
            small = sum(grey[rows.start + k : rows.stop - 1 + scale : scale][: len(rows)] for k in range(scale)) / scale
            columns = range(0, grey.shape[1] - scale + 1, scale)
            small = sum(small[:, k::scale][:, : len(columns)] for k in range(scale)) / scale
            assert all(is_piece(patch, small) for patch in of_scale[::100])
    assert len(np.unique(digits.outliers.images.flatten(1).numpy(), axis=0)) > 7500


def test_imbalance_and_rule(digits):
    assert load_benchmark("digits-lt", imbalance=1).class_counts == (117,) * 7
    assert load_benchmark("digits-lt", imbalance=None).class_counts == (118, 122, 117, 123, 121, 122, 121)
    shuffled = load_benchmark("digits-lt", rule="shuffled")
    assert shuffled.class_counts == digits.class_counts
    assert not torch.equal(shuffled.train.images, digits.train.images)
    assert torch.equal(shuffled.test.images, digits.test.images)


def test_records(digits):
    assert digits.notes == ("digits-lt is made of scikit-learn's 8x8 digits and two photographs: no published results exist for it",)
    assert [fact.path for fact in digits.files] == ["scikit-learn:digits", "scikit-learn:sample_images"]
    assert digits.files[0].size == 1797 * 64
    assert repr(digits) == "Benchmark('digits-lt', 7 classes, 286 training and 420 test images)"
    lines = digits.summary().splitlines()
    assert lines[:5] == [
        "digits-lt: 7 classes",
        "  train      286 images, 117 to 5 per class",
        "  test       420 images",
        "  outliers   8000 images, photo-patches",
        "  ood        533 images, held-out-digits",
    ]
    assert lines[5] == f"  note: {digits.notes[0]}"


def test_choosing(digits):
    assert load_benchmark("digits-lt", ood=[]).ood == ()
    chosen = load_benchmark("digits-lt", ood=["held-out-digits"], outliers="photo-patches")
    assert len(chosen.ood) == 1
    with pytest.raises(DataError, match=r"ood must be None or a list of 'held-out-digits' for digits-lt, got \['svhn'\]"):
        load_benchmark("digits-lt", ood=["svhn"])
    with pytest.raises(DataError, match=r"outliers must be None or 'photo-patches' for digits-lt, got 'mine\.npy'"):
        load_benchmark("digits-lt", outliers="mine.npy")
