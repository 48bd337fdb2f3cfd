"""Sets of images in memory and in files."""

import pickle

import numpy as np
import pytest
import torch

from pairgrad_paper.data import ArrayImages, FileImages, OODSource

PIL_Image = pytest.importorskip("PIL.Image")


def three():
    images = torch.arange(3 * 2 * 4 * 5, dtype=torch.uint8).view(3, 2, 4, 5)
    return ArrayImages("three", images, torch.tensor([7, 8, 9]), "a note")


@pytest.fixture
def files(tmp_path):
    for k in range(3):
        (tmp_path / "sub").mkdir(exist_ok=True)
        PIL_Image.fromarray(np.full((2 + k, 5, 3), 10 * k, np.uint8)).save(tmp_path / "sub" / f"{k}.png")
    return FileImages("files", tmp_path, ("sub/0.png", "sub/1.png", "sub/2.png"), torch.tensor([4, 5, 6]), "a note")


def test_array_images():
    images = three()
    assert len(images) == 3
    assert torch.equal(images.image(1), images.images[1])
    batch = images.batch(torch.tensor([2, 0, 2]))
    assert torch.equal(batch, images.images[[2, 0, 2]])
    assert batch.is_contiguous()
    assert repr(images) == "ArrayImages('three', 3 images of shape (2, 4, 5))"


def test_batch_of_a_permuted_view_is_contiguous():
    """Mapped files keep the channels last; what comes out does not."""
    stored = torch.arange(4 * 2 * 3 * 3, dtype=torch.uint8).view(4, 2, 3, 3)
    images = ArrayImages("view", stored.permute(0, 3, 1, 2))
    batch = images.batch(torch.tensor([3, 1]))
    assert batch.is_contiguous()
    assert torch.equal(batch, stored[[3, 1]].permute(0, 3, 1, 2))


@pytest.mark.parametrize("indices", [[2, 0], (2, 0), torch.tensor([2, 0]), np.array([2, 0])])
def test_subset_of_arrays(indices):
    images = three()
    part = images.subset(indices)
    assert torch.equal(part.images, images.images[[2, 0]])
    assert part.labels.tolist() == [9, 7]
    assert (part.name, part.note) == ("three", "a note")
    part.images.zero_()
    assert images.images.any()  # a copy


def test_subset_of_files(files):
    part = files.subset([2, 0])
    assert part.paths == ("sub/2.png", "sub/0.png")
    assert part.labels.tolist() == [6, 4]
    assert (part.name, part.note) == ("files", "a note")
    assert part.image(0).shape == (3, 4, 5)
    assert part.image(0).dtype == torch.uint8
    assert part.image(0).unique().tolist() == [20]
    assert len(files.subset([])) == 0
    assert repr(part) == "FileImages('files', 2 files)"


def test_sets_without_labels(files):
    assert ArrayImages("x", three().images).subset([0]).labels is None
    assert FileImages("x", files.root, files.paths).subset([0]).labels is None


def test_both_travel_to_workers(files):
    copy = pickle.loads(pickle.dumps(files))
    assert torch.equal(copy.image(1), files.image(1))
    assert torch.equal(pickle.loads(pickle.dumps(three())).images, three().images)


@pytest.mark.parametrize("index", [-1, 3])
def test_index_out_of_range(files, index):
    for images in (three(), files):
        with pytest.raises(IndexError, match=f"index must be from 0 to 2, got {index}"):
            images.image(index)


@pytest.mark.parametrize("indices", [[0, 3], [-1]])
def test_subset_out_of_range(files, indices):
    for images in (three(), files):
        with pytest.raises(IndexError, match=r"indices must be from 0 to 2, got values from"):
            images.subset(indices)


@pytest.mark.parametrize("indices", [torch.tensor([True, False, True]), torch.tensor([0.0, 1.0]), torch.tensor([[0]])])
def test_subset_needs_integers(files, indices):
    for images in (three(), files):
        with pytest.raises(ValueError, match=r"indices must be integers of shape \(M,\)"):
            images.subset(indices)


@pytest.mark.parametrize("images", [torch.zeros(2, 3, 4, 4), torch.zeros(3, 4, 4, dtype=torch.uint8), np.zeros((2, 3, 4, 4), np.uint8)])
def test_images_must_be_bytes_in_four_dimensions(images):
    with pytest.raises(ValueError, match=r"images must be a uint8 tensor \(N, C, H, W\)"):
        ArrayImages("x", images)


@pytest.mark.parametrize(
    "labels", [[1, 2, 3], torch.tensor([1, 2]), torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 2, 3], dtype=torch.int32)]
)
def test_labels_must_fit(files, labels):
    with pytest.raises(ValueError, match=r"labels must be None or an int64 tensor of shape \(3,\)"):
        ArrayImages("x", three().images, labels)
    with pytest.raises(ValueError, match=r"labels must be None or an int64 tensor of shape \(3,\)"):
        FileImages("x", files.root, files.paths, labels)


def test_semantic_mask_must_fit():
    assert repr(OODSource("x", three(), torch.tensor([True, False, True]))) == "OODSource('x', 3 images)"
    for mask in (torch.tensor([True]), torch.tensor([1, 0, 1])):
        with pytest.raises(ValueError, match=r"semantic_id must be a bool tensor of shape \(3,\)"):
            OODSource("x", three(), mask)
