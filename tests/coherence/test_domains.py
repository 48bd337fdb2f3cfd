"""Domains: intervals, strategies, what is drawn from them, which argument has which, and what is refused."""

from __future__ import annotations

import math
import sys
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from pairgrad.coherence import Box, LogRange, Report, audit

X = torch.tensor([1.5], dtype=torch.float64)


def looked_at(fn: Any, inputs: Any = None, **options: Any) -> Report:
    return audit(fn, inputs, **({"effort": "glance", "second_order": False, "consequences": False} | options))


def _drawn(interval: Any, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return interval.draw(torch.ones(shape, dtype=dtype), torch.Generator().manual_seed(11))


@pytest.mark.parametrize(
    ("interval", "position"),
    [
        (Box(-1, 3), lambda x: (x + 1) / 4),
        (LogRange(1e-3, 1e5), lambda x: (x.log10() + 3) / 8),
        (LogRange(1e-200, 1e200), lambda x: (x.log10() + 200) / 400),  # whose quotient overflows
    ],
    ids=["box", "log", "overflow"],
)
def test_draws_are_even_on_the_scale_of_the_interval(interval: Any, position: Any) -> None:
    """Of 4000 draws a quarter falls into each quarter: the standard deviation of such a count is √(4000 · 3/16) = 27, and six of them never happen."""
    drawn = _drawn(interval, 4000)
    assert drawn.min() >= interval.low
    assert drawn.max() <= interval.high
    counts = torch.histc(position(drawn), 4, 0, 1)
    assert (counts - 1000).abs().max() < 6 * 27.4, counts


@pytest.mark.parametrize("interval", [Box(-1, 3), LogRange(0.5, 2)], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_draws_have_the_shape_and_dtype_of_the_tensor(interval: Any, dtype: torch.dtype) -> None:
    drawn = _drawn(interval, 2, 3, dtype=dtype)
    assert (drawn.shape, drawn.dtype) == ((2, 3), dtype)
    assert torch.equal(drawn, _drawn(interval, 2, 3, dtype=dtype))


def test_edges_and_middles_are_those_of_the_scale() -> None:
    assert Box(-1, 3).edges(4) == [-1.0, 0.0, 1.0, 2.0, 3.0]
    assert LogRange(1e-2, 1e2).edges(4) == pytest.approx([0.01, 0.1, 1, 10, 100], rel=1e-14)
    assert LogRange(1e-200, 1e200).edges(4) == pytest.approx([1e-200, 1e-100, 1.0, 1e100, 1e200], rel=1e-12)
    assert (Box(-1, 3).middle, Box(-1, 3).between(1, 4)) == (1.0, 2.5)
    assert (LogRange(0.01, 100).middle, LogRange(1, 4).between(1, 4)) == (pytest.approx(1.0), 2.0)
    assert LogRange(1e200, 1e300).middle == pytest.approx(1e250, rel=1e-12)


@pytest.mark.parametrize("interval", [Box(-1, 3), LogRange(0.5, 50)], ids=repr)
def test_a_sweep_goes_from_end_to_end(interval: Any) -> None:
    sweep = interval.sweep(torch.ones(30, dtype=torch.float64), torch.Generator().manual_seed(11))
    ends = torch.stack([sweep.point(-1.0), sweep.point(1.0)])
    assert 0 < int((ends[1] > ends[0]).sum()) < 30
    assert torch.allclose(ends.amin(0), torch.full((30,), interval.low, dtype=torch.float64), rtol=1e-14)
    assert torch.allclose(ends.amax(0), torch.full((30,), interval.high, dtype=torch.float64), rtol=1e-14)


@pytest.mark.parametrize("kind", [Box, LogRange])
@pytest.mark.parametrize(("low", "high"), [(2, 2), (3, 1)])
def test_ends_in_the_wrong_order_are_refused(kind: Any, low: float, high: float) -> None:
    with pytest.raises(ValueError, match=rf"{kind.__name__} needs low < high, got low={low}, high={high}"):
        kind(low, high)


@pytest.mark.parametrize("kind", [Box, LogRange])
@pytest.mark.parametrize("end", [math.inf, math.nan, "1", None, True], ids=str)
def test_ends_that_are_not_finite_numbers_are_refused(kind: Any, end: Any) -> None:
    with pytest.raises(ValueError, match=f"{kind.__name__} needs two finite numbers"):
        kind(0.5, end)


def test_ends_may_be_the_largest_numbers_if_the_width_of_a_box_is_finite_too() -> None:
    largest = sys.float_info.max
    assert (Box(0, largest).high, Box(-largest, 0).low, LogRange(1, largest).high) == (largest, -largest, largest)
    assert Box(0.9 * largest, largest).middle == pytest.approx(0.95 * largest, rel=1e-15)
    with pytest.raises(ValueError, match="Box needs a width that is finite, got low=-1"):
        Box(-largest, largest)


@pytest.mark.parametrize("low", [0, -1.0])
def test_a_log_range_cannot_reach_zero(low: float) -> None:
    with pytest.raises(ValueError, match=r"LogRange needs 0 < low < high.*use Box"):
        LogRange(low, 1)


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(1.25, dtype=torch.float64))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a * self.weight).sin() * b


@pytest.mark.parametrize(
    ("domain", "ends"),
    [
        (None, {}),
        (Box(1, 2), {"input 0": (1, 2), "input 1": (1, 2)}),
        ((1, 2), {"input 0": (1, 2), "input 1": (1, 2)}),
        ([1.0, 2.0], {"input 0": (1, 2), "input 1": (1, 2)}),
        ([None, (1, 2)], {"input 1": (1, 2)}),
        ([LogRange(1, 2)], {"input 0": (1, 2)}),
        (((1, 2), (3, 4)), {"input 0": (1, 2), "input 1": (3, 4)}),
        ({"weight": (1, 2), 1: LogRange(1, 3), "input 0": None}, {"weight": (1, 2), "input 1": (1, 3)}),
    ],
    ids=repr,
)
def test_the_arguments_that_a_domain_names_are_scanned_from_end_to_end(domain: Any, ends: dict[str, tuple[float, float]]) -> None:
    report = looked_at(Scaled(), (X, X + 1), domain=domain)
    assert report.passed, str(report)
    assert {name: (found[0].low, found[-1].high) for name, found in report.regions.items()} == ends


@pytest.mark.parametrize(
    ("fn", "domain", "ends"),
    [
        (torch.sin, (0, 3), {"input 0": (0, 3)}),
        (torch.log, LogRange(0.1, 10), {"input 0": (0.1, 10)}),
        (torch.atan2, [(1, 2), (3, 4)], {"input 0": (1, 2), "input 1": (3, 4)}),
        (lambda *, x, y: x * y, {"x": (1, 2), "y": LogRange(1, 4)}, {"x": (1, 2), "y": (1, 4)}),
    ],
    ids=["pair", "log", "sequence", "dict"],
)
def test_a_domain_alone_gives_the_arguments(fn: Any, domain: Any, ends: dict[str, tuple[float, float]]) -> None:
    report = looked_at(fn, domain=domain)
    assert report.verdict == "coherent", str(report)
    assert {name: (found[0].low, found[-1].high) for name, found in report.regions.items()} == ends


def test_without_inputs_an_argument_starts_in_the_middle_in_the_dtype_asked_for() -> None:
    first: list[tuple[float, float]] = []

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        first.append((x.item(), y.item()))
        return x * y

    assert looked_at(fn, domain=[(0, 3), LogRange(1, 4)]).dtype == "float64"
    assert first[0] == (1.5, 2.0)
    assert looked_at(torch.sin, domain=(0, 3), dtype=torch.float32).dtype == "float32"


@pytest.mark.parametrize(
    ("domain", "error", "words"),
    [
        ({"bias": (0, 1)}, ValueError, r"domain names 'bias', which is not differentiated: .*'input 0', 'input 1', 'weight'"),
        ({3: (0, 1)}, ValueError, "domain names 3"),
        ([(0, 1)] * 3, ValueError, "domain has 3 entries for 2 differentiated inputs"),
        ((1, 0), ValueError, "Box needs low < high"),
        ("0..1", TypeError, r"domain must be made of Box\(low, high\), LogRange"),
        (3.0, TypeError, "domain must be made of"),
        ([(1, 2, 3)], TypeError, "domain must be made of"),
        (torch.ones(2), TypeError, "domain must be made of"),
        ([{"low": 0}], TypeError, "domain must be made of"),
        (hypothesis.settings(), TypeError, "domain must be made of"),
        (type("SearchStrategy", (), {})(), TypeError, "domain must be made of"),
    ],
    ids=["name", "place", "count", "order", "text", "number", "three", "tensor", "dict", "settings", "name of a strategy"],
)
def test_other_domains_are_refused(domain: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        audit(Scaled(), (X, X), domain=domain)


@pytest.mark.parametrize(
    ("domain", "error", "words"),
    [
        (None, TypeError, "inputs must be given unless domain is"),
        ([(0, 1), None], ValueError, "inputs must be given where domain leaves an argument out"),
        (st.floats(0, 1), ValueError, "inputs must be given where domain is a Hypothesis strategy"),
    ],
    ids=["none", "one left out", "strategy"],
)
def test_inputs_have_to_be_given_where_a_domain_does_not_give_them(domain: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        audit(torch.sin, domain=domain)


def test_states_move_only_the_arguments_of_the_domain_and_write_to_none() -> None:
    seen: list[tuple[float, float]] = []

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append((x.item(), y.item()))
        return x * y

    x, y = X.clone().requires_grad_(), X + 1
    assert looked_at(fn, (x, y), domain=[(5, 6)]).passed
    assert {place for _, place in seen} == {2.5}
    assert len({place for place, _ in seen if 5 <= place <= 6}) > 16
    assert (x.tolist(), y.tolist()) == ([1.5], [2.5])


def wrong_above_ten(x: torch.Tensor) -> torch.Tensor:
    """x², with twice the gradient for x > 10."""
    return torch.where(x > 10, 2 * x * x - (x * x).detach(), x * x)


def test_states_of_a_strategy_are_audited_and_the_same_each_time() -> None:
    reports = [looked_at(wrong_above_ten, X, domain=st.floats(20, 30)) for _ in range(2)]
    assert reports[0].verdict == reports[1].verdict == "incoherent", str(reports[0])
    assert reports[0].states == reports[1].states
    assert looked_at(wrong_above_ten, X, domain=st.floats(2, 5)).passed
    assert looked_at(wrong_above_ten, X, domain=st.lists(st.floats(2, 5), min_size=1, max_size=1).map(tuple)).passed


@pytest.mark.parametrize("strategy", [st.just(2.5), st.sampled_from([2.5]), st.just([2.5, 2.5, 2.5])], ids=["one", "sampled", "list"])
def test_numbers_and_lists_of_a_strategy_are_spread_over_the_tensor(strategy: Any) -> None:
    met: list[torch.Tensor] = []
    looked_at(
        lambda x: (met.append(x.detach().clone()), x.sin())[1], torch.ones(2, 3, dtype=torch.float32), domain=strategy, effort="quick"
    )
    assert any(torch.equal(x, torch.full((2, 3), 2.5)) for x in met)


def test_values_of_a_strategy_that_do_not_fit_the_tensor_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the strategy gave .* which does not fit a float64 tensor of shape"):
        looked_at(torch.sin, torch.ones(3, dtype=torch.float64), domain=st.just([1.0, 2.0]))
