"""Straight-through estimators are told from defects."""

from types import SimpleNamespace

import pytest
import torch

from pairgrad.coherence import straight
from pairgrad.coherence.explore import line_through
from pairgrad.coherence.path import Line, Path, Straight, random_cotangent
from pairgrad.coherence.state import Event
from pairgrad.coherence.straight import StraightThrough, _moves_in_steps, straight_through
from pairgrad.coherence.subject import Subject
from tests.coherence.functions import Round, Window, sine_with


def line_of(fn, seed=0, count=12):
    generator = torch.Generator().manual_seed(seed)
    subject = Subject(fn, 2 * torch.randn(count, generator=generator, dtype=torch.float64))
    return line_through(subject, subject.tensors, [0], random_cotangent(subject.outputs, generator), generator, relative=False)[0]


@pytest.mark.parametrize("fn", [Round.apply, Window.apply, lambda x: (Round.apply(x) * 1.5 - 1).square().mean()])
@pytest.mark.parametrize("seed", range(3))
def test_straight_through_estimators_are_recognised(fn, seed):
    found = straight_through(line_of(fn, seed))
    assert found.like
    assert found.jump is not None


@pytest.mark.parametrize("fn", [sine_with(lambda x: 1.1).apply, sine_with(lambda x: 0 * x).apply])
def test_a_mistake_on_a_smooth_function_is_not_one(fn):
    assert not straight_through(line_of(fn)).like


def test_residual_of_a_mistake_with_steps_stays():
    class Twice(Round):
        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    assert not straight_through(line_of(Twice.apply)).like


def test_like_one_is_a_leap_and_a_residual_that_falls_below_a_fifth():
    jump = Event("jump", 0.5, 0.0, 1.0)
    assert StraightThrough((1.0, 4.0), (0.5, 0.1999), jump).like
    assert not StraightThrough((1.0, 4.0), (0.5, 0.2), jump).like
    assert not StraightThrough((1.0, 4.0), (0.5, 0.1), None).like
    assert not StraightThrough((), (), jump).like


def test_residual_over_the_work_falls_with_the_length():
    """Of round on one number, along x = 0.25 + 0.4 t: the value lacks or exceeds by less than one the 0.8 length that the gradient asks for."""
    start, speed = torch.tensor([0.25], dtype=torch.float64), 0.4
    path = Path((Straight(start, torch.full((1,), speed, dtype=torch.float64)),))
    found = straight_through(Line(Subject(Round.apply, start), path, (torch.ones(1, dtype=torch.float64),)))
    assert found.lengths == (1.0, 4.0, 16.0, 64.0)
    for length, residual in zip(found.lengths, found.residuals, strict=True):
        work = 2 * speed * length
        missing = abs(round(0.25 + speed * length) - round(0.25 - speed * length) - work)
        assert residual == pytest.approx(missing / work, rel=1e-9)
    place = 0.25 + speed * found.jump.at
    assert place - 0.5 == pytest.approx(round(place - 0.5), abs=1e-5)
    assert found.jump.size == pytest.approx(1, rel=1e-3)


def test_a_value_moves_in_steps_if_it_stands_still_or_leaps():
    assert _moves_in_steps(number_line_from(Round.apply, 0.2))
    assert not _moves_in_steps(number_line_from(sine_with(lambda x: 1.1).apply, 0.2))
    assert _moves_in_steps(number_line_from(sine_with(lambda x: 30.0).apply, 0.2))

    def nearby(x):
        if (x - 0.2).abs() > 0.1:
            raise ValueError("too far")
        return Round.apply(x)

    assert _moves_in_steps(number_line_from(nearby, 0.2))


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        ({}, False),
        ({"residual": -0.975}, True),  # all but a fortieth of the work is missing
        ({"residual": -0.9}, False),
        ({"work": 20.0, "residual": -19.0, "absolute_work": 20.0}, True),
        ({"work": -1.0, "residual": 0.9375, "absolute_work": 1.5}, True),
        ({"work": -1.0, "residual": 0.9375, "absolute_work": 1.0}, False),
        ({"ruggedness": 0.0201}, True),
        ({"ruggedness": 0.02}, False),
        ({"drift": (0.0, 0.0, 0.0)}, False),
    ],
)
def test_what_stands_still_or_leaps_in_a_panel(change, steps, monkeypatch):
    """A twentieth of the work, and a hundredth of the largest drift, which is 2 here."""
    panel = SimpleNamespace(**({"work": 1.0, "residual": 0.0, "absolute_work": 1.0, "ruggedness": 0.0, "drift": (0.5, -2.0, 1.0)} | change))
    monkeypatch.setattr(straight, "measure", lambda line, middle, half: panel)
    assert _moves_in_steps(None) is steps


@pytest.mark.parametrize("known", [0.25, 0.0625, None])
def test_a_quarter_of_the_argument_is_looked_at_or_a_sixteenth_where_that_leads_outside(known, monkeypatch):
    asked = []
    panel = SimpleNamespace(work=1.0, residual=-1.0, absolute_work=1.0, ruggedness=0.0, drift=(1.0,))

    def measured(line, middle, half):
        asked.append((middle, half))
        return panel if half == known else None

    monkeypatch.setattr(straight, "measure", measured)
    assert _moves_in_steps(None) is (known is not None)
    assert asked == [(0.0, 0.25), (0.0, 0.0625)][: 1 if known == 0.25 else 2]


@pytest.mark.parametrize(("work", "lengths"), [((1, 1, 1, 1), (1, 4, 16, 64)), ((0, 1, 0, -1), (4, 64)), ((1, None, 1, 1), (1,))])
def test_lengths_without_work_are_passed_over_and_those_that_lead_outside_are_the_last(work, lengths, monkeypatch):
    """The work of each piece is given by length; without it, the middle piece is outside."""

    def measured(line, middle, half):
        found = dict(zip((1.0, 4.0, 16.0, 64.0), work, strict=True))[round(12 * half)]
        if found is None and abs(middle) < 2 * half:
            return None
        return SimpleNamespace(middle=middle, half=half, absolute_work=(found or 0) / 12, residual=0.5 / 12, noise=0.0)

    monkeypatch.setattr(straight, "measure", measured)
    monkeypatch.setattr(straight, "locate", lambda line, middle, half, alone: None)
    monkeypatch.setattr(straight, "_moves_in_steps", lambda line: True)
    found = straight_through(None)
    assert found.lengths == lengths
    assert [abs(residual) for residual in found.residuals] == pytest.approx([0.5] * len(lengths))


def test_a_leap_is_looked_for_where_residual_and_noise_together_are_largest(monkeypatch):
    """In the second of twelve pieces, though the third has the larger residual; and as long as none is found, at every length."""
    looked = []

    def measured(line, middle, half):
        piece = round((middle / half + 11) / 2)
        found = dict.fromkeys(("residual", "noise"), 0.0) | {1: {"residual": -0.5, "noise": 0.5}, 2: {"residual": 0.75}}.get(piece, {})
        return SimpleNamespace(middle=middle, half=half, absolute_work=1.0, **found)

    def located(line, middle, half, *, alone):
        looked.append((middle, half, alone))
        return [None, Event("kink", middle, 0.0, 1.0), Event("jump", middle, 0.0, 1.0)][len(looked) - 1]

    monkeypatch.setattr(straight, "measure", measured)
    monkeypatch.setattr(straight, "locate", located)
    monkeypatch.setattr(straight, "_moves_in_steps", lambda line: True)
    found = straight_through(line_of(Round.apply))
    assert looked == [(pytest.approx(-0.75 * length), pytest.approx(length / 12), False) for length in (1.0, 4.0, 16.0)]
    assert found.jump.at == pytest.approx(-12.0)
    assert found.residuals == pytest.approx([0.25 / 12] * 4)


def number_line_from(fn, start):
    """The number line with its origin at `start`."""
    base = torch.tensor(start, dtype=torch.float64)
    path = Path((Straight(base, torch.ones((), dtype=torch.float64)),))
    return Line(Subject(fn, base), path, (torch.ones((), dtype=torch.float64),))
