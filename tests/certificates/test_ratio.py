"""The error bounds of the Bessel ratio: proven again, refused when falsified, sound on random states, sharp where that was promised."""

from __future__ import annotations

import itertools
import math
import random
import re
from fractions import Fraction
from pathlib import Path

import flint
import pytest
import torch

import pairgrad as pg
from pairgrad.certificates import (
    Proof,
    Step,
    measured_ratio_error,
    over_interval,
    paper_difference_theorem,
    paper_theorem,
    planned_bound,
    prove_order,
    prove_plans,
    prove_potential,
)
from pairgrad.ground import BallArithmetic, Certificate
from tests.tolerances import PLANNED_TRUNCATION_ROUNDINGS
from tests.truth import exact_at, working_precision

FAMILIES = ("midpoint", "centred")
UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}


def error_at(pot, x, dtype=torch.float64, digits=40):
    """|slope - R| of the real-arithmetic object, as a ball."""
    exact = exact_at("slope", pot.nu, x, digits=digits)
    with working_precision(192):
        return abs(pot.formulas(dtype).slope(BallArithmetic(), flint.arb(x)) - exact)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("order", range(1, 9))
def test_orders_one_to_eight_are_proven(family, order):
    proof = prove_order(family, order)
    assert proof.holds, proof.failures()
    assert proof.margin > 0
    assert {step.name.split(",")[0] for step in proof.steps} == {"residual", "suprema", "barrier"}
    assert proof.constants["nu_0"] <= (Fraction(3, 4) if family == "midpoint" else Fraction(3, 2))


def test_the_hypothesis_of_order_two_is_not_above_the_papers():
    assert prove_order("centred", 2).constants["nu_0"] <= Fraction(10, 9)
    assert pg.potential(nu=Fraction(10, 9), realization="arfr").ratio_certificate().status == "proven"
    assert prove_order("centred", 2, Fraction(10, 9)).holds


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("order", [9, 17, 24])
def test_higher_orders_are_proven(family, order):
    assert prove_order(family, order).holds


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_all_orders_are_proven(family):
    for order in range(9, 25):
        assert prove_order(family, order).holds, order


def test_the_constants_of_order_two():
    """Leading constant 0.0835 instead of 1, and what comes after it, from nu = 10/9 and from nu = 2 on."""
    proof = prove_order("centred", 2, Fraction(10, 9))
    assert float(proof.constants["leading"]) <= 0.0835
    assert float(proof.constants["next"]) <= 1.1
    assert float(prove_order("centred", 2, 2).constants["next"]) <= 0.54


def test_no_proof_below_the_first_order():
    with pytest.raises(ValueError, match=r"nu_0 must be at least 1\.11 for order 2 of the centred family, got 0\.5"):
        prove_order("centred", 2, 0.5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("dim", [2, pytest.param(3, marks=pytest.mark.slow), 17, pytest.param(64, marks=pytest.mark.slow), 4096])
def test_planned_potentials_are_proven(dim, dtype):
    pot = pg.potential(dim)
    proof = prove_potential(pot, dtype)
    assert proof.holds, proof.failures()
    assert proof.bound == pot.ratio_bound(dtype)


@pytest.mark.parametrize(("dim", "dtype"), [(256, torch.float32), (1024, torch.float64), (8192, torch.float32), (131072, torch.float64)])
def test_an_economy_of_one_chebyshev_term_is_proven(dim, dtype):
    """The dropped polynomial then attains its bound inside the interval, where no box can decide it."""
    proof = prove_potential(pg.potential(dim), dtype)
    assert proof.holds, proof.failures()


@pytest.mark.parametrize("options", [{"order": 2}, {"order": 5, "shift": 3}, {"order": 1, "shift": 1}, {"order": 24}])
@pytest.mark.parametrize("nu", [0, pytest.param(0.5, marks=pytest.mark.slow), 2.75, pytest.param(100, marks=pytest.mark.slow)])
def test_potentials_of_given_order_are_proven(nu, options):
    pot = pg.potential(nu=nu, **options)
    proof = prove_potential(pot)
    assert proof.holds, proof.failures()
    assert proof.bound == pot.ratio_bound()


@pytest.mark.parametrize("dtype", [pytest.param(torch.float64, marks=pytest.mark.slow), torch.float32])
def test_every_plan_has_a_truncation_below_rounding(dtype):
    """A theorem for all nu >= 0 at once, relative to R, in units of the rounding; and every (shift, order) that the planner chooses is inside it."""
    everywhere = planned_bound(dtype)
    proof = prove_plans(dtype)
    assert proof.holds, proof.failures()
    assert proof.bound == everywhere.bound
    assert everywhere.relative_bound <= PLANNED_TRUNCATION_ROUNDINGS * UNIT[dtype]
    chosen, closest = set(), 0.0
    for nu in (*(Fraction(i, 4) for i in range(160)), *(Fraction(10) ** j for j in range(2, 9))):
        pot = pg.potential(nu=nu)
        chosen.add(pot.depth[dtype])
        certificate = pot.ratio_certificate(dtype)
        assert certificate.bound <= everywhere.bound, (nu, pot.depth)
        assert certificate.relative_bound <= everywhere.relative_bound, (nu, pot.depth)
        closest = max(closest, certificate.relative_bound / everywhere.relative_bound)
    assert len(chosen) > 20
    assert closest > 0.6


@pytest.mark.parametrize("count", [1_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_thousands_of_random_states(count):
    """No bound is exceeded: random order, argument, realization and depth, dims from 2 up, in ball arithmetic."""
    generator = random.Random(20261116)
    ops = BallArithmetic()
    states, closest = 0, 0.0
    while states < count:
        nu = Fraction(generator.choice([generator.randrange(0, 40) / 2, generator.uniform(0, 12), 10 ** generator.uniform(0, 4.7)]))
        nu = nu.limit_denominator(1000)
        depth = {"order": generator.randrange(1, 13), "shift": generator.randrange(0, 12)}
        pots = [(pg.potential(nu=nu), torch.float64), (pg.potential(nu=nu), torch.float32), (pg.potential(nu=nu, **depth), torch.float64)]
        if nu > 0:
            pots.append((pg.potential(nu=nu, realization="arfr", order=generator.randrange(1, 9)), torch.float64))
        bounded = [(pot, dtype, bound) for pot, dtype in pots if (bound := pot.ratio_bound(dtype)) is not None and math.isfinite(bound)]
        for _ in range(100):
            x = flint.arb(float(max(nu, Fraction(1, 2))) * 10 ** generator.uniform(-4, 4))
            pot, dtype, bound = generator.choice(bounded)
            exact = exact_at("slope", nu, x, digits=75)
            with working_precision(320):
                error = abs(pot.formulas(dtype).slope(ops, x) - exact)
                assert error <= bound, (pot, dtype, float(x), error, bound)
                closest = max(closest, float(error / bound))
            states += 1
    assert closest > 0.9  # some state comes close to its bound, or the bounds would be idle


@pytest.mark.parametrize("nu", [31, 63, 255, 2047])
@pytest.mark.parametrize("realization", ["arfr", "paired"])
def test_order_two_is_sharp(nu, realization):
    """Within 1.5 times what is attained, for nu >= 31; in fact within 6 %."""
    pot = pg.potential(nu=nu, realization=realization, order=2)
    attained = max(float(error_at(pot, nu * 10 ** (i / 40)).mid()) for i in range(-60, 61))
    assert attained <= pot.ratio_bound() <= 1.06 * attained


@pytest.mark.parametrize("order", [pytest.param(n, marks=() if n in (1, 2, 4, 8) else pytest.mark.slow) for n in range(1, 9)])
def test_other_orders_are_sharp_at_high_dimension(order):
    for realization in ("arfr", "paired"):
        pot = pg.potential(nu=1000, realization=realization, order=order)
        attained = max(float(error_at(pot, 1000 * 10 ** (i / 40)).mid()) for i in range(-60, 61))
        assert attained <= pot.ratio_bound() <= 1.1 * attained


@pytest.mark.parametrize(("dim", "dtype"), [(2, torch.float32), (2, torch.float64), (9, torch.float32), (64, torch.float64)])
def test_relative_bounds_hold(dim, dtype):
    pot = pg.potential(dim)
    bound = pot.ratio_certificate(dtype).relative_bound
    for i in range(-80, 81):
        x = max(float(pot.nu), 0.5) * 10 ** (i / 20)
        with working_precision(192):
            assert error_at(pot, x, dtype) <= bound * exact_at("slope", pot.nu, x, digits=40), x


def test_differences_are_bounded_by_the_integral():
    """Eq. cor:endpoint-fidelity, with the paper's constant and with ours."""
    pot, nu = pg.potential(64, "arfr"), 31
    for a, b in ((1.0, 2.0), (10.0, 60.0), (500.0, 30.0)):
        exact = exact_at("difference", pot.nu, a, b, digits=40)
        with working_precision(192):
            error = abs(pot.formulas().difference(BallArithmetic(), flint.arb(a), flint.arb(b)) - exact)
        ours = over_interval(pot.ratio_certificate(), a, b)
        theirs = paper_difference_theorem(nu, a, b)
        assert error <= ours.bound < theirs.bound
        assert theirs.bound == pytest.approx(abs(b - a) / nu**3)
        assert ours.status == theirs.status == "proven"


def test_the_papers_theorem():
    at = paper_theorem(Fraction(10, 9))
    assert at.bound == pytest.approx(0.729, rel=1e-15)
    assert Fraction(at.bound) >= Fraction(729, 1000)
    assert (at.hypothesis, at.equation, at.status) == ("nu >= 10/9", "eq. a2-bound", "proven")
    below = paper_theorem(1)
    assert below.bound is None
    assert below.status == "none"
    assert "nu >= 10/9" in below.reason
    assert paper_difference_theorem(1, 0, 1).bound is None


def test_ours_is_below_the_papers_wherever_that_holds():
    for nu in (Fraction(10, 9), Fraction(5, 4), 2, 5, 31, 10**4):
        assert pg.potential(nu=nu, realization="arfr").ratio_bound() < paper_theorem(nu).bound


@pytest.mark.parametrize("dim", [3, 4])
def test_arfr_has_no_bound_at_the_lowest_dimensions(dim):
    certificate = pg.potential(dim, "arfr").ratio_certificate()
    assert pg.potential(dim, "arfr").ratio_bound() is None
    assert certificate.status == "none"
    assert "nu >= 1.09 (dim >= 5)" in certificate.reason
    assert "realization='paired'" in certificate.reason


@pytest.mark.parametrize("realization", ["original", "consistent", "log-miller", "log-bessel", "scott"])
def test_realizations_without_a_theorem_say_so(realization):
    certificate = pg.potential(64, realization).ratio_certificate()
    assert pg.potential(64, realization).ratio_bound() is None
    assert certificate.reason.startswith(f"realization {realization!r}: ")
    with pytest.raises(ValueError, match="only realizations 'paired' and 'arfr' are expansions with a proof"):
        prove_potential(pg.potential(64, realization))


def test_half_precision_has_the_bound_of_the_formulas_it_runs():
    assert planned_bound(torch.float16).bound == planned_bound(torch.float32).bound
    pot = pg.potential(17)
    assert pot.ratio_bound(torch.bfloat16) == pot.ratio_bound(torch.float32) > pot.ratio_bound(torch.float64)


def test_a_depth_that_cannot_be_bounded():
    """Order 24 around 3/2 is far beyond the useful order; after a shift its slope has a pole."""
    certificate = pg.potential(2, order=24, shift=1).ratio_certificate()
    assert certificate.bound == math.inf
    assert "lower the order" in certificate.reason
    assert "lower the order" in str(certificate)
    assert over_interval(certificate, 1, 2).bound == math.inf
    with pytest.raises(ValueError, match="no finite bound to prove"):
        prove_potential(pg.potential(2, order=24, shift=1))


def test_without_a_shift_there_is_always_a_bound():
    for order in range(1, 25):
        pot = pg.potential(2, order=order)
        assert math.isfinite(pot.ratio_bound())
        for x in (0.01, 0.5, 1.0, 30.0):
            assert error_at(pot, x) <= pot.ratio_bound()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: prove_order("left", 2), "family"),
        (lambda: prove_order("centred", 25), "order must be <= 24, got 25"),
        (lambda: prove_order("centred", 0), "order"),
        (lambda: paper_theorem(-1), "nu must be >= 0"),
        (lambda: measured_ratio_error(pg.potential(8), points=1), "points must be an integer >= 2"),
        (lambda: pg.potential(nu=1e-300, realization="arfr"), "cannot be held in floats at nu = 1e-300"),
        (lambda: Certificate("q", None, "", "", "proven"), "exactly if its status"),
        (lambda: Certificate("q", None, "", "", "none"), "needs a reason"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, "float32", None])
@pytest.mark.parametrize("call", [pg.potential(8).ratio_bound, pg.potential(8, "arfr").ratio_certificate, planned_bound])
def test_a_dtype_that_cannot_be_computed_in(call, dtype):
    with pytest.raises(TypeError, match=r"dtype must be torch\.float32, torch\.float64, torch\.float16 or torch\.bfloat16, got"):
        call(dtype)


def test_certificates_read_well():
    text = str(pg.potential(512, "arfr").ratio_certificate())
    assert text == ("sup over x >= 0 of |slope(x) - R(x)| <= 5.052e-09 (proven; order 2 around nu, nu >= 1.09; docs/certificates.md)")
    assert "no bound" in str(pg.potential(3, "arfr").ratio_certificate())


def test_the_documented_constants_are_the_proven_ones():
    page = (Path(__file__).parents[2] / "docs" / "certificates.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| (midpoint|centred) \| [1-8] \|", line)]
    assert [(row[0], int(row[1])) for row in rows] == [(family, order) for family in FAMILIES for order in range(1, 9)]
    for family, order, *documented in rows:
        constants = prove_order(family, int(order)).constants
        assert documented == [f"{float(constants[name]):.4g}" for name in ("nu_0", "leading", "next", "relative")]


@pytest.mark.parametrize(
    ("family", "order", "statement", "hypothesis"),
    [
        (
            "midpoint",
            1,
            "|R - A_1| <= 0.02511 c^-2 + 0.1224 c^-3 and <= 0.1934 v c^-2",
            "all x >= 0, all nu >= 0.05, c = nu + 1/2",
        ),
        ("centred", 2, "|R - A_2| <= 0.08349 nu^-3 + 1.093 nu^-4 and <= 0.9136 v nu^-3", "all x >= 0, all nu >= 1.11"),
    ],
)
def test_the_statement_of_a_proof(family: str, order: int, statement: str, hypothesis: str) -> None:
    """And the suprema of all terms that the inequalities of both barriers name are among its steps."""
    found = prove_order(family, order)
    assert found.seconds > 0
    assert (found.statement, found.hypothesis) == (statement, hypothesis)
    claims = [step.statement for step in found.steps if step.name == "suprema"]
    for k in range(1, order + 3):
        for what in (f"|r_{k}| <=", f"|r_{k}| / v <=", f"|dr_{k}/dz| <="):
            assert any(claim.startswith(what) for claim in claims), what
    residuals = [step.statement.split(" is ")[0] for step in found.steps if step.name == "residual"]
    assert residuals == [f"Riccati residual of order {n}" for n in (order, order + 1)]


@pytest.mark.parametrize(
    ("options", "where", "shift"),
    [
        ({"dim": 8, "order": 4, "shift": 1}, "order 4, c = 4.5, shift 1", True),
        ({"dim": 64, "realization": "arfr", "order": 2}, "order 2, c = 31", False),
        ({"dim": 2, "order": 12}, "order 12, c = 0.5", False),
        ({"dim": 512}, "order 2, c = 255.5", False),
    ],
)
def test_what_the_proof_of_a_potential_covers(options, where, shift) -> None:
    """Every kind of step on the page, for the very expansion that runs in this dtype."""
    found = prove_potential(pg.potential(**options), torch.float32)
    assert found.holds
    kinds = {step.name.split(",")[0] for step in found.steps}
    assert kinds == {"coefficients", "residual", "suprema", "barrier", "total", *(["shift"] if shift else [])}
    assert f"for all x >= 0 ({where}, barrier of order " in found.statement
    assert found.bound == pg.potential(**options).ratio_bound(torch.float32)


@pytest.mark.parametrize("dim", [3, 4])
def test_without_a_bound_there_is_nothing_to_prove(dim: int) -> None:
    """Though at nu = 1 a barrier of another order stands."""
    with pytest.raises(ValueError, match=r"there is no finite bound to prove for .*nu >= 1\.09"):
        prove_potential(pg.potential(dim, "arfr"))


def test_a_proof_holds_if_all_its_steps_do() -> None:
    good, bad = Step("suprema", "a", True), Step("suprema", "b", False)
    assert Proof("statement", "hypothesis", {}, (good,)).holds
    assert Proof("statement", "hypothesis", {}, (good,)).failures() == ()
    mixed = Proof("statement", "hypothesis", {}, (bad, good))
    assert not mixed.holds
    assert mixed.failures() == (bad,)
    assert mixed == Proof("statement", "hypothesis", {}, (bad, good), seconds=3.0)  # the time is not part of it


def test_the_margin_is_the_least_over_the_barriers_of_the_better_of_both_ways() -> None:
    """Every barrier is proven by coefficients and on boxes, under two names."""
    one, other = sorted({step.name for step in prove_order("centred", 1).steps if step.name.startswith("barrier")})

    def margin(*steps: Step) -> float:
        return Proof("statement", "hypothesis", {}, steps).margin

    a = (Step(one, "a", True, 0.2), Step(other, "a", True, 0.5))
    b = (Step(one, "b", True, 0.4), Step(other, "b", True, None))
    rest = Step("suprema", "c", True, 0.01)
    for steps in itertools.permutations((*a, *b, rest)):
        assert margin(*steps) == 0.4
    assert margin(*a, rest) == 0.5
    assert margin(rest) == 0
    assert margin(Step(other, "d", False, None)) == 0
    assert margin(*a, Step(one, "e", False, -0.3)) == 0


@pytest.mark.parametrize(
    ("options", "scale"),
    [
        ({"dim": 9, "order": 2}, 4.0),
        ({"dim": 9, "realization": "arfr"}, 3.5),
        ({"dim": 9, "realization": "scott"}, 3.5),
        ({"dim": 2, "realization": "scott"}, 0.5),
        ({"dim": 3, "realization": "arfr"}, 0.5),
    ],
)
def test_the_measured_error_is_the_largest_over_four_decades(options, scale) -> None:
    pot = pg.potential(**options)
    found = measured_ratio_error(pot, points=5)
    errors = [float(error_at(pot, scale * 10.0**i, digits=60).mid()) for i in range(-2, 3)]
    assert found.bound == pytest.approx(max(errors), rel=1e-9, abs=0)
    assert (found.status, found.hypothesis) == ("measured", "5 concentrations, x / c from 1e-2 to 1e2")
    assert measured_ratio_error(pot).hypothesis == "121 concentrations, x / c from 1e-2 to 1e2"


def test_the_measured_error_of_a_planned_potential_has_its_digits() -> None:
    """Far below the rounding of a float: 1e-17 and less, between the bound and a hundredth of it."""
    pot = pg.potential(64)
    assert pot.ratio_bound() / 100 < measured_ratio_error(pot).bound <= pot.ratio_bound()


def test_a_bound_is_integrated() -> None:
    slope = Certificate("q", 0.25, "nu >= 3", "statement a", "proven")
    for a, b in ((1.0, 4.0), (4.0, 1.0), (0.0, 3.0)):
        found = over_interval(slope, a, b)
        assert (found.bound, found.hypothesis, found.equation, found.status) == (0.75, "nu >= 3", "statement a", "proven")
    assert over_interval(slope, 1.0, 4.0, "statement b").equation == "statement b"
    assert over_interval(slope, 2.0, 2.0).bound == 0
    assert paper_difference_theorem(2, 1.0, 4.0).equation == "eq. cor:endpoint-fidelity"
    assert paper_difference_theorem(2, 1.0, 4.0).bound == 3 / 8
    nothing = over_interval(Certificate("q", None, "", "statement a", "none", "because"), 1, 2)
    assert (nothing.bound, nothing.equation, nothing.reason) == (None, "statement a", "because")
