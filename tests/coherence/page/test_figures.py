"""The figures on the page of a report: marks, axes and numbers stand where they belong."""

import dataclasses
import itertools
import math
import random
import re

import pytest

from pairgrad.coherence import Region
from pairgrad.coherence.page import content, figures, render, svg
from tests.coherence.page.reading import Page, drawn, drawn_leaps
from tests.coherence.page.reports import (
    ALARM,
    EMPTY,
    curve,
    leap,
    leaping,
    node,
    picture,
    report,
    run,
    scanned,
    state,
)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0"),
        (0.0123456, "0.0123"),
        (-1.5, "−1.5"),
        (123456.0, "123,000"),
        (6.67e-7, "6.67 × 10⁻⁷"),
        (-1e9, "−1 × 10⁹"),
        (math.inf, "∞"),
        (0.99999, "1"),
    ],
)
def test_numbers(value, words):
    assert svg.pretty(value).replace("\u00a0", " ") == words


def test_numbers_in_sentences():
    assert svg.prettily("off by 8e-09 (± 1e+10), at 0.5").replace("\u00a0", " ") == "off by 8 × 10⁻⁹ (± 1 × 10¹⁰), at 0.5"
    told = svg.prettily("x = -0.5 (± 2e-9), t = -3.7e-09, from -2 to -1")
    assert told == "x\u00a0=\u00a0−0.5 (±\u00a02\u00a0×\u00a010⁻⁹), t\u00a0=\u00a0−3.7\u00a0×\u00a010⁻⁹, from −2 to −1"
    for name in ("file1e-3.py", "v2.1e-4beta", "a1e-05", "file-3.py", "a/-3", "2-1", "-3x"):
        assert svg.prettily(name) == name


def test_ticks_stand_where_they_say():
    """Over two hundred ranges of every size: a label, times its power, plus what the axis leaves out, is the place."""
    rng = random.Random(0)
    for _ in range(200):
        low = rng.choice([0.0, rng.uniform(-1, 1)]) * 10 ** rng.uniform(-12, 12)
        high = low + 10 ** rng.uniform(-6, 3) * (abs(low) or 10 ** rng.uniform(-12, 12))
        axis = svg.Axis(low, high, 0.0, 100.0)
        ticks = axis.ticks(5)
        assert 2 <= len(ticks) <= 14, (low, high, ticks)
        assert len({words for _, words in ticks}) == len(ticks)
        for value, words in ticks:
            told = float(words.replace("−", "-")) * 10.0**axis.exponent + axis.offset
            assert told == pytest.approx(value, abs=1e-6 * (high - low)), (low, high, words)
            assert axis(value) == pytest.approx(100 * (told - low) / (high - low), abs=1e-3)
    log = svg.Axis(1e-13, 10.0, 0.0, 140.0, log=True)
    assert [(w, round(log(v), 6)) for v, w in log.ticks(4)] == [("10⁻¹¹", 20), ("10⁻⁷", 60), ("10⁻³", 100), ("10¹", 140)]


def test_marks_stand_where_they_belong():
    """A thousand times the defect is three decades higher; regions meet where they meet; decades make a logarithmic axis."""
    figure = content.defects(scanned())[0]
    strips = [tuple(map(float, m)) for m in re.findall(r'class="strip v-\w+" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', figure.svg)]
    left, right = svg.LEFT, svg.WIDTH - svg.RIGHT
    assert strips[0][0] == left
    assert strips[1][0] == pytest.approx(left + 3 / 5 * (right - left), abs=0.06)  # a tenth of a unit is what is written
    assert sum(strips[1]) == pytest.approx(right - 1, abs=0.11)
    assert figure.svg.count("<circle") == sum(s.verdict == "incoherent" for s in scanned().states)
    pair = figures.defect_figure(
        "", [figures.Mark(1, 1e-6, 0, 1e-7, "incoherent", True, ""), figures.Mark(2, 1e-3, 5e-4, 1e-7, "incoherent", True, "")], "x"
    )
    low, high = (float(y) for y in re.findall(r'cy="([\d.]+)"', pair.svg))
    grid = [float(y) for y in re.findall(r'class="grid" d="M62\.0 ([\d.]+)H', pair.svg)]  # one line per decade
    assert low - high == pytest.approx(3 * (grid[0] - grid[1]), abs=0.3)
    top, bottom = re.findall(r'class="bar v-incoherent" d="M[\d.]+ ([\d.]+)V([\d.]+)', pair.svg)[1]
    assert float(bottom) - high == pytest.approx(math.log10(2) * (grid[0] - grid[1]), abs=0.2)
    assert high - float(top) == pytest.approx(math.log10(1.5) * (grid[0] - grid[1]), abs=0.2)


def test_leaps_are_drawn():
    """A line through the figure and a mark on the strip at each, on sweeps too; none where the place is not known, or in a figure of another argument."""
    figure = content.defects(leaping(-1.0, 0.0, 1.0, 2.000000001, None, 2.5))[0]
    left, right = svg.LEFT, svg.WIDTH - svg.RIGHT
    places = [left + (at + 2) / 4 * (right - left) for at in (-1, 0, 1, 2)]
    assert drawn_leaps(figure) == pytest.approx(places, abs=0.06)
    assert [float(x) for x in re.findall(r'class="place v-jump" d="M([\d.]+) 236V249"', figure.svg)] == pytest.approx(places, abs=0.06)
    assert ("event v-jump", "the value leaps") in figure.key
    kinks = leaping(findings=(leap(1.0, "kink"), leap(1.0, "kink", "input 0"), leap(1.0, "region")))
    assert drawn_leaps(content.defects(kinks)[0], "kink") == pytest.approx(places[2:3], abs=0.06)
    assert not drawn_leaps(content.defects(kinks)[0])
    assert [key for key in content.defects(kinks)[0].key if "event" in key[0]] == [("event v-kink", figures.EVENTS["kink"])]
    assert len(drawn_leaps(content.defects(leaping(0.0, regions={}))[0])) == 1
    decades = dataclasses.replace(scanned(), findings=tuple(map(leap, (-1e-9, 0.5, 0.99, 1.0, 10.0, 1e5, 2e5))))
    assert drawn_leaps(content.defects(decades)[0]) == pytest.approx([left, left + (right - left) / 5, right], abs=0.06)
    along = curve("kappa", state="kappa = 0.25")
    beside = curve("kappa", state="a place near the inputs")
    shown = content.curves(leaping(0.5, 1.5, curves=(along, beside, curve(state="input 0 = 1"))))
    assert [len(drawn_leaps(each)) for each in shown] == [2, 0, 0]  # one line in each of two panels; t runs from -1 to 1
    assert [("event v-jump", "the value leaps") in each.key for each in shown] == [True, False, False]


def test_ends_of_regions_have_the_digits_that_are_known():
    """The grid knows an end to about a quarter of its spacing, where both verdicts are clear; an end that was located, or given, is exact."""
    ends = -4.0, -0.9921875, 0.0123456789, 4.0

    def told(spacing, *verdicts, **changes):
        count = round(8 / spacing)
        states = tuple(state(i, "coherent", -4 + (i + 0.5) * spacing, argument="x") for i in range(count))
        regions = tuple(Region(*pair, verdict, 0.1, 0.2, 1e-12) for pair, verdict in zip(itertools.pairwise(ends), verdicts, strict=True))
        return report(**{"findings": (), "states": states, "regions": {"x": regions}} | changes)

    rough = told(0.125, "incoherent", "coherent", "incoherent")
    assert content.ends(rough, "x") == [("−4", "about −0.99"), ("about −0.99", "about 0.01"), ("about 0.01", "4")]
    assert content.ends(told(0.125, "incoherent", "unresolved", "incoherent"), "x")[1] == ("about −1", "about 0")
    assert content.ends(told(1 / 1024, "incoherent", "coherent", "incoherent"), "x")[1] == ("about −0.9922", "about 0.0123")
    exact = told(0.125, "incoherent", "coherent", "incoherent", findings=(leap(ends[1], "region", "x"), leap(ends[2], where="y")))
    assert content.ends(exact, "x")[1] == ("−0.992188", "about 0.01")
    ends = 0.0, 0.5012345, 0.5023456, 4.0
    narrow = content.ends(told(0.5, "coherent", "incoherent", "coherent"), "x")[1]
    assert narrow == ("about 0.5012", "about 0.5023"), "a narrow region is not rounded away"
    assert content.where(rough)[0] == "x from −4 to about −0.99 and about 0.01 to 4"
    page = Page(render(rough))
    assert "−0.992188" not in page.text
    assert page.text.count("about −0.99") == 1 + 2 + 2  # in the head, in the table, in the strip
    assert content.ends(told(16.0, "coherent", "incoherent", "coherent"), "x")[1], "without a grid too"
    assert content.ends(rough, "another") == []


def test_what_is_not_finite_is_called_so():
    nowhere = EMPTY["nowhere finite"]
    page = Page(render(nowhere))
    assert not drawn(page)
    assert page.text.count("Not drawn") == 3
    assert "not finite (NaN or infinity) around these states" in page.text
    assert "too rough" not in page.text
    assert "0 show none" not in page.text
    some = dataclasses.replace(nowhere, states=(*nowhere.states, state(verdict="unresolved", limit=0.5)))
    page = Page(render(some))
    assert "too rough" in page.text
    assert len(drawn(page)) == 1


def test_a_limit_that_is_not_known_stands_at_the_top():
    for limit in (math.nan, math.inf):
        figure = figures.defect_figure(
            "", [figures.Mark(i, 0.0, 0.0, x, "unresolved", False, "") for i, x in enumerate((limit, 1e-9, 1e-3))], "x"
        )
        assert next(float(y) for y in re.findall(r'class="limit v-unresolved" d="M[\d.]+ ([\d.]+)h', figure.svg)) == 28


def test_bars_have_an_axis_and_an_end():
    def length(bar):
        rail, fill = (float(x) for x in re.findall(r'class="(?:rail|fill)" x="0" y="2" width="([\d.]+)"', bar))
        return fill / rail

    def ticks(bar):
        return {words: float(x) / 200 for x, words in re.findall(r'<text x="([\d.]+)"[^>]*>([^<]*)<', bar)}

    assert [length(svg.share_bar(share)) for share in (0.0, 0.4, 1.0, 3.5, math.inf, math.nan)] == pytest.approx([0, 0.4, 1, 1, 1, 0])
    assert ["beyond" in svg.share_bar(share) for share in (0.4, 1.0, 1.001, 3.5)] == [False, False, True, True]
    assert ticks(svg.share_bar(0.4)) == {"0": 0, "50\u00a0%": 0.5, "100\u00a0%": 1}
    assert re.search(r'class="whisker" d="M20\.0 5H200\.0', svg.share_bar(0.4, 0.1, 1.7))
    assert ticks(svg.defect_bar(1e-3)) == pytest.approx({"10⁻¹²": 0, "10⁻⁸": 1 / 3, "10⁻⁴": 2 / 3, "1": 1}, abs=1e-3)
    for power, share in ((-20, 0), (-12, 0), (-8, 1 / 3), (-4, 2 / 3), (-1, 11 / 12), (0, 1), (3, 1)):
        assert length(svg.defect_bar(10.0**power)) == pytest.approx(share, abs=1e-3)
    assert length(svg.defect_bar(0.0)) == 0


def test_shares_that_overlap_are_explained():
    page = Page(render(run(node("First", contribution=12.5), node("Second", contribution=0.9), node("Third", contribution=None))))
    assert "can exceed 100 % where parts cancel" in page.text
    assert "1,250 %" in page.text
    assert "through it: not in the step kept, or not known" in page.text
    assert len(page.all("path", **{"class": "beyond"})) == 1


def test_tables_begin_with_the_gravest():
    states = (state(relative=1e-5), state(verdict="coherent", limit=1e-9), state(relative=1e-2), state(verdict="coherent", limit=1e-3))
    assert content.gravest(states) == [states[2], states[0], states[3], states[1]]


def test_there_is_one_minus():
    at = [-0.5, 0.25, 0.75]
    states = tuple(state(i, at=x, state=f"kappa = {x}", argument="kappa") for i, x in enumerate(at))
    alarm = dataclasses.replace(ALARM, text="the supplied gradient is off by 0.001 at kappa = -0.5")
    curves = (curve("kappa", state="kappa = -0.5"), curve(state="kappa = -0.5"), curve(state="sweep 0 of the domain, t = -0.5"))
    page = Page(
        render(report(findings=(alarm,), states=states, curves=curves, regions={"kappa": (Region(-1.0, 1.0, "incoherent", 1, 1, 0),)}))
    )
    shown = "".join(page.words).split("How to make it again")[0]
    assert not re.search(r"(?<!\w)-\d| = ", shown)
    assert shown.count("kappa\u00a0=\u00a0−0.5") == 1 + 1 + 1 + 1 + 1  # head, finding, curve, mark, table


def test_a_curve_tells_whether_it_leaves_its_band():
    assert "leaves it" in figures.curve_figure(curve(), False).caption
    assert "too thin" in figures.curve_figure(curve(), False).caption
    assert "stays in it" in figures.curve_figure(curve(off=0.0), False).caption
    assert "random combination" in figures.curve_figure(curve(), False).caption
    wide = figures.curve_figure(curve(off=1e-3, allowance=1e-3), False)
    band = re.search(r'class="band" x="[\d.]+" y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', wide.svg)
    dots = [float(y) for y in re.findall(r'class="difference dot" cx="[\d.]+" cy="([\d.]+)"', wide.svg)]
    assert float(band[1]) == pytest.approx(min(dots), abs=0.11)  # the residual reaches the edge of its band, and not further
    assert float(band[1]) + float(band[2]) == pytest.approx(max(dots), abs=0.11)


def test_a_small_difference_of_fields_is_magnified():
    plain, small = figures.picture_figure(picture(gap=0.5)), figures.picture_figure(picture(gap=3e-6))
    assert 'class="arrow work"' in plain.svg
    assert 'class="arrow difference"' not in plain.svg
    assert 'class="arrow difference"' in small.svg
    assert ("arrow difference", "supplied less consistent, 200,000 times larger") in small.key  # 4 sqrt(2) / (4 * 3e-6) = 471,000
    same = figures.picture_figure(picture(gap=0.0))
    assert "arrow difference" not in same.svg


def test_arrows_point_downhill():
    """At the left of a bowl downhill is to the right, above it down, on the screen."""
    paths = re.findall(r'class="arrow value" d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)', figures.picture_figure(picture(gap=0.5)).svg)
    assert len(paths) == 9 * 9 - 1
    x, y, to_x, to_y = (float(part) for part in paths[0])  # (-4, -4): left, below
    assert to_x > x
    assert to_y < y
