"""Ctrl-C and the signal of a scheduler, as a wish that is granted between two updates."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_SIGNALS = ("SIGINT", "SIGTERM")


class StopRequest:
    """While this context is open, SIGINT and SIGTERM set `wanted`; a second SIGINT ends the process as usual."""

    def __init__(self) -> None:
        self.wanted: str | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for name in _SIGNALS:
                number = getattr(signal, name, None)
                if number is not None:
                    self._previous[number] = signal.signal(number, self._asked)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous.clear()

    def _asked(self, number: int, _frame: FrameType | None) -> None:
        if self.wanted is not None and number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
            raise KeyboardInterrupt
        self.wanted = signal.Signals(number).name
