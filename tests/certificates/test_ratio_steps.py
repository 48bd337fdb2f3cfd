"""The steps that proofs of the ratio bounds are made of: each holds, and each refuses a falsified constant, coefficient, barrier, economy or recurrence."""

from __future__ import annotations

import itertools
from fractions import Fraction

import flint
import pytest
import torch

import pairgrad as pg
from pairgrad.certificates import prove_order, prove_potential, ratio
from pairgrad.certificates.curves import PRECISION, Curve, polynomial
from pairgrad.ground import BallArithmetic
from pairgrad.potentials import debye, proven
from pairgrad.potentials.expansion import Expansion
from pairgrad.potentials.plan import plan
from tests.truth import exact_at, working_precision

BETAS = (0, 1)


@pytest.fixture
def precision():
    with working_precision(PRECISION):
        yield


@pytest.fixture
def changed_table(monkeypatch):
    """Change one proven constant, and forget what was derived from the true one."""

    def forget():
        for function in (proven.barrier, proven._residual_bounds, proven._size_bounds, proven.slope_error, proven.first_order):
            function.cache_clear()

    def change(beta, k, field, factor):
        rows = list(proven.SUPREMA[beta])
        rows[k - 1] = rows[k - 1]._replace(**{field: getattr(rows[k - 1], field) * Fraction(factor)})
        monkeypatch.setitem(proven.SUPREMA, beta, tuple(rows))
        forget()

    yield change
    monkeypatch.undo()
    forget()


@pytest.mark.parametrize("beta", BETAS)
def test_every_constant_of_the_table_is_proven(beta, precision):
    steps = list(ratio.suprema_steps(beta, proven.LAST_TERM))
    assert len(steps) == 3 * proven.LAST_TERM
    assert [step.statement for step in steps if not step.holds] == []


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("field", ["size", "relative", "rate"])
@pytest.mark.parametrize("k", [1, 2, 3, 8, 26])
def test_no_constant_of_the_table_can_be_lowered_by_a_hundredth(beta, field, k, precision):
    rows = list(proven.SUPREMA[beta][:k])
    rows[-1] = rows[-1]._replace(**{field: getattr(rows[-1], field) * Fraction(99, 100)})
    failed = [step for step in ratio.suprema_steps(beta, k, tuple(rows)) if not step.holds]
    assert len(failed) == 1
    assert f"r_{k}" in failed[0].statement
    assert "exceeded at t = " in failed[0].detail


def test_the_residual_of_order_two_is_the_papers(precision):
    """Eq. a2-exact-residual-app, with z^2 = (1 - t^2) / t^2 and S = 1 / t."""
    terms = ratio.Terms(1, 2)
    third = terms.residual(3)
    # -(z^4 - 10 z^2 + 4) / (4 S^7) = -t^3 ((1 - t^2)^2 - 10 t^2 (1 - t^2) + 4 t^4) / 4
    square = polynomial((1, 0, -1))
    wanted = -polynomial((0, 0, 0, 1)) * (square * square - 10 * polynomial((0, 0, 1)) * square + polynomial((0, 0, 0, 0, 4))) / 4
    assert third.power == 0
    assert third.numerator == wanted
    # -z^2 (z^2 - 4)^2 / (64 S^10) = -t^4 (1 - t^2) (1 - 5 t^2)^2 / 64
    five = polynomial((1, 0, -5))
    assert terms.residual(4).numerator == -polynomial((0, 0, 0, 0, 1)) * square * five * five / 64
    assert not terms.residual(5).numerator


def test_the_papers_own_barrier(precision):
    """The steps between eqs. a2-residual-bound-app, a2-k-bound-app and a2-lower-margin-app: the constant barrier nu^-3 of Theorem thm:a2."""
    terms, h = ratio.Terms(1, 2), Fraction(9, 10)
    # |E| <= h^3 (1 + h / 4), on the axis; and with u = z^2 as the paper does it: these polynomials have no positive root, and are positive at 0 or 1
    assert terms.residual(3).at_most(Fraction(1)).holds
    assert terms.residual(4).at_most(Fraction(1, 4)).holds
    four, third = 4 * polynomial((1, 1)) ** 2, polynomial((4, -10, 1))
    assert [int(c) for c in (four - third).coeffs()] == [0, 18, 3]
    assert [int(c) for c in (four + third).coeffs()] == [8, -2, 5]  # no real root: 2^2 < 4 * 5 * 8
    assert [int(c) for c in (16 * polynomial((1, 1)) ** 3 - polynomial((0, 1)) * polynomial((-4, 1)) ** 2).coeffs()] == [16, 32, 56, 15]
    # K v = (2 + h) t + 2 (1 - t^2) sum h^k r_k / v = 2 + h t^3 + 2 h^2 v r_2, power by power of h
    first, second, _ = (terms.term(k) for k in range(3))
    assert (first.numerator, first.power, second.power) == (polynomial((1,)), 1, 0)
    rest = polynomial((1, 0, -1))
    assert polynomial((0, 2)) + 2 * rest // polynomial((1, 1)) == polynomial((2,))
    assert polynomial((0, 1)) + 2 * rest * second.numerator == polynomial((0, 0, 0, 1))
    # -r_2 <= 1/160, hence <= 1/40: 1/160 + g_2 / t is a square, and r_2 = v g_2 / t
    assert terms.term(2).numerator + polynomial((Fraction(1, 160),)) == polynomial((1, 0, -10)) ** 2 / 160
    # so K >= 2 - h^2 / 20, and at -b the field points inwards for every h <= 9/10: all that depends on h falls
    least = 2 - h**2 / 20
    assert least == Fraction(3919, 2000)
    assert -(1 + h / 4) + least - h**3 == Fraction(11, 2000)
    # near 0: A has the slope (1 - h + h^2) / 2 in z, R has 1 / (2 (1 + h))
    slopes = [terms.term(k).at(Fraction(1)) for k in range(3)]
    assert slopes == [half := flint.fmpq(1, 2), -half, half]
    assert Fraction(1, 2) / (1 + h) - (1 - h + h**2) / 2 == -(h**3) / (2 * (1 + h))


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("order", [1, 2, 5, 24])
@pytest.mark.parametrize("beyond", [0, 1])
def test_a_wrong_coefficient_leaves_a_residual(beta, order, beyond, monkeypatch, precision):
    """In the last term that is kept, or in the first that is not."""
    assert all(step.holds for step in ratio.residual_steps(beta, order))
    plain = debye.numerator

    def wrong(b, k):
        row = plain(b, k)
        return (*row[:-1], row[-1] + Fraction(1, 10**9)) if (b, k) == (beta, order + beyond) else row

    monkeypatch.setattr(debye, "numerator", wrong)
    assert not any(step.holds for step in ratio.residual_steps(beta, order))


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("order", range(9))
def test_a_falsified_barrier_is_passable(beta, order, precision):
    centre = proven.first_order(beta, order) + (Fraction(1, 2) if beta == 0 else 0) + 1
    wall = proven.barrier(beta, order, centre)
    assert all(step.holds for step in ratio.barrier_steps(beta, order, centre))
    # sup |r_{N+1}| / v has to be balanced by 2 B: 2 % below it the residual wins near its largest value, whatever c is
    falsified = proven.SUPREMA[beta][order].relative * Fraction(98, 100)
    assert falsified < wall.constant
    coefficients, strip = ratio.barrier_steps(beta, order, centre, falsified)
    assert not coefficients.holds
    assert not strip.holds
    assert strip.detail.startswith("exceeded at t = ")


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("order", [1, 2, 8])
def test_a_barrier_too_high_is_passable_too(beta, order, precision):
    """e^2 pushes a negative error further down: B h^(N+1) must not come near K."""
    centre = proven.first_order(beta, order) + Fraction(1, 2)
    assert not any(step.holds for step in ratio.barrier_steps(beta, order, centre, 4 * centre ** (order + 1)))


def test_a_falsified_table_fails_the_whole_proof(changed_table):
    pot = pg.potential(512, "arfr")
    assert prove_potential(pot).holds
    changed_table(1, 3, "size", "0.9")
    proof = prove_potential(pot)
    assert not proof.holds
    assert [step.statement.split(" <=")[0] for step in proof.failures()] == ["|r_3|"]
    assert not prove_order("centred", 2).holds


def test_a_kernel_with_another_coefficient_is_noticed(precision):
    for expansion in (Expansion(Fraction(3), 4, 2), plan(Fraction(3), torch.float64), plan(Fraction(31), torch.float32)):
        assert all(step.holds for step in ratio.coefficient_steps(expansion))
        tail = expansion.exact.tail
        changed = expansion.exact._replace(tail=(*tail[:-1], tail[-1] * Fraction(1001, 1000)))
        object.__setattr__(expansion, "exact", changed)
        assert not all(step.holds for step in ratio.coefficient_steps(expansion))
        object.__delattr__(expansion, "exact")


@pytest.mark.parametrize("part", ["change", "rate"])
def test_an_economy_that_is_stated_too_small_is_noticed(part, precision):
    expansion = plan(Fraction(7), torch.float64)
    assert all(step.holds for step in ratio.coefficient_steps(expansion))
    tail = expansion._tail
    object.__setattr__(expansion, "_tail", tail._replace(**{part: getattr(tail, part) / 2}))
    assert not all(step.holds for step in ratio.coefficient_steps(expansion))
    object.__setattr__(expansion, "_tail", tail)


def test_another_recurrence_is_noticed(precision):
    expansion = Expansion(Fraction(3), 4, 5)
    assert next(ratio.shift_steps(expansion)).holds
    free = expansion.exact.free
    object.__setattr__(expansion, "exact", expansion.exact._replace(free=(free[0], 2 * free[1], *free[2:])))
    assert not next(ratio.shift_steps(expansion)).holds


def test_elementary_suprema(precision, monkeypatch):
    assert all(step.holds for step in ratio.elementary_steps())
    monkeypatch.setattr(proven, "ECONOMY_SIZE", Fraction("0.384"))
    monkeypatch.setattr(proven, "ECONOMY_RATE", Fraction("0.416"))
    monkeypatch.setattr(proven, "ECONOMY_TURN", Fraction("0.99"))
    monkeypatch.setitem(proven.OMEGA, 0, Fraction(1, 28))
    assert [step.holds for step in ratio.elementary_steps()] == [False, True, False, False, False]


def test_rates_bound_the_derivative_of_the_error():
    """What the shift is charged with: |e'| of the expansion before it, against R' - A' in balls."""
    for beta, nu, order in ((0, Fraction(6), 3), (0, Fraction(1, 2), 1), (1, Fraction(5), 2)):
        expansion = Expansion(nu, order, beta=beta)
        error = proven.slope_error(expansion)
        largest = 0.0
        for i in range(-40, 41):
            x = flint.arb(float(nu) * 10 ** (i / 20))
            exact = exact_at("curvature", nu, x, digits=40)
            with working_precision(192):
                largest = max(largest, float(abs(expansion.curvature(BallArithmetic(), x) - exact).mid()))
        assert 0.05 * float(error.rate) <= largest <= float(error.rate)


def test_curves_of_the_terms_are_those_of_the_kernel(precision):
    """r_k / v and dr_k/dz, at a point, against eq. a2-candidate-app."""
    terms = ratio.Terms(1, 2)
    t = Fraction(3, 5)  # z = 4/3, S = 5/3, v = 4/5
    z, s, v = Fraction(4, 3), Fraction(5, 3), Fraction(4, 5)
    for k, wanted in enumerate((z / (1 + s), -z / (2 * s**2), z * (4 - z**2) / (8 * s**5))):
        value = terms.term(k).at(t)
        assert Fraction(int(value.p), int(value.q)) * v == wanted
    step = Fraction(1, 10**6)
    numeric = (-(z + step) / (2 * (1 + (z + step) ** 2)) + (z - step) / (2 * (1 + (z - step) ** 2))) / (2 * step)
    assert float(terms.rate(1).at(t)) == pytest.approx(float(numeric), rel=1e-9)
    assert isinstance(terms.rate(1), Curve)


@pytest.mark.parametrize("change", [(Fraction(1, 1000),), (Fraction(1, 1000), Fraction(1, 1000))])
def test_a_kernel_with_another_head_is_noticed(change: tuple[Fraction, ...]) -> None:
    """By a constant, or by a multiple of 1 + t: neither is v t^2 times a polynomial, and the step says so instead of breaking off."""
    for expansion in (Expansion(Fraction(3), 4), Expansion(Fraction(3), 4, economy=Fraction(1, 100))):
        with working_precision(PRECISION):
            assert all(step.holds for step in ratio.coefficient_steps(expansion))
            head = [a + b for a, b in itertools.zip_longest(expansion.exact.head, change, fillvalue=Fraction(0))]
            object.__setattr__(expansion, "exact", expansion.exact._replace(head=tuple(head)))
            assert not next(ratio.coefficient_steps(expansion)).holds
