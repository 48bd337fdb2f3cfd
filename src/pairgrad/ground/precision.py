"""Computing in float32 or float64, whatever region the caller is in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from pairgrad.ground.devices import has_autocast


def autocast_enabled(device_type: str) -> bool:
    """Whether autocast is on for a type of device, which need not have any."""
    if torch.compiler.is_compiling():  # before torch 2.12 it cannot trace is_autocast_available
        return has_autocast(device_type) and torch.is_autocast_enabled(device_type)
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def full_precision(device_type: str) -> AbstractContextManager[Any]:
    """Autocast off: what is computed inside has the dtype of its operands."""
    return torch.autocast(device_type, enabled=False) if autocast_enabled(device_type) else nullcontext()
