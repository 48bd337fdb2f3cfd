"""vMF potentials: values and slopes that are one object, and the realizations they are compared with."""

from pairgrad.potentials.protocol import Pair, Potential
from pairgrad.potentials.registry import Realization, potential, realizations

__all__ = ["Pair", "Potential", "Realization", "potential", "realizations"]
