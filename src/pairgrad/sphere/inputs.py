"""Checks of a labelled batch of features, and of statistics from elsewhere, before anything is computed or changed."""

from __future__ import annotations

import math

import torch

from pairgrad.ground.checks import assert_later, dense, describe, floating_tensor, on_device, optional_boolean, readable
from pairgrad.ground.devices import has_values, on_host, widened, widest

LENGTHS = {torch.float32: (1e-18, 1e18), torch.float64: (1e-150, 1e150)}  # of vectors that can be squared, and concentrations divided by
_BLOCK = 65536  # classes whose statistics are looked at together
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_order(features: object, labels: object) -> None:
    """A TypeError where features and labels have changed places."""
    if not isinstance(features, torch.Tensor) or not isinstance(labels, torch.Tensor):
        return
    if features.dtype in _INTEGERS and features.dim() < 2 and labels.is_floating_point() and labels.dim() >= 2:
        raise TypeError(
            f"features and labels have changed places: features must be a floating-point tensor (batch, dim), got {describe(features)}, and labels "
            f"integers (batch,), got {describe(labels)}: call it with (features, labels)"
        )


def checked_features(
    features: torch.Tensor, dim: int, like: torch.Tensor, *, validate: bool | None = None, squared: bool = False, single: bool = False
) -> torch.Tensor:
    """`features` of shape (..., dim) on the device of `like`, with finite values.

    Args:
        squared: and lengths whose squares are finite too.
        single: one batch, (B, dim), and nothing before it.
    """
    optional_boolean("validate", validate)
    _check_place(features, dim, like, single=single)
    _check_values(features, features.dtype, validate, squared=squared)
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
        hint = "torch.as_tensor(labels)"
        if isinstance(labels, torch.Tensor):
            hint = "labels.long()" if labels.dim() == 1 else "labels.argmax(1), or soft for probabilities"
        raise TypeError(f"labels must be an integer torch tensor of shape ({batch},), got {describe(labels)}: use {hint}")
    dense("labels", labels)
    if labels.shape != (batch,):
        raise ValueError(f"labels must have shape ({batch},), one per row of features, got {describe(labels)}")
    on_device("labels", labels, like.device, move="them")
    labels = labels.long()  # before comparing: uint8 labels and 300, or -100, are compared modulo 256
    if batch:
        hint = "labels run from 0 to num_classes - 1 = "
        looked = looks(labels, validate)
        if looked:
            low, high = map(int, torch.aminmax(labels))
            if low >= 0 and high < num_classes:
                return labels
        counted = labels if ignore_index is None else labels.masked_fill(labels == ignore_index, 0)
        if looked:
            low, high = map(int, torch.aminmax(counted))
            if not (low >= 0 and high < num_classes):
                raise ValueError(f"labels must lie in [0, {num_classes - 1}], got values from {low} to {high}: {hint}{num_classes - 1}")
        elif _asserts(labels, validate):
            assert_later((counted.clamp(0, num_classes - 1) == counted).all(), f"labels out of range: {hint}{num_classes - 1}")
    return labels


def checked_batch(
    features: torch.Tensor,
    labels: torch.Tensor,
    num_classes: int,
    dim: int,
    like: torch.Tensor,
    *,
    validate: bool | None = None,
    squared: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both, with one label per row of features (..., B, dim), and features that stay finite in the dtype of `like`, where they will be summed."""
    _check_place(features, dim, like)
    _check_values(features, like.dtype, validate, squared=squared)
    return features, checked_labels(labels, features.shape[-2], num_classes, like, validate=validate)


def check_statistics(
    sums: torch.Tensor, compensation: torch.Tensor, counts: torch.Tensor, names: tuple[str, str, str], *, first: int = 0
) -> None:
    """Refuse class statistics (K, p), (K, p), (K,) that `ClassBank.update` could not have reached, which may give scores that are not finite.

    Args:
        names: of the tensors, for the message.
        first: the number of the class in row 0, for the message.
    """
    most = LENGTHS[torch.float64 if sums.dtype == torch.float64 else torch.float32][1]
    for start in range(0, len(sums), _BLOCK):  # the norms make a copy in float64
        rows = slice(start, start + _BLOCK)
        for name, tensor in zip(names, (sums[rows], compensation[rows], counts[rows]), strict=True):
            good = tensor.isfinite() & (tensor >= 0) if tensor.dim() == 1 else tensor.isfinite().all(1)
            if not bool(good.all()):
                row = int(good.int().argmin())
                expected = "a finite number >= 0" if tensor.dim() == 1 else f"finite numbers in {sums.dtype}"
                bad = tensor[row][~tensor[row].isfinite()][0] if tensor.dim() > 1 else tensor[row]
                raise ValueError(f"{name} of class {first + start + row} must be {expected}, got {float(bad):g}: use a state saved earlier")
        norms = torch.linalg.vector_norm(sums[rows], dim=1, dtype=widest(sums.device))
        lengths = norms / torch.where(counts[rows] > 0, counts[rows], 1.0).to(norms.device)
        if bool((lengths > most).any()):
            row = int(lengths.argmax())
            raise ValueError(
                f"{names[0]} of class {first + start + row} must have a mean of length at most {most:g} in {sums.dtype}, where squares and their sums are "
                f"numbers, got a length of {float(lengths[row]):g}: use a state saved earlier, or normalised features"
            )


def looks(tensor: torch.Tensor, validate: bool | None) -> bool:
    """Whether the values are read on the host: always on the CPU, elsewhere when asked to, never inside a compiled region or without values."""
    asked = bool(validate) and has_values(tensor) and not torch.compiler.is_compiling()
    return validate is not False and (readable(tensor) or asked)


def _asserts(tensor: torch.Tensor, validate: bool | None) -> bool:
    """Whether values that are not read are asserted by the device: not on the CPU, where a tensor that cannot be read is one inside torch.func."""
    return validate is not False and not torch.compiler.is_compiling() and has_values(tensor) and not on_host(tensor)


def _check_place(features: torch.Tensor, dim: int, like: torch.Tensor, *, single: bool = False) -> None:
    floating_tensor("features", features)
    if features.dim() < 2 or features.shape[-1] != dim or (single and features.dim() > 2):
        raise ValueError(f"features must have shape (batch, dim={dim}), got {describe(features)}")
    on_device("features", features, like.device, "the class state is")


def _check_values(features: torch.Tensor, dtype: torch.dtype, validate: bool | None, *, squared: bool) -> None:
    """Features must be finite, also in `dtype`, and with `squared` their squares too. Smallest and largest value say that, as a rule."""
    message = "features must be finite, got NaN or infinity"
    narrow = torch.finfo(features.dtype).max > torch.finfo(dtype).max
    converted = "features must stay finite when they are converted to the dtype of the class state, got infinity"
    if looks(features, validate):
        if not features.numel():
            return
        features = features.detach()
        low, high = map(float, torch.aminmax(features))
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(f"{message} in {describe(features)}: the model has diverged, or divides by a zero norm")
        largest = max(-low, high)
        if narrow and largest > torch.finfo(dtype).max and not bool(torch.isfinite(features.to(dtype)).all()):
            raise ValueError(f"{converted} in {describe(features.to(dtype))}: give the class state the dtype of the features")
        if squared:
            _check_lengths(features, largest, dtype)
    elif features.numel() and _asserts(features, validate):
        # the largest absolute value, which is NaN if one is: an operation, where isfinite is four
        assert_later(torch.linalg.vector_norm(features.detach(), math.inf) < math.inf, message)
        if narrow:
            assert_later(torch.linalg.vector_norm(features.detach().to(dtype), math.inf) < math.inf, converted)


def _check_lengths(features: torch.Tensor, largest: float, dtype: torch.dtype) -> None:
    most = LENGTHS[torch.float64 if dtype == torch.float64 else torch.float32][1]
    if largest < most / math.sqrt(features.shape[-1]):
        return
    features = features.to(dtype)
    lengths = torch.linalg.vector_norm(widened(features) / most, dim=-1)
    if bool((lengths > 1).any()):
        raise ValueError(
            f"features must not be longer than {most:g} in {describe(features)}, where squares and their sums are numbers, got a length of "
            f"{float(lengths.max()):.3g} times that: scale them down, or use float64"
        )
