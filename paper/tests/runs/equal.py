"""Equality of nested states, bit for bit."""

from __future__ import annotations

import struct
from typing import Any

import torch


def same(first: Any, second: Any) -> bool:
    """Types, order of keys, and every bit; a Parameter may come back as a tensor."""
    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and _bits(first) == _bits(second)
    if type(first) is not type(second):
        return False
    if isinstance(first, float):
        return struct.pack("d", first) == struct.pack("d", second)
    if isinstance(first, dict):
        keys = [(type(key), key) for key in first] == [(type(key), key) for key in second]
        metadata = same(getattr(first, "_metadata", None), getattr(second, "_metadata", None))
        return keys and metadata and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second


def _bits(tensor: torch.Tensor) -> tuple[torch.dtype, tuple[int, ...], bytes]:
    flat = tensor.detach().cpu().resolve_neg().contiguous().reshape(-1)
    return tensor.dtype, tuple(tensor.shape), bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""
