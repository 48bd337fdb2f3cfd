"""What the functions of this package are given: arrays of scores and of labels, from torch or numpy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch

from pairgrad.ground.checks import describe
from pairgrad.ground.devices import HOST, has_values

Array: TypeAlias = torch.Tensor | np.ndarray


def score_array(name: str, scores: Any) -> np.ndarray:
    """One-dimensional real scores in float64, not empty and without NaN; infinities are ordinary scores. They may share memory with what was given."""
    values = _float64(name, scores)
    if values.ndim != 1:
        raise ValueError(
            f"{name} must be one score per sample, shape (N,), got shape {values.shape}: flatten it, or score one set at a time"
        )
    if not values.size:
        raise ValueError(f"{name} must hold at least one score, got none: without samples on both sides no rate is defined")
    if missing := int(np.isnan(values).sum()):
        raise ValueError(f"{name} must not contain NaN, got {missing} of {values.size}: find where the network or the score made them")
    return values


def label_array(name: str, labels: Any) -> np.ndarray:
    """One-dimensional integer labels in int64."""
    values = _host(labels)
    if values is None or not np.issubdtype(values.dtype, np.integer):
        raise TypeError(f"{name} must be a torch tensor or a numpy array of integers, got {_described(labels)}")
    if values.ndim != 1:
        raise ValueError(f"{name} must have shape (N,), got shape {values.shape}")
    return values.astype(np.int64)


def mask_array(name: str, mask: Any, size: int) -> np.ndarray:
    """A boolean mask of `size` entries."""
    values = _host(mask)
    if values is None or values.dtype != np.bool_:
        raise TypeError(f"{name} must be a boolean torch tensor or numpy array, got {_described(mask)}: from labels, give labels >= 0")
    if values.shape != (size,):
        raise ValueError(f"{name} must have one entry for each of the {size} scores, got shape {values.shape}")
    return values


def _float64(name: str, scores: Any) -> np.ndarray:
    if isinstance(scores, torch.Tensor) and scores.is_floating_point() and _held(scores):
        return scores.detach().to(device=HOST).to(torch.float64).numpy()
    values = _host(scores)
    if values is None or not (np.issubdtype(values.dtype, np.floating) or np.issubdtype(values.dtype, np.integer)):
        raise TypeError(
            f"{name} must be a torch tensor or a numpy array of real numbers, got {_described(scores)}: e.g. numpy.asarray(...)"
        )
    if np.issubdtype(values.dtype, np.integer) and values.size and max(-int(values.min()), int(values.max())) > 2**53:
        raise ValueError(f"{name} must be below 2^53 in size if they are integers, or float64 would make different scores equal: use ranks")
    return values.astype(np.float64)


def _host(values: Any) -> np.ndarray | None:
    if isinstance(values, torch.Tensor):
        return values.detach().cpu().numpy() if not values.is_complex() and not values.is_floating_point() and _held(values) else None
    return values if isinstance(values, np.ndarray) else None


def _held(values: torch.Tensor) -> bool:
    """Whether a tensor has its numbers in plain memory."""
    return values.layout == torch.strided and not values.is_quantized and has_values(values)


def _described(values: Any) -> str:
    return f"a {values.dtype} array of shape {values.shape}" if isinstance(values, np.ndarray) else describe(values)
