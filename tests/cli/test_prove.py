"""`pairgrad prove` as a user runs it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from pairgrad.potentials import proven
from tests.cli.command import invoke, pairgrad


@pytest.mark.slow
def test_orders_one_to_eight_of_both_families():
    done = pairgrad("prove")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    proven_lines = [line for line in lines if line and line[0] in ("midpoint", "centred") and line[-1] == "proven"]
    assert [(line[0], int(line[1])) for line in proven_lines] == [(f, n) for f in ("midpoint", "centred") for n in range(1, 9)]
    order_two = next(line for line in proven_lines if line[:2] == ["centred", "2"])
    assert float(order_two[2]) <= 10 / 9
    assert float(order_two[3]) <= 0.0835
    assert "float64  |slope - R| <= 1.29 u R" in done.stdout
    assert "float32  |slope - R| <= 1.42 u R" in done.stdout
    assert "18 of 18 proven" in done.stdout


def test_one_dimension_and_order():
    done = pairgrad("prove", "--dim", "512", "--order", "2")
    assert done.returncode == 0, done.stderr
    assert "|R - A_2| <= 0.08349 nu^-3 + 1.093 nu^-4" in done.stdout
    assert "hypothesis  all x >= 0, all nu >= 1.11" in done.stdout
    assert "|slope - R| <= 5.052e-09 for all x >= 0 (order 2, c = 255" in done.stdout
    assert "the bound is 1.01 times that" in done.stdout
    assert "margin of the barrier" in done.stdout


@pytest.mark.slow
def test_the_planned_potential_and_a_bessel_order():
    done = pairgrad("prove", "--nu", "2.75")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("proven in") == 2
    assert "nu=2.75, realization='paired'), float32" in done.stdout
    assert "shift: 1 of 1 hold" in done.stdout


@pytest.mark.slow
def test_a_potential_that_drops_one_chebyshev_term():
    done = pairgrad("prove", "--dim", "8192")
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_a_dimension_too_high_to_be_compared_with_exact_values():
    done = pairgrad("prove", "--dim", "2000000000")
    assert done.returncode == 0, done.stderr
    assert "not measured: exact Bessel functions of order 1e+09 take too long" in done.stdout


def test_where_there_is_no_theorem_the_reason_is_given():
    done = pairgrad("prove", "--dim", "4", "--order", "2")
    assert done.returncode == 0, done.stderr
    assert "no bound: order 2 around nu has a theorem for nu >= 1.09 (dim >= 5), got nu = 1" in done.stdout


def test_a_falsified_constant_fails(monkeypatch):
    """Exit code 1, and the step that failed is named."""
    caches = (proven.barrier, proven._residual_bounds, proven._size_bounds, proven.slope_error, proven.first_order)
    rows = list(proven.SUPREMA[1])
    rows[2] = rows[2]._replace(size=Fraction("0.083"))
    with monkeypatch.context() as patch:
        patch.setitem(proven.SUPREMA, 1, tuple(rows))
        for function in caches:
            function.cache_clear()
        result = invoke("prove", "--order", "2")
    for function in caches:
        function.cache_clear()
    assert result.exit_code == 1
    assert "FAILED" in result.stdout
    assert "|r_3| <= 0.083 exceeded at t = " in " ".join(result.stdout.split())
    assert "3 of 4 proven" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dim", "4", "--nu", "2"], "give --dim or --nu, not both"),
        (["--dim", "1"], "dim must be an integer >= 2"),
        (["--max-order", "30"], "must be from 1 to 24, the orders that can be proven, got 30"),
        (["--dim", "8", "--shift", "2"], "shift can be given only together with an explicit order"),
        (["--shift", "2"], "--shift needs --dim or --nu"),
    ],
)
def test_wrong_usage(arguments, message):
    done = invoke("prove", *arguments)  # a traceback would be raised here
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())
