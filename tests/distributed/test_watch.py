"""How ranks hear of one another: signs of life, words that one leaves behind, what they are compared by, and how classes are drawn."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist

import pairgrad as pg
from pairgrad.distributed import Communicator, RankError, bank, distribute, watch
from pairgrad.distributed.scoring import drawn_classes
from pairgrad.distributed.watch import BEAT, Watch
from tests.distributed.ranks import all_are_here, run

CLASSES, DIM = 7, 4


def kill_when_it_waits(pid: int, rank: int) -> None:
    """Kill a rank once it has said that it is inside a collective, where this one is not."""
    watch = Watch.here()
    assert watch is not None
    here = watch.number
    while not ((said := watch._said(rank)).get("inside") and said["number"] > here):
        time.sleep(BEAT / 10)
    os.kill(pid, signal.SIGKILL)


def says_who_is_missing(how: str) -> tuple[str, tuple[int, ...]]:
    loss = distribute(pg.ProCoLoss(CLASSES, DIM), data=None, classes=dist.group.WORLD)
    loss(torch.ones(2, DIM), torch.arange(2))
    pids = [0, 0]
    dist.all_gather_object(pids, os.getpid())
    all_are_here("before it happens")
    if dist.get_rank() == 1 and how == "left":
        here = Watch.here()
        assert here is not None
        here.leave_word((1,), "rank 1 stopped: its disk is full")
        os._exit(1)
    for number in range(10 if how == "at once" else 0):
        Communicator("run", dist.group.WORLD).total(f"question {number}", torch.zeros(1))
    if dist.get_rank() == 1 and how == "at once":
        os._exit(1)  # before its next sign of life
    if dist.get_rank() == 0 and how == "killed":
        kill_when_it_waits(pids[1], 1)
    with pytest.raises(RankError) as error:
        loss(torch.ones(2, DIM), torch.arange(2))
    return str(error.value), error.value.ranks


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("killed", "last seen in 'classes: header'"),
        ("left", "rank 1 stopped: its disk is full"),
        ("at once", "last seen after 'run: question 9' (number 14)"),
    ],
)
def test_where_a_rank_was_lost_and_why(how: str, words: str) -> None:
    text, ranks = run(2, says_who_is_missing, how, expect=(0,))[0]
    assert words in text
    assert ranks == (1,)


def asks_twice() -> list[str]:
    """A finding belongs to a group: a new one that has the same store starts without."""
    watch, rank = Watch.here(), dist.get_rank()
    assert watch is not None
    Communicator("data", dist.group.WORLD).total("meeting", torch.zeros(1))
    if rank == 1:
        watch.leave_word((1,), "rank 1 stopped: an old story")
    Communicator("data", dist.group.WORLD).total("meeting again", torch.zeros(1))
    second = Watch(dist.distributed_c10d._get_default_store(), rank, 2)
    found = [str(each.explain("data: x", (1 - rank,), RuntimeError("closed"))) for each in (watch, second)]
    Communicator("data", dist.group.WORLD).total("leaving", torch.zeros(1))
    return found


@pytest.mark.distributed
def test_an_old_finding_is_not_repeated() -> None:
    for old, new in run(2, asks_twice):
        assert "an old story" in old
        assert "an old story" not in new


def versions() -> str:
    if dist.get_rank() == 1:
        bank.__version__ = "0.0"
    with pytest.raises(RankError) as error:
        distribute(pg.ProCoLoss(CLASSES, DIM))
    return str(error.value)


@pytest.mark.distributed
def test_versions_of_pairgrad_are_compared() -> None:
    for text in run(2, versions):
        assert text.startswith("pairgrad must be the same on all ranks: rank 1 has")


class Held:
    """A store to which one rank cannot write until it may: what a machine does that is too busy."""

    def __init__(self) -> None:
        self.store, self.may = dist.HashStore(), threading.Event()

    def set(self, key: str, value: str) -> None:
        self.may.wait()
        self.store.set(key, value)

    def clone(self) -> Held:
        return self

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)


def test_a_machine_too_busy_for_our_signs_says_nothing_about_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank is called dead after some beats of our own, not after some time: both may wait for the same processor."""
    monkeypatch.setattr(watch, "BEAT", 0.01)
    monkeypatch.setattr(watch.dist, "PrefixStore", lambda _, store: store)
    store, found = Held(), []
    seen = {"number": 0, "call": "data: x", "inside": True}
    store.store.set("beat-1", json.dumps({"beat": 1, **seen}))
    here = Watch(store, 0, 2)
    asking = threading.Thread(target=lambda: found.append(str(here.explain("data: x", (1,), RuntimeError("closed")))))
    asking.start()
    asking.join(0.5)  # fifty beats, of which none is possible
    store.store.set("beat-1", json.dumps({"beat": 2, **seen}))
    store.may.set()
    asking.join()
    here.stop()
    assert "sign of life" not in found[0]


@pytest.mark.parametrize(("size", "number"), [(3 * 2**21, 2**21), (7, 3), (10, 10)])
def test_every_class_is_drawn_with_the_same_probability(size: int, number: int) -> None:
    """In large shards too, where a place is a large number: residues modulo 3 of two million draws, or many draws of a few."""
    repeats = max(1, 20000 // number)
    places = torch.cat([drawn_classes(size, number, torch.device("cpu")) for _ in range(repeats)])
    groups = 3 if size > 100 else size
    counts = torch.bincount(places % groups if size > 100 else places, minlength=groups).double()
    expected = len(places) / groups
    # one draw per stretch varies less than a draw of all; 5 standard deviations of the latter: a false alarm in a million
    assert (counts - expected).abs().max() <= 5 * math.sqrt(expected)
