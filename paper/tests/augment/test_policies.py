"""The policies: which operations they choose, how often, and how strong."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
import torch
from scipy import stats

from pairgrad_paper.augment import AutoAugmentCIFAR10, RandAugment, policies, sample_keys
from pairgrad_paper.augment.operations import OPERATIONS, Action
from pairgrad_paper.augment.policies import CIFAR10_POLICY, RANDAUGMENT_OPERATIONS
from paper.tests.augment.samples import images

FALSE_ALARM = 1e-6
KEYS = sample_keys(6, 0, torch.arange(20_000), "policies")


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch):
    """The actions that a step asks for, one list for each of its turns, without doing them."""

    def run(step, keys: torch.Tensor) -> list[list[Action | None]]:
        turns: list[list[Action | None]] = []

        def record(given, actions, fill):
            turns.append(list(actions))
            return given

        monkeypatch.setattr(policies, "perform", record)
        step(torch.zeros(len(keys), 3, 1, 1, dtype=torch.uint8), keys)
        return turns

    return run


def test_the_policy_is_the_published_one() -> None:
    """Its 25 pairs, checked against public tables of it when they were written; here, what would give a slip away."""
    assert len(CIFAR10_POLICY) == 25
    used = Counter(name for pair in CIFAR10_POLICY for name, _, _ in pair)
    assert used == {
        "Equalize": 9,
        "AutoContrast": 7,
        "Color": 5,
        "Sharpness": 5,
        "TranslateY": 5,
        "Brightness": 4,
        "Solarize": 4,
        "Invert": 3,
        "Contrast": 2,
        "ShearY": 2,
        "TranslateX": 2,
        "Posterize": 1,
        "Rotate": 1,
    }
    assert sum(p for pair in CIFAR10_POLICY for _, p, _ in pair) == pytest.approx(26.5)
    assert sum(m for pair in CIFAR10_POLICY for _, _, m in pair) == 267
    assert hashlib.sha256(repr(CIFAR10_POLICY).encode()).hexdigest()[:16] == "0b17beee82299026"


@pytest.mark.parametrize(
    ("name", "magnitude", "sign", "expected"),
    [
        ("ShearY", 9, 1, Action("ShearY", 0.3, "bicubic")),
        ("ShearX", 3, -1, Action("ShearX", -0.1, "bicubic")),
        ("TranslateX", 9, -1, Action("TranslateX", -150 / 331)),
        ("TranslateY", 0, 1, Action("TranslateY", 0.0)),
        ("Rotate", 2, -1, Action("Rotate", 20 / 3)),
        ("Color", 9, 1, Action("Color", 1.9)),
        ("Contrast", 6, -1, Action("Contrast", 0.4)),
        ("Sharpness", 1, 1, Action("Sharpness", 1.1)),
        ("Brightness", 3, -1, Action("Brightness", 0.7)),
        ("Posterize", 7, 1, Action("Posterize", 5)),
        ("Posterize", 0, 1, Action("Posterize", 8)),
        ("Posterize", 9, 1, Action("Posterize", 4)),
        ("Solarize", 2, 1, Action("Solarize", 256 * 7 / 9)),
        ("Solarize", 9, 1, Action("Solarize", 0.0)),
        ("Invert", 7, -1, Action("Invert")),
        ("Equalize", 2, 1, Action("Equalize")),
        ("AutoContrast", 8, 1, Action("AutoContrast")),
    ],
)
def test_magnitudes_of_autoaugment(name: str, magnitude: int, sign: int, expected: Action) -> None:
    got = AutoAugmentCIFAR10.action(name, magnitude, sign)
    assert (got.name, got.interpolation) == (expected.name, expected.interpolation)
    assert got.value == pytest.approx(expected.value, abs=1e-12)


def test_autoaugment_follows_its_table(chosen) -> None:
    """How often each operation is done at each turn, over all sub-policies: the exact binomial law."""
    for turn, actions in enumerate(chosen(AutoAugmentCIFAR10(), KEYS)):
        done = Counter(action.name for action in actions if action is not None)
        for name in OPERATIONS:
            probability = sum(p for pair in CIFAR10_POLICY for n, p, _ in pair[turn : turn + 1] if n == name) / 25
            if probability == 0:
                assert done[name] == 0
            else:
                assert stats.binomtest(done[name], len(KEYS), probability).pvalue > FALSE_ALARM, (turn, name)


def test_autoaugment_does_pairs_and_signs(chosen) -> None:
    first, second = chosen(AutoAugmentCIFAR10(), KEYS)
    pairs = {(a[0], b[0]) for a, b in CIFAR10_POLICY}
    both = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    assert {(a.name, b.name) for a, b in both} == pairs - {("Solarize", "Invert")}  # whose Invert has probability 0
    expected = sum(a[1] * b[1] for a, b in CIFAR10_POLICY) / 25
    assert stats.binomtest(len(both), len(KEYS), expected).pvalue > FALSE_ALARM
    shifts = [(a.value > 0, b.value > 0) for a, b in both if a.name == b.name == "TranslateY"]
    assert stats.chisquare(list(Counter(shifts).values())).pvalue > FALSE_ALARM
    assert len(Counter(shifts)) == 4
    turns = {a.value for a in first if a is not None and a.name == "Rotate"}
    assert list(turns) == pytest.approx([20 / 3])  # one value: never clockwise


def test_autoaugment_changes_images_as_it_says() -> None:
    given, keys = images(60), KEYS[:60]
    got = AutoAugmentCIFAR10()(given, keys)
    unchanged = (got == given).flatten(1).all(1)
    assert 0 < unchanged.sum() < 40


@pytest.mark.parametrize(
    ("name", "magnitude", "sign", "bilinear", "expected"),
    [
        ("Rotate", 10, -1, True, Action("Rotate", -30, "bilinear")),
        ("ShearX", 10, 1, False, Action("ShearX", 0.3, "bicubic")),
        ("TranslateY", 9, 1, False, Action("TranslateY", 0.405, "bicubic")),
        ("Color", 10, -1, False, Action("Color", 1.9)),
        ("Sharpness", 0, 1, False, Action("Sharpness", 0.1)),
        ("Posterize", 10, 1, False, Action("Posterize", 4)),
        ("Posterize", 9.9, 1, False, Action("Posterize", 3)),
        ("Solarize", 10, 1, False, Action("Solarize", 256)),
        ("Solarize", 9.5, 1, False, Action("Solarize", 243)),
        ("SolarizeAdd", 9.5, 1, False, Action("SolarizeAdd", 104)),
        ("Invert", 9.5, 1, False, Action("Invert")),
    ],
)
def test_magnitudes_of_randaugment(name: str, magnitude: float, sign: int, bilinear: bool, expected: Action) -> None:
    got = RandAugment.action(name, magnitude, sign, bilinear)
    assert (got.name, got.interpolation) == (expected.name, expected.interpolation)
    assert got.value == pytest.approx(expected.value, abs=1e-12)


def test_randaugment_draws_with_replacement_and_half_the_time(chosen) -> None:
    turns = chosen(RandAugment(), KEYS)
    assert len(turns) == 2
    for actions in turns:
        done = Counter(action.name for action in actions if action is not None)
        assert set(done) == set(RANDAUGMENT_OPERATIONS)
        assert stats.chisquare(list(done.values())).pvalue > FALSE_ALARM
        assert stats.binomtest(sum(done.values()), len(KEYS), 0.5).pvalue > FALSE_ALARM
    both = [a.name == b.name for a, b in zip(*turns, strict=True) if a is not None and b is not None]
    assert stats.binomtest(len(both), len(KEYS), 1 / 4).pvalue > FALSE_ALARM
    assert stats.binomtest(sum(both), len(both), 1 / 15).pvalue > FALSE_ALARM
    kinds = Counter(a.interpolation for a in turns[0] if a is not None and a.name == "Rotate")
    assert stats.chisquare(list(kinds.values())).pvalue > FALSE_ALARM


def test_randaugment_magnitudes_are_normal_and_clipped(chosen) -> None:
    actions = chosen(RandAugment(count=1, magnitude=5, deviation=2), KEYS)[0]
    turns = torch.tensor([action.value for action in actions if action is not None and action.name == "Rotate"])
    magnitudes = turns.abs() / 3
    expected = stats.truncnorm(-2.5, 2.5, loc=5, scale=2)  # clipped at 0 and 10, which happens in 1.2 % of draws
    inner = magnitudes[(magnitudes > 0) & (magnitudes < 10)]
    assert stats.kstest(inner.numpy(), expected.cdf).pvalue > FALSE_ALARM
    assert stats.binomtest(int((turns > 0).sum()), len(turns)).pvalue > FALSE_ALARM
    published = chosen(RandAugment(count=1), KEYS)[0]
    factors = torch.tensor([action.value for action in published if action is not None and action.name == "Color"])
    assert factors.max() == pytest.approx(1.9)  # half of the draws of N(10, 0.5) are clipped to 10
    assert stats.binomtest(int((factors > 1.8999).sum()), len(factors)).pvalue > FALSE_ALARM
