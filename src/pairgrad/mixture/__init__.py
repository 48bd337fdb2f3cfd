"""Mixtures of von Mises-Fisher distributions, as a scikit-learn estimator (the extra `mixture`).

`estimator` is what users see, with `options` and `inputs`; `runs` leads from a `start` through the steps of `em` over `rows`.
"""

from pairgrad.mixture.estimator import VMFMixture

__all__ = ["VMFMixture"]
