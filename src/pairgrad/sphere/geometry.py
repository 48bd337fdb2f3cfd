r"""Score geometry: how far the squared radius \(r_j^2 = \lVert\kappa_j\mu_j + f/\tau\rVert^2\) of a feature is from \(\kappa_j^2\).

`"factorised"` needs feature norms and one matrix product,

    r_j^2 - kappa_j^2 = 2 kappa_j mu_j^T f / tau + ||f||^2 / tau^2        (eq. stable-delta),

`"expanded"` forms every vector kappa_j mu_j + f / tau, a (batch, classes, dim) tensor, and its norm, as the public code does.
"""

from __future__ import annotations

import torch

from pairgrad.sphere.state import Classes

GEOMETRIES = ("factorised", "expanded")
Temperature = float | torch.Tensor


def squared_increment(features: torch.Tensor, classes: Classes, temperature: Temperature) -> torch.Tensor:
    """r_j^2 - kappa_j^2, (B, K), for features (B, p)."""
    own = (features * features).sum(-1, keepdim=True) / (temperature * temperature)
    return (features @ classes.rows.t()) * (2 * classes.rates / temperature) + own


def expanded_radius(features: torch.Tensor, classes: Classes, temperature: Temperature) -> torch.Tensor:
    """r_j, (B, K), through the (B, K, p) tensor of resultant vectors (eq. realized-vmf-score)."""
    return torch.linalg.vector_norm(classes.rates[:, None] * classes.rows + (features / temperature)[:, None, :], dim=-1)
