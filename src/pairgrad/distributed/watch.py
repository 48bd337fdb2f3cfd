"""Who is still there: a sign of life per rank, and the sentence that names the rank when a collective fails.

A backend that loses a peer, or waits for one in vain, says so in terms of sockets and milliseconds, and says it to the ranks that happened to talk to that
peer. So every rank tells the others, through the store of the process group, once a second which collective it is in; a rank whose collective failed reads
what the others said last, waits for three more signs, and knows who is gone, who is somewhere else, and who only waits like itself.

Ranks that did not talk to the lost peer hear of it only when those that did have left, one after the other. So the first to know writes its finding into the
store before it leaves, and the others repeat it at once instead of blaming whoever left before them. A rank that stops for a reason of its own leaves word
there too.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import re
import threading
import time
import weakref
from typing import Any

import torch.distributed as dist

from pairgrad.ground._torch_private import default_store

BEAT = 1.0  # seconds between two signs of life
SIGNS = 3  # signs that are waited for before a rank counts as gone
_FINDING = "finding"


class RankError(RuntimeError):
    """A collective failed on this rank, or the ranks do not agree.

    Attributes:
        call: the collective.
        ranks: the ranks that are to blame, as far as it is known.
    """

    def __init__(self, message: str, call: str, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.call, self.ranks = call, ranks


class Watch:
    """The signs of life of this process, in the store of the default process group. One per process; see `here`."""

    def __init__(self, store: Any, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.number, self.call, self.inside = 0, "", False
        self._met: dict[int, dict[str, Any]] = {}  # of each rank, the last collective that it and this one went through together
        # connections of our own, and a weak reference: a group that is destroyed must not find its store alive
        self._group = weakref.ref(store)
        prefixed = dist.PrefixStore("pairgrad", store)  # pyright: ignore[reportPrivateImportUsage]
        self._store = _own_connection(prefixed)
        self._beats = 0
        self._outdated = self._finding()  # of an earlier group that had the same store
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, args=(_own_connection(prefixed),), name="pairgrad-watch", daemon=True)
        self._thread.start()
        atexit.register(self.stop)  # a thread that is inside torch while the interpreter ends would abort it

    @staticmethod
    def here() -> Watch | None:
        """The watch over the process group as it is now; None without one, or with one rank."""
        global _current
        if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
            return None
        store = default_store()
        if _current is None or _current._group() is not store:
            if _current is not None:
                _current.stop()
            _current = Watch(store, dist.get_rank(), dist.get_world_size())
        return _current

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        atexit.unregister(self.stop)
        if self._thread is not threading.current_thread():
            self._thread.join(2 * BEAT)

    def enter(self, call: str) -> None:
        """A collective begins: other ranks see its name and number."""
        self.number, self.call, self.inside = self.number + 1, call, True

    def leave(self, met: tuple[int, ...] = ()) -> None:
        """The collective is over. It could not have ended without the ranks `met`."""
        self.inside = False
        if met:
            self._met |= {rank: {"number": self.number, "call": self.call, "inside": False} for rank in met}

    def _beat(self, store: Any) -> None:
        while not self._stopped.is_set() and self._group() is not None:
            self._beats += 1
            said = {"beat": self._beats, "number": self.number, "call": self.call, "inside": self.inside}
            try:
                store.set(f"beat-{self.rank}", json.dumps(said))
            except Exception:  # the store is gone, and with it the group
                return
            self._stopped.wait(BEAT)

    def explain(self, call: str, peers: tuple[int, ...], error: BaseException) -> RankError:
        """Why the collective failed, by rank. Takes up to `SIGNS` beats, and none if another rank left word."""
        here = f"rank {self.rank} of {self.world}, in {call!r} (its collective number {self.number})"
        again = "Start the run again to go on from its last checkpoint"
        try:
            found = self._finding_soon(peers)
        except Exception:
            keeper = "The process that kept the store of the group (rank 0, or the agent of torchrun) cannot be reached"
            return RankError(f"{here}: {keeper}. {again}. The backend said: {_first_line(error)}", call, (0,))
        by = "" if found["by"] == self.rank or found["by"] in found["ranks"] else f" (found by rank {found['by']})"
        return RankError(f"{here}: {found['why']}{by}. {again}. The backend said: {_first_line(error)}", call, tuple(found["ranks"]))

    def leave_word(self, ranks: tuple[int, ...], why: str) -> None:
        """Tell ranks whose next collective will fail whose fault that is. Never raises."""
        with contextlib.suppress(Exception):
            self._store.set(_FINDING, json.dumps({"by": self.rank, "ranks": ranks, "why": why, "time": time.time()}))

    def _finding_soon(self, peers: tuple[int, ...]) -> dict[str, Any]:
        """What another rank found, or what comes out of listening to all of them."""
        before, began = {rank: self._said(rank) for rank in peers}, self._beats
        while True:
            found = self._finding()
            if found is not None and found != self._outdated:
                return found
            after = {rank: self._said(rank) for rank in peers}
            gone = tuple(rank for rank in peers if after[rank].get("beat") == before[rank].get("beat"))
            # Counted in beats of our own: where the machine is too busy for signs of the others, it is for ours.
            if not gone or self._beats - began > SIGNS or not self._thread.is_alive():
                break
            time.sleep(BEAT / 5)
        away = tuple(rank for rank in peers if rank not in gone and not self._waits(after[rank]))
        parts = []
        if gone:
            parts.append(
                f"{_ranks(gone)} gave no sign of life for {SIGNS * BEAT:g} seconds: it died, or hangs; last seen {self._places(after, gone)}"
            )
        if away:
            parts.append(f"{_ranks(away)} did not arrive; last seen {self._places(after, away)}")
        if not parts:
            parts.append("all ranks are alive and in the same call: the network between them failed, or the sizes did not match")
        blamed, why = gone + away, "; ".join(parts)
        if blamed:
            self.leave_word(blamed, why)
        return {"by": self.rank, "ranks": blamed, "why": why}

    def _finding(self) -> dict[str, Any] | None:
        return json.loads(self._store.get(_FINDING)) if self._store.check([_FINDING]) else None

    def _waits(self, said: dict[str, Any]) -> bool:
        """Whether a peer is, or was, in the collective that failed here."""
        number = said.get("number", 0)
        return number > self.number or (number == self.number and said.get("call") == self.call)

    def _places(self, said: dict[int, dict[str, Any]], ranks: tuple[int, ...]) -> str:
        """Where ranks were last seen: signs of life are rare, and a collective that ended here was one sign of each of them."""
        places = set()
        for rank in ranks:
            last = max(said[rank], self._met.get(rank, {}), key=lambda seen: (seen.get("number", 0), seen.get("inside", False)))
            place = f"{'in' if last.get('inside') else 'after'} {last.get('call')!r} (number {last.get('number')})"
            places.add(place if last.get("call") else "before its first collective")
        return ", ".join(sorted(places))

    def _said(self, rank: int) -> dict[str, Any]:
        key = f"beat-{rank}"
        return json.loads(self._store.get(key)) if self._store.check([key]) else {}


_current: Watch | None = None


def _own_connection(store: Any) -> Any:
    """The same store for another thread, so that a sign of life does not wait behind a call that blocks; torch has `clone` from 2.8 on."""
    with contextlib.suppress(Exception):
        return store.clone()
    return store


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _first_line(error: BaseException) -> str:
    """What a backend said, without the place in its source and its advice."""
    lines = str(error).strip().splitlines()
    text = re.sub(r"^\[[^\]]*\]\s*", "", lines[0]).split(" This is typically")[0] if lines else ""
    return text or type(error).__name__
