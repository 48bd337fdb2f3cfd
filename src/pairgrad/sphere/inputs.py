"""Checks of a labelled batch of features, before anything is computed or changed."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pairgrad.ground.checks import describe, floating_tensor, readable

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def checked_features(features: torch.Tensor, dim: int, like: torch.Tensor, *, validate: bool | None = None) -> torch.Tensor:
    """`features` of shape (..., dim) on the device of `like`, with finite values."""
    floating_tensor("features", features)
    if features.dim() < 2 or features.shape[-1] != dim:
        raise ValueError(f"features must have shape (batch, dim={dim}), got {describe(features)}")
    if features.device != like.device:
        raise ValueError(f"features must be on {like.device}, where the class state is, got {describe(features)}: move one with .to(...)")
    message = "features must be finite, got NaN or infinity"
    _check_values(torch.isfinite(features.detach()).all, features, message, "the model has diverged, or divides by a zero norm", validate)
    return features


def checked_labels(
    labels: torch.Tensor,
    batch: int,
    num_classes: int,
    like: torch.Tensor,
    *,
    validate: bool | None = None,
    ignore_index: int | None = None,
) -> torch.Tensor:
    """`labels` (batch,) as int64, in 0 .. num_classes - 1 or equal to `ignore_index`."""
    if not isinstance(labels, torch.Tensor) or labels.dtype not in _INTEGERS:
        raise TypeError(f"labels must be an integer torch tensor of shape ({batch},), got {describe(labels)}: use labels.long()")
    if labels.shape != (batch,):
        raise ValueError(f"labels must have shape ({batch},), one per row of features, got {describe(labels)}")
    if labels.device != like.device:
        raise ValueError(f"labels must be on {like.device}, got {describe(labels)}: move them with .to(...)")
    if batch:
        counted = labels if ignore_index is None else torch.where(labels == ignore_index, 0, labels)
        low, high = torch.aminmax(counted)
        hint = f"labels run from 0 to num_classes - 1 = {num_classes - 1}"
        if _looks(labels, validate) and not (int(low) >= 0 and int(high) < num_classes):
            raise ValueError(f"labels must lie in [0, {num_classes - 1}], got values from {int(low)} to {int(high)}: {hint}")
        if not _looks(labels, validate) and not torch.compiler.is_compiling() and validate is not False:
            torch._assert_async((low >= 0) & (high < num_classes), f"labels out of range: {hint}")
    return labels.long()


def checked_batch(
    features: torch.Tensor, labels: torch.Tensor, num_classes: int, dim: int, like: torch.Tensor, *, validate: bool | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both, with one label per row of features (..., B, dim)."""
    features = checked_features(features, dim, like, validate=validate)
    return features, checked_labels(labels, features.shape[-2], num_classes, like, validate=validate)


def _looks(tensor: torch.Tensor, validate: bool | None) -> bool:
    """Whether the values are read on the host: always on the CPU, elsewhere when asked to, never inside a compiled region."""
    return validate is not False and (readable(tensor) or (bool(validate) and not torch.compiler.is_compiling()))


def _check_values(good: Callable[[], torch.Tensor], tensor: torch.Tensor, message: str, hint: str, validate: bool | None) -> None:
    if _looks(tensor, validate):
        if not bool(good()):
            raise ValueError(f"{message} in {describe(tensor)}: {hint}")
    elif validate is not False and not torch.compiler.is_compiling() and tensor.device.type != "meta" and tensor.device.type != "cpu":
        torch._assert_async(good(), message)
