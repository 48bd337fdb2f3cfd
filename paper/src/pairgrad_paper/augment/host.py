"""What is decided on the host, sent to where the images are."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def on(device: torch.device, values: Sequence[float] | torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Values of the host on `device`, without waiting for it."""
    return torch.as_tensor(values, dtype=dtype).to(device, non_blocking=True)


def where(mask: torch.Tensor) -> torch.Tensor:
    """The indices at which the host's `mask`, (B,), holds."""
    return mask.nonzero().squeeze(1)
