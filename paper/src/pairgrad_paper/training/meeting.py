"""How processes that torchrun started find one another, and not what is left of processes that it ended.

torchrun keeps one store over restarts, and a process group looks there for the addresses of its peers: a process that starts faster than another may find
the address that this one had before it was killed. So the first process makes up a name for the meeting, and all others answer it; whoever finds the name
of an earlier meeting is not answered there, and looks again. What is then kept in the store is kept under that name.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

from torch import distributed

from pairgrad.distributed import RankError

_PAUSE = 0.05  # seconds between two looks


def meet(store: Any, rank: int, world: int, timeout: float) -> Any:
    """The part of a store that belongs to this meeting; a `RankError` if not all processes come within `timeout` seconds."""
    store = distributed.PrefixStore("pairgrad-meeting", store)  # pyright: ignore[reportPrivateImportUsage]
    end = time.monotonic() + timeout
    mine = secrets.token_hex(8)
    name = _invite(store, world, mine, end) if rank == 0 else _answer(store, rank, mine, end)
    if name is None:
        missing = (
            [other for other in range(1, world) if _read(store, f"answer-{other}", "").partition("/")[0] != mine] if rank == 0 else [0]
        )
        call = "run: joining"
        who = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))}"
        raise RankError(
            f"rank {rank} of {world}, in {call!r}: {who} did not join within --timeout {timeout:g}. Start the run again to resume from its last checkpoint",
            call,
            tuple(missing),
        )
    return distributed.PrefixStore(name, store)  # pyright: ignore[reportPrivateImportUsage]


def _invite(store: Any, world: int, name: str, end: float) -> str | None:
    store.set("name", name)
    while time.monotonic() < end:
        answers = [_read(store, f"answer-{rank}", "").partition("/") for rank in range(1, world)]
        if all(invitation == name for invitation, _, _ in answers):
            store.set(f"there-{name}", json.dumps([who for _, _, who in answers]))
            return name
        time.sleep(_PAUSE)
    return None


def _answer(store: Any, rank: int, mine: str, end: float) -> str | None:
    while time.monotonic() < end:
        name = _read(store, "name", "")
        if name:
            store.set(f"answer-{rank}", f"{name}/{mine}")
            if mine in json.loads(_read(store, f"there-{name}", "[]")):
                return name
        time.sleep(_PAUSE)
    return None


def _read(store: Any, key: str, default: str) -> str:
    return store.get(key).decode() if store.check([key]) else default
