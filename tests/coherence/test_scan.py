"""An interval from end to end: regions and where they end."""

import pytest
import torch

from pairgrad.coherence.domain import Box, LogRange
from pairgrad.coherence.scan import scan
from tests.coherence.functions import sine_with
from tests.coherence.lines import number_line


def scanned(fn, interval, dtype=torch.float64, tiles=48):
    return scan(number_line(fn, dtype, at=interval.middle), interval.edges(tiles), interval.between)


def test_smooth_function_is_one_region():
    found = scanned(torch.sin, Box(-3, 3))
    assert [(region.low, region.high, region.verdict) for region in found.regions] == [(-3, 3, "coherent")]
    assert found.regions[0].limit < 1e-11
    assert not found.events


def test_half_of_the_interval_is_incoherent_and_the_border_is_found():
    found = scanned(sine_with(lambda x: torch.where(x > 0.123, 1 + 1e-6, 1.0)).apply, Box(-1, 1))
    assert [region.verdict for region in found.regions] == ["coherent", "incoherent"]
    assert found.regions[0].high == pytest.approx(0.123, abs=0.01)
    assert found.regions[1].largest == pytest.approx(1e-6, rel=0.05)


@pytest.mark.parametrize("place", [-2.345, 0.5, 1.2345])
def test_narrow_region_is_found_and_bounded(place):
    found = scanned(sine_with(lambda x: 1 + 1e-5 * ((x - place).abs() < 0.02)).apply, Box(-3, 3))
    narrow = [region for region in found.regions if region.verdict == "incoherent"]
    assert len(narrow) == 1
    assert narrow[0].low == pytest.approx(place - 0.02, abs=0.01)
    assert narrow[0].high == pytest.approx(place + 0.02, abs=0.01)


def test_change_of_form_inside_an_incoherent_region_is_located():
    found = scanned(sine_with(lambda x: 1 + 1e-2 * x.clamp_max(20.0)).apply, LogRange(1, 100))
    assert any(event.kind == "bend" and event.at == pytest.approx(20, rel=1e-3) for event in found.events)
    assert any(region.low == pytest.approx(20, rel=1e-3) for region in found.regions)


def test_jumps_are_events_and_the_rest_is_coherent():
    found = scanned(torch.floor, Box(-1.7, 1.7))
    assert [round(event.at) for event in found.events if event.kind == "jump"] == [-1, 0, 1]
    assert {region.verdict for region in found.regions} == {"coherent"}


def test_part_outside_the_domain_is_said_to_be():
    found = scanned(torch.log, Box(-1, 1))
    assert found.regions[0].verdict == "outside"
    assert found.regions[-1].verdict == "coherent"
    assert found.regions[-1].high == 1


@pytest.mark.parametrize("bend", [20.0, *(pytest.param(b, marks=pytest.mark.slow) for b in (3.0, 9000.0))])
def test_nothing_outside_of_the_interval_is_read(bend):
    """Tiles of a logarithmic interval differ by orders of magnitude: what is beside a change of form is as near as the tile is wide."""
    found = scanned(sine_with(lambda x: 1 + 1e-2 * x.clamp_max(bend)).apply, LogRange(1, 10_000))
    assert all(1 <= reading.middle <= 10_000 for reading in found.readings)
