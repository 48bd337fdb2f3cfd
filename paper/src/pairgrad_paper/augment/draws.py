"""Random numbers that are functions of a key and a counter: no generator, no state, the same bits on every device.

The mixer is that of SplitMix64 (Steele, Lea and Flood, 2014), on int64 tensors whose products and sums wrap around. A 64-bit key names a sample at an
epoch in a stream; a counter, the slot, names the draw. Nothing depends on which other keys stand in the tensor.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from pairgrad.ground import describe, integer_at_least

_WEYL = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, odd: the step from one counter to the next
_STEP = 0xD1B54A32D192ED03  # another odd number: from one step of a pipeline to the next, so that the two ladders do not meet
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = 1 << 64


def _signed(word: int) -> int:
    """The int64 with the same 64 bits as `word`."""
    word %= _WORD
    return word - _WORD if word >= _WORD // 2 else word


def _shifted(words: torch.Tensor, places: int) -> torch.Tensor:
    """`words` >> `places` with zeros coming in; torch's own shift of int64 repeats the sign."""
    return (words >> places) & ((1 << (64 - places)) - 1)


def mix(words: torch.Tensor) -> torch.Tensor:
    """SplitMix64's finaliser, a bijection of 64-bit words: int64 in, int64 out."""
    words = (words ^ _shifted(words, 30)) * _signed(_FIRST)
    words = (words ^ _shifted(words, 27)) * _signed(_SECOND)
    return words ^ _shifted(words, 31)


def _mixed(word: int) -> int:
    """`mix` of one Python integer in [0, 2**64)."""
    word %= _WORD
    word = (word ^ (word >> 30)) * _FIRST % _WORD
    word = (word ^ (word >> 27)) * _SECOND % _WORD
    return word ^ (word >> 31)


def sample_keys(seed: int, epoch: int, indices: torch.Tensor, stream: str) -> torch.Tensor:
    """The keys of samples: int64 of the shape and on the device of `indices`, a function of the four arguments alone.

    Within one (seed, epoch, stream), different indices have different keys.

    Args:
        seed: of the run, in [0, 2**63).
        epoch: >= 0.
        indices: (B,), integers, which samples of the data set.
        stream: what the keys are for, such as `"view-1"` or `"outliers"`. Draws of different streams are independent.

    Examples:
        >>> import torch
        >>> sample_keys(3407, 0, torch.tensor([8, 9]), "view-1")
        tensor([8031931958797956528, 8578741394700367482])
        >>> sample_keys(3407, 0, torch.tensor([9]), "view-1")
        tensor([8578741394700367482])
    """
    seed = integer_at_least("seed", seed, 0)
    epoch = integer_at_least("epoch", epoch, 0)
    if not isinstance(stream, str) or not stream:
        raise TypeError(f"stream must be a name such as 'view-1', got {describe(stream)}")
    if not isinstance(indices, torch.Tensor) or indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
        raise TypeError(f"indices must be a tensor of integers, got {describe(indices)}: e.g. torch.arange(128)")
    name = int.from_bytes(hashlib.blake2b(stream.encode(), digest_size=8).digest(), "big")
    state = _mixed(_mixed(_mixed(seed + _WEYL) ^ name) + (epoch + 1) * _WEYL)
    return mix(indices.long() * _signed(_STEP) + _signed(state))


def step_keys(keys: torch.Tensor, position: int) -> torch.Tensor:
    """Keys for the draws of the step at `position` in a pipeline."""
    return mix(keys + _signed((position + 1) * _STEP))


def words(keys: torch.Tensor, slots: int | torch.Tensor) -> torch.Tensor:
    """64 random bits for each key and slot: int64 of the shape that `keys` and `slots` broadcast to."""
    if isinstance(slots, int):
        return mix(keys + _signed((slots + 1) * _WEYL))
    return mix(keys + (slots + 1) * _signed(_WEYL))


def uniform(keys: torch.Tensor, slot: int, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
    """Uniform on [low, high): float64 of the shape of `keys`, of 53 bits when the interval is [0, 1)."""
    unit = _shifted(words(keys, slot), 11).double() * 2.0**-53
    return unit if (low, high) == (0.0, 1.0) else unit * (high - low) + low


def uniforms(keys: torch.Tensor, first: int, count: int) -> torch.Tensor:
    """(B, count): `uniform(keys, slot)` for the slots first, ..., first + count - 1."""
    slots = torch.arange(first, first + count, device=keys.device)
    return _shifted(words(keys.unsqueeze(-1), slots), 11).double() * 2.0**-53


def integers(keys: torch.Tensor, slot: int, count: int) -> torch.Tensor:
    """Uniform on 0, ..., count - 1, for count < 2**31: int64 of the shape of `keys`. No value is off its probability by more than 2**-32."""
    return (_shifted(words(keys, slot), 32) * count) >> 32


def permutations(keys: torch.Tensor, slot: int, count: int) -> torch.Tensor:
    """(B, count): an order of 0, ..., count - 1 for each key; it uses the slots slot, ..., slot + count - 1."""
    slots = torch.arange(slot, slot + count, device=keys.device)
    return words(keys.unsqueeze(-1), slots).argsort(dim=-1, stable=True)


def bells(keys: torch.Tensor, slot: int, count: int) -> torch.Tensor:
    """(B, count): numbers of mean 0 and variance 1 with a bell-shaped law, float32, exact on every device.

    Each is the centred sum of the four 16-bit parts of a random word, so it stays within 3.47 and needs no logarithm, whose last bit may differ
    between a vectorised loop and its tail.
    """
    each = words(keys, slot).unsqueeze(-1)
    drawn = words(each, torch.arange(count, device=keys.device))
    total = sum((_shifted(drawn, 16 * part) if part else drawn) & 0xFFFF for part in range(4))
    assert isinstance(total, torch.Tensor)
    return (2 * total - 4 * 0xFFFF).float() * (2 * 4 * (65536**2 - 1) / 6) ** -0.5


def checked_keys(keys: Any, count: int) -> torch.Tensor:
    """`keys` on the host, where all parameters are drawn, if they are `count` keys."""
    if not isinstance(keys, torch.Tensor) or keys.dtype != torch.int64 or keys.shape != (count,):
        raise ValueError(
            f"keys must be an int64 tensor of shape ({count},), one key per image, got {describe(keys)}: make them with sample_keys"
        )
    return keys.cpu()
