"""What proofs of the ratio bounds are put together from: which steps, with which numbers; the worst cases of the planner; what is measured."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Iterator
from fractions import Fraction

import flint
import pytest
import torch

import pairgrad as pg
from pairgrad.certificates import ratio
from pairgrad.certificates.curves import PRECISION
from pairgrad.certificates.steps import COEFFICIENTS, STRIP, Step
from pairgrad.ground.arithmetic import BallArithmetic
from pairgrad.ground.balls import working_precision
from pairgrad.ground.certificate import Certificate
from pairgrad.potentials import proven
from pairgrad.potentials.expansion import Expansion
from pairgrad.potentials.plan import MAX_ORDER, TRUNCATION_TOL, plan, truncation_estimate
from pairgrad.potentials.reference import Balls

HALF = Fraction(1, 2)
DTYPES = [torch.float32, torch.float64]
worst_cases = functools.cache(ratio._planned_errors)


@pytest.mark.parametrize("order", [1, 3, 10])
@pytest.mark.parametrize("first", ["0.7", "1.3", "3.8", "4.1", "4.7", "17.3"])
def test_the_centre_from_which_an_order_is_accepted(order: int, first: str) -> None:
    """With the tolerance that is met exactly at `first`: a little below it, never above."""
    found = ratio._least_centre(order, truncation_estimate(Fraction(first) - HALF, order, 0))
    assert Fraction(first) - Fraction(1, 400) < found < Fraction(first)


def test_the_centre_is_never_below_a_half() -> None:
    assert ratio._least_centre(1, 10.0) == HALF


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_that_the_planner_may_choose_has_its_worst_case(dtype: torch.dtype) -> None:
    tol = TRUNCATION_TOL[dtype]
    errors = worst_cases(dtype)
    assert [depth.order for depth, _ in errors] == list(range(1, MAX_ORDER - 1))
    least = min(depth.centre for depth, _ in errors)
    for depth, error in errors:
        # the planner takes the order here, a little further up, and not here
        assert truncation_estimate(depth.centre - HALF, depth.order, 0) > tol
        above = depth.centre * (1 + Fraction(1, 10**9)) + Fraction(1, 400)
        assert truncation_estimate(above - HALF, depth.order, 0) <= tol
        assert (depth.beta, depth.expanded, depth.economy) == (0, depth.centre - HALF, Fraction(tol) / 2)
        assert depth.economy_rate <= 3 * depth.order * depth.economy
        assert depth.shifted or depth.centre >= least + 1
        assert not depth.shifted or depth.centre < least + Fraction(11, 10)
        assert error == proven.least_error(depth)
    everywhere = ratio.planned_bound(dtype)
    assert everywhere.bound == proven.upwards(max(error.size for _, error in errors))
    assert everywhere.relative_bound == proven.upwards(max(error.relative for _, error in errors))


@pytest.mark.parametrize("order", [2, 5, 22])
def test_the_rate_of_an_economy_counts_the_whole_degree(order: int) -> None:
    """sum j |b_j| is at most the degree of T times sum |b_j|, whatever is dropped."""
    depth = worst_cases(torch.float32)[order - 1][0]
    degree = len(Expansion(Fraction(20), order).exact.tail) - 1
    assert degree * depth.economy <= depth.economy_rate


@pytest.mark.parametrize(("nu", "dtype"), [*((nu, torch.float32) for nu in (0, HALF, 2, 5)), (13, torch.float64)])
def test_a_plan_with_a_shift_belongs_to_an_order_that_may_be_shifted(nu: Fraction, dtype: torch.dtype) -> None:
    chosen = plan(Fraction(nu), dtype)
    assert chosen.shift > 0
    depth = worst_cases(dtype)[chosen.order - 1][0]
    assert depth.shifted
    assert depth.centre <= chosen.centre
    assert chosen.economised_by <= depth.economy
    assert chosen.economised_rate <= depth.economy_rate


def proof(*steps: Step) -> ratio.Proof:
    return ratio.Proof("statement", "hypothesis", {}, steps)


def test_the_margin_is_the_least_over_the_barriers_of_the_better_of_both_ways() -> None:
    a = (Step(COEFFICIENTS, "a", True, 0.2), Step(STRIP, "a", True, 0.5))
    b = (Step(COEFFICIENTS, "b", True, 0.4), Step(STRIP, "b", True, None))
    other = Step("suprema", "c", True, 0.01)
    for steps in itertools.permutations((*a, *b, other)):
        assert proof(*steps).margin == 0.4
    assert proof(*a, other).margin == 0.5
    assert proof(other).margin == 0
    assert proof(Step(STRIP, "d", False, None)).margin == 0
    assert proof(*a, Step(COEFFICIENTS, "e", False, -0.3)).margin == 0


def test_a_proof_holds_if_all_its_steps_do() -> None:
    good, bad = Step("suprema", "a", True), Step("suprema", "b", False)
    assert proof(good).holds
    assert proof(good).failures() == ()
    assert not proof(bad, good).holds
    assert proof(bad, good).failures() == (bad,)


def test_proofs_are_values_and_the_time_is_no_part_of_them() -> None:
    one = proof(Step("suprema", "a", True))
    assert one == ratio.Proof("statement", "hypothesis", {}, one.steps, seconds=3.0)
    assert one.seconds == 0
    with pytest.raises(AttributeError):
        one.bound = 1.0  # type: ignore[misc]


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
def test_what_the_proof_of_an_order_consists_of(family: str, order: int, statement: str, hypothesis: str) -> None:
    """Two barriers, the residual of each, and the suprema of all terms that the two inequalities name."""
    started = time.perf_counter()
    found = ratio.prove_order(family, order)
    assert 0 < found.seconds <= time.perf_counter() - started
    assert (found.statement, found.hypothesis) == (statement, hypothesis)
    of = {name: [step.statement for step in found.steps if step.name == name] for name in ("residual", "suprema", COEFFICIENTS, STRIP)}
    assert [s.split(" is ")[0] for s in of["residual"]] == [f"Riccati residual of order {n}" for n in (order, order + 1)]
    assert [s.split(" <=")[0] for s in of["suprema"][:-5]] == [
        what.format(k) for k in range(1, order + 3) for what in ("|r_{}|", "|r_{}| / v", "|dr_{}/dz|")
    ]
    centre = found.constants["nu_0"] + (HALF if family == "midpoint" else 0)
    beta = ratio.FAMILIES[family]
    walls = [proven.barrier(beta, n, centre) for n in (order, order + 1)]
    claims = [f"|R - A_{w.order}| <= {float(w.constant):.4g} v / c^{w.order + 1} for all c >= {float(centre):g}" for w in walls if w]
    assert len(claims) == 2
    assert of[COEFFICIENTS] == of[STRIP] == claims
    assert sum(map(len, of.values())) == len(found.steps)
    assert found.constants == {
        "nu_0": max(proven.first_order(beta, n) for n in (order, order + 1)),
        "leading": proven.SUPREMA[beta][order].size,
        "next": walls[1].constant if walls[1] else None,
        "relative": walls[0].constant if walls[0] else None,
    }


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Which suprema a proof asks for, as (beta, last); they are not proven, which takes most of the time."""
    seen: list[tuple[int, int]] = []

    def suprema_steps(beta: int, last: int) -> list[Step]:
        seen.append((beta, last))
        return []

    monkeypatch.setattr(ratio, "suprema_steps", suprema_steps)
    return seen


ALWAYS = ["suprema"] * 5  # the elementary ones


@pytest.mark.parametrize(
    ("options", "where", "last", "first", "shift"),
    [
        ({"dim": 8, "order": 4, "shift": 1}, "order 4, c = 4.5, shift 1", None, 1, True),
        ({"dim": 64, "realization": "arfr", "order": 2}, "order 2, c = 31", None, 1, False),
        ({"dim": 2, "order": 12}, "order 12, c = 0.5", 12, 1, False),  # a barrier of low order: the terms up to 12 lie between
        ({"dim": 512}, "order 2, c = 255.5", None, 2, False),
    ],
)
def test_what_the_proof_of_a_potential_consists_of(options, where, last, first, shift, asked: list) -> None:
    pot = pg.potential(**options)
    found = ratio.prove_potential(pot, torch.float32)
    error = proven.slope_error(pot.formulas(torch.float32))
    assert error is not None
    wall, beta = error.barrier, 1 if "realization" in options else 0
    assert found.holds
    assert asked == [(beta, wall.order + 1 if last is None else last)]
    names = [*["coefficients"] * first, "residual", *ALWAYS, COEFFICIENTS, STRIP, *["shift"] * shift, "total"]
    assert [step.name for step in found.steps] == names
    assert f"for all x >= 0 ({where}, barrier of order {wall.order})" in found.statement
    assert found.bound == pot.ratio_bound(torch.float32)
    assert found.constants["B"] == wall.constant


@pytest.mark.parametrize("dim", [3, 4])
def test_without_a_bound_there_is_nothing_to_prove(dim: int) -> None:
    """Though at nu = 1 a barrier of another order stands."""
    with pytest.raises(ValueError, match=r"there is no finite bound to prove for .*nu >= 1\.09"):
        ratio.prove_potential(pg.potential(dim, "arfr"))


@pytest.fixture
def some_cases(monkeypatch: pytest.MonkeyPatch) -> list[tuple[proven.Depth, proven.Error]]:
    """Three of the worst cases, with and without a shift: they stand for all, for a proof that treats them alike."""
    some = [worst_cases(torch.float32)[i] for i in (1, 9, 11)]
    monkeypatch.setattr(ratio, "_planned_errors", lambda dtype: some)
    return some


def test_what_the_proof_of_all_plans_consists_of(asked: list, some_cases: list, monkeypatch: pytest.MonkeyPatch) -> None:
    families, residual_steps = set(), ratio.residual_steps

    def recorded(beta: int, order: int) -> Iterator[Step]:
        families.add(beta)
        return residual_steps(beta, order)

    monkeypatch.setattr(ratio, "residual_steps", recorded)
    found = ratio.prove_plans(torch.float32)
    assert families == {0}
    everywhere = ratio.planned_bound(torch.float32)
    assert found.holds
    assert asked == [(0, proven.LAST_TERM)]
    residuals = sorted({error.barrier.order for _, error in some_cases})
    names = [*ALWAYS, *["residual"] * len(residuals), *[COEFFICIENTS, "total"] * len(some_cases)]
    assert [step.name for step in found.steps] == names
    statements = [step.statement for step in found.steps if step.name == "residual"]
    assert [s.split(" is ")[0] for s in statements] == [f"Riccati residual of order {n}" for n in residuals]
    claims = [step.statement for step in found.steps if step.name == COEFFICIENTS]
    for claim, (depth, error) in zip(claims, some_cases, strict=True):
        n = error.barrier.order
        assert claim == f"order {depth.order} from c = {float(depth.centre):.4g} on: |R - A_{n}| <= B v / c^{n + 1}"
    assert found.statement.endswith("R, order 'auto', float32")
    assert (found.hypothesis, found.bound) == ("all x >= 0, all nu >= 0", everywhere.bound)
    assert found.constants == {"relative": Fraction(everywhere.relative_bound or 0)}


def test_one_barrier_that_can_be_passed_fails_the_proof_of_all_plans(asked: list, some_cases: list) -> None:
    depth, error = some_cases[1]
    some_cases[1] = (depth, error._replace(barrier=error.barrier._replace(constant=error.barrier.constant / 2)))
    failed = ratio.prove_plans(torch.float32).failures()
    assert [step.name for step in failed] == [COEFFICIENTS, "total"]
    assert all(step.statement.startswith(f"order {depth.order} ") for step in failed)


@pytest.mark.parametrize("change", [(Fraction(1, 1000),), (Fraction(1, 1000), Fraction(1, 1000))])
def test_a_kernel_with_another_head_is_noticed(change: tuple[Fraction, ...]) -> None:
    """By a constant, or by a multiple of 1 + t: neither is v t^2 times a polynomial, and the step says so instead of breaking off."""
    for expansion in (Expansion(Fraction(3), 4), Expansion(Fraction(3), 4, economy=Fraction(1, 100))):
        with working_precision(PRECISION):
            assert all(step.holds for step in ratio.coefficient_steps(expansion))
            head = [a + b for a, b in itertools.zip_longest(expansion.exact.head, change, fillvalue=Fraction(0))]
            object.__setattr__(expansion, "exact", expansion.exact._replace(head=tuple(head)))
            assert not next(ratio.coefficient_steps(expansion)).holds


def test_a_bound_may_be_attained() -> None:
    """Equal to the sum of its parts, and not above it, is enough."""
    expansion = pg.potential(5).formulas()
    error = proven.slope_error(expansion)
    assert error is not None
    size, relative = proven.upwards(error.size), proven.upwards(error.relative)
    even = error._replace(size=Fraction(size), relative=Fraction(relative))  # by less than a rounding of balls at this precision
    depth = proven.depth(expansion)
    with working_precision(48):
        assert ratio._total_step(depth, even, size, relative).holds
        assert not ratio._total_step(depth, even, math.nextafter(size, 0), relative).holds
        assert not ratio._total_step(depth, even, size, math.nextafter(relative, 0)).holds


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int, int]]:
    """Concentration, digits and precision in bits of every reference value that is asked for."""
    seen: list[tuple[float, int, int]] = []

    class Recorded(Balls):
        def slope_ball(self, x):
            seen.append((float(x), self.digits, flint.ctx.prec))
            return super().slope_ball(x)

    monkeypatch.setattr(ratio, "Balls", Recorded)
    return seen


@pytest.mark.parametrize(
    ("options", "scale"),
    [
        ({"dim": 9}, None),
        ({"dim": 9, "order": 2}, 4.0),
        ({"dim": 9, "realization": "arfr"}, 3.5),
        ({"dim": 9, "realization": "scott"}, 3.5),
        ({"dim": 2, "realization": "scott"}, 0.5),
        ({"dim": 3, "realization": "arfr"}, 0.5),
    ],
)
def test_the_measured_error_is_the_largest_over_four_decades(options, scale, looked_at: list) -> None:
    pot = pg.potential(**options)
    scale = float(pot.formulas().centre) if scale is None else scale
    found = ratio.measured_ratio_error(pot, points=5)
    assert [x for x, _, _ in looked_at] == pytest.approx([scale * 10.0**i for i in range(-2, 3)], rel=1e-14, abs=0)
    errors = []
    with working_precision(400):
        for x, _, _ in looked_at:
            errors.append(
                float(abs(pot.formulas().slope(BallArithmetic(), flint.arb(x)) - Balls(pot.nu, 80).slope_ball(flint.arb(x))).mid())
            )
    assert found.bound == pytest.approx(max(errors), rel=1e-9, abs=0)
    assert (found.status, found.hypothesis) == ("measured", "5 concentrations, x / c from 1e-2 to 1e2")
    bound = pot.ratio_bound()
    for _, digits, bits in looked_at:  # ten digits of the error, at the least
        assert digits >= 10 - math.log10(max(errors))
        assert digits <= 25 - math.log10(bound or 1e-20)
        assert bits >= digits * math.log2(10)


def test_two_concentrations_are_enough_and_many_are_the_default(looked_at: list) -> None:
    pot = pg.potential(64, "scott")
    ratio.measured_ratio_error(pot, points=2)
    assert [x for x, _, _ in looked_at] == pytest.approx([0.31, 3100], rel=1e-14)
    assert ratio.measured_ratio_error(pot).hypothesis == "121 concentrations, x / c from 1e-2 to 1e2"


def test_a_bound_is_integrated() -> None:
    slope = Certificate("q", 0.25, "nu >= 3", "statement a", "proven")
    for a, b in ((1.0, 4.0), (4.0, 1.0), (0.0, 3.0)):
        found = ratio.over_interval(slope, a, b)
        assert (found.bound, found.hypothesis, found.equation, found.status) == (0.75, "nu >= 3", "statement a", "proven")
    assert ratio.over_interval(slope, 1.0, 4.0, "statement b").equation == "statement b"
    assert ratio.over_interval(slope, 2.0, 2.0).bound == 0
    assert ratio.paper_difference_theorem(2, 1.0, 4.0).equation == "eq. cor:endpoint-fidelity"
    assert ratio.paper_difference_theorem(2, 1.0, 4.0).bound == 3 / 8
    nothing = ratio.over_interval(Certificate("q", None, "", "statement a", "none", "because"), 1, 2)
    assert (nothing.bound, nothing.equation, nothing.reason) == (None, "statement a", "because")


@pytest.mark.parametrize("order", [1, MAX_ORDER])
def test_the_first_and_the_last_order_with_a_proof(order: int) -> None:
    assert ratio._proven_order(order) == order
