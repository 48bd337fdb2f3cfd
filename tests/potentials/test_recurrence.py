"""`original`, `consistent` and `log-miller` against the literal recurrence at 60 digits, and against the figures of the paper.

The reference is eq. miller-b as it is printed, a linear recurrence on b_i in mpmath; the library runs ratios of them in float64.
"""

import itertools
import math

import mpmath
import pytest
import torch

import pairgrad as pg
from pairgrad.ground import MpmathArithmetic

from .literal import EPSILON, UNIT, literal, literal_slope, running_bounds

DIGITS = 60
NUS = (1, 2, 63, 64, 255)
STARTS = {"2nu": lambda nu: 2 * nu, "nu+1": lambda nu: nu + 1, "3nu": lambda nu: 3 * nu, "4nu": lambda nu: 4 * nu}
RELATIVE_RADII = (1e-3, 0.03, 0.5, 1.0, 2.0, 7.3, 40.0, 400.0, 1e4)
CASES = [pytest.param(nu, start(nu), id=f"nu={nu},M={name}") for nu in NUS for name, start in STARTS.items() if start(nu) > nu]


def autograd_bound(nu, x):
    """Reverse mode sums nu contributions +1/x and nu of -1/x that cancel: nu roundings of sums up to nu/x, about 16 of each term."""
    return (nu * nu + 16 * nu) / x * UNIT


# Central differences of step h err by h^2/6 times third derivatives, here products of three scores' slopes (<= 1) and weights (<= 1/4).
FIELD_TRUNCATION = 1e-2**2 / 6 / 4


@pytest.fixture(autouse=True)
def _precision():
    with mpmath.workdps(DIGITS):
        yield


def exact_ratio(nu, x):
    return mpmath.besseli(nu + 1, x) / mpmath.besseli(nu, x)


def points(*values):
    return torch.tensor(values, dtype=torch.float64)


def report(got, wanted, **arguments):
    return f"{arguments}: got {got!r}, wanted {mpmath.nstr(wanted, 20)}, error {mpmath.nstr(got - wanted, 3)}"


@pytest.mark.parametrize(("nu", "start"), CASES)
def test_value_and_raw_ratio_match_the_literal_recurrence(nu, start):
    x = points(*(nu * r for r in RELATIVE_RADII))
    pot = pg.potential(nu=nu, realization="original", start=start, clip=False)
    for xi, value, ratio in zip(x.tolist(), pot.value(x).tolist(), pot.slope(x).tolist(), strict=True):
        value_ref, ratio_ref = literal(nu, start, xi)
        value_tol, ratio_tol, _ = running_bounds(nu, start, xi)
        assert abs(value - value_ref) <= value_tol, report(value, value_ref, x=xi, tol=value_tol)
        assert abs(ratio - ratio_ref) <= ratio_tol * ratio_ref, report(ratio, ratio_ref, x=xi, tol=ratio_tol)


@pytest.mark.parametrize("nu", NUS)
@pytest.mark.parametrize("name", ["original", "consistent", "log-miller"])
def test_formulas_in_mpmath_are_the_literal_recurrence(name, nu):
    """No rounding to hide behind: the lines that train, at 60 digits, are eqs. miller-b, miller-potential and miller-three."""
    formulas = pg.potential(nu=nu, realization=name).formulas()
    ops = MpmathArithmetic()
    for r in (1e-3, 0.5, 4.0, 400.0):
        x = mpmath.mpf(r * nu)
        value, ratio = literal(nu, 2 * nu, x)
        slope = literal_slope(nu, 2 * nu, x) if name == "consistent" else min(ratio, mpmath.mpf(1))
        assert mpmath.almosteq(formulas.value(ops, x), value, rel_eps=mpmath.mpf(10) ** -50), (x, formulas.value(ops, x), value)
        assert mpmath.almosteq(formulas.slope(ops, x), slope, rel_eps=mpmath.mpf(10) ** -28), (x, formulas.slope(ops, x), slope)


@pytest.mark.parametrize("derivative", ["tangent", "autograd"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("nu", NUS)
def test_consistent_value_is_the_original_value_bit_for_bit(nu, dtype, derivative):
    extremes = [0.0, 5e-324, 1e-310, 1e-45, 1e-38, 1e-20, 1e300, 3e38, math.inf, math.nan]
    x = torch.tensor(extremes + (nu * torch.logspace(-6, 8, 400, dtype=torch.float64)).tolist(), dtype=dtype)
    x = torch.cat([x, -x])
    original = pg.potential(nu=nu, realization="original").value(x)
    consistent = pg.potential(nu=nu, realization="consistent", derivative=derivative).value(x)
    assert original.dtype == dtype
    assert torch.equal(original.nan_to_num(-7.0), consistent.nan_to_num(-7.0))
    assert torch.equal(original.isnan(), x.isnan())


@pytest.mark.parametrize("derivative", ["tangent", "autograd"])
@pytest.mark.parametrize(("nu", "start"), [(nu, start) for nu in NUS for start in (2 * nu, 3 * nu + 1)])
def test_consistent_slope_is_the_derivative_of_the_finite_value(nu, start, derivative):
    x = points(*(nu * r for r in RELATIVE_RADII), 2.0, 4.0, 2.0 * nu)  # x = 2 i is where the two branches of the rescaling meet
    pot = pg.potential(nu=nu, realization="consistent", start=start, derivative=derivative)
    for xi, slope in zip(x.tolist(), pot.slope(x).tolist(), strict=True):
        slope_ref = literal_slope(nu, start, xi)
        tol = running_bounds(nu, start, xi)[2]
        if derivative == "autograd":
            tol += autograd_bound(nu, xi)
        assert abs(slope - slope_ref) <= tol, report(slope, slope_ref, x=xi, tol=tol)


@pytest.mark.parametrize("derivative", ["tangent", "autograd"])
def test_consistent_slope_contains_the_epsilon_term(derivative):
    """At x = 1e-12 and 1e-19 the derivative of -nu log(1 + epsilon / x) is nearly all of the slope (eq. miller-epsilon-potential)."""
    pot = pg.potential(nu=63, realization="consistent", derivative=derivative)
    x = points(1e-12, 1e-19, 1e-21)
    for xi, slope in zip(x.tolist(), pot.slope(x).tolist(), strict=True):
        term = 63 * mpmath.mpf(EPSILON) / (mpmath.mpf(xi) * (mpmath.mpf(xi) + EPSILON))
        slope_ref = term + literal_slope(63, 126, xi, epsilon=0)
        tol = 8 * UNIT * term + (autograd_bound(63, xi) if derivative == "autograd" else 0)
        assert abs(slope - slope_ref) <= tol, report(slope, slope_ref, x=xi)


@pytest.mark.parametrize("derivative", ["tangent", "autograd"])
@pytest.mark.parametrize("name", ["original", "consistent"])
def test_backward_multiplies_by_the_supplied_slope(name, derivative):
    options = {"derivative": derivative} if name == "consistent" else {}
    pot = pg.potential(dim=128, realization=name, **options)
    x = points(0.0, 0.5, 63.0, 1000.0, 4032.0, -4032.0).requires_grad_()
    (grad,) = torch.autograd.grad(pot.value(x).sum(), x)
    assert torch.equal(grad, pot.slope(x.detach()))


TINY = [5e-324, 1e-310, 1e-250, 1e-160]


@pytest.mark.parametrize("nu", [1, 63])
def test_tiny_x_original_slope(nu):
    """rho_nu = x / (2 nu + 2) to first order: exact to rounding, or to the spacing of subnormal numbers."""
    x = points(*TINY)
    got, wanted = pg.potential(nu=nu, realization="original").slope(x), x / (2 * nu + 2)
    assert ((got - wanted).abs() <= 4 * UNIT * wanted + 5e-324).all(), (got, wanted)


@pytest.mark.parametrize("nu", [1, 63])
def test_tiny_x_consistent_slope_and_curvature_without_epsilon(nu):
    """As above; the sum of tangents cancels x / 2 to x / (2 nu + 2), which costs a factor nu + 1 and nu roundings."""
    x = points(*TINY)
    pot = pg.potential(nu=nu, realization="consistent", epsilon=0.0)
    tol = 4 * (nu + 1) * UNIT
    assert ((pot.slope(x) * (2 * nu + 2) - x).abs() <= tol * (nu + 1) * x + 5e-324 * (2 * nu + 2)).all(), pot.slope(x)
    assert ((pot.curvature(x) - 1 / (2 * nu + 2)).abs() <= tol).all(), pot.curvature(x)


@pytest.mark.parametrize("nu", [1, 63])
def test_tiny_x_consistent_slope_with_epsilon(nu):
    """nu epsilon / (x (x + epsilon)) is nu / x to rounding, infinite where that overflows."""
    x = points(*TINY)
    got, wanted = pg.potential(nu=nu, realization="consistent").slope(x), nu / x
    assert torch.equal(got.isinf(), wanted.isinf()), (got, wanted)
    finite = ~wanted.isinf()
    assert ((got - wanted).abs()[finite] <= 8 * UNIT * wanted[finite]).all(), (got, wanted)


def test_huge_x_consistent_slope():
    x = points(1e100, 1e200, 1e300, torch.finfo(torch.float64).max, math.inf, -math.inf)
    assert torch.equal(pg.potential(dim=128, realization="consistent").slope(x), torch.sign(x))
    recorded = points(1e100, 1e150, math.inf, -math.inf)  # beyond 1e154 the recorded graph overflows, as documented
    assert torch.equal(pg.potential(dim=128, realization="consistent", derivative="autograd").slope(recorded), torch.sign(recorded))


def test_two_class_construction():
    """Appendix "A reproducible two-class construction": raw ratios, derivatives of the value, and J_12 - J_21."""
    kappa = points(4032.0, 8064.0)
    raw = pg.potential(dim=128, realization="original", clip=False).slope(kappa)
    g = pg.potential(dim=128, realization="original").slope(kappa)
    derivative = pg.potential(dim=128, realization="consistent").slope(kappa)
    assert [f"{v:.5f}" for v in raw.tolist()] == ["1.08748", "1.56080"]
    assert [f"{v:.6f}" for v in derivative.tolist()] == ["0.984317", "0.992073"]
    assert f"{((derivative[0] * g[1] - g[0] * derivative[1]) / 4).item():.5e}" == "-1.93915e-03"


@pytest.mark.parametrize(("name", "printed"), [("original", "-1.93910e-03"), ("consistent", None)])
def test_two_class_field_from_finite_differences(name, printed):
    """The same from the feature gradient that backward really gives, by differences with steps of 1e-2. Double backward would not see
    it: it differentiates the supplied slope, not the value."""
    pot = pg.potential(dim=128, realization=name)
    kappa = points(4032.0, 8064.0)

    def field(f):
        f = f.clone().requires_grad_()  # the other 126 coordinates stay 0
        q = pot.value((torch.diag(kappa) + f).norm(dim=1)) - pot.value(kappa)
        return torch.autograd.grad(torch.nn.functional.cross_entropy(q[None], torch.tensor([0])), f)[0]

    step = 1e-2
    shifts = step * torch.eye(2, dtype=torch.float64)
    columns = [(field(h) - field(-h)) / (2 * step) for h in shifts]  # columns[j][i] = J_ij
    antisymmetry = (columns[1][0] - columns[0][1]).item()
    if printed:
        assert f"{antisymmetry:.5e}" == printed
    else:
        assert abs(antisymmetry) < FIELD_TRUNCATION


@pytest.mark.parametrize(
    ("dim", "ratio", "supplied", "derivative", "defect"),
    [
        (128, 16, "0.938969", "0.938957", "1.19e-05"),
        (128, 64, "1.000000", "0.984317", "1.57e-02"),
        (512, 100, "0.990946", "0.990030", "9.16e-04"),
        (512, 392.35, "1.000000", "0.997445", "2.5555e-03"),
        (512, 393.11, "1.000000", "0.997449", "2.5506e-03"),
        (1024, 195.7, "0.995675", "0.994898", "7.77e-04"),
    ],
)
def test_defects_measured_on_the_public_code(dim, ratio, supplied, derivative, defect):
    """Defects measured on the public code, to the digits kept there. The last row is at the cap kappa = 1e5, that is x/nu = 195.69."""
    x = points(1e5 if ratio == 195.7 else ratio * (dim // 2 - 1))
    g = pg.potential(dim=dim, realization="original").slope(x).item()
    slope = pg.potential(dim=dim, realization="consistent").slope(x).item()
    assert (f"{g:.6f}", f"{slope:.6f}") == (supplied, derivative)
    digits = len(defect.split("e")[0]) - 2
    assert f"{g - slope:.{digits}e}" == defect


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
    """tab:parity-counterfactual: raw ratio at x = 1e9, its scaled form, and the distance from the limit of thm:miller-parity."""
    pot = pg.potential(nu=nu, realization="original", clip=False)
    ratio = pot.slope(points(1e9)).item()
    assert f"{ratio:.3e}" == raw
    assert f"{ratio / 1e9 if nu % 2 else ratio * 1e9:.3e}" == scaled
    at_high_precision = pot.formulas().slope(MpmathArithmetic(), mpmath.mpf(10) ** 9)
    limit = mpmath.mpf(2) * 10**9 / ((nu + 1) * (3 * nu + 1)) if nu % 2 else mpmath.mpf(nu * (3 * nu + 2)) / (2 * mpmath.mpf(10) ** 9)
    assert f"{float(abs(at_high_precision / limit - 1)):.1e}" == error


@pytest.mark.parametrize("nu", [1, 2, 63, 64, 255])
@pytest.mark.parametrize("extra", [1, 2, 3, 4])
def test_sign_of_the_ratio_error(nu, extra):
    """eq. main-sign, over the whole axis: in 60 digits of the library's own formulas, and in float64 where it can be seen."""
    start = nu + extra
    sign = (-1) ** (start - nu + 1)
    pot = pg.potential(nu=nu, realization="original", start=start, clip=False)
    for r in (1e-2, 0.3, 1.0, 5.0, 300.0):
        x = nu * r
        ratio_ref = exact_ratio(nu, x)
        assert mpmath.sign(pot.formulas().slope(MpmathArithmetic(), mpmath.mpf(x)) - ratio_ref) == sign, (nu, start, x)
        gap = pot.slope(points(x)).item() - ratio_ref
        if abs(gap) > 2 * running_bounds(nu, start, x)[1] * ratio_ref:
            assert mpmath.sign(gap) == sign, (nu, start, x, gap)


@pytest.mark.parametrize("nu", [1, 2, 63, 64, 255])
def test_clip_is_active_exactly_where_the_raw_ratio_reaches_one(nu):
    x = nu * torch.logspace(-2, 4, 600, dtype=torch.float64)
    raw = pg.potential(nu=nu, realization="original", clip=False).slope(x)
    supplied = pg.potential(nu=nu, realization="original").slope(x)
    assert torch.equal(supplied, torch.where(raw >= 1, 1.0, raw))
    assert bool((raw > 1).any()) == (nu % 2 == 1)  # even orders with an even start stay below the exact ratio
    curvature = pg.potential(nu=nu, realization="original").curvature(x)
    assert torch.equal(curvature == 0, raw >= 1)


@pytest.mark.parametrize("name", ["original", "log-miller"])
@pytest.mark.parametrize("clip", [0.5, 0.97, 1.0, 2.0])
def test_clip_is_an_upper_bound_of_the_slope_and_leaves_the_value_alone(name, clip):
    x = points(1.0, 63.0, 100.0, 4032.0, 8064.0, 1e6)
    raw = pg.potential(dim=128, realization=name, clip=False)
    clipped = pg.potential(dim=128, realization=name, clip=clip)
    assert torch.equal(clipped.slope(x), raw.slope(x).clamp(max=clip))
    assert torch.equal(clipped.slope(-x), -clipped.slope(x))
    assert torch.equal(clipped.value(x), raw.value(x))


def test_epsilon_moves_the_value_by_its_term_only():
    x = points(1e-3, 0.5, 40.0)
    ideal = pg.potential(dim=128, realization="original", epsilon=0.0)
    shifted = pg.potential(dim=128, realization="original", epsilon=0.01)
    for xi, value in zip(x.tolist(), (ideal.value(x) - shifted.value(x)).tolist(), strict=True):
        term = 63 * mpmath.log1p(mpmath.mpf(0.01) / xi)
        assert abs(value - term) <= 4 * UNIT * (400 + term), report(value, term, x=xi)  # two values below 400 are subtracted
    assert torch.equal(ideal.slope(x), shifted.slope(x))


@pytest.mark.parametrize("epsilon", [0.0, 1e-20, 0.01])
@pytest.mark.parametrize("name", ["original", "consistent", "log-miller"])
@pytest.mark.parametrize("nu", NUS)
def test_convention_at_zero(name, nu, epsilon):
    """The epsilon term is left out at x = 0: value -log(2^nu nu!), slope 0, curvature 1 / (2 nu + 2); all finite."""
    pot = pg.potential(nu=nu, realization=name, epsilon=epsilon)
    zero = points(0.0, -0.0)
    wanted = -float(mpmath.log(mpmath.mpf(2) ** nu * mpmath.factorial(nu)))
    # nu roundings of partial sums up to |value|; log-miller goes through nu log x at x = 2^-500 (346.6), in steps that each round twice
    size = abs(wanted) + (2 * 346.6 * nu if name == "log-miller" else 0)
    assert ((pot.value(zero) - wanted).abs() <= (2 * nu + 2) * UNIT * size).all(), (pot.value(zero), wanted)
    assert torch.equal(pot.slope(zero), torch.zeros(2, dtype=torch.float64))
    assert ((pot.curvature(zero) * (2 * nu + 2) - 1).abs() <= 4 * (nu + 1) ** 2 * UNIT).all(), pot.curvature(zero)
    x = zero.clone().requires_grad_()
    pot.value(x).sum().backward()
    assert torch.equal(x.grad, torch.zeros(2, dtype=torch.float64))


def test_convention_at_zero_divides_by_nothing():
    """In mpmath, where a division by zero raises, as in torch, where it would leave a NaN to a further derivative."""
    with_term, without = (pg.potential(nu=2, realization="consistent", epsilon=epsilon).formulas() for epsilon in (0.01, 0.0))
    zero = mpmath.mpf(0)
    for name in ("value", "consistent_slope", "consistent_curvature"):
        assert getattr(with_term, name)(MpmathArithmetic(), zero) == getattr(without, name)(MpmathArithmetic(), zero)


@pytest.mark.parametrize("name", ["original", "consistent", "log-miller"])
def test_elements_of_a_batch_do_not_touch_each_other(name):
    pot = pg.potential(dim=512, realization=name)
    x = points(0.0, 1e-160, 1e-3, 1.43, 2.93, 47.3, 255.0, 3e3, 1e5, 1e12, 1e300)
    for quantity in (pot.value, pot.slope, pot.curvature):
        together = quantity(x)
        alone = torch.cat([quantity(xi[None]) for xi in x])
        assert torch.equal(together, alone), (quantity, together, alone)
        assert torch.equal(quantity(x.flip(0)).flip(0), together)


WINDOWS = {
    256: (1.40, 1.43, 1.46, 1.49, 1.52),
    512: (2.92, 2.93, 2.94, 3.0, 3.05, 46.65, 46.9, 47.10, 47.3, 47.54),
    768: (181.61, 182.0, 182.35, 182.36, 182.7, 183.10),
    1024: (94.11, 94.5, 94.86, 401.80, 402.3, 402.73, 402.74, 403.2, 403.69),
}


@pytest.mark.parametrize("dim", WINDOWS)
def test_aliasing_windows_of_the_public_code_are_right_here(dim):
    """The public code rescales a saved tensor in place: a batch whose smallest radius lies in a window lost its gradient or 709 from its value there."""
    nu = dim // 2 - 1
    pot = pg.potential(dim=dim, realization="original")
    for smallest in WINDOWS[dim]:
        x = points(smallest, 2 * smallest, 1e4).requires_grad_()
        value = pot.value(x)
        (grad,) = torch.autograd.grad(value.sum(), x)
        for xi, v, g in zip(x.tolist(), value.tolist(), grad.tolist(), strict=True):
            value_ref, ratio_ref = literal(nu, 2 * nu, xi)
            value_tol, ratio_tol, _ = running_bounds(nu, 2 * nu, xi)
            assert abs(v - value_ref) <= value_tol, report(v, value_ref, x=xi)
            wanted = min(ratio_ref, mpmath.mpf(1))
            assert abs(g - wanted) <= ratio_tol * wanted, report(g, wanted, x=xi)


@pytest.mark.parametrize("name", ["original", "consistent", "log-miller"])
def test_second_backward_with_retained_graph(name):
    x = points(64.0, 4032.0).requires_grad_()
    loss = pg.potential(dim=512, realization=name).value(x).sum()
    loss.backward(retain_graph=True)
    first = x.grad.clone()
    x.grad = None
    loss.backward()
    assert torch.equal(x.grad, first)
    assert (first > 0).all()


@pytest.mark.parametrize("name", ["original", "consistent", "log-miller"])
def test_float32_is_the_float64_result_rounded(name):
    pot = pg.potential(dim=128, realization=name)
    x = 63 * torch.logspace(-3, 4, 200, dtype=torch.float32)
    for quantity in (pot.value, pot.slope, pot.curvature):
        assert torch.equal(quantity(x), quantity(x.double()).float())


@pytest.mark.parametrize("name", ["original", "consistent"])
def test_curvature_is_the_derivative_of_the_supplied_slope(name):
    """In 60 digits, where the difference quotient is exact to 30; and in float64 to the cancellation of terms of size nu / x^2."""
    nu = 63
    pot = pg.potential(nu=nu, realization=name)
    ops = MpmathArithmetic()
    for r in (0.01, 0.5, 3.0, 10.0):
        x = mpmath.mpf(r * nu)
        wanted = mpmath.diff(lambda y: pot.formulas().slope(ops, y), x, relative=True)
        assert mpmath.almosteq(pot.formulas().curvature(ops, x), wanted, rel_eps=mpmath.mpf(10) ** -25)
        got = pot.curvature(points(r * nu)).item()
        tol = 8 * nu * UNIT * (1 + nu / float(x) ** 2)
        assert abs(got - wanted) <= tol, report(got, wanted, x=r * nu)


@pytest.mark.parametrize("name", ["original", "consistent", "log-miller"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dim": 129}, ("even dim >= 4", "nu = 63.5", "dim 129", "paired")),
        ({"dim": 2}, ("even dim >= 4", "nu = 0", "dim 2", "paired")),
        ({"nu": 2.75}, ("integer Bessel order", "nu = 2.75")),
        ({"dim": 128, "start": 63}, ("start", ">= 64", "got 63", "nu = 63")),
        ({"dim": 128, "start": -1}, ("start", ">= 64", "got -1")),
        ({"dim": 128, "epsilon": -1e-20}, ("epsilon", ">= 0", "got -1e-20")),
        ({"dim": 128, "epsilon": math.nan}, ("epsilon", "finite", "got nan")),
    ],
)
def test_refused_arguments(name, arguments, words):
    with pytest.raises(ValueError, match=words[0]) as error:
        pg.potential(realization=name, **arguments)
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"start": 126.0}, TypeError, ("start", "integer >= 64", "126.0 (float)")),
        ({"clip": -0.5}, ValueError, ("clip", ">= 0", "got -0.5")),
        ({"clip": "yes"}, TypeError, ("clip", "real number", "'yes'")),
        ({"epsilon": "tiny"}, TypeError, ("epsilon", "real number", "'tiny'")),
    ],
)
def test_refused_options(options, kind, words):
    with pytest.raises(kind) as error:
        pg.potential(dim=128, realization="original", **options)
    assert all(word in str(error.value) for word in words), error.value


def test_refused_derivative():
    with pytest.raises(ValueError, match="derivative must be one of 'tangent', 'autograd', got 'finite'"):
        pg.potential(dim=128, realization="consistent", derivative="finite")


def test_concentration_is_refused_with_a_way_out():
    pot = pg.potential(dim=128, realization="original")
    with pytest.raises(ValueError, match="realization='paired', or method='closed-form'"):
        pot.concentration(points(0.5))
    assert pot.concentration(points(0.5), method="closed-form").item() == 128 * 0.5 / 0.75


@pytest.mark.parametrize(("nu", "start"), list(itertools.product(NUS, ["2nu", "4nu"])))
def test_log_miller_agrees_with_original(nu, start):
    """Same real functions. Each of the M steps rounds a logarithm of size L <= M (|log x| + log 2M) about three times."""
    start = STARTS[start](nu)
    x = nu * torch.logspace(-3, 4, 60, dtype=torch.float64)
    a = pg.potential(nu=nu, realization="original", start=start)
    b = pg.potential(nu=nu, realization="log-miller", start=start)
    largest = start * (x.log().abs() + math.log(2 * start))
    tol = 3 * start * largest * UNIT
    assert ((a.value(x) - b.value(x)).abs() <= tol + 4 * UNIT * x).all(), ((a.value(x) - b.value(x)).abs() / tol).max()
    assert ((a.slope(x) - b.slope(x)).abs() <= tol * a.slope(x)).all(), ((a.slope(x) - b.slope(x)).abs() / tol).max()


def test_log_miller_is_finite_over_the_whole_range():
    x = torch.tensor([0.0, 1e-300, *(10.0**k for k in range(-20, 301, 20))], dtype=torch.float64)
    for dim in (4, 128, 1024):
        pair = pg.potential(dim=dim, realization="log-miller").pair(x)
        assert pair.value.isfinite().all()
        assert ((pair.slope >= 0) & (pair.slope <= 1)).all()


@pytest.mark.parametrize("name", ["original", "consistent", "log-miller"])
def test_the_finite_potential_is_not_shifted(name):
    """It approximates Phi itself, so nothing is left to add."""
    assert pg.potential(8, name).offset == 0.0


def test_the_longest_recurrence_there_is():
    assert pg.potential(8, "original", start=10**6).options["start"] == 10**6
    with pytest.raises(ValueError, match=r"takes 1000001 sequential steps here.* and at most 1000000 are allowed"):
        pg.potential(8, "original", start=10**6 + 1)


def test_a_long_recurrence_does_not_underflow():
    """The product of 8191 ratios is below the smallest float64; logarithms of its parts are not."""
    x = torch.tensor([8000.0], dtype=torch.float64)
    paired = pg.potential(16_384)
    torch.testing.assert_close(pg.potential(16_384, "original").value(x), paired.value(x) + paired.offset, rtol=1e-12, atol=0)


def test_the_recorded_derivative_at_even_integers():
    """There a step goes from one scale to the other, and 49 times the rounded 2 / 98 is below 1: first and second derivatives have no seam."""
    x = torch.arange(2, 200, 2, dtype=torch.float64).requires_grad_()
    tangent, recorded = (pg.potential(128, "consistent", derivative=how) for how in ("tangent", "autograd"))
    (slope,) = torch.autograd.grad(recorded.value(x).sum(), x, create_graph=True)
    torch.testing.assert_close(slope, tangent.slope(x), rtol=0, atol=autograd_bound(63, 2.0))
    (curvature,) = torch.autograd.grad(slope.sum(), x)
    torch.testing.assert_close(curvature, tangent.curvature(x.detach()), rtol=0, atol=autograd_bound(63, 2.0))


def test_the_recorded_derivative_gives_the_same_pair_and_difference():
    tangent, recorded = (pg.potential(16, "consistent", derivative=how) for how in ("tangent", "autograd"))
    a, b = torch.tensor([2.0, 9.0], dtype=torch.float64), torch.tensor([5.0, 70.0], dtype=torch.float64)
    torch.testing.assert_close(recorded.difference(a, b), tangent.difference(a, b), rtol=1e-13, atol=0)
    a.requires_grad_()
    value, slope = recorded.pair(a)
    assert torch.equal(value, tangent.value(a))
    torch.testing.assert_close(slope, tangent.slope(a), rtol=1e-12, atol=0)
    (recorded_curvature,) = torch.autograd.grad(slope.sum(), a)
    torch.testing.assert_close(recorded_curvature, tangent.curvature(a.detach()), rtol=1e-9, atol=0)
