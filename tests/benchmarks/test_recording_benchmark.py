"""The page on the cost of recording: that it measures what it says, and holds it against the goals."""

from __future__ import annotations

import dataclasses

import torch
from benchmarks.auditor import __main__ as command
from benchmarks.auditor import recording

MEMORY = recording.Memory(100, 2048, 0)
CALLS = [recording.Call("one", 2, 50.0, 5.0, 30.0), recording.Call("two", 3, 60.0, 9.0, 50.0)]
STEP = recording.Step(4, 1.0, 1.02, 4.0, 4.5, "the report", 10.0)


def test_the_network_is_a_resnet18() -> None:
    model = recording.resnet18()
    assert 11.1e6 < sum(parameter.numel() for parameter in model.parameters()) < 11.2e6
    calls = []
    original = recording.Relu.forward
    try:
        recording.Relu.forward = staticmethod(lambda ctx, x: calls.append(x.shape) or original(ctx, x))
        assert model(torch.randn(2, 3, 32, 32)).shape == (2, 10)
    finally:
        recording.Relu.forward = staticmethod(original)
    assert len(calls) == 17
    assert calls[0] == (2, 64, 32, 32)
    assert calls[-1] == (2, 512, 4, 4)


def test_goals() -> None:
    assert recording.good(MEMORY, CALLS, STEP)
    assert not recording.good(dataclasses.replace(MEMORY, grown=10_000), CALLS, STEP)
    assert not recording.good(MEMORY, [dataclasses.replace(CALLS[0], kept=41.0)], STEP)
    assert not recording.good(MEMORY, CALLS, dataclasses.replace(STEP, recorded=1.04))


def test_a_call_is_measured_and_memory_is_counted() -> None:
    measured = recording.call(recording.NewStyle, "new", 3, rounds=3, repeats=20)
    assert measured.plain > 0
    assert measured.kept > 0
    kept = recording.memory(steps=50)
    assert kept.steps == 50
    assert 24 * 64 * 4 <= kept.held <= 28 * 64 * 4  # 24 states, two of them with cotangent and gradient


def test_the_page(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(recording, "measure", lambda say: (MEMORY, CALLS, STEP))
    assert command.main(["recording", "--output", str(tmp_path)]) == 0
    text = (tmp_path / "auditor-recording.md").read_text()
    assert text in capsys.readouterr().out
    assert "| recorded | 1.0200 | 1.0200 | 1.03 |" in text
    assert "| `one` | 50.0 | 5.0 | 30.0 | 15.0 |" in text
    assert "that is\n0.50 s more than 4.0 s" in text
    assert "the report" in text
    assert "2.0 KiB of copies" in text
