"""Paired potentials: a value and the derivative handed to the optimizer, as one object."""

from pairgrad._version import __version__
from pairgrad.potentials import Pair, Potential, Realization, potential, realizations

__all__ = ["Pair", "Potential", "Realization", "__version__", "potential", "realizations"]
