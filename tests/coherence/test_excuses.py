"""Whether a declaration accounts for what was found, rule by rule; tests of whole audits are in test_audit.py."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pairgrad.coherence import excuses
from pairgrad.coherence.consequences import Consistent
from pairgrad.coherence.excuses import excused
from pairgrad.coherence.explore import Observation
from pairgrad.coherence.state import Event
from pairgrad.coherence.straight import StraightThrough
from pairgrad.coherence.verdict import Finding, Verdict
from tests.coherence.readings import panel_of, seen


def ask(
    intent: str,
    observations: list[Observation] | None = None,
    *,
    alarms: tuple[str, ...] = ("defect",),
    verdict: Verdict | None = Verdict.INCOHERENT,
    straight: StraightThrough | None = None,
    complete: bool = True,
    random: bool = False,
) -> tuple[bool, str]:
    subject: Any = SimpleNamespace(random=random)
    found = [Finding(kind, "alarm", "") for kind in alarms]
    return excused(intent, found, subject, observations or [], verdict=verdict, straight=straight, complete=complete)


STEEP = seen("incoherent", panel=panel_of(defect=0.5, slope=1.0))


@pytest.mark.parametrize("kind", ["defect", "no-gradient", "straight-through", "not-linear", "second-order"])
def test_alarms_that_a_declaration_can_account_for(kind: str) -> None:
    assert ask("implicit-reparameterization", alarms=(kind,), random=True)[0]


def test_other_alarms_are_named() -> None:
    good, why = ask("implicit-reparameterization", alarms=("not-reentrant", "defect", "edits"), random=True, complete=False)
    assert not good
    assert why.endswith("which does not account for: edits, not-reentrant")


def test_an_audit_that_was_stopped_excuses_nothing() -> None:
    good, why = ask("implicit-reparameterization", random=True, complete=False)
    assert not good
    assert "was not looked at" in why


def test_implicit_reparameterization_draws_random_numbers() -> None:
    assert ask("implicit-reparameterization", random=True)[0]
    good, why = ask("implicit-reparameterization", random=False)
    assert not good
    assert "draws no random numbers" in why


# Straight-through -------------------------------------------------------------------------------------------------------

LEAP = Event("jump", 0.5, 1e-6, 1.0)


def test_straight_through_by_verdict_or_by_a_leap() -> None:
    assert not ask("straight-through", [STEEP])[0]
    assert ask("straight-through", [STEEP], verdict=Verdict.STRAIGHT_THROUGH)[0]
    assert ask("straight-through", [STEEP], straight=StraightThrough((1.0,), (0.5,), LEAP))[0]
    assert not ask("straight-through", [STEEP], straight=StraightThrough((1.0,), (0.5,), None))[0]


@pytest.mark.parametrize(("slope", "flat"), [(0.0, True), (2e-6, True), (-2e-6, True), (2.1e-6, False), (-2.1e-6, False), (-1.0, False)])
def test_straight_through_by_a_value_that_stands_still_where_the_gradient_does_not(slope: float, flat: bool) -> None:
    """To a millionth of the gradient, which has size 2 here. Coherent lines do not count, nor those of a second backward."""
    still = seen("incoherent", panel=panel_of(defect=2.0, gradient=2.0, slope=slope))
    others = [seen("coherent", panel=panel_of()), seen("incoherent", panel=panel_of(defect=0.5), order=2), seen("incoherent", panel=None)]
    assert ask("straight-through", [*others, still])[0] == flat
    assert not ask("straight-through", [*others, still, STEEP])[0]


# Gradient cap -----------------------------------------------------------------------------------------------------------


def capped(supplied: list[float], derivative: list[float], monkeypatch: pytest.MonkeyPatch, error: float = 0.0) -> bool:
    """Coordinate by coordinate, with both gradients given for the first line through the inputs."""
    both = Consistent((torch.tensor(supplied, dtype=torch.float64),), (torch.tensor(derivative, dtype=torch.float64),), "forward", error)
    monkeypatch.setattr(excuses, "consistent_gradient", lambda subject, observation: both if observation is STEEP else None)
    elsewhere, after = seen("incoherent", state="another", panel=panel_of(defect=9.0)), seen("incoherent", panel=panel_of(defect=9.0))
    good, why = ask("gradient-cap", [elsewhere, STEEP, after])
    assert why.endswith("coordinate by coordinate")
    assert ("but the gradient is not" in why) != good
    return good


@pytest.mark.parametrize(
    ("supplied", "derivative", "good"),
    [
        ([1.0, -1.0], [4.0, -4.0], True),
        ([4.0, -4.0], [4.0, -4.0], True),
        ([0.0, 0.0], [4.0, -4.0], True),
        ([4.1, -1.0], [4.0, -4.0], False),
        ([1.0, -4.1], [4.0, -4.0], False),
        ([-0.1, -1.0], [4.0, -4.0], False),
        ([1.0, 0.1], [4.0, -4.0], False),
        ([4.1, 0.1], [4.0, -4.0], False),
        ([1.0, 0.1], [4.0, 0.0], False),
        ([1.0, 0.0], [4.0, 0.0], True),
        ([0.0, 0.0], [0.0, 0.0], True),
    ],
)
def test_a_cap_shortens_every_coordinate_and_turns_none(
    supplied: list[float], derivative: list[float], good: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert capped(supplied, derivative, monkeypatch) == good


@pytest.mark.parametrize(("error", "slack"), [(0.0, 1e-6), (0.25, 1.000001)])
def test_slack_of_a_cap_is_four_errors_and_a_millionth(error: float, slack: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each coordinate, and of the largest for how long it may be: a coordinate that is zero is known to no more than that."""
    small, large = 0.5, 64.0
    longest = small * (1 + slack) + slack * large
    for factor, good in ((0.99, True), (1.01, False)):
        room = small + factor * (longest - small)
        assert capped([room, large], [small, large], monkeypatch, error) == good
        assert capped([-factor * slack * small, large], [small, large], monkeypatch, error) == good
        assert capped([factor * slack * small, -large], [-small, -large], monkeypatch, error) == good


def along(*pairs: tuple[float, float]) -> bool:
    """Along lines that do not go through the inputs: (supplied, true) slopes."""
    lines = [seen("incoherent", state="another", panel=panel_of(defect=a - b, slope=b)) for a, b in pairs]
    strangers = [seen("outside", panel=None), seen("incoherent", state="another", panel=panel_of(defect=99.0), order=2)]
    good, why = ask("gradient-cap", [*lines, *strangers])
    assert why.endswith("along the lines looked at")
    return good


def test_a_cap_along_lines_is_shorter_and_to_the_same_side() -> None:
    assert along((0.5, 1.0), (-0.5, -1.0))
    assert along((1.0, 1.0))
    assert not along((1.001, 1.0))
    assert not along((-0.5, 1.0))
    assert along((3.0, 3.0), (0.0, 4.0))
    assert along((1.5, 1.0), (0.0, 4.0))  # of all lines together
    assert not along((3.0, 4.0), (3.0, 1.0))
    assert along((-1.0, 1.0), (2.0, 3.0))
    assert along((0.0, 1.0))
    assert along((0.0, 0.0))
    assert along((1 + 0.5e-6, 1.0))
    assert not along((1 + 2e-6, 1.0))


def test_where_the_derivative_is_not_known_lines_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excuses, "consistent_gradient", lambda subject, observation: None)
    halved = replace(STEEP, reading=replace(STEEP.reading, panel=panel_of(defect=-0.5, slope=1.0)))
    assert ask("gradient-cap", [halved]) == (
        True,
        "declared as 'gradient-cap', and the gradient is the derivative shortened, along the lines looked at",
    )
