"""Processes that meet in a store in which others have met before."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from torch import distributed

from pairgrad.distributed import RankError
from pairgrad_paper.training import meeting
from pairgrad_paper.training.meeting import meet

LOOKS = 5  # by which each of those who are there has seen what the others wrote when it first looked


class Clock:
    """The clock by which they wait. It stands still, and time is up when `number` of them are there and have looked for the others so many times."""

    def __init__(self, number: int | None = None) -> None:
        self.number, self.looks, self.lock = number, Counter[int](), threading.Lock()
        self.since: Counter[int] | None = None

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / 10)
        with self.lock:
            self.looks[threading.get_ident()] += 1
            if self.since is None and len(self.looks) == self.number:
                self.since = Counter(self.looks)

    def monotonic(self) -> float:
        with self.lock:
            over = self.since is not None and all(self.looks[one] >= count + LOOKS for one, count in self.since.items())
        return 1e9 if over else 0.0


class Meeting:
    """Processes, here threads, that come to a store one after the other, and what each of them gets."""

    def __init__(self, path: Path, world: int = 3) -> None:
        self.path, self.world = path, world
        self.found: dict[int, Any] = {}
        self.threads: list[threading.Thread] = []

    def come(self, *ranks: int) -> None:
        for rank in ranks:
            self.threads.append(threading.Thread(target=self._come, args=(rank,)))
            self.threads[-1].start()

    def end(self) -> dict[int, Any]:
        for thread in self.threads:
            thread.join()
        return self.found

    def _come(self, rank: int) -> None:
        store = distributed.FileStore(str(self.path), -1)
        try:
            part = meet(store, rank, self.world, 0.5)
            part.set(f"address-{rank}", f"{rank} of this meeting")
            self.found[rank] = part
        except RankError as error:
            self.found[rank] = error


def met(path: Path, *ranks: int) -> dict[int, Any]:
    gathering = Meeting(path)
    gathering.come(*ranks)
    return gathering.end()


def in_vain(path: Path, monkeypatch: pytest.MonkeyPatch, *ranks: int) -> dict[int, Any]:
    with monkeypatch.context() as patch:
        patch.setattr(meeting, "time", Clock(len(ranks)))
        return met(path, *ranks)


@pytest.mark.parametrize("late", [0, 2])
def test_what_an_earlier_meeting_left_is_not_seen(late: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who come first to the second meeting wait for the others, and have a part of the store in which nothing is."""
    monkeypatch.setattr(meeting, "time", Clock())  # time is never up
    met(tmp_path / "store", 0, 1, 2)
    in_vain(tmp_path / "store", monkeypatch, 0, 1)  # one that did not come about
    second = Meeting(tmp_path / "store")
    second.come(*({0, 1, 2} - {late}))
    second.threads[0].join(0.3)  # nothing to wait for, and time to do the wrong thing
    assert not second.found
    second.come(late)
    found = second.end()
    for part in found.values():
        assert part.get("address-2") == b"2 of this meeting"
    again = met(tmp_path / "store", 0, 1, 2)
    assert not any(part.check(["other"]) for part in again.values())
    found[0].set("other", "x")
    assert not any(part.check(["other"]) for part in again.values())


def test_who_did_not_come_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = in_vain(tmp_path / "store", monkeypatch, 0, 2)
    assert str(found[0]).startswith("rank 0 of 3, in 'run: joining': rank 1 did not join within --timeout 0.5")
    assert found[0].ranks == (1,)
    found = in_vain(tmp_path / "other", monkeypatch, 1, 2)
    assert str(found[2]).startswith("rank 2 of 3, in 'run: joining': rank 0 did not join")
