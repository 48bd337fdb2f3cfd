"""Mixtures of von Mises-Fisher distributions, as a scikit-learn estimator (the extra `mixture`)."""

from pairgrad.mixture.estimator import VMFMixture

__all__ = ["VMFMixture"]
