"""The table of depth, certificate and time, and the record it is made from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pairgrad.ground import machine_line, median_seconds, threads
from pairgrad_paper.records import Record, RecordError, Records, write
from pairgrad_paper.tables import NotRun
from pairgrad_paper.tables.complexity import measure

from .made import read


@pytest.fixture(scope="module")
def measured() -> Record:
    return measure(dimensions=(64, 512), elements=512, repeats=3, command=["pairgrad", "times", "--output", "/tmp/here/times.jsonl"])


def table_of(record: Record, directory: Path):
    write(directory / f"{record.name}.jsonl", record)
    return read("complexity", Records(directory))


def test_what_is_measured(measured: Record) -> None:
    assert measured.facts == {"elements": 512, "repeats": 3, "threads": 1}
    assert measured.command == "pairgrad times --output times.jsonl"
    assert measured.environment["cpu"]["threads"] == 1
    assert [(line["dim"], line["realization"]) for line in measured.of("time")] == [
        (64, "original"),
        (64, "paired"),
        (512, "original"),
        (512, "paired"),
    ]
    assert all(line["seconds"] > 0 for line in measured.lines)


def test_rows_certificates_and_machine(measured: Record, tmp_path: Path) -> None:
    given = {(64, "original"): 0.004, (64, "paired"): 0.0005, (512, "original"): 0.03, (512, "paired"): 0.0006}
    lines = tuple({"kind": "time", "dim": dim, "realization": name, "seconds": seconds} for (dim, name), seconds in given.items())
    table = table_of(replace(measured, lines=lines), tmp_path)
    assert table.column("dim") == [64, 512]
    assert table.column("depth") == [62, 510]
    assert [f"{v:.2e}" for v in table.numbers("certificate")] == ["3.36e-05", "6.03e-08"]
    assert all(check.held for check in table.checks)
    assert table.numbers("recurrence_milliseconds") == pytest.approx([4, 30])
    assert table.numbers("paired_milliseconds") == pytest.approx([0.5, 0.6])
    assert table.numbers("time_ratio") == pytest.approx([8, 50])
    assert "the same 512 float64 numbers" in table.caption
    assert "Medians of 3 " in table.notes[0]
    assert f"torch {torch.__version__}" in table.notes[0]
    assert "threads: 1" in table.notes[0]
    assert "`pairgrad times --output times.jsonl`" in table.notes[0]


def test_not_run(tmp_path: Path) -> None:
    with pytest.raises(NotRun, match="pairgrad times --output"):
        read("complexity", Records(tmp_path))


def test_records_that_do_not_do(measured: Record, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"complexity-times must have times of original and paired at dim 512, got original"):
        table_of(replace(measured, lines=measured.lines[:3]), tmp_path)
    odd = tuple({**line, "dim": 65} for line in measured.lines[:2])
    with pytest.raises(RecordError, match=r"times at dim 65; the paper has 64, 128"):
        table_of(replace(measured, lines=odd), tmp_path)
    with pytest.raises(RecordError, match=r"one record of times, got complexity-times, second"):
        table_of(replace(measured, name="second"), tmp_path)


def test_the_record_of_the_documentation() -> None:
    table = read("complexity", Records())
    assert table.column("dim") == [64, 128, 256, 512, 1024, 2048, 4096]
    assert all(check.held for check in table.checks)


def test_median_of_interleaved_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    clock = [0.0]  # only the calls move it

    def taking(name: str, *seconds: float) -> Callable[[], None]:
        left = list(seconds)

        def call() -> None:
            order.append(name)
            clock[0] += left.pop(0)

        return call

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    seconds = median_seconds({"slow": taking("slow", 50.0, 8.0, 9.0, 20.0), "fast": taking("fast", 50.0, 2.0, 1.0, 1.0)}, 3)
    assert order == ["slow", "fast"] * 4  # one round to warm up, then in turns
    assert seconds == {"slow": 9.0, "fast": 1.0}


def test_threads_are_set_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with threads(1):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        with pytest.raises(ZeroDivisionError), threads(1):
            _ = 1 / 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert "cores" in machine_line()
