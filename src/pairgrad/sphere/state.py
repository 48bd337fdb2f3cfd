"""A class state: what the scores read, whether it is fixed, learned or estimated by a bank."""

from __future__ import annotations

from typing import NamedTuple

import torch

from pairgrad.ground.checks import HALF_DTYPES, describe, floating_tensor, on_one_device, readable
from pairgrad.ground.devices import widest
from pairgrad.sphere.inputs import LENGTHS


class Classes(NamedTuple):
    """Classes as the scores read them: kappa mu = rate * row. Rows need not have unit length; a row without direction has rate 0."""

    rows: torch.Tensor  # (K, p), or (V, K, p) for V states of the same classes
    rates: torch.Tensor  # (K,), (V, K): kappa / ||row||
    concentration: torch.Tensor  # like rates

    def tile(self, first: int, last: int) -> Classes:
        """Classes first .. last - 1."""
        return Classes(self.rows[..., first:last, :], self.rates[..., first:last], self.concentration[..., first:last])

    def to(self, dtype: torch.dtype, *, rows: bool = True) -> Classes:
        """In another dtype; in a wider one the rates are computed again, to its rounding. Without `rows`, those of half precision stay as they are."""
        kept = not rows and self.rows.dtype in HALF_DTYPES
        rows_, concentration = self.rows if kept else self.rows.to(dtype), self.concentration.to(dtype)
        if torch.finfo(dtype).eps < torch.finfo(self.rates.dtype).eps:
            norms = torch.linalg.vector_norm(rows_, dim=-1, dtype=dtype)
            return Classes(rows_, rates(concentration, norms), concentration)
        return Classes(rows_, self.rates.to(dtype), concentration)


def rates(concentration: torch.Tensor, norms: torch.Tensor) -> torch.Tensor:
    """kappa / norm, and 0 where the norm is 0: no direction, no concentration."""
    return concentration / norms.masked_fill(norms == 0, torch.inf)


def with_norms(rows: torch.Tensor, concentration: torch.Tensor) -> Classes:
    """Classes of rows whose norms are not known yet."""
    return Classes(rows, rates(concentration, torch.linalg.vector_norm(rows, dim=1)), concentration)


class ClassState:
    """A mean direction and a concentration per class, fixed or with parameters that get gradients.

    Args:
        mean_direction: (K, p). Only the direction of a row is used; its gradient is tangent to the sphere.
        concentration: (K,), >= 0.

    Examples:
        >>> import torch, pairgrad as pg
        >>> state = pg.ClassState(torch.eye(3, 8), torch.tensor([0.0, 10.0, 100.0]))
        >>> state.num_classes, state.dim
        (3, 8)
    """

    def __init__(self, mean_direction: torch.Tensor, concentration: torch.Tensor) -> None:
        floating_tensor("mean_direction", mean_direction)
        floating_tensor("concentration", concentration)
        if mean_direction.dim() != 2 or mean_direction.shape[0] < 1 or mean_direction.shape[1] < 2:
            raise ValueError(f"mean_direction must have shape (num_classes, dim) with dim >= 2, got {describe(mean_direction)}")
        if concentration.shape != mean_direction.shape[:1]:
            raise ValueError(
                f"concentration must have shape ({mean_direction.shape[0]},), one per row of mean_direction, got {describe(concentration)}"
            )
        on_one_device("mean_direction", mean_direction, "concentration", concentration)
        if readable(mean_direction) and readable(concentration):
            _check_lengths(mean_direction.detach())
            good = (concentration >= 0) & torch.isfinite(concentration)
            if not bool(good.all()):
                bad = int(good.int().argmin())
                raise ValueError(f"concentration must be finite and >= 0, got {concentration[bad]:g} for class {bad}")
            most = LENGTHS[torch.float32 if concentration.dtype in HALF_DTYPES else concentration.dtype][1]
            if bool((concentration > most).any()):
                bad = int(concentration.argmax())
                raise ValueError(
                    f"concentration must be at most {most:g} in {describe(concentration)}, where its square is a number, got {concentration[bad]:g} "
                    f"for class {bad}"
                )
        self.mean_direction = mean_direction
        self.concentration = concentration

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return self.mean_direction.shape[0]

    @property
    def dim(self) -> int:
        """Of the features."""
        return self.mean_direction.shape[1]

    def classes(self) -> Classes:
        """What the scores read of all classes."""
        return with_norms(self.mean_direction, self.concentration)

    def __repr__(self) -> str:
        return f"ClassState(num_classes={self.num_classes}, dim={self.dim})"


def _check_lengths(mean_direction: torch.Tensor) -> None:
    """Rows with a direction: neither 0 nor NaN nor infinite, and of a length that can be squared."""
    rows = mean_direction.float() if mean_direction.dtype in HALF_DTYPES else mean_direction
    least, most = LENGTHS[rows.dtype]
    lengths = torch.linalg.vector_norm(rows, dim=1, dtype=widest(rows.device))
    if bool(((lengths >= least) & (lengths <= most)).all()):
        return
    if not bool(torch.isfinite(rows).all()) or not bool((rows != 0).any(1).all()):
        bad = int((~rows.isfinite().all(1) | (rows == 0).all(1)).int().argmax())
        raise ValueError(f"mean_direction must have finite rows that are not zero: that of class {bad} has no direction")
    raise ValueError(
        f"mean_direction must have rows of a length from {least:g} to {most:g}, got lengths from {lengths.min():g} to {lengths.max():g} in "
        f"{describe(mean_direction)}: the square of another length is no number; use torch.nn.functional.normalize(mean_direction, dim=1)"
    )
