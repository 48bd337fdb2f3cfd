"""The contract of a pipeline: the bits of a sample are a function of its image and its key, whatever else is in the batch."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import pytest
import torch

from pairgrad_paper.augment import PIPELINES, pipeline, sample_keys
from paper.tests.augment.samples import images

SMALL = [name for name, p in PIPELINES.items() if p.size < 224]
LARGE = [name for name, p in PIPELINES.items() if p.size == 224]


def batch(name: str, count: int, epoch: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    chosen = pipeline(name)
    sides = {8: (8, 8), 32: (32, 32), 224: (60, 75)}[chosen.size]
    return images(count, chosen.channels, *sides), sample_keys(1, epoch, torch.arange(count), "view-1")


def assert_same_bits(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert got.dtype == expected.dtype == torch.float32
    assert torch.equal(got.view(torch.int32), expected.view(torch.int32))


@pytest.mark.parametrize("name", SMALL)
def test_a_sample_has_its_bits_in_every_batch(name: str) -> None:
    chosen = pipeline(name)
    given, keys = batch(name, 64)
    together = chosen(given, keys)
    assert together.shape == (64, chosen.channels, chosen.size, chosen.size)
    assert together.isfinite().all()
    assert_same_bits(torch.cat([chosen(given[i : i + 1], keys[i : i + 1]) for i in range(0, 64, 4)]), together[::4])
    for size in (2, 7):
        parts = [chosen(given[i : i + size], keys[i : i + size]) for i in range(0, 64, size)]
        assert_same_bits(torch.cat(parts), together)
    order = torch.randperm(64)
    assert_same_bits(chosen(given[order], keys[order]), together[order])


@pytest.mark.parametrize("name", LARGE)
def test_a_large_sample_has_its_bits_in_every_batch(name: str) -> None:
    chosen = pipeline(name)
    given, keys = batch(name, 5)
    together = chosen(given, keys)
    assert_same_bits(torch.cat([chosen(given[i : i + 1], keys[i : i + 1]) for i in range(5)]), together)
    order = torch.tensor([3, 0, 4])
    assert_same_bits(chosen(given[order], keys[order]), together[order])


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_many_large_samples_have_their_bits_in_every_batch(name: str) -> None:
    """Enough of them to meet every operation of RandAugment, and images large enough to be resized one by one."""
    chosen = pipeline(name)
    given, keys = images(40, chosen.channels, 150, 130), sample_keys(1, 0, torch.arange(40), "view-1")
    together = chosen(given, keys)
    assert_same_bits(torch.cat([chosen(given[i : i + 1], keys[i : i + 1]) for i in range(40)]), together)
    order = torch.randperm(40)
    assert_same_bits(chosen(given[order], keys[order]), together[order])


@pytest.mark.parametrize("name", PIPELINES)
def test_call_is_after_of_prepare(name: str) -> None:
    chosen = pipeline(name)
    given, keys = batch(name, 3 if name in LARGE else 16)
    prepared = torch.stack([chosen.prepare(image, key) for image, key in zip(given, keys.tolist(), strict=True)])
    assert prepared.dtype == torch.uint8
    assert prepared.shape[2:] == (chosen.size, chosen.size)
    assert_same_bits(chosen.after(prepared, keys), chosen(given, keys))


@pytest.mark.parametrize("name", PIPELINES)
def test_random_says_whether_keys_matter(name: str) -> None:
    chosen = pipeline(name)
    given, keys = batch(name, 4)
    same = torch.equal(chosen(given, keys), chosen(given, keys + 1))
    assert same is not chosen.random
    assert chosen.random is not name.endswith("-test")


@pytest.mark.parametrize("name", ["patt-cifar-regular", "patt-cifar-contrast", "digits-contrast"])
def test_nothing_else_is_read_or_written(name: str) -> None:
    """Not the generators, not the images, and not the way the memory is laid out."""
    chosen = pipeline(name)
    given, keys = batch(name, 6)
    kept = given.clone()
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1]  # noqa: NPY002
    expected = chosen(given, keys)
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        again = chosen(given.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2), keys)
    finally:
        torch.set_num_threads(threads)
    assert_same_bits(again, expected)
    assert torch.equal(given, kept)
    torch.set_rng_state(states[0])
    chosen(given, keys)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert np.array_equal(states[2], np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.slow  # seconds for what torch imports the first time
@pytest.mark.parametrize("name", PIPELINES)
def test_the_host_reads_no_pixel(name: str) -> None:
    """On the device `meta` there are shapes but no values: whatever looked at one, and so would wait for a GPU, raises."""
    chosen = pipeline(name)
    given, keys = batch(name, 4)
    got = chosen(given.to("meta"), keys)
    assert (got.device.type, got.dtype) == ("meta", torch.float32)
    assert got.shape == (4, chosen.channels, chosen.size, chosen.size)


@pytest.mark.parametrize("name", ["patt-cifar-contrast", "imagenet-test", "digits-contrast", "patt-cifar-regular"])
def test_an_empty_batch(name: str) -> None:
    chosen = pipeline(name)
    given, keys = batch(name, 3)
    assert chosen(given[:0], keys[:0]).shape == (0, chosen.channels, chosen.size, chosen.size)
    assert chosen(given[:0], keys[:0]).dtype == torch.float32


# SHA-256 of 32 samples, first 16 digits. A change of these is a change of every run: say so under Numerics.
DIGESTS = {
    "patt-cifar-regular": "ed64d3ba69464bef",
    "patt-cifar-contrast": "96fa012e188c58b5",
    "patt-cifar-outliers": "1b05f265bbc1899e",
    "patt-cifar-calibration": "531b56b5a670aa61",
    "proco-cifar-regular": "920f6a84cbe004cc",
    "proco-cifar-contrast": "96fa012e188c58b5",
    "cifar-cpu-regular": "ed64d3ba69464bef",
    "cifar-test": "35693bc4419f420a",
    "digits-regular": "648397f31abca62c",
    "digits-contrast": "ba0d1ec5fe6675e4",
    "digits-outliers": "2dae0baad9b7c4f0",
    "digits-test": "76807231c45e4681",
}


@pytest.mark.parametrize("name", SMALL)
def test_bits_are_pinned(name: str) -> None:
    given, keys = batch(name, 32)
    assert hashlib.sha256(pipeline(name)(given, keys).numpy().tobytes()).hexdigest()[:16] == DIGESTS[name]


@pytest.mark.gpu
@pytest.mark.parametrize("name", PIPELINES)
def test_a_device_gives_the_bits_of_the_host(name: str, device: torch.device) -> None:
    given, keys = batch(name, 16)
    expected = pipeline(name)(given, keys)
    assert_same_bits(pipeline(name)(given.to(device), keys).cpu(), expected)
    assert_same_bits(pipeline(name)(given.to(device), keys.to(device)).cpu(), expected)
