"""Logs of runs: whole lines, exact numbers, and a cut at a step."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pairgrad_paper.runs import RunLog, RunLogError, read_log, rewind


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.jsonl"


def written(path: Path, steps: Any) -> bytes:
    with RunLog(path) as log:
        for step in steps:
            log.write("step", step, loss=1 / (step + 1))
    return path.read_bytes()


def steps(path: Path) -> list[int]:
    return [event["step"] for event in read_log(path, on_torn=pytest.fail)]


def test_numbers_come_back_exactly_and_the_lines_are_strict_json(path: Path) -> None:
    facts = {
        "loss": 0.1 + 0.2,
        "least": 5e-324,
        "zero": -0.0,
        "count": 2**80,
        "nested": {"list": [math.inf, -math.inf, 1.5], "none": None, "yes": True},
        "text": "two\nlines, é",
        "numpy": np.float64(1 / 3),
    }
    with RunLog(path) as log:
        log.write("step", 3, **facts, bad=math.nan)
    line = path.read_text()
    assert line.count("\n") == 1
    raw = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not strict JSON"))
    assert raw["bad"] == "nan"
    (event,) = read_log(path)
    assert math.isnan(event.pop("bad"))
    assert event == {"kind": "step", "step": 3, **facts}
    assert math.copysign(1, event["zero"]) == -1


def test_lines_are_appended_each_by_one_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = written(path, [1])
    write, writes = os.write, []
    monkeypatch.setattr(os, "write", lambda handle, data: (writes.append(bytes(data)), write(handle, data))[1])
    after = written(path, [2, 3])
    assert after.startswith(before)
    assert after == before + b"".join(writes)
    assert [line.endswith(b"\n") for line in writes] == [True, True]


def test_important_lines_are_on_the_disk_when_write_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync, calls = os.fsync, []
    with RunLog(path) as log:
        monkeypatch.setattr(os, "fsync", lambda handle: (calls.append(handle), fsync(handle)))
        log.write("step", 1)
        assert calls == []
        for number, kind in enumerate(("epoch", "checkpoint", "resume", "stop", "evaluation"), 1):
            log.write(kind, 1)
            assert len(calls) == number
        log.sync()
        assert len(calls) == 6


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"loss": torch.tensor(1.0)}, r"loss must be a number.*got Tensor: use \.item\(\)"),
        ({"a": {"b": [1, np.float32(1)]}}, r"a\['b'\]\[1\] must be a number.*float32"),
        ({"a": {1: 2}}, "a must have strings as keys, got 1"),
        ({"word": "nan"}, r"word must not be the string 'nan'"),
    ],
)
def test_what_json_lacks_is_refused_by_name_and_nothing_is_written(facts: dict[str, Any], message: str, path: Path) -> None:
    with RunLog(path) as log, pytest.raises((TypeError, ValueError), match=message):
        log.write("step", 1, **facts)
    assert path.read_bytes() == b""


def test_step_and_kind_are_checked(path: Path) -> None:
    with RunLog(path) as log:
        with pytest.raises(ValueError, match="step must be an integer >= 0"):
            log.write("step", -1)
        with pytest.raises(TypeError, match="kind must be a string"):
            log.write(3, 1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(RunLogError, match="was closed"):
        log.write("step", 1)


def test_a_torn_last_line_is_reported_and_left_out_wherever_it_is_torn(path: Path) -> None:
    content = written(path, [1, 2, 3])
    start = content[:-1].rfind(b"\n") + 1
    for length in range(start + 1, len(content)):
        path.write_bytes(content[:length])
        reported: list[str] = []
        assert [event["step"] for event in read_log(path, reported.append)] == [1, 2]
        assert reported == [f"{path}: the last line ({length - start} bytes) is incomplete and is left out"]
    with pytest.warns(RuntimeWarning, match="is incomplete and is left out"):
        read_log(path)


def test_writing_goes_on_behind_the_last_whole_line(path: Path) -> None:
    path.write_bytes(written(path, [1, 2])[:-5])
    written(path, [2, 3])
    assert steps(path) == [1, 2, 3]


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind": "step", "st',
        b"\x00\x00",
        b"",
        b"[1]",
        b'{"kind": "step"}',
        b'{"kind": 1, "step": 1}',
        b'{"kind": "x", "step": 1, "y": NaN}',
    ],
)
def test_a_damaged_line_in_the_middle_is_refused_by_its_number(line: bytes, path: Path) -> None:
    content = written(path, [1, 2]).split(b"\n")
    path.write_bytes(b"\n".join([content[0], line, *content[1:]]))
    with pytest.raises(RunLogError, match=r"record\.jsonl, line 2 is damaged .*restore the file from a copy"):
        read_log(path)


def test_rewinding_removes_later_steps_and_a_torn_line(path: Path) -> None:
    content = written(path, [0, 1, 2, 3, 4])
    path.write_bytes(content + b'{"kind": "st')
    assert rewind(path, 2) == 3
    assert path.read_bytes() == b"".join(line + b"\n" for line in content.split(b"\n")[:3])
    assert rewind(path, 2) == 0
    assert rewind(path, 0) == 2
    assert steps(path) == [0]
    assert rewind(path, -1) == 1
    assert path.read_bytes() == b""


def test_rewinding_alone_for_a_torn_line_and_without_a_file(path: Path) -> None:
    assert rewind(path, 5) == 0
    assert not path.exists()
    content = written(path, [1])
    path.write_bytes(content + b"{")
    assert rewind(path, 5) == 1
    assert path.read_bytes() == content


def test_rewinding_takes_damage_behind_the_step_and_refuses_it_before(path: Path) -> None:
    """After a power loss what was not yet on the disk may be anything; what a checkpoint waited for is there."""
    first, second, third, _ = written(path, [1, 2, 3]).split(b"\n")
    damaged = b"\n".join([first, second, b"\x00\x00", third, b""])
    path.write_bytes(damaged)
    with pytest.raises(RunLogError, match="line 3 is damaged"):
        rewind(path, 3)
    assert path.read_bytes() == damaged
    assert rewind(path, 2) == 2
    assert steps(path) == [1, 2]


def test_rewinding_is_atomic(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = written(path, [1, 2, 3])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        rewind(path, 1)
    assert path.read_bytes() == content


def test_a_missing_record_is_said_to_be_missing(path: Path) -> None:
    with pytest.raises(RunLogError, match=r"record\.jsonl cannot be read \(No such file or directory\)"):
        read_log(path)


def test_a_record_that_is_a_pipe_is_refused_and_not_waited_for(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    with pytest.raises(RunLogError, match=r"record\.jsonl cannot be read \(it is a directory, a pipe or a device"):
        read_log(path)
    with pytest.raises(RunLogError, match="it is a directory, a pipe or a device"):
        RunLog(path)
