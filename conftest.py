"""Fixtures for all tests: fixed seeds, and uninitialised memory poisoned so that reading it shows."""

from __future__ import annotations

import signal
import sys

import pytest
import torch

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As shells start what they put into the background. What tests start would ignore it, too, and wait for an interruption that never comes.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Keep what coverage.py has counted, if it counts: xdist ends a worker that takes long to leave, and its counts with it."""
    coverage = sys.modules.get("coverage")
    running = None if coverage is None else coverage.Coverage.current()
    if running is not None:
        running.save()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(3407)


@pytest.fixture(autouse=True)
def _poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.empty gives NaN, so that an element nobody wrote cannot pass for a result."""
    plain = torch.empty

    def poisoned(*args, **kwargs):
        tensor = plain(*args, **kwargs)
        return tensor.fill_(torch.nan) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(torch, "empty", poisoned)
