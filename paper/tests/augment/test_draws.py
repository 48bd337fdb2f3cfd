"""Draws: the words are SplitMix64's, the laws are right, and a key's draws do not know the other keys."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from pairgrad_paper.augment import sample_keys
from pairgrad_paper.augment.draws import bells, integers, mix, permutations, step_keys, uniform, uniforms, words

FALSE_ALARM = 1e-6  # of each test of a law; the keys are fixed, so a test that passes once passes always
KEYS = sample_keys(5, 1, torch.arange(40_000), "laws")


def assert_uniform(counts: torch.Tensor) -> None:
    assert stats.chisquare(counts.double().numpy()).pvalue > FALSE_ALARM


def assert_independent(first: torch.Tensor, second: torch.Tensor, cells: int = 10) -> None:
    """Of two numbers in [0, 1) per key: a chi-square test of their joint law against the uniform one."""
    joint = (first * cells).long() * cells + (second * cells).long()
    assert_uniform(torch.bincount(joint, minlength=cells * cells))


def test_words_are_those_of_splitmix64() -> None:
    """The first outputs for the seed 1234567, as published with the generator."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    got = [int(words(torch.tensor([1234567]), slot)) % 2**64 for slot in range(5)]
    assert got == expected
    assert [int(w) % 2**64 for w in words(torch.tensor([1234567]), torch.arange(5))] == expected


def test_mix_is_the_one_of_whole_numbers() -> None:
    def mixed(word: int) -> int:
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
        return word ^ (word >> 31)

    given = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), 0x123456789ABCDEF, -987654321])
    assert [int(w) % 2**64 for w in mix(given)] == [mixed(int(w) % 2**64) for w in given]


def test_keys_are_pinned() -> None:
    """Runs are repeated from these numbers: a change of a single one is a change of every run."""
    assert sample_keys(0, 0, torch.arange(2), "view-1").tolist() == [-7785625183502976906, -5944118240459634479]
    assert sample_keys(2**63 - 1, 99, torch.tensor([10**12]), "outliers").tolist() == [-6782406081018000805]


def test_keys_are_a_function_of_each_index() -> None:
    indices = torch.randperm(1000)
    keys = sample_keys(3, 4, indices, "view-2")
    assert torch.equal(keys[17:18], sample_keys(3, 4, indices[17:18], "view-2"))
    assert torch.equal(keys.view(10, 100), sample_keys(3, 4, indices.view(10, 100), "view-2"))
    assert torch.equal(keys, sample_keys(3, 4, indices.int(), "view-2"))


def test_keys_differ_in_every_argument() -> None:
    indices = torch.arange(500)
    sets = [
        sample_keys(seed, epoch, indices, stream)
        for seed in (0, 1, 2**62, 2**63 - 1)
        for epoch in (0, 1, 2)
        for stream in ("view-1", "view-2", "outliers")
    ]
    assert torch.cat(sets).unique().numel() == len(sets) * 500


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((1, 0, "view-1", 0), (1, 0, "view-2", 0)),
        ((1, 0, "view-1", 0), (1, 1, "view-1", 0)),
        ((1, 0, "view-1", 0), (2, 0, "view-1", 0)),
        ((1, 0, "view-1", 0), (1, 0, "view-1", 1)),
    ],
    ids=["streams", "epochs", "seeds", "neighbours"],
)
def test_keys_give_independent_draws(first, second) -> None:
    draws = [uniform(sample_keys(s, e, torch.arange(40_000) + shift, stream), 0) for s, e, stream, shift in (first, second)]
    assert_independent(*draws)


def test_slots_and_steps_are_independent() -> None:
    assert_independent(uniform(KEYS, 0), uniform(KEYS, 1))
    assert_independent(uniform(step_keys(KEYS, 0), 0), uniform(step_keys(KEYS, 1), 0))
    assert_independent(uniform(step_keys(KEYS, 0), 1), uniform(step_keys(KEYS, 1), 0))


def test_uniform_is_uniform() -> None:
    draws = uniform(KEYS, 3)
    assert draws.dtype == torch.float64
    assert stats.kstest(draws.numpy(), "uniform").pvalue > FALSE_ALARM
    assert_uniform(torch.bincount((draws * 2**24).long() % 64, minlength=64))  # the lower bits too
    scaled = uniform(KEYS, 3, -2.0, 3.0)
    assert torch.equal(scaled, draws * 5 - 2)


def test_uniforms_are_uniform_by_slot() -> None:
    assert torch.equal(uniforms(KEYS[:50], 4, 3), torch.stack([uniform(KEYS[:50], slot) for slot in (4, 5, 6)], 1))


@pytest.mark.parametrize("count", [1, 2, 25, 1000])
def test_integers_are_uniform(count: int) -> None:
    draws = integers(KEYS, 0, count)
    assert draws.min() >= 0
    assert draws.max() < count
    if count > 1:
        assert_uniform(torch.bincount(draws, minlength=count))


def test_permutations_are_uniform() -> None:
    orders = permutations(KEYS, 0, 4)
    assert torch.equal(orders.sort(1).values, torch.arange(4).expand(len(KEYS), 4))
    codes = orders @ torch.tensor([64, 16, 4, 1])
    found, counts = codes.unique(return_counts=True)
    assert len(found) == 24
    assert_uniform(counts)


def test_bells_have_the_law_of_a_sum_of_four() -> None:
    draws = bells(KEYS[:2000], 0, 20)
    assert draws.shape == (2000, 20)
    summed = draws.double() / 3**0.5 + 2  # of four uniforms: of mean 2 and variance 1/3
    unit = sum((-1) ** k * math.comb(4, k) * (summed - k).clamp(min=0) ** 4 for k in range(5)) / 24  # its distribution function
    assert stats.kstest(unit.flatten().numpy(), "uniform").pvalue > FALSE_ALARM
    assert_independent(unit[:, ::2].flatten(), unit[:, 1::2].flatten())
    assert_independent(unit[::2].flatten(), unit[1::2].flatten())


def test_bells_are_sums_of_the_parts_of_a_word() -> None:
    key, slot, place = int(KEYS[7]), 3, 5
    word = int(words(words(torch.tensor([key]), slot), place)) % 2**64
    total = sum((word >> shift) & 0xFFFF for shift in (0, 16, 32, 48))
    exact = (total - 2 * 65535) / (4 * (65536**2 - 1) / 12) ** 0.5
    assert bells(KEYS[7:8], slot, 9)[0, place].item() == pytest.approx(exact, rel=2**-23)


def test_draws_do_not_know_the_batch() -> None:
    alone = KEYS[123:124]
    for draw in (lambda k: uniform(k, 1), lambda k: integers(k, 1, 9), lambda k: permutations(k, 1, 4), lambda k: bells(k, 1, 7)):
        assert torch.equal(draw(KEYS)[123:124], draw(alone))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((-1, 0, torch.arange(2), "v"), ValueError, "seed must be an integer >= 0"),
        ((2**63, 0, torch.arange(2), "v"), ValueError, r"seed must be an integer from 0 to 2\^63 - 1"),
        ((1.5, 0, torch.arange(2), "v"), TypeError, "seed"),
        ((0, -1, torch.arange(2), "v"), ValueError, "epoch must be an integer >= 0"),
        ((0, 0, torch.rand(2), "v"), TypeError, "indices must be a tensor of integers, got a float32"),
        ((0, 0, [1, 2], "v"), TypeError, "indices must be a tensor of integers"),
        ((0, 0, torch.arange(2), ""), TypeError, "stream must be a name"),
        ((0, 0, torch.arange(2), 1), TypeError, "stream must be a name"),
    ],
)
def test_bad_arguments_of_keys(arguments, error, message) -> None:
    with pytest.raises(error, match=message):
        sample_keys(*arguments)
