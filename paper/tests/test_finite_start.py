"""The finite-start theorems against eqs. miller-b to miller-three as they are printed: a linear recurrence on b_i in mpmath, differentiated by mpmath.

The truth runs at more digits than what is tested, so that it has no error of its own to forgive.
"""

import functools
import itertools
import math
from fractions import Fraction

import flint
import mpmath
import pytest
import torch

from pairgrad.ground import BallArithmetic, MpmathArithmetic, TorchArithmetic
from pairgrad_paper.finite_start import FiniteStart

from .finite import finite_start

TORCH, BALLS, MP = TorchArithmetic(), BallArithmetic(), MpmathArithmetic()
DIGITS = 110
UNIT = 2.0**-53

# At 110 digits: some hundred steps lose up to three digits, a subtraction of potentials of size 1e6 loses six, and errors E of 1e-6 six more.
DIRECT = mpmath.mpf(10) ** -90
IDENTITY = mpmath.mpf(10) ** -80
# Tanh-sinh at 33 digits is exact to them on analytic pieces; integrals and potentials up to 3e3 that are subtracted lose four.
QUADRATURE_DIGITS, QUADRATURE = 33, mpmath.mpf(10) ** -26
# A remainder c x^-p with |c| >= 1/16 is followed by terms whose coefficients are below M^6 < 5e13: at x = 1e20 they change it by less than 1e-5.
# A value there leaves 90 digits after the point, a remainder needs 40.
FAR, ORDER = mpmath.mpf(10) ** 20, 1e-5

CASES = [(1, 2), (1, 3), (2, 4), (2, 5), (5, 10), (5, 8), (5, 7), (5, 9), (6, 12), (6, 8), (6, 9), (6, 11), (63, 126), (64, 128), (63, 189)]
OVERSHOOTING = [(nu, start) for nu, start in CASES if (start - nu) % 2]
ids = [f"nu={nu},M={start}" for nu, start in CASES]
every_case = pytest.mark.parametrize(("nu", "start"), CASES, ids=ids)


@pytest.fixture(autouse=True)
def _precision():
    before = flint.ctx.prec
    flint.ctx.prec = 160
    with mpmath.workdps(DIGITS):
        yield
    flint.ctx.prec = before


def literal(nu, start, x, epsilon=0):
    """Value and raw ratio, from the b_i themselves."""
    finite = finite_start(nu, start, mpmath.mpf(x))
    return finite.value - nu * mpmath.log(1 + mpmath.mpf(epsilon) / x), finite.raw_ratio


def literal_derivative(nu, start, x, epsilon=0):
    """A central difference of twice the digits: what it truncates and what it rounds are both below the digits in use."""
    x, digits = mpmath.mpf(x), mpmath.mp.dps
    with mpmath.workdps(3 * digits + 20):
        h = x * mpmath.mpf(10) ** -(digits + 5)
        return (literal(nu, start, x + h, epsilon)[0] - literal(nu, start, x - h, epsilon)[0]) / (2 * h)


def exact(nu, x):
    x = mpmath.mpf(x)
    order, above = mpmath.besseli(nu, x), mpmath.besseli(nu + 1, x)
    return mpmath.log(order) - nu * mpmath.log(x), above / order


def points(*values):
    return torch.tensor(values, dtype=torch.float64)


def assert_close(got, wanted, tol, *context):
    assert abs(got - wanted) <= tol, (context, mpmath.nstr(got, 30), mpmath.nstr(wanted, 30), mpmath.nstr(got - wanted, 3))


@pytest.mark.parametrize("epsilon", [0.0, 0.125])
@every_case
def test_functions_are_those_of_the_printed_recurrence(nu, start, epsilon):
    case = FiniteStart(nu, start, epsilon)
    for x in (0.01 * nu, 1.5 * nu, 40.0 * nu, 1e5):
        value, ratio = literal(nu, start, x, epsilon)
        derivative = literal_derivative(nu, start, x, epsilon)
        exact_value, exact_ratio = exact(nu, x)
        for got, wanted in (
            (case.value(MP, x), value),
            (case.derivative(MP, x), derivative),
            (case.ratio(MP, x), ratio),
            (case.ratio(MP, x, clipped=True), min(ratio, 1)),
            (case.exact_value(MP, x), exact_value),
            (case.exact_ratio(MP, x), exact_ratio),
            (case.potential_error(MP, x), value - exact_value),
            (case.error_slope(MP, x), derivative - exact_ratio),
            (case.residual(MP, x), derivative - min(ratio, 1)),
            (case.residual(MP, x, clipped=False), derivative - ratio),
        ):
            assert_close(got, wanted, DIRECT * (1 + abs(wanted)), x)


@functools.cache
def ratio_gap(nu, start, x):
    """R~ - R and 1 - R by subtraction, to 110 digits of either.

    The subtraction of the first loses what the ratios agree in. They differ by R_M times all R~_j R_j with nu <= j < M (eq. miller-product), and
    a ratio of order j is at least 1 / (1 + 2 (j + 1) / x), so the number of digits lost is known beforehand.
    """
    lost = 2 * sum(math.log10(1 + 2 * i / x) for i in range(nu + 1, start + 2))
    with mpmath.workdps(DIGITS + int(lost) + 10):
        ratio = exact(nu, x)[1]
        return literal(nu, start, x)[1] - ratio, 1 - ratio


@pytest.mark.parametrize("nu", [1, 2, 3, 10, 63])
def test_sign_law(nu):
    """eqs. main-sign, miller-sign, over the axis and for both parities of the start."""
    starts = {nu + 1, nu + 2, nu + 3, 2 * nu, 2 * nu + 1, 2 * nu + 2, 3 * nu + 1} - {nu}
    for start, r in itertools.product(starts, (0.01, 1.0, 30.0, 1e5)):
        sign = mpmath.sign(ratio_gap(nu, start, r * nu)[0])
        case = FiniteStart(nu, start)
        assert case.sign == sign, (nu, start, r)
        assert mpmath.sign(case.product(MP, r * nu)) == sign, (nu, start, r)
    assert FiniteStart(nu).sign == (-1) ** (nu + 1)


@every_case
def test_product_formula(nu, start):
    """eq. miller-product, to 90 digits of the product even where a subtraction needs hundreds more."""
    case = FiniteStart(nu, start)
    for r in (0.01, 1.0, 30.0, 1e5):
        x = r * nu
        gap, room = ratio_gap(nu, start, x)
        assert_close(case.product(MP, x), gap / mpmath.mpf(x), DIRECT * abs(gap / mpmath.mpf(x)), x)
        assert_close(case.ratio_error(MP, x), gap, DIRECT * abs(gap), x)
        assert_close(case.ratio_error(MP, x, clipped=True), min(gap, room), DIRECT * abs(min(gap, room)), x)


@every_case
def test_ratio_error_is_right_in_relative_terms_in_float64(nu, start):
    """Per step two ratios, which carry four roundings each and a contracted older error, and their product: sixteen units are enough."""
    relative = (1.0, 30.0, 1e5)
    raw, clipped = (
        FiniteStart(nu, start).ratio_error(TORCH, points(*(r * nu for r in relative)), clipped=c).tolist() for c in (False, True)
    )
    for index, r in enumerate(relative):
        gap, room = ratio_gap(nu, start, r * nu)
        tol = 16 * (start - nu) * UNIT
        assert_close(raw[index], gap, tol * abs(gap), r)
        assert_close(clipped[index], min(gap, room), tol * abs(min(gap, room)), r)


def walk(start):
    """a_j and c_j by the steps of the paper's proof, c_{i-1} = 1 / a_i and a_{i-1} = 1 / (2 i + c_i), from c_M = 0."""
    coefficient, is_c, found = Fraction(0), True, {}
    for i in range(start, 0, -1):
        coefficient, is_c = (1 / (2 * i + coefficient), False) if is_c else (1 / coefficient, True)
        found[i - 1] = (coefficient, is_c)
    return found


@every_case
def test_coefficients_are_exact(nu, start):
    case, found = FiniteStart(nu, start), walk(start)
    below = [found[j] for j in range(nu)]
    assert (case.ratio_coefficient, case.sign < 0) == found[nu]
    assert case.constant_factor == math.prod(coefficient for coefficient, _ in below)
    assert case.log_coefficient == 2 * sum(is_c for _, is_c in below) + Fraction(1, 2)
    assert case.error_exponent == nu + Fraction(1, 2) - case.log_coefficient
    assert type(case.ratio_coefficient) is type(case.constant_factor) is type(case.residual_coefficient) is Fraction


def test_coefficients_of_the_paper():
    """Theorem miller-parity and eq. clip-phase-app at M = 2 nu, and what the paper leaves out: even nu."""
    for nu in (1, 3, 63, 255):
        case = FiniteStart(nu)
        assert case.ratio_coefficient == Fraction(2, (nu + 1) * (3 * nu + 1))
        assert case.log_coefficient == -case.residual_coefficient == nu + Fraction(3, 2)
        assert (case.error_exponent, case.residual_limit, case.constant_factor) == (-1, 0, Fraction((nu + 1) * (3 * nu + 1), 2))
    for nu in (2, 4, 64, 256):
        case = FiniteStart(nu)
        assert case.ratio_coefficient == Fraction(nu * (3 * nu + 2), 2)
        assert case.log_coefficient == nu + Fraction(1, 2)
        assert case.residual_coefficient == -(nu + Fraction(1, 2)) - case.ratio_coefficient
        assert (case.error_exponent, case.residual_limit, case.constant_factor) == (0, 1, 1)


@pytest.mark.parametrize(
    ("nu", "raw", "scaled", "error"),
    [
        (63, "1.645e+05", "1.645e-04", "1.2e-11"),
        (64, "6.208e-06", "6.208e+03", "1.3e-11"),
        (255, "1.020e+04", "1.020e-05", "3.2e-09"),
        (256, "9.856e-05", "9.856e+04", "3.3e-09"),
    ],
)
def test_parity_table(nu, raw, scaled, error):
    """tab:parity-counterfactual, every digit of it, at x = 1e9."""
    case, x = FiniteStart(nu), mpmath.mpf(10) ** 9
    ratio = case.ratio(MP, x)
    assert f"{float(ratio):.3e}" == raw
    assert f"{float(ratio / x if nu % 2 else ratio * x):.3e}" == scaled
    assert f"{float(case.ratio_coefficient):.3e}" == scaled  # the limit, to the same digits
    assert f"{float(abs(ratio / case.ratio_asymptote(MP, x) - 1)):.1e}" == error
    assert (case.sign == 1) == (nu % 2 == 1) == (case.ratio_error(MP, x) > 0)


QUANTITIES = {
    "ratio": (lambda case, x: case.ratio(MP, x) / case.ratio_asymptote(MP, x) - 1, 2),
    "value": (lambda case, x: case.value(MP, x) - case.value_asymptote(MP, x), 1),
    "derivative": (lambda case, x: case.derivative(MP, x) - case.derivative_asymptote(MP, x), 2),
    "error": (lambda case, x: case.potential_error(MP, x) - case.error_asymptote(MP, x), 2),
    "residual": (lambda case, x: case.residual(MP, x) - case.residual_asymptote(MP, x), 2),
    "score": (lambda case, x: case.score_error(MP, x, 3 * x) - case.score_error_asymptote(MP, x, 3 * x), 2),
}


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("epsilon", [0.0, 0.375])
@every_case
def test_what_an_asymptote_leaves_falls_as_claimed(nu, start, epsilon, quantity):
    """Ten times the argument, 10^p times less: a wrong coefficient or constant would leave something that falls more slowly, or not at all."""
    left, power = QUANTITIES[quantity]
    case = FiniteStart(nu, start, epsilon)
    near, far = left(case, FAR), left(case, 10 * FAR)
    if quantity == "ratio" and start == nu + 1:  # one step: R~ is x / (2 nu + 2), nothing is left
        assert max(abs(near), abs(far)) < DIRECT
        return
    assert abs(near) < ORDER
    assert_close(near / far, mpmath.mpf(10) ** power, ORDER * 10**power, mpmath.nstr(near, 5), mpmath.nstr(far, 5))


def test_even_orders_end_at_the_exact_potential():
    """The case the paper leaves out, at M = 2 nu: E = nu^2 / (2 x) -> 0 and E' = -nu^2 / (2 x^2), while the clipped residual tends to 1."""
    for nu in (2, 6, 64):
        case = FiniteStart(nu)
        assert_close(case.potential_error(MP, FAR) * FAR, mpmath.mpf(nu * nu) / 2, ORDER)
        assert_close(case.error_slope(MP, FAR) * FAR**2, -mpmath.mpf(nu * nu) / 2, ORDER)
        assert_close(case.residual(MP, FAR), 1, ORDER)
        assert case.ratio(MP, FAR, clipped=True) == case.ratio(MP, FAR) < ORDER


@every_case
def test_constant_in_every_arithmetic(nu, start):
    case = FiniteStart(nu, start)
    factor = math.prod(coefficient for coefficient, _ in (walk(start)[j] for j in range(nu)))
    wanted = mpmath.log(mpmath.mpf(factor.numerator) / factor.denominator) - mpmath.log(2 * mpmath.pi) / 2
    assert_close(case.constant(MP), wanted, DIRECT)
    assert_close(case.constant(TORCH).item(), wanted, 4 * UNIT * (1 + abs(wanted)))
    assert contains(case.constant(BALLS), wanted)


@pytest.mark.parametrize(("nu", "digits"), [(63, "2717.9"), (255, "34906.3")])
def test_published_onsets(nu, digits):
    onset = FiniteStart(nu).clip_onset(MP)
    assert_close(literal(nu, 2 * nu, onset)[1], 1, DIRECT)
    assert f"{float(onset):.1f}" == f"{FiniteStart(nu).clip_onset(TORCH).item():.1f}" == digits


@pytest.mark.parametrize(("nu", "start"), OVERSHOOTING)
def test_onset_is_where_the_clip_begins(nu, start):
    case = FiniteStart(nu, start)
    onset = case.clip_onset(MP)
    assert_close(literal(nu, start, onset)[1], 1, DIRECT)
    grid = [onset * mpmath.mpf(10) ** (mpmath.mpf(k) / 8) for k in range(-32, 33)]
    ratios = [literal(nu, start, x)[1] for x in grid]
    assert all(a < b for a, b in itertools.pairwise(ratios))  # so there is no other
    ball = case.clip_onset(BALLS)
    assert contains(ball, onset)
    assert ball.rel_accuracy_bits() >= 160 - 16  # M roundings on one side, the width of the crossing on the other
    x = case.clip_onset(TORCH)
    assert x.dtype == torch.float64
    assert x.shape == ()
    assert case.ratio(TORCH, x, clipped=True) == 1
    if start > nu + 1:
        assert case.ratio(TORCH, torch.nextafter(x, points(0.0)[0])) < 1
        assert abs(x.item() / onset - 1) < 16 * start * UNIT
    else:
        assert onset == x.item() == ball == 2 * nu + 2


@pytest.mark.parametrize(("nu", "start"), [(2, None), (64, None), (5, 7), (63, 189)])
@pytest.mark.parametrize("ops", [MP, TORCH, BALLS], ids=lambda ops: ops.name)
def test_no_onset_below_the_exact_ratio(nu, start, ops):
    with pytest.raises(ValueError, match=f"odd start - nu, got nu = {nu} and start = {start or 2 * nu}: it stays below the exact ratio"):
        FiniteStart(nu, start).clip_onset(ops)


@pytest.mark.parametrize("epsilon", [0.0, 1e-20, 0.125])
@every_case
def test_residual_decomposes(nu, start, epsilon):
    """eq. defect-decomposition. The parts come from other formulas than the whole: `ratio_error` is the product."""
    case = FiniteStart(nu, start, epsilon)
    for x, clipped in itertools.product((0.3 * nu, 9.0 * nu, 1e4 * nu), (True, False)):
        parts = case.error_slope(MP, x) - case.ratio_error(MP, x, clipped=clipped)
        assert_close(case.residual(MP, x, clipped=clipped), parts, IDENTITY, x, clipped)


@pytest.mark.parametrize("epsilon", [0.0, 1e-20, 0.125])
@every_case
def test_score_error_is_an_endpoint_difference(nu, start, epsilon):
    """eqs. miller-score-endpoint and miller-score-epsilon, with E of the ideal recurrence and the epsilon term written out."""
    case, ideal = FiniteStart(nu, start, epsilon), FiniteStart(nu, start)
    for kappa, r in ((0.5 * nu, 2.0 * nu), (50.0 * nu, 1.5 * nu), (1e5, 1.1e5)):
        got = case.score_error(MP, kappa, r)
        score = literal(nu, start, r, epsilon)[0] - literal(nu, start, kappa, epsilon)[0]
        assert_close(got, score - (exact(nu, r)[0] - exact(nu, kappa)[0]), IDENTITY, kappa, r)
        endpoints = ideal.potential_error(MP, r) - ideal.potential_error(MP, kappa)
        correction = nu * (mpmath.log(1 + mpmath.mpf(epsilon) / r) - mpmath.log(1 + mpmath.mpf(epsilon) / kappa))
        assert_close(got, endpoints - correction, IDENTITY, kappa, r)
        assert_close(case.epsilon_term(MP, r), nu * mpmath.log(1 + mpmath.mpf(epsilon) / r), DIRECT, r)
        assert_close(case.value(MP, r), ideal.value(MP, r) - case.epsilon_term(MP, r), IDENTITY, r)


@pytest.mark.parametrize("clipped", [True, False])
@pytest.mark.parametrize(
    ("nu", "start", "epsilon", "kappa", "r"),
    [
        (5, 10, 0.0, 8.0, 60.0),  # over the onset, at 24.6
        (5, 10, 0.125, 60.0, 8.0),  # back
        (5, 10, 0.0, 100.0, 300.0),  # beyond it
        (6, 12, 0.0, 8.0, 60.0),  # no onset
        (5, 7, 0.0, 8.0, 60.0),
        (63, 126, 0.0, 2000.0, 3000.0),
    ],
)
def test_score_error_is_the_integral_of_ratio_error_and_residual(nu, start, epsilon, kappa, r, clipped):
    """eqs. miller-score-raw-integral, miller-score-clip-integral; the first part also by Gauss-Legendre on the printed recurrence."""
    case = FiniteStart(nu, start, epsilon)
    with mpmath.workdps(QUADRATURE_DIGITS):
        parts = case.score_error_integrals(MP, kappa, r, clipped=clipped)
        assert parts.quadrature_estimate < QUADRATURE
        assert_close(parts.ratio_error + parts.residual, case.score_error(MP, kappa, r), QUADRATURE)
        ends = [kappa, r]
        if clipped and case.sign > 0:
            onset = mpmath.findroot(lambda x: literal(nu, start, x)[1] - 1, (2 * nu + 2, (start + 1) ** 2), solver="anderson")
            ends = [kappa, onset, r] if min(ends) < onset < max(ends) else ends

        def gap(x):
            ratio = literal(nu, start, x)[1]
            return (min(ratio, 1) if clipped else ratio) - exact(nu, x)[1]

        again, doubt = mpmath.quad(gap, ends, method="gauss-legendre", error=True)
        assert doubt < QUADRATURE
        assert_close(parts.ratio_error, again, QUADRATURE)


def contains(ball, truth):
    """The ball holds the number that mpmath knows to a hundred digits, or (if it is exact) one within 1e-90 of it."""
    before = flint.ctx.prec
    try:
        flint.ctx.prec = 400
        return ball.overlaps(flint.arb(mpmath.nstr(truth, 105), mpmath.nstr(abs(truth) * DIRECT, 5)))
    finally:
        flint.ctx.prec = before


def every_function(case, ops, x, y):
    """All methods at a point, or at a pair of them, in a fixed order."""
    single = (
        "value",
        "derivative",
        "ratio",
        "exact_value",
        "exact_ratio",
        "potential_error",
        "error_slope",
        "residual",
        "product",
        "ratio_error",
    )
    single += ("epsilon_term", "ratio_asymptote", "value_asymptote", "derivative_asymptote", "error_asymptote", "residual_asymptote")
    yield from ((name, getattr(case, name)(ops, x)) for name in single)
    yield from ((f"clipped {name}", getattr(case, name)(ops, x, clipped=True)) for name in ("ratio", "ratio_error"))
    yield "raw residual", case.residual(ops, x, clipped=False)
    yield from ((name, getattr(case, name)(ops, x, y)) for name in ("score_error", "score_error_asymptote"))


@pytest.mark.parametrize("epsilon", [0.0, 0.125])
@every_case
def test_balls_contain_and_float64_is_near(nu, start, epsilon):
    """Balls at 160 bits hold the truth and are narrow. In float64 the absolute error is that of the largest number on the way.

    That is the raw ratio, which all M steps round, or a potential: at most nu logarithms up to S = x + nu (|log x| + log 2M) are summed up.
    """
    case = FiniteStart(nu, start, epsilon)
    for x in (0.7 * nu, 30.0 * nu, 1e4):
        y = 1.25 * x
        size = y + nu * (abs(math.log(y)) + math.log(2 * start))
        rows = zip(
            every_function(case, MP, x, y),
            every_function(case, BALLS, x, y),
            every_function(case, TORCH, points(x), points(y)),
            strict=True,
        )
        for (name, truth), (_, ball), (_, near) in rows:
            assert contains(ball, truth), (name, x, ball, mpmath.nstr(truth, 50))
            assert ball.rad() < 1e-38 * size * (1 + float(abs(truth))), (name, x, ball)
            assert near.dtype == torch.float64
            assert near.shape == (1,)
            summed = any(word in name for word in ("value", "potential", "error_asymptote", "score"))
            scale = (2 * nu + 16) * size if summed else 8 * start * (1 + abs(truth) + case.ratio(MP, x))
            assert_close(near.item(), truth, scale * UNIT, name, x)


def test_balls_take_an_inexact_point():
    """The onset is a ball; the functions can be evaluated on it."""
    case = FiniteStart(63)
    ball, onset = case.clip_onset(BALLS), case.clip_onset(MP)
    assert ball.rad() > 0
    for (name, truth), (_, got) in zip(every_function(case, MP, onset, 3000), every_function(case, BALLS, ball, 3000), strict=True):
        assert contains(got, truth), (name, got, mpmath.nstr(truth, 50))


def test_points_are_taken_as_they_come():
    case = FiniteStart(3)
    third = case.ratio(MP, mpmath.mpf(1) / 3)
    assert case.ratio(MP, Fraction(1, 3)) == third
    assert contains(case.ratio(BALLS, Fraction(1, 3)), third)
    assert case.ratio(MP, "0.1") == case.ratio(MP, mpmath.mpf(1) / 10) != case.ratio(MP, 0.1)
    half = torch.tensor([3.0, 40.0], dtype=torch.float32)
    assert torch.equal(case.residual(TORCH, half), case.residual(TORCH, half.double()))
    other = mpmath.mp.clone()  # the precision is that of the context given, not of mpmath.mp
    other.dps = 50
    assert 1e-60 < abs(mpmath.mpf(case.exact_ratio(MpmathArithmetic(other), 7)) - exact(3, 7)[1]) < 1e-45


def test_equal_arguments_are_equal_objects():
    assert FiniteStart(63) == FiniteStart(63, 126) == FiniteStart(63, 126, 0)
    assert hash(FiniteStart(63)) == hash(FiniteStart(63, 126))
    assert FiniteStart(63) != FiniteStart(63, 127) != FiniteStart(63, 127, 1e-20)
    assert repr(FiniteStart(3)) == "FiniteStart(nu=3, start=6, epsilon=0.0)"


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ((0,), ValueError, ("nu", ">= 1", "got 0", "dim = 2 nu + 2")),
        ((63.0,), TypeError, ("nu", "integer", "63.0 (float)")),
        ((True,), TypeError, ("nu", "integer", "True (bool)")),
        ((63, 63), ValueError, ("start", ">= 64", "got 63", "nu = 63")),
        ((63, 126.0), TypeError, ("start", "integer", "126.0 (float)")),
        ((63, None, -1e-20), ValueError, ("epsilon", ">= 0", "-1e-20")),
        ((63, None, math.nan), ValueError, ("epsilon", "finite", "nan")),
        ((63, None, "tiny"), TypeError, ("epsilon", "real number", "'tiny'")),
    ],
)
def test_refused_arguments(arguments, kind, words):
    with pytest.raises(kind) as error:
        FiniteStart(*arguments)
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize(
    ("ops", "x", "kind", "words"),
    [
        *((ops, x, ValueError, ("x must be positive and finite", repr(x))) for ops in (MP, BALLS) for x in (0, -1.5, math.inf, math.nan)),
        *((ops, x, TypeError, ("x must be a real number", type(ops).__name__)) for ops in (MP, BALLS) for x in ("a", 1j, torch.ones(2))),
        *(
            (TORCH, points(1.0, x), ValueError, ("x must be positive and finite", "float64 tensor"))
            for x in (0.0, -1.0, math.inf, math.nan)
        ),
        (TORCH, 2.0, TypeError, ("x must be a floating-point torch tensor", "2.0 (float)")),
        (TORCH, torch.ones(2, dtype=torch.int64), TypeError, ("x must be a floating-point torch tensor", "int64")),
        (math, 2.0, TypeError, ("ops must be a TorchArithmetic, an MpmathArithmetic or a BallArithmetic", "module")),
    ],
)
def test_refused_points(ops, x, kind, words):
    case = FiniteStart(3)
    single = (case.value, case.ratio, case.derivative, case.exact_value, case.product, case.ratio_error, case.residual, case.epsilon_term)
    for function in (*single, case.ratio_asymptote, case.value_asymptote, case.error_asymptote, case.residual_asymptote):
        with pytest.raises(kind) as error:
            function(ops, x)
        assert all(word in str(error.value) for word in words), (function, error.value)


def test_refused_ends_of_a_score():
    case = FiniteStart(3)
    for function in (case.score_error, case.score_error_integrals, case.score_error_asymptote):
        with pytest.raises(ValueError, match="concentration must be positive"):
            function(MP, -1, 1)
        with pytest.raises(ValueError, match="radius must be positive"):
            function(MP, 1, 0)
    with pytest.raises(TypeError, match=r"MpmathArithmetic for quadrature, got TorchArithmetic: pass pairgrad\.ground\.MpmathArithmetic"):
        case.score_error_integrals(TORCH, points(1.0), points(2.0))
