"""Where to look: intervals, strategies, what is drawn from them, and what is refused."""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from pairgrad.coherence import Box, LogRange, audit
from pairgrad.coherence.domain import as_interval, draw_examples, draw_states, is_strategy, resolve

NAMES = ("input 0", "input 1", "weight")


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(11)


def _like(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


# Intervals --------------------------------------------------------------------------------------------------------------


def test_a_box_is_drawn_from_evenly() -> None:
    """Of 4000 draws a quarter falls into each quarter: the standard deviation of such a count is √(4000 · 3/16) = 27, and six of them never happen."""
    drawn = Box(-1, 3).draw(_like(4000), _generator())
    assert drawn.min() >= -1
    assert drawn.max() <= 3
    counts = torch.histc(drawn, 4, -1, 3)
    assert (counts - 1000).abs().max() < 6 * 27.4, counts


def test_the_logarithm_of_a_log_range_is_drawn_from_evenly() -> None:
    drawn = LogRange(1e-3, 1e5).draw(_like(4000), _generator())
    assert drawn.min() >= 1e-3
    assert drawn.max() <= 1e5
    counts = torch.histc(drawn.log10(), 4, -3, 5)
    assert (counts - 1000).abs().max() < 6 * 27.4, counts


@pytest.mark.parametrize("interval", [Box(-1, 3), LogRange(0.5, 2)], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_draws_have_the_shape_and_dtype_of_the_tensor(interval: Any, dtype: torch.dtype) -> None:
    drawn = interval.draw(_like(2, 3, dtype=dtype), _generator())
    assert (drawn.shape, drawn.dtype) == ((2, 3), dtype)
    assert torch.equal(drawn, interval.draw(_like(2, 3, dtype=dtype), _generator()))


def test_edges_cut_an_interval_into_equal_pieces() -> None:
    assert Box(-1, 3).edges(4) == [-1.0, 0.0, 1.0, 2.0, 3.0]
    edges = LogRange(1e-2, 1e6).edges(8)
    assert edges[0] == 1e-2
    assert edges[-1] == 1e6
    assert [b / a for a, b in itertools.pairwise(edges)] == pytest.approx([10.0] * 8, rel=1e-14)


def test_a_log_range_may_span_more_than_the_quotient_of_its_ends_can_hold() -> None:
    """1e200 / 1e-200, and 1e200 · 1e300, overflow."""
    wide = LogRange(1e-200, 1e200)
    assert wide.edges(4) == pytest.approx([1e-200, 1e-100, 1.0, 1e100, 1e200], rel=1e-12)
    assert torch.isfinite(wide.draw(_like(100), _generator())).all()
    assert torch.isfinite(wide.sweep(_like(3), _generator()).point(1.0)).all()
    assert LogRange(1e200, 1e300).middle == pytest.approx(1e250, rel=1e-12)
    assert LogRange(1e-300, 1e-200).between(1e-300, 1e-200) == pytest.approx(1e-250, rel=1e-12)


def test_middles_are_those_of_the_scale() -> None:
    assert (Box(-1, 3).middle, Box(-1, 3).between(1, 4)) == (1.0, 2.5)
    assert (LogRange(0.01, 100).middle, LogRange(1, 4).between(1, 4)) == (pytest.approx(1.0), 2.0)


@pytest.mark.parametrize("interval", [Box(-1, 3), LogRange(0.5, 50)], ids=repr)
def test_a_sweep_goes_from_end_to_end(interval: Any) -> None:
    sweep = interval.sweep(_like(30), _generator())
    ends = torch.stack([sweep.point(-1.0), sweep.point(1.0)])
    upwards = ends[1] > ends[0]
    assert 0 < int(upwards.sum()) < 30
    assert torch.allclose(ends.amin(0), torch.full((30,), interval.low, dtype=torch.float64), rtol=1e-14)
    assert torch.allclose(ends.amax(0), torch.full((30,), interval.high, dtype=torch.float64), rtol=1e-14)


@pytest.mark.parametrize("kind", [Box, LogRange])
@pytest.mark.parametrize(("low", "high"), [(2, 2), (3, 1)])
def test_ends_in_the_wrong_order_are_refused(kind: Any, low: float, high: float) -> None:
    with pytest.raises(ValueError, match=rf"{kind.__name__} needs low < high, got low={low}, high={high}"):
        kind(low, high)


@pytest.mark.parametrize("kind", [Box, LogRange])
@pytest.mark.parametrize("end", [math.inf, math.nan, "1", None, True], ids=str)
def test_ends_that_are_no_finite_numbers_are_refused(kind: Any, end: Any) -> None:
    with pytest.raises(ValueError, match=f"{kind.__name__} needs two finite numbers"):
        kind(0.5, end)


def test_ends_may_be_the_largest_numbers_if_the_width_of_a_box_is_one_too() -> None:
    largest = sys.float_info.max
    assert (Box(0, largest).high, Box(-largest, 0).low, LogRange(1, largest).high) == (largest, -largest, largest)
    assert Box(0.9 * largest, largest).middle == pytest.approx(0.95 * largest, rel=1e-15)
    with pytest.raises(ValueError, match="Box needs a width that is finite, got low=-1"):
        Box(-largest, largest)


@pytest.mark.parametrize("low", [0, -1.0])
def test_a_log_range_cannot_reach_zero(low: float) -> None:
    with pytest.raises(ValueError, match=r"LogRange needs 0 < low < high.*use Box"):
        LogRange(low, 1)


# Which tensor has which ---------------------------------------------------------------------------------------------------


def test_no_domain_is_none_for_all() -> None:
    assert resolve(None, NAMES) == {}


@pytest.mark.parametrize("domain", [Box(0, 1), (0, 1), [0.0, 1.0]], ids=repr)
def test_one_interval_is_for_all_inputs_and_no_parameter(domain: Any) -> None:
    assert resolve(domain, NAMES) == {0: Box(0, 1), 1: Box(0, 1)}


def test_one_interval_is_for_all_keywords_where_no_input_has_a_position() -> None:
    assert resolve(Box(0, 1), ("x", "scale")) == {0: Box(0, 1), 1: Box(0, 1)}


def test_a_sequence_has_one_for_each_input() -> None:
    assert resolve([None, (0, 1)], NAMES) == {1: Box(0, 1)}
    assert resolve([LogRange(1, 2)], NAMES) == {0: LogRange(1, 2)}
    assert resolve(((0, 1), (2, 3)), NAMES) == {0: Box(0, 1), 1: Box(2, 3)}


def test_a_dict_goes_by_name_or_position() -> None:
    assert resolve({"weight": (0, 1), 1: LogRange(1, 2), "input 0": None}, NAMES) == {2: Box(0, 1), 1: LogRange(1, 2)}


def test_unknown_names_are_refused_and_the_known_ones_listed() -> None:
    with pytest.raises(ValueError, match=r"domain names 'bias', which is not differentiated: .*'input 0', 'input 1', 'weight'"):
        resolve({"bias": (0, 1)}, NAMES)
    with pytest.raises(ValueError, match="domain names 3"):
        resolve({3: (0, 1), "bias": (0, 1)}, NAMES)


def test_more_intervals_than_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="domain has 3 entries for 2 differentiated inputs"):
        resolve([(0, 1)] * 3, NAMES)


@pytest.mark.parametrize("value", ["0..1", 3.0, (1, 2, 3), torch.ones(2), {"low": 0}], ids=lambda value: type(value).__name__)
def test_other_things_are_no_interval(value: Any) -> None:
    with pytest.raises(TypeError, match=r"domain must be made of Box\(low, high\), LogRange"):
        as_interval(value)


def test_pairs_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match="Box needs low < high"):
        resolve((1, 0), NAMES)


@pytest.mark.parametrize(
    ("domain", "error", "words"),
    [
        ({"y": (0, 1)}, ValueError, "domain names 'y'"),
        ([(0, 1), (0, 1)], ValueError, "2 entries for 1 differentiated"),
        ((1, 0), ValueError, "low < high"),
        ("wide", TypeError, "domain must be made of"),
    ],
    ids=["name", "count", "order", "kind"],
)
def test_an_audit_refuses_them_too(domain: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        audit(torch.sin, torch.ones(2, dtype=torch.float64), domain=domain)


# States -----------------------------------------------------------------------------------------------------------------


def test_states_move_only_the_tensors_of_the_domain() -> None:
    tensors = (_like(3), 2 * _like(2))
    states = draw_states({1: Box(5, 6)}, tensors, 4, _generator())
    assert len(states) == 4
    assert all(state[0] is tensors[0] for state in states)
    assert all(float(state[1].min()) >= 5 and float(state[1].max()) <= 6 for state in states)
    assert len({tuple(state[1].tolist()) for state in states}) == 4


def test_the_tensors_given_are_not_written_to() -> None:
    tensors = (_like(3),)
    draw_states({0: Box(5, 6)}, tensors, 2, _generator())
    assert tensors[0].tolist() == [1.0, 1.0, 1.0]


# Strategies -------------------------------------------------------------------------------------------------------------


def test_strategies_are_known_without_importing_hypothesis() -> None:
    assert is_strategy(st.floats(0, 1))
    assert is_strategy(st.lists(st.floats(0, 1)).map(tuple))
    assert not is_strategy(Box(0, 1))
    assert not is_strategy(3)
    assert not is_strategy(hypothesis.settings())
    assert not is_strategy(type("SearchStrategy", (), {})())


def test_a_strategy_gives_the_same_states_each_time() -> None:
    first, second = (draw_examples(st.floats(-5, 5), 12) for _ in range(2))
    assert first == second
    assert len(first) == 12
    assert len(set(first)) > 1
    assert all(-5 <= value <= 5 for value in first)


def test_a_strategy_with_few_values_is_repeated() -> None:
    assert draw_examples(st.just(2.5), 3) == [2.5] * 3
    assert set(draw_examples(st.sampled_from([1.0, 2.0]), 7)) == {1.0, 2.0}


def test_a_strategy_is_asked_for_no_more_than_is_wanted() -> None:
    asked: list[int] = []
    counted = st.integers().map(lambda value: (asked.append(value), value)[1])
    assert len(draw_examples(counted, 5)) == 5
    assert len(asked) <= 5
    assert draw_examples(counted, 0) == []


def test_numbers_and_lists_of_a_strategy_are_spread_over_the_tensor() -> None:
    ((number,),) = draw_states({0: st.just(2.5)}, (_like(2, 3, dtype=torch.float32),), 1, _generator())
    assert number.tolist() == [[2.5] * 3] * 2
    assert number.dtype == torch.float32
    ((row,),) = draw_states({0: st.just([1.0, 2.0, 3.0])}, (_like(2, 3),), 1, _generator())
    assert row.tolist() == [[1.0, 2.0, 3.0]] * 2


def test_values_that_do_not_fit_the_tensor_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the strategy gave .* which does not fit a float64 tensor of shape"):
        draw_states({0: st.just([1.0, 2.0])}, (_like(3),), 1, _generator())


def _wrong_above_ten(x: torch.Tensor) -> torch.Tensor:
    """x², with twice the gradient for x > 10."""
    return torch.where(x > 10, 2 * x * x - (x * x).detach(), x * x)


def test_states_of_a_strategy_are_audited_and_the_same_each_time() -> None:
    x = torch.tensor([1.5], dtype=torch.float64)
    reports = [audit(_wrong_above_ten, x, domain=st.floats(20, 30), effort="quick", consequences=False) for _ in range(2)]
    assert reports[0].verdict == reports[1].verdict == "incoherent", str(reports[0])
    assert reports[0].states == reports[1].states
    assert audit(_wrong_above_ten, x, domain=st.floats(2, 5), effort="quick", consequences=False).passed


def test_a_strategy_needs_inputs() -> None:
    with pytest.raises(ValueError, match="inputs must be given where domain is a Hypothesis strategy"):
        audit(torch.sin, domain=st.floats(0, 1))


def test_neither_inputs_nor_domain_is_refused() -> None:
    with pytest.raises(TypeError, match="inputs must be given unless domain is"):
        audit(torch.sin)


@pytest.mark.parametrize(
    ("fn", "domain", "regions"),
    [
        (torch.sin, (0, 3), {"input 0": (0.0, 3.0)}),
        (torch.log, LogRange(0.1, 10), {"input 0": (0.1, 10.0)}),
        (torch.atan2, [(1, 2), (3, 4)], {"input 0": (1.0, 2.0), "input 1": (3.0, 4.0)}),
        (lambda *, x, y: x * y, {"x": (1, 2), "y": LogRange(1, 4)}, {"x": (1.0, 2.0), "y": (1.0, 4.0)}),
    ],
    ids=["pair", "log", "sequence", "dict"],
)
def test_a_domain_alone_gives_the_arguments(fn: Any, domain: Any, regions: dict[str, tuple[float, float]]) -> None:
    report = audit(fn, domain=domain, effort="quick", consequences=False)
    assert report.verdict == "coherent", str(report)
    assert {name: (found[0].low, found[-1].high) for name, found in report.regions.items()} == regions


def test_the_dtype_of_a_domain_without_inputs_can_be_chosen() -> None:
    assert audit(torch.sin, domain=(0, 3), effort="quick").dtype == "float64"
    assert audit(torch.sin, domain=(0, 3), dtype=torch.float32, effort="quick").dtype == "float32"


def test_a_wrong_part_of_a_box_is_found_where_the_inputs_do_not_lie() -> None:
    x = torch.tensor([1.5], dtype=torch.float64)
    assert audit(_wrong_above_ten, x, effort="quick", consequences=False).passed
    report = audit(_wrong_above_ten, x, domain=(0.5, 20), effort="quick", consequences=False)
    assert report.verdict == "incoherent", str(report)
    wrong = [region for region in report.regions["input 0"] if region.verdict == "incoherent"]
    assert wrong[0].low == pytest.approx(10, abs=0.05), str(report)
    assert wrong[-1].high == 20
