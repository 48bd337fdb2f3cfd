"""Every random number of a run comes from its seed and from what it is for, so that nothing has to be replayed to get there again."""

from __future__ import annotations

import hashlib

import torch


def stream_seed(seed: int, *purpose: object) -> int:
    """A seed below 2**63 for one purpose: of the same seed, different ones are unrelated."""
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: object) -> torch.Generator:
    """On the CPU: what is drawn is the same whatever the device."""
    return torch.Generator().manual_seed(stream_seed(seed, *purpose))
