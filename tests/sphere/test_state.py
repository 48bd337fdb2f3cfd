"""Class states that are given: what is refused, what only the direction of a row means, and the geometry of their scores."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

import pairgrad as pg

U = 2.0**-53


def test_shapes() -> None:
    given = pg.ClassState(torch.ones(3, 5), torch.zeros(3))
    assert (given.num_classes, given.dim) == (3, 5)
    assert repr(given) == "ClassState(num_classes=3, dim=5)"


def test_concentration_zero_and_one_class_are_fine() -> None:
    """The score is then the potential at ||f|| / tau."""
    features = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    scores = pg.vmf_scores(features, pg.ClassState(torch.ones(1, 2, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)), 0.5)
    torch.testing.assert_close(scores, pg.potential(2).value(torch.tensor([[10.0]], dtype=torch.float64)), rtol=16 * U, atol=0)


MEANS, KAPPAS = torch.ones(3, 5), torch.ones(3)


def replaced(tensor: torch.Tensor, value: float) -> torch.Tensor:
    tensor = tensor.clone()
    tensor[1] = value
    return tensor


@pytest.mark.parametrize(
    ("means", "kappas", "error", "message"),
    [
        (torch.ones(5), KAPPAS, ValueError, r"mean_direction must have shape \(num_classes, dim\) with dim >= 2, got .*shape \(5,\)"),
        (torch.ones(2, 3, 5), KAPPAS, ValueError, r"mean_direction must have shape \(num_classes, dim\).*got .*shape \(2, 3, 5\)"),
        (torch.ones(3, 1), KAPPAS, ValueError, r"mean_direction must have shape .* with dim >= 2, got .*shape \(3, 1\)"),
        (torch.ones(0, 5), torch.ones(0), ValueError, r"mean_direction must have shape .*got .*shape \(0, 5\)"),
        (MEANS.long(), KAPPAS, TypeError, "mean_direction must have dtype float32 or float64 .*got a int64 tensor"),
        ([[1.0, 2.0]], KAPPAS, TypeError, r"mean_direction must be a floating-point torch tensor, got \[\[1.0, 2.0\]\] \(list\)"),
        (MEANS, 3.0, TypeError, r"concentration must be a floating-point torch tensor, got 3.0 \(float\)"),
        (MEANS, torch.ones(4), ValueError, r"concentration must have shape \(3,\), one per row of mean_direction, got .*shape \(4,\)"),
        (MEANS, torch.ones(3, 1), ValueError, r"concentration must have shape \(3,\).*got .*shape \(3, 1\)"),
        (MEANS, torch.ones(3, device="meta"), ValueError, "mean_direction and concentration must be on one device, got cpu and meta"),
        (
            replaced(MEANS, 0.0),
            KAPPAS,
            ValueError,
            "mean_direction must have finite rows that are not zero: that of class 1 has no direction",
        ),
        (replaced(MEANS, math.nan), KAPPAS, ValueError, "mean_direction must have finite rows"),
        (replaced(MEANS, math.inf), KAPPAS, ValueError, "mean_direction must have finite rows"),
        (MEANS, replaced(KAPPAS, -2.0), ValueError, "concentration must be finite and >= 0, got -2 for class 1"),
        (MEANS, replaced(KAPPAS, -(2.0**-20)), ValueError, "concentration must be finite and >= 0"),
        (MEANS, replaced(KAPPAS, math.nan), ValueError, "concentration must be finite and >= 0"),
        (MEANS, replaced(KAPPAS, math.inf), ValueError, "concentration must be finite and >= 0, got inf for class 1"),
    ],
)
def test_wrong_arguments(means: torch.Tensor, kappas: torch.Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pg.ClassState(means, kappas)


def test_values_are_not_read_where_there_are_none() -> None:
    given = pg.ClassState(torch.zeros(3, 5, device="meta"), torch.zeros(3, device="meta"))
    scores = pg.vmf_scores(torch.zeros(2, 5, device="meta"), given)
    assert (scores.shape, scores.device.type) == ((2, 3), "meta")


@pytest.mark.parametrize("mapped", ["both", "mean_direction", "concentration"])
def test_values_are_not_read_inside_vmap(mapped: str) -> None:
    """Also if only one of the two is mapped; a value that outside would be refused shows that nobody looks."""
    means, kappas = torch.ones(2, 3, 4), torch.full((2, 3), -2.0)
    if mapped == "both":
        found = torch.func.vmap(lambda m, k: pg.ClassState(m, k).concentration / 2)(means, kappas)
    elif mapped == "mean_direction":
        found = torch.func.vmap(lambda m: pg.ClassState(m, kappas[0]).concentration / 2 + 0 * m[:, 0])(means)
    else:
        found = torch.func.vmap(lambda k: pg.ClassState(means[0], k).concentration / 2)(kappas)
    assert found.tolist() == [[-1.0] * 3] * 2


@pytest.mark.parametrize(("dtype", "largest"), [(torch.float32, 1e18), (torch.float64, 1e150)])
def test_the_longest_and_the_shortest_that_can_be_squared_are_fine(dtype: torch.dtype, largest: float) -> None:
    """Only the direction of a row counts, whatever its length; and the largest concentration has a score, mu . f / tau."""
    unit, few = torch.tensor([[1.0, 0.0]], dtype=dtype), torch.full((1,), 3.0, dtype=dtype)
    features = torch.tensor([[0.6, 0.8], [-0.5, 2.0]], dtype=dtype)
    want = pg.vmf_scores(features, pg.ClassState(unit, few))
    for length in (largest / 2, 2 / largest):
        got = pg.vmf_scores(features, pg.ClassState(length * unit, few))
        torch.testing.assert_close(got, want, rtol=16 * torch.finfo(dtype).eps, atol=0)
    largest_kappa = pg.ClassState(unit, torch.tensor([largest], dtype=dtype))
    got = pg.vmf_scores(features, largest_kappa, 0.5)
    torch.testing.assert_close(got, 2 * features[:, :1], rtol=16 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize(
    ("means", "message"),
    [
        ([[1, 1], [1e30, 1e30]], r"rows of a length from 1e-18 to 1e\+18, got lengths from 1\.41421 to 1\.41421e\+30 in"),
        ([[1, 1], [1e-30, 1e-30]], r"rows of a length from 1e-18 to 1e\+18, got lengths from 1\.41421e-30 to 1\.41421 in"),
        ([[2, 3], [0, 0]], "that of class 1 has no direction"),
    ],
)
def test_a_row_of_zeros_is_told_from_one_of_another_length(means: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pg.ClassState(torch.tensor(means).float(), torch.ones(2))


def test_gradients_flow_and_are_tangent() -> None:
    """Only the direction of a row counts: the gradient is orthogonal to the row, and scales with the inverse of its length."""
    means, kappas = torch.randn(3, 5, dtype=torch.float64, requires_grad=True), torch.full((3,), 20.0, dtype=torch.float64).requires_grad_()
    features = torch.randn(4, 5, dtype=torch.float64)

    def energy(rows: torch.Tensor) -> torch.Tensor:
        return pg.vmf_scores(features, pg.ClassState(rows, kappas), 0.1).square().sum()

    (gradient, kappa_gradient) = torch.autograd.grad(energy(means), (means, kappas))
    assert (kappa_gradient != 0).all()
    assert (gradient.norm(dim=1) > 0).all()
    # the radial part cancels among five products of the size of the gradient times the row
    radial = (gradient * means).sum(1).abs() / (gradient.norm(dim=1) * means.norm(dim=1))
    assert (radial <= 64 * U).all()
    (longer,) = torch.autograd.grad(energy(4 * means), means)
    torch.testing.assert_close(longer, gradient, rtol=0, atol=64 * U * gradient.abs().max().item())


@pytest.mark.parametrize("geometry", ["factorised", "expanded"])
@pytest.mark.parametrize("temperature", [Fraction(1, 8), Fraction(2)])
def test_geometry_against_rationals(geometry: str, temperature: Fraction) -> None:
    """Rows with rational lengths: (3, 4, 0) has 5, (2, 3, 6) has 7. The radius r of every score is known from rationals, and so is the score."""
    rows, norms, kappas = [(3, 4, 0), (2, 3, 6)], [5, 7], [10, 21]
    state = pg.ClassState(torch.tensor(rows, dtype=torch.float64), torch.tensor(kappas, dtype=torch.float64))
    feature = (Fraction(1, 2), Fraction(-1, 4), Fraction(3, 8))
    features = torch.tensor([[float(x) for x in feature]], dtype=torch.float64)
    got = pg.vmf_scores(features, state, float(temperature), geometry=geometry)[0]
    for row, norm, kappa, score in zip(rows, norms, kappas, got.tolist(), strict=True):
        squared = sum((Fraction(kappa * x, norm) + f / temperature) ** 2 for x, f in zip(row, feature, strict=True))
        radius = torch.tensor([math.sqrt(squared)], dtype=torch.float64)
        want = pg.potential(3).difference(torch.tensor([float(kappa)], dtype=torch.float64), radius).item()
        # a radius of up to 25 is right to a few roundings of itself, and the potential rises by less than the radius
        assert score == pytest.approx(want, abs=8 * U * 25), (row, score, want)
