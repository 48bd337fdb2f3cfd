"""The status line of a terminal: when it appears, what it says, and that nothing of it is left."""

from __future__ import annotations

import io
import os
from types import SimpleNamespace

import pytest

from pairgrad.coherence import status as status_line
from pairgrad.coherence.status import StatusLine


class Screen(io.StringIO):
    """A stand-in for stderr that says whether it is a terminal."""

    terminal = True

    def isatty(self) -> bool:
        return self.terminal


class Clock:
    now = -1.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    made = Screen()
    monkeypatch.setattr(status_line, "sys", SimpleNamespace(stderr=made))
    monkeypatch.setattr(status_line, "shutil", SimpleNamespace(get_terminal_size=lambda: os.terminal_size((60, 24))))
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(status_line, "time", SimpleNamespace(perf_counter=made))
    return made


def test_it_appears_after_one_second_and_changes_ten_times_a_second(screen: Screen, clock: Clock) -> None:
    status, told = StatusLine(), []
    for clock.now in (-0.9, -0.0625, 0.0, 0.0625, 0.1, 0.1875, 0.25):
        before = screen.getvalue()
        status("x", 1, 2)
        if screen.getvalue() != before:
            told.append(clock.now)
    assert told == [0.0, 0.1, 0.25]


def test_it_says_how_far_and_how_long(screen: Screen, clock: Clock) -> None:
    status = StatusLine()
    clock.now = 2.0
    status("weights", 7, 16)  # 8.75 of 20
    assert screen.getvalue() == f"\r\x1b[K[{'#' * 8}{'.' * 12}] 7/16 3 s weights"


@pytest.mark.parametrize(("done", "total", "filled"), [(0, 3, 0), (3, 3, 20), (1, 1, 20), (0, 0, 0)])
def test_the_bar_is_twenty_wide_from_start_to_end(screen: Screen, clock: Clock, done: int, total: int, filled: int) -> None:
    status = StatusLine()
    clock.now = 1.0
    status("x", done, total)
    assert f"[{'#' * filled}{'.' * (20 - filled)}] {done}/{total}" in screen.getvalue()


def test_a_long_text_stays_on_one_line(screen: Screen, clock: Clock) -> None:
    """A terminal may go to the next line once its last column is written."""
    status = StatusLine()
    clock.now = 1.0
    status("y" * 200, 1, 2)
    assert len(screen.getvalue().removeprefix("\r\x1b[K")) == 59


def test_nothing_is_written_where_there_is_no_terminal(screen: Screen, clock: Clock) -> None:
    screen.terminal = False
    with StatusLine() as status:
        clock.now = 5.0
        status("x", 1, 2)
    assert screen.getvalue() == ""


def test_the_line_is_taken_away_in_the_end_if_it_was_shown(screen: Screen, clock: Clock) -> None:
    with StatusLine() as status:
        status("x", 1, 2)
    assert screen.getvalue() == ""
    with StatusLine() as status:
        clock.now = 5.0
        status("x", 1, 2)
        shown = screen.getvalue()
    assert screen.getvalue() == shown + "\r\x1b[K"
