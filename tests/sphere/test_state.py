"""Class states that are given, the form in which scores read any state, and the score geometry."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

import pairgrad as pg
from pairgrad.sphere.geometry import expanded_radius, squared_increment
from pairgrad.sphere.state import Classes, rates, with_norms

U = 2.0**-53


def state(classes: int = 3, dim: int = 5) -> pg.ClassState:
    return pg.ClassState(torch.randn(classes, dim, dtype=torch.float64), 30 * torch.rand(classes, dtype=torch.float64))


def test_shapes() -> None:
    given = pg.ClassState(torch.ones(3, 5), torch.zeros(3))
    assert (given.num_classes, given.dim) == (3, 5)
    assert repr(given) == "ClassState(num_classes=3, dim=5)"
    classes = given.classes()
    assert classes.rows is given.mean_direction
    assert classes.concentration is given.concentration
    assert classes.rates.shape == (3,)


def test_concentration_zero_and_one_class_are_fine() -> None:
    assert pg.ClassState(torch.ones(1, 2), torch.zeros(1)).classes().rates.tolist() == [0]


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
            "mean_direction must have finite rows that are not zero: a row of zeros has no direction",
        ),
        (replaced(MEANS, math.nan), KAPPAS, ValueError, "mean_direction must have finite rows"),
        (replaced(MEANS, math.inf), KAPPAS, ValueError, "mean_direction must have finite rows"),
        (MEANS, replaced(KAPPAS, -2.0), ValueError, "concentration must be finite and >= 0, got values from -2 to 1"),
        (MEANS, replaced(KAPPAS, -(2.0**-20)), ValueError, "concentration must be finite and >= 0"),
        (MEANS, replaced(KAPPAS, math.nan), ValueError, "concentration must be finite and >= 0"),
        (MEANS, replaced(KAPPAS, math.inf), ValueError, "concentration must be finite and >= 0, got values from 1 to inf"),
    ],
)
def test_wrong_arguments(means: torch.Tensor, kappas: torch.Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pg.ClassState(means, kappas)


def test_values_are_not_read_where_there_are_none() -> None:
    given = pg.ClassState(torch.zeros(3, 5, device="meta"), torch.zeros(3, device="meta"))
    assert given.classes().rates.device.type == "meta"


@pytest.mark.parametrize("mapped", ["both", "mean_direction", "concentration"])
def test_values_are_not_read_inside_vmap(mapped: str) -> None:
    """Also if only one of the two is mapped; a value that outside would be refused shows that nobody looks."""
    means, kappas = torch.ones(2, 3, 4), torch.full((2, 3), -2.0)
    if mapped == "both":
        found = torch.func.vmap(lambda m, k: pg.ClassState(m, k).classes().rates)(means, kappas)
    elif mapped == "mean_direction":
        found = torch.func.vmap(lambda m: pg.ClassState(m, kappas[0]).classes().rates)(means)
    else:
        found = torch.func.vmap(lambda k: pg.ClassState(means[0], k).classes().rates)(kappas)
    assert found.tolist() == [[-1.0] * 3] * 2


@pytest.mark.parametrize(("dtype", "largest"), [(torch.float32, 1e18), (torch.float64, 1e150)])
def test_the_longest_and_the_shortest_that_can_be_squared_are_fine(dtype: torch.dtype, largest: float) -> None:
    most = torch.tensor([largest], dtype=dtype)
    assert pg.ClassState(torch.ones(1, 4, dtype=dtype), most).classes().rates.item() == most.item() / 2
    if dtype == torch.float64:  # in float32 neither 1e18 nor 1e-18 is a number
        for length in (largest, 1 / largest):
            assert (
                pg.ClassState(torch.tensor([[length, 0.0]], dtype=dtype), torch.ones(1, dtype=dtype)).classes().rates.item() == 1 / length
            )


@pytest.mark.parametrize(
    ("means", "message"),
    [
        ([[1, 1], [1e30, 1e30]], r"rows of a length from 1e-18 to 1e\+18, got lengths from 1\.41421 to 1\.41421e\+30 in"),
        ([[1, 1], [1e-30, 1e-30]], r"rows of a length from 1e-18 to 1e\+18, got lengths from 1\.41421e-30 to 1\.41421 in"),
        ([[2, 3], [0, 0]], "a row of zeros has no direction"),
    ],
)
def test_a_row_of_zeros_is_told_from_one_of_another_length(means: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pg.ClassState(torch.tensor(means).float(), torch.ones(2))


def test_gradients_flow_and_are_tangent() -> None:
    """Only the direction of a row counts: the gradient is orthogonal to the row, and scales with the inverse of its length."""
    means, kappas = torch.randn(3, 5, dtype=torch.float64, requires_grad=True), torch.full((3,), 20.0, dtype=torch.float64).requires_grad_()
    features = torch.randn(4, 5, dtype=torch.float64)

    def increments(rows: torch.Tensor) -> torch.Tensor:
        return squared_increment(features, pg.ClassState(rows, kappas).classes(), 0.1).square().sum()

    (gradient, kappa_gradient) = torch.autograd.grad(increments(means), (means, kappas))
    assert (kappa_gradient != 0).all()
    assert (gradient.norm(dim=1) > 0).all()
    # the radial part cancels among five products of the size of the gradient times the row
    radial = (gradient * means).sum(1).abs() / (gradient.norm(dim=1) * means.norm(dim=1))
    assert (radial <= 64 * U).all()
    (longer,) = torch.autograd.grad(increments(4 * means), means)
    torch.testing.assert_close(longer, gradient, rtol=0, atol=64 * U * gradient.abs().max().item())


def test_rates_are_zero_without_a_direction() -> None:
    got = rates(torch.tensor([7.0, 3.0, 0.0]), torch.tensor([0.0, 2.0, 2.0]))
    assert got.tolist() == [0.0, 1.5, 0.0]
    classes = with_norms(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([7.0, 10.0]))
    assert classes.rates.tolist() == [0.0, 2.0]


def test_rates_times_rows_are_kappa_times_directions() -> None:
    given = state()
    classes = given.classes()
    want = given.concentration[:, None] * given.mean_direction / given.mean_direction.norm(dim=1, keepdim=True)
    torch.testing.assert_close(classes.rates[:, None] * classes.rows, want, rtol=8 * U, atol=0)


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_rates_are_kept_unless_the_dtype_is_wider(shape: tuple[int, ...]) -> None:
    """A bank has them from sums in two words: they are not to be had again from the rows. In float64 those of float32 would not do."""
    given = Classes(3 * torch.rand(*shape, 5), torch.rand(shape), 30 * torch.rand(shape))
    for dtype in (torch.float32, torch.float16):
        same = given.to(dtype)
        assert torch.equal(same.rates, given.rates.to(dtype))
        assert {tensor.dtype for tensor in same} == {dtype}
    wider = given.to(torch.float64)
    want = given.concentration.double() / given.rows.double().square().sum(-1).sqrt()
    torch.testing.assert_close(wider.rates, want, rtol=8 * U, atol=0)


def test_tile_is_a_slice_of_classes() -> None:
    several = Classes(torch.randn(2, 7, 3), torch.rand(2, 7), torch.rand(2, 7))
    for classes in (several, Classes(*(tensor[0] for tensor in several))):
        part = classes.tile(2, 5)
        assert torch.equal(part.rows, classes.rows.narrow(-2, 2, 3))
        assert torch.equal(part.rates, classes.rates.narrow(-1, 2, 3))
        assert torch.equal(part.concentration, classes.concentration.narrow(-1, 2, 3))


@pytest.mark.parametrize("temperature", [0.1, 1.0, torch.tensor(0.07, dtype=torch.float64)])
@pytest.mark.parametrize(("batch", "classes", "dim"), [(4, 3, 5), (1, 1, 2), (6, 9, 64)])
def test_the_two_geometries_agree(batch: int, classes: int, dim: int, temperature: float | torch.Tensor) -> None:
    """r^2 - kappa^2 both ways. Sums of p products are wrong by at most p u times the sum of their sizes, which (kappa + ||f|| / tau)^2 bounds."""
    given = state(classes, dim).classes()
    features = torch.randn(batch, dim, dtype=torch.float64)
    got = squared_increment(features, given, temperature)
    radius = expanded_radius(features, given, temperature)
    assert got.shape == radius.shape == (batch, classes)
    size = (given.concentration + features.norm(dim=1, keepdim=True) / temperature) ** 2
    error = (got - (radius**2 - given.concentration**2)).abs()
    assert (error <= 2 * (dim + 8) * U * size).all(), (error / size).max() / U


def test_geometry_against_rationals() -> None:
    """Rows with rational lengths: (3, 4, 0) has 5, (2, 3, 6) has 7, and a row without a direction counts as the origin."""
    rows, norms, kappas = [(3, 4, 0), (2, 3, 6), (0, 0, 0)], [5, 7, 0], [10, 21, 4]
    classes = with_norms(torch.tensor(rows, dtype=torch.float64), torch.tensor(kappas, dtype=torch.float64))
    feature, tau = (Fraction(1, 2), Fraction(-1, 4), Fraction(3, 8)), Fraction(1, 8)
    features = torch.tensor([[float(x) for x in feature]], dtype=torch.float64)
    own = sum(x * x for x in feature) / tau**2
    got = squared_increment(features, classes, float(tau))[0].tolist()
    radius = expanded_radius(features, classes, float(tau))[0].tolist()
    for row, norm, kappa, a, r in zip(rows, norms, kappas, got, radius, strict=True):
        resultant = [(Fraction(kappa * x, norm) if norm else 0) + f / tau for x, f in zip(row, feature, strict=True)]
        squared = sum(x * x for x in resultant)
        assert a == float(squared - (kappa**2 if norm else 0)), (row, a)
        assert r == pytest.approx(math.sqrt(squared), rel=4 * U)
    assert got[2] == own
