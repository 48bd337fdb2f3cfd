"""Gauss-Legendre rules: exact for polynomials, and rounded once."""

from __future__ import annotations

import math

import flint
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from pairgrad.ground import devices, quadrature
from pairgrad.ground.balls import working_precision
from pairgrad.ground.quadrature import as_tensors, gauss_legendre

SIZES = (1, 2, 3, 6, 8, 16, 28, 40)


@pytest.mark.parametrize("points", SIZES)
def test_nodes_and_weights_are_the_nearest_floats(points: int) -> None:
    """Against the roots of the Legendre polynomials in ball arithmetic."""
    nodes, weights = gauss_legendre(points)
    assert len(nodes) == len(weights) == points
    with working_precision(200):
        for i, (node, weight) in enumerate(zip(nodes, weights, strict=True)):
            root, share = flint.arb.legendre_p_root(points, points - 1 - i, weight=True)
            assert node == float((1 + root) / 2)
            assert weight == float(share / 2)


@pytest.mark.parametrize("points", SIZES)
def test_polynomials_are_integrated_exactly(points: int) -> None:
    """x^k for k < 2 n: sums of n positive terms, each rounded some three times."""
    nodes, weights = gauss_legendre(points)
    for k in range(2 * points):
        assert abs(math.fsum(w * x**k for x, w in zip(nodes, weights, strict=True)) * (k + 1) - 1) <= 4 * 2.0**-52 * (1 + k / 4), k
    missed = math.fsum(w * x ** (2 * points) for x, w in zip(nodes, weights, strict=True)) * (2 * points + 1)
    # the first power that is not: too small, by the square of a polynomial, which is below a rounding for large rules
    if points < 10:
        assert missed < 1 - 1e-13


def test_order_and_symmetry() -> None:
    for points in SIZES:
        nodes, weights = gauss_legendre(points)
        assert all(0 < x < 1 for x in nodes)
        assert np.all(np.diff(nodes) > 0)
        # 1 - x rounds away the digits that a node close to 0 has more
        np.testing.assert_allclose(np.array(nodes)[::-1], 1 - np.array(nodes), rtol=0, atol=2.0**-53)
        assert weights == weights[::-1]
    assert gauss_legendre(8) is gauss_legendre(8)
    assert gauss_legendre(1) == ((0.5,), (1.0,))


def test_a_queued_device_gets_its_own_numbers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU with the traits of an accelerator: nodes and weights are filled in there, and kept, but not those of fake tensors, which hold no numbers."""
    monkeypatch.setitem(devices.KINDS, "cpu", devices.KINDS["cuda"])
    rule = gauss_legendre(3)
    try:
        with FakeTensorMode():
            assert isinstance(as_tensors(rule, torch.zeros(1, dtype=torch.float64))[0], FakeTensor)
        like = torch.zeros(1, dtype=torch.float64)
        with torch.inference_mode():
            nodes, weights = as_tensors(rule, like)
        assert (tuple(nodes.tolist()), tuple(weights.tolist())) == rule
        assert not nodes.is_inference()
        assert as_tensors(rule, like)[0] is nodes
    finally:
        quadrature._ON_DEVICES.clear()


def test_on_the_cpu_nothing_is_kept() -> None:
    nodes, weights = as_tensors(gauss_legendre(2), torch.zeros(1, dtype=torch.float32))
    assert (nodes.dtype, weights.dtype) == (torch.float32, torch.float32)
    assert not quadrature._ON_DEVICES
