"""Findings in words, and that every verdict has a meaning and every kind of alarm a remedy."""

from __future__ import annotations

from pairgrad.coherence.verdict import ADVICE, MEANING, PASSING, Finding, Verdict


def test_a_finding_says_how_grave_it_is_and_where() -> None:
    assert str(Finding("defect", "alarm", "the gradient is off", "x")) == "[alarm] x: the gradient is off"
    assert str(Finding("note", "note", "nothing to say")) == "[note] nothing to say"


def test_causes_and_remedy_are_those_of_the_kind() -> None:
    found = Finding("edits", "alarm", "")
    causes, remedy = ADVICE["edits"]
    assert (found.causes, found.remedy) == (causes, remedy)
    assert causes
    assert "out-of-place" in remedy
    other = Finding("region", "note", "")
    assert (other.causes, other.remedy) == ((), "")


def test_every_verdict_has_a_meaning_and_two_of_them_pass() -> None:
    assert set(MEANING) == set(Verdict)
    assert PASSING == ("coherent", "kink")
    assert all(causes and remedy for causes, remedy in ADVICE.values())
