"""The state of autocast, read and set: calls that are made again run under the one they had."""

from __future__ import annotations

from typing import Any

import torch

from pairgrad.ground.devices import autocast_types


def autocast_state() -> tuple[Any, ...]:
    """Whether it is on or was on around, whether it keeps what it casts, and for each device, what to cast to."""
    within = torch.autocast_increment_nesting() > 1
    torch.autocast_decrement_nesting()
    states = ((device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in autocast_types())
    return within, torch.is_autocast_cache_enabled(), *states


class Autocast:
    """The autocast of one call after the other. It keeps what it has cast until its outermost block is left, here as in the step."""

    def __init__(self) -> None:
        self._around = self._now = autocast_state()

    def __enter__(self) -> Autocast:
        return self

    def __exit__(self, *_: object) -> None:
        self.become(self._around)

    def become(self, state: tuple[Any, ...]) -> None:
        if state == self._now:
            return
        (before, *_), self._now = self._now, state
        within, cache, *devices = state
        if within and not before:
            torch.autocast_increment_nesting()
        elif before and not within and torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_cache_enabled(cache)
        for device, enabled, dtype in devices:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
