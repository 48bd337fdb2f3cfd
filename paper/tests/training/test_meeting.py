"""Processes that meet in a store in which others have met before."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from torch import distributed

from pairgrad.distributed import RankError
from pairgrad_paper.training.meeting import meet


def met(path: Path, delays: dict[int, float], world: int = 3, timeout: float = 10.0) -> dict[int, Any]:
    """What each of several processes, here threads, gets; those without a delay never come."""
    found: dict[int, Any] = {}

    def come(rank: int, delay: float) -> None:
        store = distributed.FileStore(str(path), -1)
        time.sleep(delay)
        try:
            part = meet(store, rank, world, timeout)
            part.set(f"address-{rank}", f"{rank} of this meeting")
            found[rank] = part
        except RankError as error:
            found[rank] = error

    threads = [threading.Thread(target=come, args=each) for each in delays.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("delays", [{0: 0.0, 1: 0.0, 2: 0.3}, {0: 0.3, 1: 0.0, 2: 0.0}])
def test_what_an_earlier_meeting_left_is_not_seen(delays: dict[int, float], tmp_path: Path) -> None:
    """Whoever comes first to the second meeting waits for the others, and has a part of the store in which nothing is."""
    met(tmp_path / "store", {0: 0.0, 1: 0.0, 2: 0.0})
    met(tmp_path / "store", {0: 0.0, 1: 0.0}, timeout=0.5)  # one that did not come about
    began = time.monotonic()
    found = met(tmp_path / "store", delays)
    assert time.monotonic() - began >= 0.3
    for part in found.values():
        assert part.get("address-2") == b"2 of this meeting"
    again = met(tmp_path / "store", {0: 0.0, 1: 0.0, 2: 0.0})
    assert not any(part.check(["other"]) for part in again.values())
    found[0].set("other", "x")
    assert not any(part.check(["other"]) for part in again.values())


def test_who_did_not_come_is_named(tmp_path: Path) -> None:
    found = met(tmp_path / "store", {0: 0.0, 2: 0.0}, timeout=0.5)
    assert str(found[0]).startswith("rank 0 of 3, in 'run: joining': rank 1 did not join within --timeout 0.5")
    assert found[0].ranks == (1,)
    found = met(tmp_path / "other", {1: 0.0, 2: 0.0}, timeout=0.5)
    assert str(found[2]).startswith("rank 2 of 3, in 'run: joining': rank 0 did not join")
