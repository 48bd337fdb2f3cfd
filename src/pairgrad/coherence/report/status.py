"""One line on a terminal that says how far something is."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType

AFTER = 1.0  # seconds of silence before it appears
_PAUSE = 0.1


class StatusLine:
    """Writes to stderr if that is a terminal, after a while, and leaves nothing behind."""

    def __init__(self) -> None:
        self._started = self._told = time.perf_counter()
        self._shown = False

    def __call__(self, text: str, done: int, total: int) -> None:
        now = time.perf_counter()
        if now - self._started < AFTER or now - self._told < _PAUSE or not sys.stderr.isatty():
            return
        self._told, self._shown = now, True
        filled = 20 * done // max(total, 1)
        line = f"[{'#' * filled}{'.' * (20 - filled)}] {done}/{total} {now - self._started:.0f} s {text}"
        sys.stderr.write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
        sys.stderr.flush()

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
