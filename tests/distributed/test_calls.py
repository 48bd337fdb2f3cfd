"""The collectives of a step by hand; `test_loss` compares them with what ranks record."""

from __future__ import annotations

import itertools

import pytest

from pairgrad.distributed import Call, step_calls, wire_bytes

FACTS = {"class_rows": 500, "dim": 64, "itemsize": 4, "views": 2, "local_rows": 8, "scored_rows": 15, "distinct": 7}
ROW = 2 * 64 * 4


def names(calls):
    return [(call.name, call.operation) for call in calls]


def test_both_groups_by_hand():
    assert step_calls(data=3, classes=2, **FACTS) == [
        Call("classes: header", "all-gather", 64, 2),
        Call("classes: inputs", "all-gather", 8 * (ROW + 8), 2),
        Call("data: header", "all-gather", 64, 3),
        Call("data: statistics", "all-gather", 7 * (ROW + 16), 3),
        Call("classes: normaliser", "all-reduce", 2 * 2 * 15 * 4, 2),
        Call("classes: gradient", "reduce-scatter", 2 * 8 * ROW, 2),
    ]


def test_one_rank_calls_nothing_and_a_group_of_one_is_silent():
    assert step_calls(data=1, classes=1, **FACTS) == []
    assert {call.name.split(":")[0] for call in step_calls(data=3, classes=1, **FACTS)} == {"data"}
    assert {call.name.split(":")[0] for call in step_calls(data=1, classes=3, **FACTS)} == {"classes"}


def test_replicated_inputs_are_not_shown_and_gradients_are_added_up():
    calls = step_calls(data=1, classes=2, inputs="replicated", **FACTS)
    assert names(calls) == [("classes: header", "all-gather"), ("classes: normaliser", "all-reduce"), ("classes: gradient", "all-reduce")]
    assert calls[-1].payload == 15 * ROW


def test_static_batches_have_no_headers_and_every_sample_is_a_row():
    calls = step_calls(data=3, classes=2, static=True, **FACTS)
    assert not any("header" in call.name for call in calls)
    assert next(call for call in calls if call.name == "data: statistics").payload == 15 * (ROW + 16)


def test_scores_without_a_bound_are_gathered_with_what_they_are_relative_to():
    normaliser = step_calls(data=1, classes=2, bounded=False, **FACTS)[2]
    assert normaliser == Call("classes: normaliser", "all-gather", 3 * 2 * 15 * 4, 2)


def test_reducing_hands_in_every_class():
    calls = step_calls(data=3, classes=1, exchange="reduce", **FACTS)
    assert calls[-1] == Call("data: statistics", "all-reduce", 500 * (2 * 64 + 1) * 4, 3)


def test_a_buffer_has_one_row_at_least():
    calls = step_calls(data=2, classes=1, **{**FACTS, "distinct": 0})
    assert calls[-1].payload == ROW + 16


@pytest.mark.parametrize("itemsize", [4, 8])
def test_the_rule_sends_less(itemsize):
    """Both sides of the threshold, and on it: D U (V p s + 16) = 2 K (V p + 1) s for 17 classes of 20 on 2 ranks, in float64 of 27 on 3."""
    seen = set()
    for data, rows, distinct, views in itertools.product((2, 3, 8), (1, 7, 20, 27, 40, 200), (1, 13, 17, 41, 200), (1, 2)):
        facts = {"data": data, "class_rows": rows, "dim": 16, "itemsize": itemsize, "distinct": distinct, "views": views}
        calls = {way: step_calls(classes=1, local_rows=1, scored_rows=1, exchange=way, **facts) for way in ("auto", "gather", "reduce")}
        gathers = data * distinct * (views * 16 * itemsize + 16) <= 2 * rows * (views * 16 + 1) * itemsize
        assert calls["auto"] == calls["gather" if gathers else "reduce"], facts
        assert wire_bytes(calls["auto"]) == min(wire_bytes(calls["gather"]), wire_bytes(calls["reduce"])), facts
        seen.add(gathers)
    assert seen == {True, False}
