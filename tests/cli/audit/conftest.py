"""The folder that a user runs `pairgrad audit` in."""

from __future__ import annotations

import json
import queue
import sys
import textwrap

import pytest

from pairgrad.cli import audit_child
from pairgrad.cli.audit_worker import Teller
from pairgrad.cli.audit_worker import run as work
from tests.cli.audit.losses import LOSSES


class Here:
    """The worker in this process: everything has happened when it is made."""

    def __init__(self, request):
        self.events = queue.Queue()
        work(json.loads(json.dumps(request)), Teller(lambda event: self.events.put(json.loads(json.dumps(event)))))
        self.events.put({"event": "end"})

    def ended(self):
        return True

    def wait(self, seconds):
        return 0

    def close(self):
        pass


class Said:
    """A worker that has said something and then ended, died, hung or been interrupted."""

    def __init__(self, said, then):
        self.events, self._said, self._then = self, iter(said), then

    def get(self, timeout):
        event = next(self._said, None)
        if event is None:
            raise KeyboardInterrupt if self._then == "interrupted" else queue.Empty
        return event

    def empty(self):
        return True

    def ended(self):
        return self._then == "died"

    def wait(self, seconds):
        return 1

    def crash_place(self):
        return ""

    def close(self):
        pass


@pytest.fixture
def worker(folder, monkeypatch):
    """Put a worker in place that says these events and then ends in this way."""
    return lambda said, then: monkeypatch.setattr(audit_child, "Child", lambda request: Said(said, then))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The user's folder, in which the command is run."""
    (tmp_path / "losses.py").write_text(textwrap.dedent(LOSSES))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    return tmp_path


@pytest.fixture
def here(folder, monkeypatch):
    """The folder, the worker in this process, and its traces wiped out afterwards."""
    monkeypatch.setattr(audit_child, "Child", Here)
    path, modules = list(sys.path), set(sys.modules)
    yield folder
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]
