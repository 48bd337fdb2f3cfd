"""The options of `VMFMixture`, checked when they are used."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from pairgrad.ground.checks import boolean, describe, integer_at_least, one_of
from pairgrad.mixture.em import E_STEPS
from pairgrad.mixture.start import STARTS

LARGEST = 1e30  # concentrations whose log-densities are still numbers in single precision


def check_parameters(estimator: Any) -> None:
    """An error that names the option, what it must be and what it is."""
    components = integer_at_least("n_components", estimator.n_components, 1)
    one_of("e_step", estimator.e_step, E_STEPS)
    if isinstance(estimator.init, str):
        one_of("init", estimator.init, STARTS)
    elif not _is_table(estimator.init):
        names = ", ".join(map(repr, STARTS))
        raise ValueError(
            f"init must be one of {names} or an array (n_components, n_features) of directions, got {describe(estimator.init)}"
        )
    for name in ("tied", "normalize", "warm_start"):
        boolean(name, getattr(estimator, name))
    integer_at_least("n_init", estimator.n_init, 1, most=10**6)
    for name in ("max_iter", "verbose_interval"):
        integer_at_least(name, getattr(estimator, name), 1)
    integer_at_least("verbose", int(estimator.verbose) if isinstance(estimator.verbose, bool) else estimator.verbose, 0)
    if estimator.chunk_size is not None:
        integer_at_least("chunk_size", estimator.chunk_size, 1)
    _number("tol", estimator.tol, 0, math.inf, "the rise of the objective per unit of weight that counts as none")
    _number("min_weight", estimator.min_weight, 0, 1 / components, "a share of the weight below 1 / n_components", below=True)
    if estimator.max_concentration is not None:
        _number("max_concentration", estimator.max_concentration, 0, LARGEST, "the largest concentration, or None", above=True)
    _number("learning_decay", estimator.learning_decay, 0.5, 1, "the exponent of the step sizes", above=True)
    _number("learning_offset", estimator.learning_offset, 0, math.inf, "what is added to the number of the step", below=True)


def _is_table(value: Any) -> bool:
    """Whether it has two dimensions; lists of lists of different lengths have none."""
    try:
        return np.ndim(value) == 2
    except ValueError:
        return False


def _number(name: str, value: Any, low: float, high: float, meaning: str, *, above: bool = False, below: bool = False) -> None:
    """A real number between two others; the ends are allowed unless it must be `above` or `below` them."""
    real = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    try:
        number = float(value) if real else math.nan
    except OverflowError:  # an integer beyond all floats
        number = math.nan
    if not low <= number <= high or (above and number == low) or (below and number == high):
        interval = f"{'(' if above else '['}{low:g}, {high:g}{')' if below else ']'}"
        raise ValueError(f"{name} must be a number in {interval}, {meaning}, got {describe(value)}")
