"""Generated mixtures, and where real data are."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from pairgrad.distributions import VonMisesFisher
from pairgrad.mixture import VMFMixture


def mixture(features, rates, counts, seed=0, dtype=torch.float64):
    """Rows of a mixture with random directions: (rows, labels, directions), numpy."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.nn.functional.normalize(torch.randn(len(rates), features, generator=generator, dtype=torch.float64))
    parts = [
        VonMisesFisher(mu, torch.tensor(float(kappa), dtype=torch.float64)).sample((count,), generator=generator)
        for mu, kappa, count in zip(directions, rates, counts, strict=True)
    ]
    labels = np.repeat(np.arange(len(rates)), counts)
    return torch.cat(parts).to(dtype).numpy(), labels, directions.numpy()


def known(weights, directions, rates, **options) -> VMFMixture:
    """A mixture with these parameters, as if fitted."""
    model = VMFMixture(len(rates), **options)
    model.weights_, model.mean_directions_, model.concentrations_ = map(np.asarray, (weights, directions, rates))
    model.n_features_in_ = model.mean_directions_.shape[1]
    return model


def sparse_csr(rows: torch.Tensor) -> torch.Tensor:
    """A CSR tensor, without torch's warning that these are in beta."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return rows.to_sparse_csr()


def text_file(name) -> Path:
    """A file of real data below $PAIRGRAD_DATA/text, or a skipped test that says what is missing."""
    root = os.environ.get("PAIRGRAD_DATA")
    if not root:
        pytest.skip("set PAIRGRAD_DATA to the directory with the real data sets to run this test")
    path = Path(root) / "text" / name
    if not path.exists():
        pytest.skip(f"{path} is missing")
    return path
