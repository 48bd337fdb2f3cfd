"""The worker process of `pairgrad audit` as its parent sees it: started, listened to, interrupted, and ended whatever it does."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairgrad.cli.target import innermost

_START = 60.0  # seconds for the worker to begin, before its time counts
_GRACE = 3.0  # seconds for an interrupted worker to hand over what it has
_WAIT = 0.05  # seconds between two looks
_CRASH = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+) in (?P<name>\S+)')


@dataclass
class Outcome:
    """What became of one audit.

    Attributes:
        how: "done", "timeout", "interrupted" or "died".
        report: as data; the whole one, or the last partial one.
        failure: why there is no whole report: {"kind", "message", "way"}.
        stage: the last one, with calls and seconds.
        place: where in the user's code an interrupted or crashed worker was.
        code: with which the worker ended.
        location: file and line of the callable.
        notes: what else is to be said.
    """

    how: str = "done"
    report: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None
    stage: dict[str, Any] = field(default_factory=lambda: {"stage": "starting", "step": 0, "steps": 0, "calls": 0, "seconds": 0.0})
    place: str = ""
    code: int | None = None
    location: str | None = None
    notes: list[str] = field(default_factory=list)

    def take(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "stage":
                self.stage = event
            case "partial" | "report":
                self.report = event["report"]
                self.stage = {**self.stage, "calls": event.get("calls", self.stage["calls"])}
            case "failed":
                self.failure = event
                if event["kind"] == "unusable":  # what was asked makes no sense, so there is nothing that was found
                    self.report = None
            case "ready":
                self.location = event["location"]
            case "note":
                self.notes.append(event["text"])
            case "place":
                self.place = event["place"]


class Child:
    """The process, in a group of its own: Ctrl-C on the terminal reaches the parent only, which then decides."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        handle, self._crash_file = tempfile.mkstemp(prefix="pairgrad-audit-")
        os.close(handle)
        reading, writing = os.pipe()
        command = [sys.executable, "-P", "-m", "pairgrad.cli.audit_worker"]
        options: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": 2 if request["stdout_to_stderr"] else None}
        if sys.platform == "win32":
            import msvcrt

            channel = msvcrt.get_osfhandle(writing)
            os.set_handle_inheritable(channel, True)
            options |= {"close_fds": False, "creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        else:
            channel = writing
            options |= {"pass_fds": (writing,), "start_new_session": True}
        try:
            self._process = subprocess.Popen([*command, str(channel)], **options)
        finally:
            os.close(writing)
        self._reader = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._reader.start()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it died at once
            self._process.stdin.write(json.dumps({**request, "crash_file": self._crash_file}).encode() + b"\n")
            self._process.stdin.flush()  # and stays open: its end tells the worker that the parent is gone

    def _read(self, descriptor: int) -> None:
        with open(descriptor, "rb") as lines:
            for line in lines:
                with contextlib.suppress(ValueError):  # the last line of a worker that died in the middle of it
                    self.events.put(json.loads(line))

    def ended(self) -> bool:
        """Whether the process is over and everything it said is in `events`."""
        if self._process.poll() is None:
            return False
        self._kill_all()  # children of its own, which may hold the pipe open
        self._reader.join(_GRACE)
        return True

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGTERM if sys.platform == "win32" else signal.SIGINT)

    def wait(self, seconds: float) -> int | None:
        """For an end of its own accord; the exit code, if it came to that."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def close(self) -> None:
        """End it, and what it has started, whichever of them is still there."""
        self._kill_all()
        self.wait(_GRACE)
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        Path(self._crash_file).unlink(missing_ok=True)

    def _kill_all(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            self._process.kill() if sys.platform == "win32" else os.killpg(self._process.pid, signal.SIGKILL)

    def crash_place(self) -> str:
        """Where in the user's code a crash happened, as far as the interpreter could write it down."""
        found = _CRASH.finditer(Path(self._crash_file).read_text(errors="replace"))
        return innermost(traceback.FrameSummary(match["file"], int(match["line"]), match["name"]) for match in found)


def watch(request: dict[str, Any], timeout: float, show: Callable[[dict[str, Any]], None]) -> Outcome:
    """Run the worker to its end, to the end of its time or to an interruption; a second KeyboardInterrupt goes through.

    Args:
        request: what to audit.
        timeout: seconds from when the worker is ready to import the target; 0 for none.
        show: called with each stage.
    """
    outcome = Outcome()
    child = Child(request)
    try:
        try:
            outcome.how = _followed(child, outcome, timeout + _START if timeout else float("inf"), timeout or float("inf"), show)
        except KeyboardInterrupt:
            outcome.how = "interrupted"
        if outcome.how in ("timeout", "interrupted"):
            if outcome.stage["stage"] != "starting":
                child.interrupt()
                _followed(child, outcome, _GRACE)  # what it still has to say
        else:
            outcome.code = child.wait(_GRACE)
            if outcome.how == "died":
                outcome.place = child.crash_place()
    finally:
        child.close()
    return outcome


def _followed(
    child: Child, outcome: Outcome, seconds: float, once_started: float = 0.0, show: Callable[[dict[str, Any]], None] | None = None
) -> str:
    """Take what the worker says until it ends or its time is over; the seconds count again from when it has started. How that ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() <= deadline:
        try:
            event = child.events.get(timeout=_WAIT)
        except queue.Empty:
            if child.ended() and child.events.empty():
                return "died"
            continue
        if event["event"] == "end":
            return "done"
        if event["event"] == "started":
            deadline = time.monotonic() + once_started
        outcome.take(event)
        if event["event"] == "stage" and show is not None:
            show(event)
    return "timeout"
