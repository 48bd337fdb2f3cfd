"""Computing in float32 or float64, whatever region the caller is in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def full_precision(device_type: str) -> AbstractContextManager[Any]:
    """Autocast off: what is computed inside has the dtype of its operands."""
    if not torch.amp.is_autocast_available(device_type) or not torch.is_autocast_enabled(device_type):
        return nullcontext()
    return torch.autocast(device_type, enabled=False)
