"""A domain from end to end: its regions with their verdicts, where they begin and end, and how large the defect is in each."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import Box, LogRange, Region, Report
from tests.coherence.functions import doubles, sine_with

D = torch.float64


def scanned(fn: Any, domain: Any, **options: Any) -> tuple[Report, tuple[Region, ...]]:
    report = pg.audit(fn, domain=domain, **({"effort": "glance", "second_order": False, "consequences": False} | options))
    (regions,) = report.regions.values()
    assert all(before.high == after.low for before, after in itertools.pairwise(regions)), str(report)
    return report, regions


def wrong_where(place: Any, size: float) -> Any:
    return sine_with(lambda x: 1 + size * place(x)).apply


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-11), (torch.float32, 1e-3)])
@pytest.mark.parametrize("domain", [Box(-3, 3), LogRange(1e-2, 3)], ids=["box", "log"])
def test_a_smooth_function_is_one_coherent_region(domain: Box | LogRange, dtype: torch.dtype, limit: float) -> None:
    report, (region,) = scanned(torch.sin, domain, dtype=dtype)
    assert (region.low, region.high, region.verdict) == (domain.low, domain.high, "coherent")
    assert region.limit < limit
    assert report.verdict == "coherent"
    assert not report.findings


@pytest.mark.parametrize(
    ("place", "verdicts", "dtype", "size"),
    [
        (lambda x: x > 0.123, ["coherent", "incoherent"], torch.float64, 1e-6),
        (lambda x: x < 0.123, ["incoherent", "coherent"], torch.float32, 1e-2),
    ],
    ids=["above", "below, float32"],
)
def test_the_border_of_a_wrong_part_is_found_and_the_defect_measured(
    place: Any, verdicts: list[str], dtype: torch.dtype, size: float
) -> None:
    report, regions = scanned(wrong_where(place, size), Box(-1, 1), dtype=dtype)
    assert [region.verdict for region in regions] == verdicts
    assert regions[0].high == pytest.approx(0.123, abs=1e-5)
    (wrong,) = [region for region in regions if region.verdict == "incoherent"]
    assert size / 1.2 < wrong.smallest <= wrong.largest < 1.05 * size
    assert report.verdict == "incoherent"


def test_a_smooth_border_is_found_to_a_part_of_a_tile() -> None:
    """A defect that grows from 0.3 on like a fourth power: the gradient does not leap, so that bisection alone places the border."""
    _, regions = scanned(wrong_where(lambda x: (x - 0.3).clamp_min(0) ** 4, 1.0), Box(-1, 1))
    assert [region.verdict for region in regions] == ["coherent", "incoherent"]
    assert regions[0].high == pytest.approx(0.3, abs=0.05)
    assert regions[1].smallest < 0.1 * regions[1].largest


def test_wrong_parts_apart_from_each_other_have_sizes_of_their_own() -> None:
    report, regions = scanned(wrong_where(lambda x: 1e-3 * ((x > 0.5) & (x < 1.25)) + 1e-2 * (x > 2.5), 1.0), Box(0, 3))
    assert [region.verdict for region in regions] == ["coherent", "incoherent", "coherent", "incoherent"]
    assert [region.low for region in regions[1:]] == pytest.approx([0.5, 1.25, 2.5], abs=1e-4)
    assert regions[1].largest == pytest.approx(1e-3, rel=0.05)
    assert regions[3].largest == pytest.approx(1e-2, rel=0.05)
    assert report.defect == pytest.approx(1e-2 / 1.01, rel=0.05)


@pytest.mark.parametrize("place", [-2.345, *(pytest.param(place, marks=pytest.mark.slow) for place in (0.5, 1.2345))])
def test_a_narrow_region_is_found_and_bounded(place: float) -> None:
    _, regions = scanned(wrong_where(lambda x: (x - place).abs() < 0.02, 1e-5), Box(-3, 3))
    assert [region.verdict for region in regions] == ["coherent", "incoherent", "coherent"]
    assert regions[1].low == pytest.approx(place - 0.02, abs=0.003)
    assert regions[1].high == pytest.approx(place + 0.02, abs=0.003)
    assert regions[1].largest == pytest.approx(1e-5, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("side", [-1, 1])
def test_a_narrow_region_beside_a_kink_is_found(side: int) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x - 0.5).abs() + wrong_where(lambda x: (x - 0.5 - 0.02 * side).abs() < 0.02, 1e-3)(x)

    report, regions = scanned(fn, Box(-1, 2))
    (wrong,) = [region for region in regions if region.verdict == "incoherent"]
    assert wrong.low == pytest.approx(0.5 + min(0, 0.04 * side), abs=0.01), str(report)
    assert wrong.high == pytest.approx(0.5 + max(0, 0.04 * side), abs=0.01), str(report)


def test_a_change_of_form_inside_a_wrong_region_divides_it() -> None:
    """The slope of the logarithm is off by x / 100 up to 20 and by a fifth from there on."""

    class Log(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.log()

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output / x * (1 + 1e-2 * x.clamp_max(20.0))

    report, regions = scanned(Log.apply, LogRange(2, 100))
    assert {region.verdict for region in regions} == {"incoherent"}
    assert [region.low for region in regions] == pytest.approx([2, 20], rel=1e-3)
    (found,) = [finding for finding in report.findings if finding.kind == "region"]
    assert (found.severity, found.where) == ("note", "input 0")
    assert found.numbers["at"] == pytest.approx(20, rel=1e-3)
    assert found.text.startswith("the supplied gradient changes its form at ")
    assert regions[0].smallest < 0.05
    assert regions[1].smallest == pytest.approx(1 / 6, rel=0.05)
    places = [state.at for state in report.states if state.at is not None]
    assert all(2 <= place <= 100 for place in places)


def _too_far(x: torch.Tensor) -> torch.Tensor:
    if x.item() > 1.5:
        raise ValueError("too far")
    return x.sin()


@pytest.mark.parametrize(
    ("fn", "domain", "expected"),
    [
        (torch.log, Box(-1, 3), [(-1, 0, "outside"), (0, 3, "coherent")]),
        (_too_far, Box(0, 2), [(0, 1.5, "coherent"), (1.5, 2, "outside")]),
        (
            lambda x: torch.where((x > 0.5) & (x < 1), torch.nan, x.sin()),
            Box(0, 2),
            [(0, 0.5, "coherent"), (0.5, 1, "outside"), (1, 2, "coherent")],
        ),
    ],
    ids=["log", "raises", "NaN"],
)
def test_parts_where_the_function_is_not_defined_are_outside(fn: Any, domain: Box, expected: list[tuple[float, float, str]]) -> None:
    """To a tile, of which a glance takes 16."""
    report, regions = scanned(fn, domain)
    assert report.verdict == "coherent", str(report)
    assert [region.verdict for region in regions] == [verdict for _, _, verdict in expected]
    tile = (domain.high - domain.low) / 16
    for region, (low, high, _) in zip(regions, expected, strict=True):
        assert (region.low, region.high) == pytest.approx((low, high), abs=1.01 * tile)


def test_each_argument_of_a_domain_has_regions_of_its_own_and_the_wrong_one_is_named() -> None:
    wrong = wrong_where(lambda x: x > 2, 1e-3)
    report = pg.audit(
        lambda x, y: x.cos() + wrong(y),
        domain=[(0, 1), (1, 3)],
        effort="glance",
        second_order=False,
        consequences=False,
    )
    assert [region.verdict for region in report.regions["input 0"]] == ["coherent"]
    assert [region.verdict for region in report.regions["input 1"]] == ["coherent", "incoherent"]
    assert report.regions["input 1"][1].low == pytest.approx(2, abs=1e-4)
    assert "input 1" in [finding.where for finding in report.findings if finding.kind == "defect"]
    assert "input 0" not in [finding.where for finding in report.findings]


def test_a_defect_that_shows_only_if_coordinates_differ_is_found_on_a_sweep() -> None:
    """With all elements alike, as along a scan, the difference of two of them is zero."""

    class Difference(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x[0] - x[1]) ** 3 + x.sum()

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            slope = 3 * (x[0] - x[1]) ** 2 * torch.where((x[0] - x[1]).abs() > 1.5, 1.1, 1.0)
            return grad_output * torch.stack([1 + slope, 1 - slope])

    x = doubles(0.3, 0.2)
    options = {"effort": "quick", "second_order": False, "consequences": False}
    assert pg.audit(Difference.apply, x, **options).passed
    report = pg.audit(Difference.apply, x, domain=(-1, 1), **options)
    assert [region.verdict for region in report.regions["input 0"]] == ["coherent"]
    assert report.verdict == "incoherent"
