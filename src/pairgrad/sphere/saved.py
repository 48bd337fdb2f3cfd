"""Options that travel with a state, so that loading it into something made otherwise does not pass unnoticed."""

from __future__ import annotations

import json
import warnings
from typing import Any

import torch
from torch import nn

from pairgrad.ground.devices import HOST, has_values
from pairgrad.ground.reading import read_json

_LONGEST = 2**14  # bytes that options may have in a file


def read_options(state: torch.Tensor) -> dict[str, Any]:
    """The options in a tensor of `SavedOptions.get_extra_state`, whatever dtype it was converted to; none on the device "meta".

    Raises:
        ValueError: the tensor holds something else.
    """
    if isinstance(state, torch.Tensor) and not has_values(state):
        return {}
    try:
        options = read_json(bytes(state.flatten()[:_LONGEST].to(torch.uint8).tolist()))
    except (AttributeError, TypeError, ValueError):
        options = None
    if not isinstance(options, dict):
        raise ValueError("the options in _extra_state cannot be read: the checkpoint is damaged")
    return options


class SavedOptions(nn.Module):
    """A module whose `state_dict` has its options, and which warns where it loads a state that was saved with others."""

    def __init__(self) -> None:
        super().__init__()
        self.register_load_state_dict_pre_hook(SavedOptions._fill)

    def saved_options(self) -> dict[str, Any]:
        """By the names of the keywords."""
        raise NotImplementedError

    def get_extra_state(self) -> torch.Tensor:
        """The options as the bytes of a JSON text: a tensor, so that every format for tensors can store it."""
        return torch.tensor(list(json.dumps(self.saved_options()).encode()), dtype=torch.uint8, device=HOST)

    def set_extra_state(self, state: Any) -> None:
        """Compare the options of a checkpoint with those of this module."""
        ours, theirs = self.saved_options(), read_options(state)
        differing = [name for name in ours if name in theirs and theirs[name] != ours[name]]
        if differing:
            saved, here = (", ".join(f"{name}={options[name]!r}" for name in differing) for options in (theirs, ours))
            warnings.warn(
                f"this checkpoint was saved by a {type(self).__name__} with {saved}, and is loaded into one with {here}: what was loaded is used with the "
                "latter; make it with the options of the checkpoint if that is not what you want",
                stacklevel=2,
            )

    @staticmethod
    def _fill(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
        """A state without options, such as one that was put together by hand, has nothing to compare."""
        state.setdefault(f"{prefix}_extra_state", module.get_extra_state())
