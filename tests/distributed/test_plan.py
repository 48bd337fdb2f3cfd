"""The planner: its collectives, memory and time against sums done by hand, and memory and rate against a process that runs."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pairgrad.distributed import Call, Cluster, Workload, calibrated, estimate, plan_layouts, shard, step_calls, wire_bytes

MEMORY_TOL = 0.1  # the issue's: a plan is to be within a tenth of what is measured

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


def test_expected_distinct_classes_are_those_of_random_labels():
    """2000 draws of 40 labels from 50 classes, of which 17 are held: the mean is within 5 standard errors (one false alarm in 2 million)."""
    held = torch.stack([torch.bincount(torch.randint(50, (40,)), minlength=50)[:17] > 0 for _ in range(2000)]).sum(1).double()
    exact = 17 * (1 - (1 - 1 / 50) ** 40)
    assert abs(held.mean() - exact) <= 5 * held.std() / 2000**0.5
    assert distinct(50, 17, 40) == math.ceil(exact)
    assert distinct(10, 10, 1) == 1
    assert distinct(10**9, 10**9, 3) == 3


def distinct(classes, held, batch):
    """Of a batch that all ranks score, on the rank with the first `held` classes."""
    found = estimate(Workload(classes, 64, batch), Cluster(-(-classes // held)), data=1, classes=-(-classes // held))
    assert (found.class_rows, found.scored_rows) == (held, batch)
    return found.distinct


def ring_seconds(call, bandwidth, latency):
    """Messages one after the other around a ring, the sum of all-reduce twice; an all-gather passes on what each rank has, the others parts of it."""
    rounds = call.ranks - 1
    messages = 2 * rounds if call.operation == "all-reduce" else rounds
    size = call.payload if call.operation == "all-gather" else call.payload / call.ranks
    return messages * (latency + size / bandwidth)


def test_messages_and_seconds_of_a_ring():
    found = estimate(Workload(1000, 64, 30), Cluster(6, bandwidth=1e6, latency=1e-3), data=3, classes=2)
    assert {call.operation for call in found.calls} == {"all-gather", "reduce-scatter", "all-reduce"}
    assert found.exchanging == pytest.approx(sum(ring_seconds(call, 1e6, 1e-3) for call in found.calls), rel=1e-12)
    for call, data in zip(found.calls, found.to_dict(Cluster(6, bandwidth=1e6, latency=1e-3))["calls"], strict=True):
        assert data["seconds"] == pytest.approx(ring_seconds(call, 1e6, 1e-3), rel=1e-12)


def test_an_estimate_by_hand():
    workload, cluster = Workload(classes=1001, dim=64, batch=30, views=2), Cluster(ranks=6, bandwidth=1e6, latency=1e-3, flops=1e9)
    found = estimate(workload, cluster, data=3, classes=2)
    assert (found.class_rows, found.local_rows, found.scored_rows) == (501, 5, 10)
    assert found.distinct == 5  # 501 (1 - (1000/1001)^10) = 4.98
    assert found.calls == tuple(
        step_calls(data=3, classes=2, class_rows=501, dim=64, itemsize=4, views=2, local_rows=5, scored_rows=10, distinct=5)
    )
    scores = 2 * 10 * 501 + 1 * 10 * (3 * 5)  # the classes of the batch once more, for the first view
    assert found.matrix_flops == 4 * 64 * scores
    assert found.elementwise_flops == 2000 * scores
    assert found.scoring == (4 * 64 + 2000) * scores / 1e9
    assert found.exchanging == pytest.approx(sum(ring_seconds(call, 1e6, 1e-3) for call in found.calls), rel=1e-12)
    assert found.seconds == found.scoring + found.exchanging


def test_what_is_known_is_taken_instead_of_what_is_expected():
    found = estimate(Workload(1000, 64, 30), Cluster(4), data=2, classes=2, local_rows=11, scored_rows=17, distinct=3)
    assert (found.local_rows, found.scored_rows, found.distinct) == (11, 17, 3)
    assert found.calls[1].payload == 11 * (256 + 8)
    assert found.calls[3].payload == 3 * (256 + 16)


def test_batches_that_stay_and_scores_without_a_bound():
    plain = estimate(Workload(1000, 64, 30), Cluster(4), data=2, classes=2)
    assert names(plain.calls)[2:5] == [
        ("data: header", "all-gather"),
        ("data: statistics", "all-gather"),
        ("classes: normaliser", "all-reduce"),
    ]
    static = estimate(Workload(1000, 64, 30, static=True), Cluster(4), data=2, classes=2)
    assert [call.name for call in static.calls] == [call.name for call in plain.calls if "header" not in call.name]
    assert static.distinct == static.scored_rows == 15
    unbounded = estimate(Workload(1000, 64, 30, bounded=False), Cluster(4), data=2, classes=2)
    assert ("classes: normaliser", "all-gather") in names(unbounded.calls)


def test_replicated_inputs_share_the_batch_between_replicas_alone():
    found = estimate(Workload(1000, 64, 30, inputs="replicated"), Cluster(6), data=3, classes=2)
    assert (found.local_rows, found.scored_rows) == (10, 10)


def test_sampling_scores_a_share_of_the_classes_and_those_of_the_batch():
    workload = Workload(classes=1000, dim=64, batch=8)
    full, part = (estimate(w, Cluster(1), data=1, classes=1) for w in (workload, replace(workload, sample=0.1)))
    assert full.matrix_flops == 4 * 64 * 8 * 1000
    assert part.matrix_flops == 4 * 64 * 8 * (100 + 8)
    assert part.memory.copies == 100 * (64 + 2) * 4
    assert full.memory.copies == 0


def test_more_ranks_than_samples():
    """Nobody scores more than there is."""
    found = estimate(Workload(1000, 64, 3), Cluster(10), data=1, classes=10)
    assert (found.local_rows, found.scored_rows) == (1, 3)


def test_all_factorisations_the_fastest_that_fits_first():
    plan = plan_layouts(Workload(10**7, 512, 8192), Cluster(64, memory=40e9))
    assert {(e.data, e.classes) for e in plan.layouts} == {(64 // c, c) for c in (1, 2, 4, 8, 16, 32, 64)}
    fits = [e.fits(plan.cluster) for e in plan.layouts]
    assert fits == sorted(fits, reverse=True)
    assert {True, False} == set(fits)
    for part in (True, False):
        seconds = [e.seconds for e in plan.layouts if e.fits(plan.cluster) is part]
        assert seconds == sorted(seconds)
    assert plan.best is plan.layouts[0]
    assert all(e.memory.peak <= 40e9 for e in plan.layouts if e.fits(plan.cluster))
    assert plan.needed is None


def test_equal_times_go_to_fewer_bytes():
    """Without latency, and bytes that cost nothing next to the scores, every layout of a batch that divides takes as long."""
    plan = plan_layouts(Workload(2**12, 64, 2**10), Cluster(16, bandwidth=1e30, latency=0.0))
    assert len({f"{e.seconds:.9g}" for e in plan.layouts}) == 1
    assert [e.wire for e in plan.layouts] == sorted(e.wire for e in plan.layouts)
    assert plan.best is not None
    assert 1 < plan.best.classes < 16


def test_refused_are_those_that_the_bank_refuses():
    for classes, ranks in itertools.product(range(1, 30), range(1, 12)):
        first, last = shard(classes, ranks, ranks - 1)
        refused = {shards for _, shards, _ in plan_layouts(Workload(classes, 8, 4), Cluster(ranks)).refused}
        assert (ranks in refused) == (first == last), (classes, ranks)
    plan = plan_layouts(Workload(10, 8, 4), Cluster(6))
    assert [(data, classes) for data, classes, _ in plan.refused] == [(1, 6)]
    assert "10 classes in shards of 2 leave the last of 6 ranks without any" in plan.refused[0][2]
    with pytest.raises(ValueError, match="classes must leave no rank empty, got 6 ranks"):
        estimate(Workload(10, 8, 4), Cluster(6), data=1, classes=6)


@pytest.mark.parametrize(("memory", "views"), [(8e9, 1), (3e9, 2), (1e9, 1)])
def test_the_fewest_ranks_that_fit(memory, views):
    workload, cluster = Workload(10**7, 512, 8192, views=views), Cluster(4, memory=memory)
    plan = plan_layouts(workload, cluster)
    assert plan.best is None
    found = plan.needed
    assert found is not None
    assert found.fits(cluster)
    ranks = found.data * found.classes
    assert plan_layouts(workload, replace(cluster, ranks=ranks)).best is not None
    for fewer in range(max(1, ranks - 3), ranks):
        one_less = plan_layouts(workload, replace(cluster, ranks=fewer))
        assert not any(e.fits(cluster) for e in one_less.layouts if e.data & (e.data - 1) == 0), fewer


def test_no_number_of_ranks_helps_where_a_process_is_too_large():
    workload, process = Workload(10**6, 512, 8192), Cluster(1).process
    assert plan_layouts(workload, Cluster(1, memory=process)).needed is None
    assert plan_layouts(workload, Cluster(1, memory=2 * process)).needed is not None


def test_as_data():
    plan = plan_layouts(Workload(10**6, 128, 64, dtype=torch.float64), Cluster(4, memory=1e12))
    data = json.loads(json.dumps(plan.to_dict()))
    assert data["schema"] == "pairgrad.plan/1"
    assert data["workload"]["dtype"] == "float64"
    assert data["best"] == {"data": plan.layouts[0].data, "classes": plan.layouts[0].classes}
    first = data["layouts"][0]
    assert first["wire"] == sum(call["wire"] for call in first["calls"])
    assert first["seconds"]["exchange"] == pytest.approx(sum(call["seconds"] for call in first["calls"]), rel=1e-12)
    assert first["memory"]["peak"] == plan.layouts[0].memory.peak


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Workload(0, 8, 4), ValueError, "classes must be an integer >= 1, got 0"),
        (lambda: Workload(1e7, 8, 4), TypeError, "classes must be an integer >= 1, got 10000000.0"),
        (lambda: Workload(10, 1, 4), ValueError, "dim must be an integer >= 2, got 1"),
        (lambda: Workload(10, 8, 0), ValueError, "batch must be an integer >= 1, got 0"),
        (lambda: Workload(10, 8, 4, sample=0.0), ValueError, "sample must lie above 0"),
        (lambda: Workload(10, 8, 4, sample=float("nan")), TypeError, "sample must be a finite number"),
        (lambda: Workload(10, 8, 4, dtype=torch.float16), TypeError, "dtype must be torch.float32 or torch.float64"),
        (lambda: Workload(10, 8, 4, exchange="ring"), ValueError, "exchange must be one of 'auto', 'gather', 'reduce', got 'ring'"),
        (lambda: Workload(10, 8, 4, inputs="some"), ValueError, "inputs must be one of"),
        (lambda: Cluster(0), ValueError, "ranks must be an integer >= 1, got 0"),
        (lambda: Cluster(1, bandwidth=0), ValueError, "bandwidth must be a positive number, got 0: it is given in bytes per second"),
        (lambda: Cluster(1, latency=-1.0), ValueError, "latency must not be negative"),
        (lambda: Cluster(1, memory="40G"), TypeError, "memory must be a finite number, got '40G'"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_bank_by_hand():
    """Sums in two words, counts and norms in float64, concentration and rate; then a word for the prior, and the sums and counts of a second epoch."""
    bank = {options: alone(1000, 16, 8, **dict(options)).bank for options in ((), (("prior", True),), (("two_epochs", True),))}
    assert bank[()] == 1000 * (2 * 16 * 4 + 2 * 8 + 2 * 4) == 152_000
    assert bank[(("prior", True),)] - bank[()] == 1000 * 4
    assert bank[(("two_epochs", True),)] - bank[()] == 1000 * (2 * 16 * 4 + 8)
    assert alone(1000, 16, 8, dtype=torch.float64).bank == 1000 * (2 * 16 * 8 + 2 * 8 + 2 * 8)


def test_the_peak_is_where_the_bank_is_made_or_in_a_step():
    idle, busy = alone(100_000, 16, 8), alone(100_000, 16, 10_000)
    assert idle.creation > idle.step
    assert busy.step > busy.creation
    assert idle.peak == idle.process + idle.bank + idle.creation
    assert busy.peak == busy.process + busy.bank + busy.step


def alone(classes, dim, batch, **options):
    """The memory of one process with all classes."""
    return estimate(Workload(classes, dim, batch, **options), Cluster(1), data=1, classes=1).memory


_MEASURE = """
import torch
torch.set_num_threads(1)
import pairgrad as pg
dtype = getattr(torch, "{dtype}")
loss = pg.ProCoLoss({classes}, {dim}, dtype=dtype)
for _ in range(2):
    features = torch.randn({views}, {batch}, {dim}, dtype=dtype, requires_grad=True)
    loss(features, torch.randint({classes}, ({batch},))).backward()
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("classes", "dim", "batch", "views", "dtype"),
    [
        (300_000, 128, 64, 1, "float32"),  # the bank, and making it
        (300_000, 64, 64, 2, "float64"),
        (20_000, 128, 2048, 2, "float32"),  # the classes of the batch apart: 185 MB of 490
    ],
)
def test_peak_of_a_process(classes, dim, batch, views, dtype):
    code = _MEASURE.format(classes=classes, dim=dim, batch=batch, views=views, dtype=dtype)
    giving_back = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}  # else glibc keeps more or less, by chance
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **giving_back})
    measured = 1024 * int(done.stdout)
    predicted = alone(classes, dim, batch, views=views, dtype=getattr(torch, dtype))
    assert abs(predicted.peak / measured - 1) <= MEMORY_TOL, (predicted, measured)


def test_calibration_gives_back_the_time_of_a_pass(monkeypatch):
    """With a clock that goes three times as far in a pass as in its products: the real one says what else runs on the machine."""
    before, ticks, clock = torch.get_num_threads(), [], iter([0.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    clock = itertools.count(0.0, 3.0)  # read before and after what is timed

    def tick():
        nonlocal clock
        ticks.append(torch.get_num_threads())
        clock = itertools.count(0.0, 1.0)

    try:
        torch.set_num_threads(2)
        flops, elementwise = calibrated(64, rows=8, classes=5000, tick=tick)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert ticks == [1, 1]
    assert flops == 4 * 64 * 8 * 5000  # in the second that the products take
    assert (4 * 64 + elementwise) * 8 * 5000 / flops == 3.0


def test_what_is_timed_visits_every_class():
    with FlopCounterMode(display=False) as counted:
        calibrated(16, rows=8, dtype=torch.float64, classes=10_000)
    products = 4 * 8 * 10_000 * 16
    assert counted.get_total_flops() >= 12 * products  # six rounds of a pass, which has these products and more, and six of the products
