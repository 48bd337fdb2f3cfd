"""Fixtures for all tests: fixed seeds, global state that every test leaves as it was, and uninitialised memory poisoned so that reading it shows."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

# The same examples in every run, however slow the machine is, and no file of examples that workers share.
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")
_THREADS = torch.get_num_threads()
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports triton: our kernels run on CPU tensors

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As shells start what they put into the background. What tests start would ignore it, too, and wait for an interruption that never comes.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest -m gpu --device cpu`."""
    parser.addoption(
        "--device", default=None, metavar="DEVICE", help="where tests marked gpu run: cuda unless given; cpu tries the tests themselves"
    )


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    """Of a test marked gpu: --device, or CUDA. Without either the test is skipped."""
    given = request.config.getoption("--device")
    if given is None and not torch.cuda.is_available():
        pytest.skip("no CUDA device; --device names another one")
    return torch.device("cuda" if given is None else given)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Keep what coverage.py has counted, if it counts: xdist ends a worker that takes long to leave, and its counts with it."""
    coverage = sys.modules.get("coverage")
    running = None if coverage is None else coverage.Coverage.current()
    if running is not None:
        running.save()


def _global_state() -> dict[str, Any]:
    # of ours and of torchrun; libraries set variables of their own when they are first used
    ours = ("PAIRGRAD_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "HOME")
    return {
        "working directory": os.getcwd(),
        "environment": {name: value for name, value in os.environ.items() if name.startswith(ours)},
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "gradients": torch.is_grad_enabled(),
        "anomaly detection": torch.is_anomaly_enabled(),
        "process group": torch.distributed.is_available() and torch.distributed.is_initialized(),
    }


def _set_back() -> None:
    torch.set_num_threads(_THREADS)
    if torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """A test that leaves global state behind fails, and not another one that happens to run after it.

    Commands, which users run in processes of their own, may set threads and deterministic algorithms: those are set back, also after what fixtures have run.
    """
    _set_back()
    before = _global_state()
    yield
    _set_back()
    after = _global_state()
    changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    assert not changed, f"this test has left behind: {changed}"


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(3407)
    np.random.seed(3407)  # noqa: NPY002
    random.seed(3407)


@pytest.fixture(autouse=True)
def _poisoned_memory(_as_it_was: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.empty gives NaN, so that an element nobody wrote cannot pass for a result."""
    plain = torch.empty

    def poisoned(*args, **kwargs):
        tensor = plain(*args, **kwargs)
        return tensor.fill_(torch.nan) if tensor.is_floating_point() and not tensor.requires_grad else tensor

    monkeypatch.setattr(torch, "empty", poisoned)
