"""`reference`: enclosures against mpmath, against other precisions, against a closed form; errors."""

import sys

import flint
import mpmath
import numpy as np
import pytest
import torch

import pairgrad as pg

DIGITS = 80
NUS = (0, 0.5, 2.75, 31, 63.5)
RELATIVE_RADII = (1e-6, 0.01, 0.7, 3.0, 40.0, 1e3)
ONE_POINT = ("value", "slope", "curvature", "complement")


def points(nu):
    return max(nu, 0.5) * torch.tensor(RELATIVE_RADII, dtype=torch.float64)


def exact(quantity, nu, *args):
    """mpmath at 80 digits, with as many more as the cancellation in 1 - R, R' and differences can take here."""
    with mpmath.workdps(2 * DIGITS):
        nu, args = mpmath.mpf(nu), [mpmath.mpf(x) for x in args]

        def phi(x):
            return mpmath.log(mpmath.besseli(nu, x)) - nu * mpmath.log(x)

        def ratio(x):
            return mpmath.besseli(nu + 1, x) / mpmath.besseli(nu, x)

        formula = {
            "value": phi,
            "slope": ratio,
            "complement": lambda x: 1 - ratio(x),
            "curvature": lambda x: (
                (mpmath.besseli(nu, x) * besseli_prime(nu + 1, x) - mpmath.besseli(nu + 1, x) * besseli_prime(nu, x))
                / mpmath.besseli(nu, x) ** 2
            ),
            "difference": lambda a, b: phi(b) - phi(a),
            "secant": lambda a, b: (phi(b) - phi(a)) / (b - a),
        }
        return formula[quantity](*args)


def besseli_prime(nu, x):
    """I_nu' = (I_{nu-1} + I_{nu+1}) / 2, not the Riccati equation that the library uses."""
    return (mpmath.besseli(nu - 1, x) + mpmath.besseli(nu + 1, x)) / 2


def contains(ball, number):
    """Whether the ball holds `number`, which is known to DIGITS digits: compared with the two ends of the ball in mpmath."""
    middle, radius = (mpmath.mpf(part.str(2 * DIGITS, radius=False)) for part in (ball.mid(), ball.rad()))
    with mpmath.workdps(2 * DIGITS):
        return abs(middle - number) <= radius + abs(number) * mpmath.mpf(10) ** -DIGITS


@pytest.mark.parametrize("digits", [17, 50])
@pytest.mark.parametrize("quantity", ONE_POINT)
@pytest.mark.parametrize("nu", NUS)
def test_enclosure_contains_the_value_of_mpmath(nu, quantity, digits):
    x = points(nu)
    balls = pg.potential(nu=nu, realization="reference", digits=digits).enclosure(quantity, x)
    with mpmath.workdps(2 * DIGITS):
        for xi, ball in zip(x.tolist(), balls, strict=True):
            wanted = exact(quantity, nu, xi)
            assert contains(ball, wanted), (quantity, xi, ball, wanted)
            assert ball.rel_accuracy_bits() >= 3.32 * digits  # as many digits as were asked for


@pytest.mark.parametrize("quantity", ["difference", "secant"])
@pytest.mark.parametrize("step", [1e-12, 1e-3, 10.0])
@pytest.mark.parametrize("nu", NUS)
def test_two_point_enclosures_contain_the_value_of_mpmath(nu, step, quantity):
    a = points(nu)
    b = a * (1 + step)
    balls = pg.potential(nu=nu, realization="reference").enclosure(quantity, a, b)
    with mpmath.workdps(2 * DIGITS):
        for low, high, ball in zip(a.tolist(), b.tolist(), balls, strict=True):
            assert contains(ball, exact(quantity, nu, low, high)), (low, high, ball)


@pytest.mark.parametrize("dim", [2, 129, 4096, 100_000])
@pytest.mark.parametrize("quantity", ONE_POINT)
def test_seventeen_and_sixty_digits_agree(dim, quantity):
    """Two enclosures of one number overlap, and round to the same double or its neighbour."""
    x = points(dim / 2 - 1)
    few, many = (pg.potential(dim=dim, realization="reference", digits=d) for d in (17, 60))
    assert all(p.overlaps(q) for p, q in zip(few.enclosure(quantity, x), many.enclosure(quantity, x), strict=True))
    a, b = getattr(few, quantity)(x), getattr(many, quantity)(x)
    assert ((a - b).abs() <= 2.0**-52 * b.abs()).all()


def test_closed_form_at_dim_three():
    """R_{1/2}(x) = coth x - 1/x, and I_{1/2}(x) = sqrt(2 / (pi x)) sinh x."""
    x = torch.tensor([0.01, 0.5, 1.0, 8.0, 300.0], dtype=torch.float64)
    pot = pg.potential(dim=3, realization="reference")
    with mpmath.workdps(2 * DIGITS):
        for xi, slope, value in zip(x.tolist(), pot.enclosure("slope", x), pot.enclosure("value", x), strict=True):
            assert contains(slope, mpmath.coth(xi) - 1 / mpmath.mpf(xi))
            assert contains(value, mpmath.log(mpmath.sqrt(2 / mpmath.pi) * mpmath.sinh(xi) / xi))


def test_zero_and_signs():
    pot = pg.potential(dim=8, realization="reference")
    x = torch.tensor([0.0, 2.0, -2.0], dtype=torch.float64)
    value, slope, curvature = pot.value(x), pot.slope(x), pot.curvature(x)
    assert value[0].item() == pytest.approx(-3 * np.log(2) - np.log(6), rel=2.0**-51)
    assert (slope[0].item(), curvature[0].item(), pot.complement(x)[0].item()) == (0.0, 1 / 8, 1.0)
    assert (value[1] == value[2], slope[1] == -slope[2], curvature[1] == curvature[2]) == (True, True, True)
    assert pot.ratio_bound() == 0.0
    assert pot.offset == 0.0


def test_value_is_differentiable_with_the_exact_ratio():
    x = torch.tensor([0.5, 3.0], dtype=torch.float64, requires_grad=True)
    pot = pg.potential(dim=3, realization="reference")
    pot.value(x).sum().backward()
    assert torch.equal(x.grad, pot.slope(x.detach()))


def test_enclosures_keep_the_shape_and_broadcast():
    pot = pg.potential(dim=8, realization="reference")
    balls = pot.enclosure("difference", torch.ones(3, 1), torch.full((2,), 2.0))
    assert balls.shape == (3, 2)
    assert all(isinstance(ball, flint.arb) for ball in balls.ravel())
    assert not pot.enclosure("slope", torch.tensor([torch.inf]))[0].is_finite()


def test_precision_of_flint_is_left_as_it_was():
    before = flint.ctx.prec
    pg.potential(dim=8, realization="reference", digits=60).slope(torch.ones(1))
    assert flint.ctx.prec == before


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (("ratio", torch.ones(1)), ValueError, ("quantity", "'slope'", "got 'ratio'")),
        (("slope",), TypeError, ("slope", "takes 1 tensor,", "got 0")),
        (("slope", torch.ones(1), torch.ones(1)), TypeError, ("slope", "takes 1 tensor,", "got 2")),
        (("secant", torch.ones(1)), TypeError, ("secant", "takes 2 tensors", "got 1")),
        (("slope", 1.0), TypeError, ("points", "1.0 (float)")),
        (("slope", torch.ones(1, dtype=torch.int64)), TypeError, ("points", "int64")),
    ],
)
def test_wrong_arguments(arguments, kind, words):
    with pytest.raises(kind) as error:
        pg.potential(dim=8, realization="reference").enclosure(*arguments)
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize(("digits", "kind"), [(16, ValueError), (50.0, TypeError)])
def test_wrong_digits(digits, kind):
    with pytest.raises(kind, match="digits must be an integer >= 17"):
        pg.potential(dim=10, realization="reference", digits=digits)


def test_missing_flint_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    pot = pg.potential(dim=12, realization="reference")
    with pytest.raises(ImportError, match=r"needs python-flint: pip install 'pairgrad\[reference\]'"):
        pot.slope(torch.ones(1))


def test_the_secant_between_opposite_points_is_zero():
    pot, x = pg.potential(12, "reference"), torch.tensor([0.5, -30.0], dtype=torch.float64)
    assert pot.secant(x, -x).tolist() == [0.0, 0.0]
    assert torch.equal(pot.secant(x, x), pot.slope(x))
    assert pot.difference(x, -x).tolist() == [0.0, 0.0]
    assert pot.difference(x, x).tolist() == [0.0, 0.0]


def test_below_zero_the_slope_turns_its_sign():
    """Of half an order too, where the Bessel functions of a negative number are no real ones."""
    pot, x = pg.potential(11, "reference"), torch.tensor([0.25, 0.75, 4.0], dtype=torch.float64)
    assert torch.equal(pot.slope(-x), -pot.slope(x))


@pytest.mark.parametrize("quantity", ONE_POINT)
def test_below_zero_there_are_as_many_digits(quantity):
    x = torch.tensor([-3.0, 3.0], dtype=torch.float64)
    assert min(ball.rel_accuracy_bits() for ball in pg.potential(12, "reference", digits=50).enclosure(quantity, x)) >= 50 * np.log2(10)


def test_its_certificate_is_zero():
    certificate = pg.potential(12, "reference").ratio_certificate()
    assert (certificate.bound, certificate.relative_bound) == (0.0, 0.0)


@pytest.mark.parametrize("digits", [17, 50])
@pytest.mark.parametrize("quantity", ["complement", "curvature", "deficit", "difference"])
def test_there_are_as_many_digits_where_terms_cancel(quantity, digits):
    """1 - R is about 1 / x there and R' 1 / x^2, and neighbours differ by 1e-15: the precision is raised until the digits are there."""
    x = torch.logspace(2, 60, 117, dtype=torch.float64)
    points = (x, x * (1 + 1e-15)) if quantity == "difference" else (x,)
    balls = pg.potential(12, "reference", digits=digits).enclosure(quantity, *points)
    assert min(ball.rel_accuracy_bits() for ball, a, b in zip(balls, x, points[-1], strict=True) if quantity != "difference" or a != b) >= (
        digits * np.log2(10)
    )
