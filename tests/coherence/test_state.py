"""One state on one line: readings, kinks, jumps and steps."""

import pytest
import torch

from pairgrad.coherence.limits import LADDER, TELLING
from pairgrad.coherence.state import examine, locate, pursue, read, stepwise
from tests.coherence.functions import Round, sine_with
from tests.coherence.lines import number_line

HALVES = LADDER[torch.float64]


def test_coherent_and_incoherent_readings():
    assert read(number_line(torch.sin), 0.75, HALVES).verdict == "coherent"
    found = read(number_line(sine_with(lambda x: 1 + 1e-7).apply), 0.75, HALVES)
    assert found.verdict == "incoherent"
    assert found.relative == pytest.approx(1e-7, rel=1e-3)
    assert found.error < 1e-10


def test_reading_is_as_good_as_the_worse_of_its_methods():
    found = read(number_line(torch.sin), 0.75, HALVES)
    assert found.limit == max(found.panel.limit, found.difference.limit, found.smallest)


def test_outside_the_domain():
    assert read(number_line(torch.log), -1.0, HALVES).verdict == "outside"


@pytest.mark.parametrize("fn", [torch.abs, torch.relu, lambda x: torch.maximum(x, x**3)])
def test_state_on_a_kink_is_told_from_a_defect(fn):
    found = examine(number_line(fn), 0.0, HALVES)
    assert found.verdict == "kink"
    assert found.event.kind == "kink"
    assert found.event.at == pytest.approx(0, abs=1e-6)


def test_defect_on_one_side_of_a_kink_is_found():
    line = number_line(sine_with(lambda x: torch.where(x > 0.75, 1.001, 1.0)).apply)
    assert examine(line, 0.75, HALVES).verdict == "incoherent"


def test_value_of_coarse_rounding_is_no_defect():
    def coarse(x):
        return x.sin().float().double()

    found = examine(number_line(coarse), 0.75, HALVES)
    assert found.verdict in ("coherent", "stepwise")
    assert 1e-8 < found.limit < 1e-4


def test_value_lost_in_the_tail_is_no_defect():
    found = examine(number_line(torch.special.ndtr, torch.float32), -5.5, LADDER[torch.float32])
    assert found.verdict != "incoherent"


def test_steps_of_a_quantiser_are_a_defect_at_the_state():
    assert examine(number_line(Round.apply), 0.3, HALVES).verdict == "incoherent"


def test_stands_still_between_steps_of_a_coarser_dtype_and_is_told_from_a_quantiser():
    """Between two floats of single precision the value does not move at all, which a short segment must call a defect; a longer one averages it out."""

    def coarse(x):
        return x.sin().float().double()

    line = number_line(coarse)
    short = read(line, 0.75, [2.0**-30, 2.0**-31])
    assert short.verdict == "incoherent"
    assert short.relative == pytest.approx(1)
    found = stepwise(line, short, HALVES)
    assert found.verdict == "stepwise"
    assert found.event.kind == "jump"
    assert found.event.size == pytest.approx(2.0**-24, rel=0.1)
    assert found.relative <= TELLING
    quantiser = number_line(Round.apply)
    assert stepwise(quantiser, read(quantiser, 0.3, [2.0**-6, 2.0**-8]), HALVES) is None


def test_a_value_that_is_lost_in_its_rounding_is_unresolved():
    """(1 + x / 2^52) - 1 is 0 up to x = 1/2, and lacks less than a unit in the last place of 1, a size that numbers inside a function are likely to have."""
    line = number_line(lambda x: (1 + 2.0**-52 * x) - 1)
    short = read(line, 0.25, [2.0**-4, 2.0**-6])
    assert short.verdict == "incoherent"
    assert stepwise(line, short, HALVES).verdict == "unresolved"


def test_pursue_finds_a_narrow_region_inside_a_segment():
    line = number_line(sine_with(lambda x: 1 + 1e-6 * ((x - 0.8).abs() < 0.004)).apply)
    assert read(line, 0.75, [0.1, 0.05]).verdict != "incoherent"
    found = pursue(line, 0.75, [0.1])
    assert found.verdict == "incoherent"
    assert abs(found.middle - 0.8) < 0.005


@pytest.mark.parametrize(
    ("kind", "fn"),
    [
        ("jump", lambda x: x.sin() + 1e-6 * (x > 0.7).double()),
        ("kink", lambda x: x.sin() + 1e-4 * (x - 0.7).abs()),
        ("bend", lambda x: x.sin() + 1e-3 * (x - 0.7).clamp_min(0) ** 2),
    ],
)
def test_locate_tells_jumps_kinks_and_bends_apart_and_where_they_are(kind, fn):
    event = locate(number_line(fn), 0.75, 0.125)
    assert event.kind == kind
    assert event.width < 1e-6
    assert event.at == pytest.approx(0.7, abs=1e-3)
    if kind == "jump":
        assert event.size == pytest.approx(1e-6, rel=1e-2)


@pytest.mark.parametrize("fn", [torch.sin, lambda x: x.sin().float().double()])
def test_nothing_to_locate_on_smooth_and_on_noisy_curves(fn):
    assert locate(number_line(fn), 0.75, 0.125) is None


def test_a_smooth_curve_is_not_searched():
    line = number_line(torch.sin)
    assert locate(line, 0.75, 0.125) is None
    assert line.panels == 3
