"""A batch is a function of its number."""

import dataclasses

import pytest
import torch

from pairgrad_paper.data import ArrayImages, DataError
from pairgrad_paper.training import Batches, Process, ProcessError
from paper.tests.training.small import digits, recipe

CPU = torch.device("cpu")


def batches(*settings, seed=1, process=None, benchmark=None):
    return Batches(digits() if benchmark is None else benchmark, recipe("patt", *settings), seed, CPU, process)


def same(first, second):
    return (
        first.step == second.step
        and torch.equal(first.indices, second.indices)
        and torch.equal(first.labels, second.labels)
        and all(map(torch.equal, first.views, second.views))
        and torch.equal(first.outliers, second.outliers)
    )


def test_a_batch_has_three_views_and_outliers_of_one_shape():
    batch = batches().batch(3)
    assert [tuple(view.shape) for view in batch.views] == [(32, 1, 8, 8)] * 3
    assert batch.outliers.shape == (16, 1, 8, 8)
    assert torch.equal(batch.labels, digits().train.labels[batch.indices])
    assert not torch.equal(batch.views[1], batch.views[2])


def test_a_stream_that_starts_late_gives_the_same_batches():
    subject = batches()
    whole = list(subject.stream(0, 12))
    late = list(batches().stream(7, 12))
    assert [batch.step for batch in late] == list(range(7, 12))
    assert all(map(same, whole[7:], late))
    assert same(whole[9], batches().batch(9))


def test_an_epoch_shows_every_image_once_and_drops_the_rest():
    subject = batches()
    assert subject.per_epoch == len(digits().train) // 32
    for epoch in (0, 1):
        seen = torch.cat([subject.indices(epoch * subject.per_epoch + k) for k in range(subject.per_epoch)])
        assert len(seen.unique()) == len(seen) == subject.per_epoch * 32
    assert not torch.equal(subject.indices(0), subject.indices(subject.per_epoch))


def test_seeds_and_epochs_give_other_orders_and_other_augmentations():
    one, other = batches(seed=1), batches(seed=2)
    assert not torch.equal(one.indices(0), other.indices(0))
    everything = recipe("patt", f"batch_size={len(digits().train)}")
    subject = Batches(digits(), everything, 1, CPU)
    first, second = subject.batch(0), subject.batch(1)  # two epochs of one batch: the same images
    back = [view[batch.indices.argsort()] for batch, view in ((first, first.views[0]), (second, second.views[0]))]
    assert not torch.equal(*back)


def test_processes_share_a_batch():
    whole = batches().batch(5)
    parts = [batches(process=Process(rank, 4)).batch(5) for rank in range(4)]
    assert torch.equal(torch.cat([part.indices for part in parts]), whole.indices)
    assert torch.equal(torch.cat([part.outliers for part in parts]), whole.outliers)
    for view in range(3):
        assert torch.equal(torch.cat([part.views[view] for part in parts]), whole.views[view])


def test_a_batch_that_processes_cannot_share():
    with pytest.raises(ProcessError, match="batch_size must be a multiple of the 3 processes, got 32"):
        batches(process=Process(0, 3))


def test_few_outliers_are_gone_through_again_in_another_order():
    few = dataclasses.replace(digits(), outliers=digits().outliers.subset(range(24)))
    subject = batches(benchmark=few)
    shown = torch.cat([subject.outlier_indices(step) for step in range(subject.per_epoch)])  # 8 batches of 16 of 24
    laps = shown[:120].reshape(5, 24)
    assert all(len(lap.unique()) == 24 for lap in laps)
    assert not torch.equal(laps[0], laps[1])
    # the same outlier in another batch of an epoch is another draw
    images = [subject.batch(step) for step in range(3)]
    places = [(subject.outlier_indices(step) == int(laps[0][0])).nonzero() for step in range(3)]
    draws = [batch.outliers[int(place[0])] for batch, place in zip(images, places, strict=True) if len(place)]
    assert len(draws) >= 2
    assert not torch.equal(draws[0], draws[1])


def test_what_is_missing_is_said():
    with pytest.raises(DataError, match="a batch of 300 is larger than the 286 training images"):
        batches("batch_size=300")
    bare = dataclasses.replace(digits(), outliers=None)
    with pytest.raises(DataError, match="exposes outliers, and none were found"):
        batches(benchmark=bare)
    assert batches("outlier_batch_size=0", benchmark=bare).batch(0).outliers is None


class _Files:
    """Images behind the interface of files: they have to be prepared one by one."""

    def __init__(self, images: ArrayImages) -> None:
        self._images = images
        self.name, self.labels, self.note = images.name, images.labels, ""

    def __len__(self) -> int:
        return len(self._images)

    def image(self, index: int) -> torch.Tensor:
        return self._images.image(index)


def test_images_that_come_one_by_one_are_prepared_and_then_go_the_same_way():
    files = dataclasses.replace(digits(), train=_Files(digits().train))
    assert same(batches(benchmark=files).batch(2), batches().batch(2))


@pytest.mark.slow
def test_other_processes_read_ahead():
    files = dataclasses.replace(digits(), train=_Files(digits().train))
    subject = Batches(files, recipe(), 1, CPU, workers=2)
    assert all(map(same, subject.stream(3, 9), batches().stream(3, 9)))


def test_reading_draws_nothing_from_the_global_generator():
    """It belongs to the network, and a run that is taken up again starts reading once more than one that is not."""
    before = torch.get_rng_state()
    next(batches().stream(0, 1))
    assert torch.equal(torch.get_rng_state(), before)
