"""Distributions on the sphere, as `torch.distributions` have them.

`von_mises_fisher` with its `density` and its `polar` angle (sampling, reparameterised), `uniform`, `estimate` (fitting), and `unit` (the constraint and
its transform).
"""

from pairgrad.distributions.estimate import Estimate
from pairgrad.distributions.uniform import HypersphericalUniform
from pairgrad.distributions.unit import unit_vector
from pairgrad.distributions.von_mises_fisher import VonMisesFisher

__all__ = ["Estimate", "HypersphericalUniform", "VonMisesFisher", "unit_vector"]
