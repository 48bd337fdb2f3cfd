"""The networks: sizes that are known, strides, what the seed decides, and what it leaves alone."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from torch import nn

from pairgrad_paper.models import BACKBONES, CLASSIFIERS, Network, build
from pairgrad_paper.models.network import CosineClassifier
from pairgrad_paper.models.residual import BasicBlock, Bottleneck, PaddedShortcut, ResidualNetwork


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@cache
def made(backbone: str, num_classes: int = 10) -> Network:
    """One of each is enough for what does not change it."""
    return build(backbone, num_classes).eval()


def convolution(part: nn.Module | torch.Tensor) -> torch.Tensor:
    """The weight of the convolution that a part of a block begins with."""
    assert isinstance(part, nn.Sequential)
    first = part[0]
    assert isinstance(first, nn.Conv2d)
    return first.weight


# Of the public implementations of the same networks.
PARAMETERS = {
    ("resnet18", 10): 11_173_962,
    ("resnet32", 10): 464_154,
    ("resnet50", 1000): 25_557_032,
    ("resnext50", 1000): 25_028_904,
}


@pytest.mark.parametrize(("backbone", "num_classes"), PARAMETERS)
def test_number_of_parameters(backbone: str, num_classes: int) -> None:
    assert count(made(backbone, num_classes)) == PARAMETERS[backbone, num_classes]


def test_heads_add_their_parameters() -> None:
    plain = count(build("resnet32", 100))
    assert count(build("resnet32", 100, head=(512, 128))) == plain + 64 * 512 + 512 + 2 * 512 + 512 * 128 + 128
    assert count(build("resnet32", 100, classifier="cosine")) == plain - 100  # no bias
    assert count(build("resnet32", 100, channels=1)) == plain - 2 * 16 * 9


@pytest.mark.parametrize(
    ("backbone", "size", "width", "pixels"),
    [
        ("resnet18", 32, 512, 4),
        ("resnet32", 32, 64, 8),
        ("resnet50", 64, 2048, 2),
        ("resnext50", 64, 2048, 2),
        ("small32", 32, 512, 4),
        ("tiny8", 8, 128, 4),
    ],
)
def test_shapes_and_strides(backbone: str, size: int, width: int, pixels: int) -> None:
    classes = 1000 if size == 64 else 10
    network = made(backbone, classes)
    images = torch.zeros(1, 3, size, size)
    assert network.backbone.stages(network.backbone.stem(images)).shape == (1, width, pixels, pixels)
    outputs = network(images)
    assert outputs.logits.shape == (1, classes)
    assert outputs.features.shape == outputs.backbone.shape == (1, width)
    assert network.dim == network.backbone.width == width


def test_every_backbone_is_covered() -> None:
    assert set(BACKBONES) == {"resnet18", "resnet32", "resnet50", "resnext50", "small32", "tiny8"}
    assert CLASSIFIERS == ("linear", "cosine")


def strides(block: nn.Module) -> dict[str, int]:
    return {name: part.stride[0] for name, part in block.named_modules() if isinstance(part, nn.Conv2d) and part.stride[0] > 1}


def test_a_bottleneck_strides_in_its_3x3_convolution() -> None:
    block = Bottleneck(256, 128, 2, groups=32, group_width=4)
    assert strides(block) == {"second.0": 2, "shortcut.0": 2}
    grouped = [part for part in block.modules() if isinstance(part, nn.Conv2d) and part.groups == 32]
    assert [part.weight.shape for part in grouped] == [(256, 8, 3, 3)]


def test_only_the_first_block_of_a_later_stage_strides() -> None:
    for name, classes in (("resnet18", 10), ("resnet32", 10), ("resnet50", 1000)):
        for number, stage in enumerate(made(name, classes).backbone.stages):
            first, *others = stage.children()
            assert bool(strides(first)) == (number > 0), name
            assert not any(map(strides, others)), name


def test_a_basic_block_by_hand() -> None:
    block = BasicBlock(2, 2, 1).eval()
    x = torch.randn(1, 2, 4, 4)
    scale = 1 / math.sqrt(1 + 1e-5)  # of a batch norm that has seen nothing
    inner = torch.relu(scale * nn.functional.conv2d(x, convolution(block.first), padding=1))
    expected = torch.relu(scale * nn.functional.conv2d(inner, convolution(block.second), padding=1) + x)
    torch.testing.assert_close(block(x), expected)


def test_a_bottleneck_by_hand() -> None:
    block = Bottleneck(8, 2, 1).eval()
    x = torch.randn(2, 8, 4, 4)
    scale = 1 / math.sqrt(1 + 1e-5)
    inner = torch.relu(scale * nn.functional.conv2d(x, convolution(block.first)))
    inner = torch.relu(scale * nn.functional.conv2d(inner, convolution(block.second), padding=1))
    torch.testing.assert_close(block(x), torch.relu(scale * nn.functional.conv2d(inner, convolution(block.third)) + x))
    assert isinstance(block.shortcut, nn.Identity)


def test_a_padded_shortcut() -> None:
    x = torch.arange(2 * 16.0).view(1, 2, 4, 4)
    out = PaddedShortcut(2, 6, 2)(x)
    assert out.shape == (1, 6, 2, 2)
    assert torch.equal(out[:, 2:4], x[:, :, ::2, ::2])
    assert not out[:, :2].any()
    assert not out[:, 4:].any()
    assert torch.equal(PaddedShortcut(2, 2, 1)(x), x)
    assert PaddedShortcut(2, 5, 1)(x).shape[1] == 5  # an odd number of new channels


def test_the_backbone_averages_over_pixels_that_are_not_negative() -> None:
    for name in ("resnet32", "small32", "tiny8"):
        network = build(name, 3, seed=0).eval()
        images = torch.randn(2, 3, 16, 16)
        features = network.backbone(images)
        assert (features >= 0).all(), name
        pixels = network.backbone.stages(network.backbone.stem(images))
        torch.testing.assert_close(features, pixels.flatten(2).sum(2) / pixels[0, 0].numel())


def test_features_of_the_vmf_term() -> None:
    images = torch.randn(4, 1, 8, 8)
    plain = build("tiny8", 3, channels=1, seed=0)(images)
    assert torch.equal(plain.features, plain.backbone)
    head = build("tiny8", 3, channels=1, head=(6, 5), seed=0)
    raw = head(images)
    assert torch.equal(raw.features, head.head(raw.backbone))
    assert torch.equal(raw.logits, head.classifier(raw.backbone))  # the classifier never sees the projection
    assert head.dim == raw.features.shape[1] == 5
    unit = build("tiny8", 3, channels=1, head=(6, 5), normalize=True, seed=0)(images)
    torch.testing.assert_close(unit.features.norm(dim=1), torch.ones(4))
    torch.testing.assert_close(unit.features, nn.functional.normalize(raw.features, dim=1))
    assert torch.equal(unit.backbone, raw.backbone)  # the classifier's input is not scaled


def test_the_cosine_classifier() -> None:
    classifier = CosineClassifier(5, 3)
    features = 10 * torch.randn(64, 5)
    logits = classifier(features)
    expected = 30 * nn.functional.cosine_similarity(features[:, None], classifier.weight[None], dim=2)
    torch.testing.assert_close(logits, expected)
    assert logits.abs().max() <= 30 * (1 + 1e-6)
    torch.testing.assert_close(classifier(classifier.weight.detach()).diagonal(), torch.full((3,), 30.0))
    torch.testing.assert_close(classifier(7 * features), logits)
    with torch.no_grad():
        classifier.weight.mul_(3)
    torch.testing.assert_close(classifier(features), logits)


@pytest.mark.parametrize("name", ["resnet18", "resnet32", "tiny8"])
def test_initial_weights_of_convolutions(name: str) -> None:
    """As in the public code: PATT's ResNet18 keeps torch's, ProCo's ResNet32 has fan-in, the others fan-out."""
    network = made(name).backbone
    for where, part in network.named_modules():
        if not isinstance(part, nn.Conv2d) or part.weight.numel() < 4000:
            continue
        fan_in, fan_out = part.weight[0].numel(), part.weight.shape[0] * part.kernel_size[0] ** 2
        variance = {"resnet18": 1 / (3 * fan_in), "resnet32": 2 / fan_in, "tiny8": 2 / fan_out}[name]
        if name == "tiny8" and where == "stages.2.0":
            continue  # the last convolution is torch's
        weight = part.weight.detach()
        # The variance of n normal numbers is known to sqrt(2 / n) of itself; six of those.
        assert float(weight.var()) == pytest.approx(variance, rel=6 * math.sqrt(2 / weight.numel())), where
        if name == "resnet18":
            assert weight.abs().max() <= 1 / math.sqrt(fan_in)


def test_initial_weights_of_normalisations() -> None:
    for part in build("small32", 10, head=(4, 4), seed=0).modules():
        if isinstance(part, (nn.BatchNorm2d, nn.BatchNorm1d)):
            assert (part.weight == 1).all()  # also the last of a block: residual branches do not begin at zero
            assert (part.bias == 0).all()


def test_an_unknown_initialization() -> None:
    with pytest.raises(ValueError, match=r"initialization must be one of 'fan-out', 'fan-in', 'torch', got 'zero'"):
        ResidualNetwork(nn.Identity(), 3, BasicBlock, (1,), (4,), initialization="zero")


def test_equal_seeds_give_equal_weights_and_leave_chance_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("the random numbers of a GPU were seeded")

    monkeypatch.setattr(torch.cuda, "manual_seed_all", refused)
    before = torch.get_rng_state()
    options = {"head": (8, 4), "classifier": "cosine"}
    first, second, other = (build("tiny8", 5, **options, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert first.keys() == second.keys() == other.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    drawn = [name for name in first if first[name].is_floating_point() and first[name].unique().numel() > 1]
    assert len(drawn) >= 9
    assert not any(torch.equal(first[name], other[name]) for name in drawn)


def test_without_a_seed_the_global_one_counts() -> None:
    torch.manual_seed(5)
    first = build("tiny8", 5).classifier.weight
    second = build("tiny8", 5).classifier.weight
    torch.manual_seed(5)
    again = build("tiny8", 5).classifier.weight
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert torch.equal(build("tiny8", 5, seed=5).classifier.weight, first)


def test_what_build_refuses() -> None:
    with pytest.raises(ValueError, match=r"backbone must be one of 'resnet18', .*, got 'resnet19'"):
        build("resnet19", 10)
    with pytest.raises(ValueError, match=r"classifier must be one of 'linear', 'cosine', got 'euclidean'"):
        build("tiny8", 10, classifier="euclidean")
    with pytest.raises(ValueError, match=r"num_classes must be .* 2.*, got 1"):
        build("tiny8", 1)
