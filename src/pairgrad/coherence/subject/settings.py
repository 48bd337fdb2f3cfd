"""The global settings of torch that a call can change, to be put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pairgrad.ground._torch_private import default_device_mode, global_hooks, set_global_hooks
from pairgrad.ground.devices import float32_backends


class Settings:
    """The settings as they were when this was made. Those that have not changed are not set: `torch.set_num_threads` is slow."""

    def __init__(self) -> None:
        self._values = [read() for read, _ in _SETTINGS]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self.put_back()

    def put_back(self) -> None:
        for (read, write), value in zip(_SETTINGS, self._values, strict=True):
            if read() != value:
                write(value)


def _deterministic() -> tuple[bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,  # pyright: ignore[reportAttributeAccessIssue]
    )


def _set_deterministic(value: tuple[bool, bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])
    torch.utils.deterministic.fill_uninitialized_memory = value[2]  # pyright: ignore[reportAttributeAccessIssue]


def _anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _precisions() -> tuple[Any, ...]:
    """How products of float32 numbers are rounded: by the older names, which raise where they cannot say it, and by the names since torch 2.9."""
    older = _or_none(torch.get_float32_matmul_precision), _or_none(lambda: torch.backends.cudnn.allow_tf32)
    return *older, *(backend.fp32_precision for backend in float32_backends())


def _or_none(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except RuntimeError:
        return None


def _set_precisions(value: tuple[Any, ...]) -> None:
    matmul, cudnn, *newer = value
    if matmul is not None:
        torch.set_float32_matmul_precision(matmul)
    if cudnn is not None:
        torch.backends.cudnn.allow_tf32 = cudnn
    for backend, precision in zip(float32_backends(), newer, strict=True):
        if backend.fp32_precision != precision:
            backend.fp32_precision = precision


def _default_device() -> torch.device | None:
    mode = default_device_mode()
    return None if mode is None else mode.device


_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (_default_device, torch.set_default_device),
    (_anomaly, lambda value: torch.autograd.set_detect_anomaly(*value)),
    (_deterministic, _set_deterministic),
    (torch.get_num_threads, torch.set_num_threads),
    (_precisions, _set_precisions),
    (global_hooks, set_global_hooks),
)
