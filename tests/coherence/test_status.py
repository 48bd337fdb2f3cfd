"""The line that the audit of a recorded run shows on a terminal."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest
import torch

import pairgrad as pg
from tests.coherence.functions import doubles, sine_with


class Screen(io.StringIO):
    """A stand-in for stderr that says whether it is a terminal."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def shown(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> str:
    """What the audit of a recording writes. The first function in it sleeps for more than a second, once."""
    pauses = [0.0]

    def slow(x: torch.Tensor) -> torch.Tensor:
        time.sleep(pauses.pop() if pauses else 0.0)
        return torch.ones_like(x)

    weight = doubles(0.5, -1.5, grad=True)
    with pg.record() as recording:
        sine_with(slow, name="Slow").apply(weight).sum().backward()
        sine_with(torch.ones_like, name="Quick" + "y" * 60).apply(weight).sum().backward()
    pauses.append(1.1)
    screen = Screen(terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "60")
    assert recording.audit(effort="glance").verdict == "coherent"
    return screen.getvalue()


def test_it_appears_after_a_second_says_how_far_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *lines, last = shown(monkeypatch, terminal=True).split("\r\x1b[K")
    assert first == last == ""  # the line is taken away in the end
    assert lines
    for line in lines:
        found = re.match(r"\[(#*)(\.*)\] (\d)/(\d) (\d+) s auditing ", line)
        assert found is not None, line
        filled, left, done, total, seconds = found.groups()
        assert len(filled + left) == 20
        assert len(filled) == 20 * int(done) // int(total)
        assert int(done) > 0
        assert int(seconds) >= 1
    assert len(lines[0]) == 59  # a terminal may go to the next line once its last column is written
    assert lines[0].endswith("Quick" + "y" * (54 - lines[0].index("Quick")))


def test_nothing_is_written_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, terminal=False) == ""
