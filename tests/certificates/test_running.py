"""Running error analysis: no operation and no kernel loses more than its bound says, nor a small part of it only."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import flint
import pytest
import torch

import pairgrad as pg
from pairgrad.certificates.rounding_constants import UNIT_ROUNDOFF
from pairgrad.certificates.running import Running, RunningArithmetic
from pairgrad.ground.arithmetic import BallArithmetic
from pairgrad.ground.balls import working_precision
from pairgrad.potentials import kernels
from tests.tolerances import RUNNING_KERNEL_SHARE, RUNNING_OPERATION_SHARE

OPS = RunningArithmetic(torch.float32)
OPERATIONS = {
    "sum": lambda ops, x, y: x + y,
    "difference": lambda ops, x, y: x - y,
    "product": lambda ops, x, y: x * y,
    "quotient": lambda ops, x, y: x / y,
    "root": lambda ops, x, y: ops.sqrt(x),
    "log": lambda ops, x, y: ops.log(x),
    "log1p": lambda ops, x, y: ops.log1p(x),
    "maximum": lambda ops, x, y: ops.maximum(x, y),
    "minimum": lambda ops, x, y: ops.minimum(x, y),
}
PLAIN = SimpleNamespace(sqrt=torch.sqrt, log=torch.log, log1p=torch.log1p, maximum=torch.maximum, minimum=torch.minimum)


def operands(inexact: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Exact values, the same as some float32 computation may have got them, and a bound of the difference."""
    drawn, size, sign = torch.rand(3, 20000, dtype=torch.float64)
    exact = (10 ** (4 * drawn - 2)).float().double()
    error = inexact * exact * size
    computed = (exact + error * (2 * sign - 1)).float()
    return exact, computed, error + 2.0**-24 * (exact + error) if inexact else 0 * exact


@pytest.mark.parametrize("inexact", [0.0, 1e-5, 0.05])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_stays_within_its_bound_and_comes_near_it(name, inexact):
    (x, x_computed, x_error), (y, y_computed, y_error) = operands(inexact), operands(inexact)
    operation = OPERATIONS[name]
    bound = operation(OPS, Running(x, x_error, OPS), Running(y, y_error, OPS))
    truth, computed = operation(PLAIN, x, y), operation(PLAIN, x_computed, y_computed)
    for result in (computed.double(), bound.middle):
        assert ((result - truth).abs() <= bound.error * (1 + 1e-9)).all()
    if inexact or name not in ("maximum", "minimum"):
        reached = ((computed.double() - truth).abs() / bound.error.clamp_min(1e-30)).max()
        assert reached >= RUNNING_OPERATION_SHARE


def test_a_middle_that_is_off_is_still_covered():
    """Errors are about computed and exact; the middle is only known to lie within the error of the exact number."""
    x = Running(torch.tensor([1.0]), torch.tensor([0.25]), OPS)
    y = x * x
    assert y.middle + y.error >= 1.25 * 1.25
    quotient = 1 / x
    assert quotient.middle + quotient.error >= 1 / 0.75
    assert OPS.sqrt(Running(torch.tensor([0.0]), torch.tensor([4.0]), OPS)).error >= 2


def test_constants_are_rounded_once():
    third = OPS.constant(Fraction(1, 3))
    assert abs(third.error.item() - abs(float(torch.tensor(1 / 3, dtype=torch.float32)) - 1 / 3)) < 1e-15
    assert OPS.constant(0.75).error == 0
    assert OPS.constant(0.75) == 0.75
    assert not OPS.constant(Fraction(1, 3)) == 1 / 3  # noqa: SIM201
    exact = OPS.number(torch.tensor([3.0])) * 0.25
    assert exact.error == 0


def test_where_rounding_may_turn_a_condition_both_branches_are_covered():
    x = Running(torch.tensor([1.0, 2.0]), torch.tensor([0.1, 0.1]), OPS)
    yes, no = OPS.number(torch.tensor([10.0, 10.0])), OPS.number(torch.tensor([20.0, 20.0]))
    chosen = OPS.choose(x <= 1.05, yes, no)
    assert chosen.middle.tolist() == [10.0, 20.0]
    assert chosen.error[0] >= 10
    assert chosen.error[1] == 0
    assert OPS.choose(x >= 1.5, yes, no).middle.tolist() == [20.0, 10.0]


def test_overflow_is_infinite_not_small():
    x = OPS.number(torch.tensor([1e30]))
    assert (x * x).error.isinf().all()
    assert (RunningArithmetic(torch.float64).number(torch.tensor([1e30])) * 1e30).error.isfinite().all()


def increments(pot: pg.Potential, dtype: torch.dtype, states: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Concentrations, and squares as a unit feature at tau = 0.1 makes them."""
    drawn, cosine, length = torch.rand(3, states, dtype=torch.float64)
    a, reach = (10 ** (drawn * 6 - 1)).to(dtype), 10 * length
    return a, (2 * a.double() * reach * (2 * cosine - 1) + reach * reach).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("dim", "realization"), [(8, "arfr"), (8, "paired"), (20, "paired"), (64, "paired"), (512, "arfr"), (512, "paired")]
)
def test_a_kernel_stays_within_its_bound(dim, realization, dtype):
    pot = pg.potential(dim, realization)
    formulas, ops, balls = pot.formulas(dtype), RunningArithmetic(dtype), BallArithmetic()
    a, squared = increments(pot, dtype, 400)
    reached = {"score": 0.0, "gain": 0.0}
    for terms in (None, kernels.series_terms(pot, 10.0, dtype)):
        bounds = dict(zip(reached, formulas.increment(ops, ops.number(a), ops.number(squared), terms), strict=True))
        computed = dict(zip(reached, kernels.increment_pair(pot, a, squared, terms), strict=True))
        with working_precision(200):
            for i, point in enumerate(zip(a.tolist(), squared.tolist(), strict=True)):
                exact = dict(zip(reached, formulas.increment(balls, *map(flint.arb, point), terms), strict=True))
                for name in reached:
                    error = float(abs(flint.arb(computed[name][i].item()) - exact[name]))
                    middle = float(abs(flint.arb(bounds[name].middle[i].item()) - exact[name]))
                    assert max(error, middle) <= bounds[name].error[i], (name, point)
                    reached[name] = max(reached[name], error / bounds[name].error[i].item())
    assert min(reached.values()) >= RUNNING_KERNEL_SHARE, reached


def test_errors_of_the_argument_are_passed_on():
    """A radius that is known to 1e-3 makes a score that is known to half the gain times 1e-3, and the bound is no more than four times that."""
    pot = pg.potential(64)
    ops = RunningArithmetic(torch.float64)
    a, squared = torch.tensor([[5.0, 50.0, 5000.0], [40.0, -300.0, 90000.0]], dtype=torch.float64)
    score, gain = pot.formulas().increment(ops, ops.number(a), Running(squared, torch.full_like(squared, 1e-3), ops))
    moved = (pot.increment(a, squared + 1e-3) - pot.increment(a, squared)).abs()
    assert (score.error >= moved).all()
    assert (score.error <= 4 * moved).all()
    assert (score.error >= gain.middle / 2 * 1e-3).all()
    assert UNIT_ROUNDOFF[torch.float64] == torch.finfo(torch.float64).eps / 2


def test_a_floor_survives_positive_company_only():
    floored = OPS.at_least(Running(torch.tensor([0.5]), torch.tensor([3.0]), OPS), 1.0)
    assert floored.least == 1
    assert OPS.sqrt(floored).least >= 1 - 1e-6
    assert (floored + 2.0).least >= 3 - 1e-6
    unsure = Running(torch.tensor([1e-9]), torch.tensor([0.1]), OPS)
    assert (floored + unsure).least <= 0.9
    assert OPS.minimum(floored, unsure).least == 0
    assert OPS.maximum(floored, unsure).least == 1
