"""The table of depth, certificate and time."""

from __future__ import annotations

import time

import pytest
import torch

from pairgrad.experiments.complexity import complexity
from pairgrad.experiments.timing import machine_line, median_seconds, one_thread


def test_rows_certificates_and_machine() -> None:
    table = complexity(dimensions=(64, 512), elements=512, repeats=3)
    assert table.column("dim") == [64, 512]
    assert table.column("depth") == [62, 510]
    assert [f"{v:.2e}" for v in table.numbers("certificate")] == ["3.36e-05", "6.03e-08"]
    assert all(check.held for check in table.checks)
    for row in table.rows:
        assert float(str(row["time_ratio"])) == pytest.approx(
            float(str(row["recurrence_milliseconds"])) / float(str(row["paired_milliseconds"])), rel=1e-12
        )
    # eight times the depth: the recurrence takes longer, on any machine
    assert table.numbers("recurrence_milliseconds")[1] > 2 * table.numbers("recurrence_milliseconds")[0]
    assert table.numbers("time_ratio")[1] > 1
    assert f"torch {torch.__version__}" in table.notes[0]
    assert "threads: 1" in table.notes[0]


def test_median_of_interleaved_calls() -> None:
    order: list[str] = []
    seconds = median_seconds({"slow": lambda: (order.append("slow"), time.sleep(0.02)), "fast": lambda: order.append("fast")}, 3)
    assert order == ["slow", "fast"] * 4  # one round to warm up, then in turns
    assert seconds["slow"] >= 0.02 > seconds["fast"]


def test_threads_are_set_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        with pytest.raises(ZeroDivisionError), one_thread():
            _ = 1 / 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert "cores" in machine_line()
