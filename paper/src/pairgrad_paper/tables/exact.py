"""The largest error of floating-point results against enclosures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from pairgrad.ground import flint


def largest_error(got: Iterable[Any], exact: Iterable[Any]) -> float:
    """The largest |got - exact|; `got` are balls or floats, which are exact numbers here."""
    arb = flint().arb
    return _largest(abs(arb(g) - e) for g, e in zip(got, exact, strict=True))


def largest_relative_error(got: torch.Tensor, exact: Iterable[Any]) -> float:
    """The largest |got - exact| / |exact|; the subtraction comes first, and is exact up to the radius of the ball."""
    arb = flint().arb
    return _largest(abs((arb(g) - e) / e) for g, e in zip(got.double().tolist(), exact, strict=True))


def _largest(errors: Iterable[Any]) -> float:
    return float(np.max([float(error) for error in errors]))  # NaN if any is
