"""Outputs for a set of images: order, mode, chance, and files like arrays."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from pairgrad_paper.augment import pipeline, sample_keys
from pairgrad_paper.data import ArrayImages, FileImages
from pairgrad_paper.evaluation import predict
from pairgrad_paper.models import build

from .small import digits, network

TEST = pipeline("digits-test")


def some(count: int = 23) -> ArrayImages:
    return digits().test.subset(range(count))  # pyright: ignore[reportReturnType]


def test_logits_and_the_classifiers_input() -> None:
    net, images = network(head=(8, 4), normalize=True).eval(), some()
    found = predict(net, images, TEST)
    keys = sample_keys(0, 0, torch.arange(23), "evaluation")
    with torch.no_grad():
        outputs = net(TEST(images.images, keys))
    assert torch.equal(found.logits, outputs.logits)
    assert torch.equal(found.features, outputs.backbone)
    assert not found.logits.requires_grad


def test_batches_and_order() -> None:
    net, images = network(), some()
    whole = predict(net, images, TEST)
    order = torch.tensor([5, 5, 22, 0, 7])
    for size in (1, 2, 23, 100):
        torch.testing.assert_close(predict(net, images, TEST, batch_size=size), whole)
        picked = predict(net, images, TEST, indices=order, batch_size=size)
        torch.testing.assert_close(picked.logits, whole.logits[order])
        torch.testing.assert_close(picked.features, whole.features[order])


def test_every_image_is_counted() -> None:
    done: list[int] = []
    predict(network(), some(), TEST, batch_size=10, tick=done.append)
    assert done == [10, 10, 3]


def test_the_network_is_left_as_it_was() -> None:
    net = network().train()
    net.backbone.stem.eval()  # somebody froze its statistics
    modes = [part.training for part in net.modules()]
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    predict(net, some(), TEST)
    assert [part.training for part in net.modules()] == modes
    assert all(torch.equal(tensor, state[name]) for name, tensor in net.state_dict().items())  # also the running means
    assert True in modes
    assert False in modes


def test_the_mode_comes_back_after_an_error() -> None:
    net = network().train()
    with pytest.raises(ValueError, match=r"images must have shape \(B, 3, H, W\)"):
        predict(net, some(), pipeline("cifar-test"))
    assert net.training
    assert net.backbone.training


def test_chance_follows_from_the_seed() -> None:
    net, images, view = network(), some(), pipeline("digits-contrast")
    first = predict(net, images, view, seed=1)
    torch.manual_seed(0)
    assert torch.equal(predict(net, images, view, seed=1).features, first.features)
    assert not torch.equal(predict(net, images, view, seed=2).features, first.features)
    torch.testing.assert_close(predict(net, images, view, seed=1, batch_size=4), first)
    # the draw belongs to the place: an image that is drawn twice is seen in two ways
    twice = predict(net, images, view, seed=1, indices=torch.tensor([3, 3])).features
    assert not torch.equal(twice[0], twice[1])


def test_files_are_seen_like_arrays(tmp_path: Path) -> None:
    pixels = torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8)
    names = tuple(f"{number}.png" for number in range(5))
    for name, image in zip(names, pixels, strict=True):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / name)
    files, arrays = FileImages("files", tmp_path, names), ArrayImages("arrays", pixels)
    net = build("tiny8", 3, channels=3, seed=0)
    for view in (pipeline("cifar-test"), pipeline("patt-cifar-calibration")):
        for indices in (None, torch.tensor([4, 0, 0])):
            expected = predict(net, arrays, view, indices=indices, batch_size=2, seed=3)
            assert all(map(torch.equal, predict(net, files, view, indices=indices, batch_size=2, seed=3), expected))


def test_in_the_dtype_of_the_network() -> None:
    net, images = network(), some()
    single, double = predict(net, images, TEST), predict(net.double(), images, TEST)
    assert double.logits.dtype == double.features.dtype == torch.float64
    torch.testing.assert_close(single.logits.double(), double.logits, rtol=1e-4, atol=1e-5)  # float32 through six layers


def test_what_it_refuses() -> None:
    with pytest.raises(ValueError, match=r"images must hold at least one image to look at, got none of the 23 of "):
        predict(network(), some(), TEST, indices=torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="batch_size must be"):
        predict(network(), some(), TEST, batch_size=0)
