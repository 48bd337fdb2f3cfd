"""`pairgrad.potential` and `pairgrad.realizations`: refusals, identity of the objects, the table; `arfr` as it is printed in the paper."""

import copy
import dataclasses
import math
import pickle
import random
from fractions import Fraction

import flint
import pytest
import torch

import pairgrad
from pairgrad import Potential, potential, realizations

NAMES = ("paired", "arfr", "original", "consistent", "log-miller", "log-bessel", "scott", "reference")
UNIT = 2.0**-53


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"dim": 8, "realization": "exact"}, ValueError, ("realization must be one of", *map(repr, NAMES), "got 'exact'")),
        ({}, TypeError, ("exactly one of dim and nu", "dim=None and nu=None")),
        ({"dim": 8, "nu": 3}, TypeError, ("exactly one of dim and nu", "dim=8 and nu=3")),
        ({"dim": 1}, ValueError, ("dim", ">= 2", "got 1", "two coordinates")),
        ({"dim": -4}, ValueError, ("dim", ">= 2", "got -4")),
        ({"dim": True}, TypeError, ("dim", "integer >= 2", "True (bool)")),
        ({"dim": 2.5}, TypeError, ("dim", "integer >= 2", "2.5 (float)")),
        ({"dim": "8"}, TypeError, ("dim", "'8' (str)")),
        ({"nu": -0.5}, ValueError, ("nu", ">= 0", "got -0.5")),
        ({"nu": math.nan}, ValueError, ("nu", "finite", "got nan")),
        ({"nu": math.inf}, ValueError, ("nu", "finite", "got inf")),
        ({"nu": "1"}, TypeError, ("nu", "real number", "'1' (str)")),
        ({"nu": True}, TypeError, ("nu", "real number", "True (bool)")),
        ({"nu": 2e9}, ValueError, ("nu", "<= 1e9", "2e+09")),
        ({"dim": 8, "epsilon": 0.0}, TypeError, ("'paired'", "no option 'epsilon'", "'order'", "'shift'")),
        ({"dim": 8, "realization": "original", "cap": 1}, TypeError, ("'original'", "no option 'cap'", "'start'", "'clip'", "'epsilon'")),
        ({"dim": 8, "realization": "original", "order": 2}, TypeError, ("'original'", "no option 'order'")),
        ({"dim": 8, "realization": "scott", "order": 2}, TypeError, ("'scott'", "no option 'order'", "takes none")),
        ({"dim": 2, "realization": "arfr"}, ValueError, ("'arfr'", "nu > 0", "dim 2", "diverge at nu = 0", "realization='paired'")),
        ({"dim": 8, "order": 0}, ValueError, ("order", ">= 1", "got 0")),
        ({"dim": 8, "realization": "arfr", "order": 0}, ValueError, ("order", ">= 1", "got 0")),
        ({"dim": 10, "order": 2.0}, TypeError, ("order", "integer >= 1", "2.0 (float)")),
        ({"dim": 8, "order": 10_000}, ValueError, ("order", "<=", "10000", "asymptotic")),
        ({"dim": 8, "order": 3, "shift": -1}, ValueError, ("shift", ">= 0", "got -1")),
        ({"dim": 8, "shift": 3}, ValueError, ("shift", "explicit order", "shift=3")),
        ({"dim": 8, "realization": "original", "start": [9]}, TypeError, ("'start'", "plain number", "[9] (list)")),
    ],
)
def test_refused_arguments(arguments, kind, words):
    with pytest.raises(kind) as error:
        potential(**arguments)
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize("name", ["value", "slope", "curvature", "complement", "pair", "concentration"])
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (1.5, ("1.5 (float)", "floating-point torch tensor")),
        ([1.0], ("[1.0] (list)",)),
        (torch.ones(2, 3, dtype=torch.int64), ("int64 tensor of shape (2, 3)", "float32 or float64")),
        (torch.ones(2, dtype=torch.complex64), ("complex64 tensor of shape (2,)", "float32 or float64")),
        (torch.ones(2, dtype=torch.bool), ("bool tensor",)),
    ],
)
def test_refused_tensors(name, bad, words):
    with pytest.raises(TypeError) as error:
        getattr(potential(dim=8), name)(bad)
    argument = "resultant_length" if name == "concentration" else "x"
    assert str(error.value).startswith(argument)
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize("name", ["difference", "secant"])
def test_refused_pairs_of_tensors(name):
    method = getattr(potential(dim=8), name)
    with pytest.raises(ValueError, match=r"a and b must broadcast against each other, got a of shape \(2,\) and b of shape \(3,\)"):
        method(torch.ones(2), torch.ones(3))
    with pytest.raises(TypeError, match="b must be a floating-point torch tensor, got 2"):
        method(torch.ones(2), 2)
    assert method(torch.ones(2, 1), torch.ones(3, dtype=torch.float64)).shape == (2, 3)
    assert method(torch.ones(2), torch.ones(2, dtype=torch.float64)).dtype == torch.float64


OBJECTS = [
    {"dim": 512},
    {"dim": 7},
    {"nu": 2.75},
    {"nu": Fraction(1, 3)},
    {"dim": 64, "order": 3},
    {"dim": 64, "order": 3, "shift": 4},
    {"dim": 512, "realization": "arfr"},
    {"dim": 3, "realization": "arfr", "order": 5},
    {"dim": 128, "realization": "original"},
    {"dim": 128, "realization": "original", "start": 100, "clip": 0.5, "epsilon": 0.0},
    {"dim": 128, "realization": "original", "clip": False},
    {"dim": 128, "realization": "consistent", "derivative": "autograd"},
    {"dim": 128, "realization": "log-miller"},
    {"dim": 128, "realization": "log-bessel"},
    {"dim": 128, "realization": "scott"},
    {"dim": 128, "realization": "reference", "digits": 30},
]
as_id = str


@pytest.mark.parametrize("arguments", OBJECTS, ids=as_id)
def test_equal_arguments_give_the_same_object(arguments):
    assert potential(**arguments) is potential(**arguments)


@pytest.mark.parametrize("arguments", OBJECTS, ids=as_id)
def test_copies_are_equal(arguments):
    pot = potential(**arguments)
    x = torch.tensor([0.5, 30.0], dtype=torch.float64)
    for other in (pickle.loads(pickle.dumps(pot)), copy.deepcopy(pot), copy.copy(pot)):
        assert other == pot
        assert hash(other) == hash(pot)
        assert type(other) is type(pot)
        assert torch.equal(other.value(x), pot.value(x))
        assert torch.equal(other.slope(x), pot.slope(x))


@pytest.mark.parametrize("arguments", OBJECTS, ids=as_id)
def test_repr_evaluates_back(arguments):
    pot = potential(**arguments)
    assert eval(repr(pot), {"pairgrad": pairgrad, "Fraction": Fraction}) == pot


def test_different_arguments_give_different_objects():
    pots = [potential(**a) for a in OBJECTS]
    assert len(set(pots)) == len(OBJECTS)
    assert potential(dim=8) == potential(nu=3)
    assert potential(dim=8) is potential(nu=3.0)
    assert potential(dim=8) != "pairgrad.potential(dim=8, realization='paired')"
    assert (potential(dim=8).dim, potential(nu=2.75).dim, potential(dim=7).nu) == (8, None, Fraction(5, 2))


def test_clip_false_is_not_clip_zero():
    x = torch.tensor([63.0], dtype=torch.float64)
    free, shut = (potential(dim=126, realization="original", clip=clip) for clip in (False, 0))
    assert free != shut
    assert (free.slope(x).item() > 0.3, shut.slope(x).item() == 0) == (True, True)


def test_a_refused_option_is_refused_after_its_equal_was_accepted():
    potential(dim=14, order=2)
    with pytest.raises(TypeError, match="order must be an integer"):
        potential(dim=14, order=2.0)


def test_table_of_realizations_is_complete():
    table = {r.name: r for r in realizations()}
    assert tuple(table) == NAMES
    assert {n for n, r in table.items() if not r.coherent} == {"original", "log-miller"}
    assert {n: r.options for n, r in table.items()} == {
        "paired": ("order", "shift"),
        "arfr": ("order",),
        "original": ("start", "clip", "epsilon"),
        "consistent": ("start", "epsilon", "derivative"),
        "log-miller": ("start", "clip", "epsilon"),
        "log-bessel": (),
        "scott": (),
        "reference": ("digits",),
    }
    for row in table.values():
        pot = potential(dim=8, realization=row.name)
        assert (pot.realization, pot.coherent) == (row.name, row.coherent)
        assert row.summary
        assert row.trade


@pytest.mark.parametrize("nu", [0.5, 3, 31, 63.5, 255, 2047])
def test_arfr_is_what_the_paper_prints(nu):
    """eqs. a2 and f2, typed in plain torch. The value is a sum of terms of size s + nu log(nu + s), each with under 8 roundings; the slope
    of three terms of size below 1 + 1/nu + 1/nu^2 relative to it, each with under 12."""
    x = max(nu, 0.5) * torch.logspace(-6, 6, 200, dtype=torch.float64)
    s = torch.sqrt(nu**2 + x**2)
    printed_slope = x / (nu + s) - x / (2 * s**2) + x * (4 * nu**2 - x**2) / (8 * s**5)
    printed_value = s - nu * torch.log(nu + s) - torch.log(s) / 2 + (3 * x**2 - 2 * nu**2) / (24 * s**3)
    pot = potential(nu=nu, realization="arfr")
    size = s + nu * torch.log(nu + s).abs() + torch.log(s).abs() + 1 / nu
    assert ((pot.value(x) - printed_value).abs() <= 8 * UNIT * size).all()
    assert ((pot.slope(x) - printed_slope).abs() <= 24 * UNIT * (1 + 1 / nu + 1 / nu**2) * x / (nu + s)).all()


@pytest.mark.parametrize("nu", [0.5, 3, 255])
def test_arfr_difference_is_the_stable_increment_of_the_paper(nu):
    """eqs. stable-delta and stable-f2; both sides have some 30 roundings of terms of total size below 3 (1 + 1/nu^2) delta."""
    a = nu * torch.logspace(-3, 4, 60, dtype=torch.float64)
    for step in (1e-10, 1e-3, 2.0):
        b = a * (1 + step)
        s0, s1 = torch.sqrt(nu**2 + a**2), torch.sqrt(nu**2 + b**2)
        delta = (b - a) * (b + a) / (s1 + s0)
        printed = delta - nu * torch.log1p(delta / (nu + s0)) - torch.log1p(delta / s0) / 2 - delta / (8 * s1 * s0)
        printed = printed + 5 * nu**2 * delta * (s1**2 + s1 * s0 + s0**2) / (24 * s1**3 * s0**3)
        got = potential(nu=nu, realization="arfr").difference(a, b)
        assert ((got - printed).abs() <= 32 * UNIT * 3 * (1 + 1 / nu**2) * delta).all()


@pytest.mark.parametrize(("nu", "exists"), [(1, False), (1.08, False), (1.09, True), (Fraction(10, 9), True), (255, True)])
def test_ratio_bound_of_arfr(nu, exists):
    """Below nu^-3, and there wherever Theorem thm:a2 holds and a little further down."""
    bound = potential(nu=nu, realization="arfr", order=2).ratio_bound()
    assert bound < Fraction(nu) ** -3 if exists else bound is None


def test_ratio_bound_of_arfr_holds_in_ball_arithmetic():
    """At random orders and arguments, eq. a2 in balls against the ratio in balls: no rounding to allow for."""
    generator = random.Random(20240607)
    before = flint.ctx.prec
    flint.ctx.prec = 300
    try:
        for _ in range(400):
            nu = Fraction(10, 9) * Fraction(math.exp(generator.uniform(0, math.log(3000)))).limit_denominator(1000)
            x = flint.arb(float(nu) * 10 ** generator.uniform(-3, 4))
            pot = potential(nu=nu, realization="arfr")
            n = flint.arb(flint.fmpq(nu.numerator, nu.denominator))
            s = (n * n + x * x).sqrt()
            slope = x / (n + s) - x / (2 * s**2) + x * (4 * n * n - x * x) / (8 * s**5)
            ratio = x.bessel_i(n + 1, scaled=True) / x.bessel_i(n, scaled=True)
            assert abs(slope - ratio) <= flint.arb(pot.ratio_bound()), (nu, x)
            got = pot.slope(torch.tensor([float(x)], dtype=torch.float64)).item()
            assert abs(flint.arb(got) - slope) <= 16 * UNIT, (nu, x)
    finally:
        flint.ctx.prec = before


def test_the_largest_order_there_is() -> None:
    assert potential(nu=10**9).nu == 10**9
    assert potential(2 * 10**9 + 2).nu == 10**9
    with pytest.raises(ValueError, match="nu must be <= 1e9"):
        potential(2 * 10**9 + 3)


def test_an_order_that_is_a_word_is_auto_or_refused() -> None:
    assert potential(8, order="auto") is potential(8)
    with pytest.raises(TypeError, match="order"):
        potential(8, order="full")
    with pytest.raises(TypeError, match="has no option 'order'"):
        potential(8, "scott", order="full")


def test_a_realization_is_a_row_that_cannot_be_changed():
    first, again = realizations()[0], realizations()[0]
    assert first == again
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.name = "another"


def test_newton_gets_more_steps_where_the_slope_is_not_the_ratio():
    assert {name: potential(16, name).to_rounding for name in ("paired", "reference", "arfr", "scott")} == {
        "paired": True,
        "reference": True,
        "arfr": False,
        "scott": False,
    }


@pytest.mark.parametrize("missing", ["formulas", "offset"])
def test_a_potential_without_its_formulas_cannot_be_made(missing):
    made = type("Bare", (Potential,), {name: property(lambda self: None) for name in ("formulas", "offset") if name != missing})
    with pytest.raises(TypeError, match=f"abstract.*{missing}"):
        made(Fraction(1))
