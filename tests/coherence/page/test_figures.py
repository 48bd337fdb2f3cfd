"""The figures on the page of a report, read back from the page: marks, axes and numbers stand where they belong."""

import dataclasses
import itertools
import math
import random
import re

import pytest

from pairgrad.coherence import Region
from tests.coherence.page.reading import cards_of, drawn, drawn_leaps, fact, figure_of, figures_of, page_of, plain, rows_of, text_of
from tests.coherence.page.reports import ALARM, EMPTY, curve, leap, leaping, node, picture, report, run, scanned, state


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
    (row,) = rows_of(report(states=(state(by_differences=value),)), "Gravest first")
    assert row[5] == words


def test_numbers_in_sentences():
    told = {
        "off by 8e-09 (± 1e+10), at 0.5": "off by 8 × 10⁻⁹ (± 1 × 10¹⁰), at 0.5",
        "x = -0.5 (± 2e-9), t = -3.7e-09, from -2 to -1": "x = −0.5 (± 2 × 10⁻⁹), t = −3.7 × 10⁻⁹, from −2 to −1",
    } | {name: name for name in ("in file1e-3.py", "in v2.1e-4beta", "in a1e-05", "in file-3.py", "in a/-3", "in 2-1", "in -3x")}
    made = report(findings=tuple(dataclasses.replace(ALARM, text=text) for text in told))
    assert [text for _, _, text in cards_of(made)] == [f"input 0: {words}" for words in told.values()]


def said(words):
    """A number as it is printed."""
    raised = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-")
    return float(words.translate(raised).replace(",", ""))


def test_ticks_stand_where_they_say():
    """Over a hundred ranges of every size: a label, times the power and plus what the axis leaves out, is the value drawn at that height."""
    rng, ranges = random.Random(0), []
    for _ in range(100):
        low = rng.choice([0.0, rng.uniform(-1, 1)]) * 10 ** rng.uniform(-12, 12)
        ranges.append((low, low + 10 ** rng.uniform(-6, 3) * (abs(low) or 10 ** rng.uniform(-12, 12))))
    made = report(curves=tuple(curve(value=(low, high), work=(low, high), t=(0.0, 1.0)) for low, high in ranges), states=(), picture=None)
    for figure, (low, high) in zip(figures_of(made), ranges, strict=True):
        name = plain(re.search(r'class="name"[^>]*>(change of the value[^<]*)<', figure.svg)[1])
        less = re.search(r" less (\S+)", name)
        offset, exponent = said(less[1]) if less else 0.0, re.search(r"\(× 10(\S+)\)", name)
        unit = 10.0 ** said(exponent[1]) if exponent else 1.0
        bottom, top = (float(y) for y in re.search(r'class="value" d="M[\d.]+ ([\d.]+)L[\d.]+ ([\d.]+)"', figure.svg).groups())
        ticks = [(float(y) - 4, words) for y, words in re.findall(r'<text x="56" y="([\d.]+)" text-anchor="end">([^<]*)<', figure.svg)]
        ticks = [(y, words) for y, words in ticks if y < 191]  # of the upper panel
        assert 2 <= len(ticks) <= 14, (low, high, ticks)
        assert len({words for _, words in ticks}) == len(ticks)
        for y, words in ticks:
            value = low + (high - low) * (bottom - y) / (bottom - top)
            assert said(words) * unit + offset == pytest.approx(value, abs=2e-3 * (high - low)), (low, high, words)


def test_ticks_of_a_logarithmic_axis_stand_where_they_say():
    marks = report(states=tuple(state(at=float(i), relative=10.0**-i, error=0.0, limit=1e-12, argument="kappa") for i in range(1, 11)))
    figure = figure_of(marks, "Over kappa")
    dots = [float(y) for y in re.findall(r'<circle class="dot[^>]*cy="([\d.]+)"', figure.svg)]
    ticks = {words: float(y) - 4 for y, words in re.findall(r'<text x="56" y="([\d.]+)" text-anchor="end">([^<]*)<', figure.svg)}
    shared = {words: y for words, y in ticks.items() if -10 <= said(words.removeprefix("10")) <= -1}
    assert len(shared) >= 3
    for words, y in shared.items():
        assert y == pytest.approx(dots[int(-said(words.removeprefix("10"))) - 1], abs=0.11)


def test_marks_stand_where_they_belong():
    """A thousand times the defect is three decades higher; regions meet where they meet; decades make a logarithmic axis."""
    figure = figure_of(scanned(), "Over kappa")
    strips = [tuple(map(float, m)) for m in re.findall(r'class="strip v-\w+" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', figure.svg)]
    left, right = figure.ends
    assert strips[0][0] == left
    assert strips[1][0] == pytest.approx(left + 3 / 5 * (right - left), abs=0.06)  # a tenth of a unit is what is written
    assert sum(strips[1]) == pytest.approx(right - 1, abs=0.11)
    assert figure.svg.count("<circle") == sum(s.verdict == "incoherent" for s in scanned().states)
    pair = (state(at=1.0, relative=1e-6, error=0.0, limit=1e-7), state(at=2.0, relative=1e-3, error=5e-4, limit=1e-7))
    figure = figure_of(report(states=pair), "Over input 0")
    low, high = (float(y) for y in re.findall(r'cy="([\d.]+)"', figure.svg))
    grid = [float(y) for y in re.findall(r'class="grid" d="M62\.0 ([\d.]+)H', figure.svg)]  # one line per decade
    assert low - high == pytest.approx(3 * (grid[0] - grid[1]), abs=0.3)
    top, bottom = re.findall(r'class="bar v-incoherent" d="M[\d.]+ ([\d.]+)V([\d.]+)', figure.svg)[1]
    assert float(bottom) - high == pytest.approx(math.log10(2) * (grid[0] - grid[1]), abs=0.2)
    assert high - float(top) == pytest.approx(math.log10(1.5) * (grid[0] - grid[1]), abs=0.2)


def test_leaps_are_drawn():
    """A line through the figure and a mark on the strip at each, on sweeps too; none where the place is not known, or in a figure of another argument."""
    figure = figure_of(leaping(-1.0, 0.0, 1.0, 2.000000001, None, 2.5), "Over kappa")
    left, right = figure.ends
    places = [left + (at + 2) / 4 * (right - left) for at in (-1, 0, 1, 2)]
    assert drawn_leaps(figure) == pytest.approx(places, abs=0.06)
    assert [float(x) for x in re.findall(r'class="place v-jump" d="M([\d.]+) 236V249"', figure.svg)] == pytest.approx(places, abs=0.06)
    assert ("event v-jump", "the value leaps") in figure.key
    kinks = figure_of(leaping(findings=(leap(1.0, "kink"), leap(1.0, "kink", "input 0"), leap(1.0, "region"))), "Over kappa")
    assert drawn_leaps(kinks, "kink") == pytest.approx(places[2:3], abs=0.06)
    assert not drawn_leaps(kinks)
    assert [key for key in kinks.key if "event" in key[0]] == [("event v-kink", "the gradient leaps, the value does not")]
    assert len(drawn_leaps(figure_of(leaping(0.0, regions={}), "Over kappa"))) == 1
    decades = figure_of(dataclasses.replace(scanned(), findings=tuple(map(leap, (-1e-9, 0.5, 0.99, 1.0, 10.0, 1e5, 2e5)))), "Over kappa")
    assert drawn_leaps(decades) == pytest.approx([left, left + (right - left) / 5, right], abs=0.06)
    along = curve("kappa", state="kappa = 0.25")
    beside = curve("kappa", state="a place near the inputs")
    shown = figures_of(leaping(0.5, 1.5, curves=(along, beside, curve(state="input 0 = 1"))))[:3]
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

    def shown(made):
        return [tuple(row[:2]) for row in rows_of(made, "Regions of x")]

    rough = told(0.125, "incoherent", "coherent", "incoherent")
    assert shown(rough) == [("−4", "about −0.99"), ("about −0.99", "about 0.01"), ("about 0.01", "4")]
    assert shown(told(0.125, "incoherent", "unresolved", "incoherent"))[1] == ("about −1", "about 0")
    assert shown(told(1 / 1024, "incoherent", "coherent", "incoherent"))[1] == ("about −0.9922", "about 0.0123")
    exact = told(0.125, "incoherent", "coherent", "incoherent", findings=(leap(ends[1], "region", "x"), leap(ends[2], where="y")))
    assert shown(exact)[1] == ("−0.992188", "about 0.01")
    ends = 0.0, 0.5012345, 0.5023456, 4.0
    narrow = shown(told(0.5, "coherent", "incoherent", "coherent"))[1]
    assert narrow == ("about 0.5012", "about 0.5023"), "a narrow region is not rounded away"
    assert fact(rough, "Where")[0] == "x from −4 to about −0.99 and about 0.01 to 4"
    text = page_of(rough).text
    assert "−0.992188" not in text
    assert text.count("about −0.99") == 1 + 2 + 2  # in the head, in the table, in the strip
    assert len(shown(told(8.0, "coherent", "incoherent", "coherent", states=(state(),)))) == 3, "without a grid too"


def test_what_is_not_finite_is_called_so():
    nowhere = EMPTY["nowhere finite"]
    page = page_of(nowhere)
    assert not drawn(page)
    assert page.text.count("Not drawn") == 3
    assert "not finite (NaN or infinity) around these states" in page.text
    assert "too rough" not in page.text
    assert "0 show none" not in page.text
    page = page_of(dataclasses.replace(nowhere, states=(*nowhere.states, state(verdict="unresolved", limit=0.5))))
    assert "too rough" in page.text
    assert len(drawn(page)) == 1


@pytest.mark.parametrize("limit", [math.nan, math.inf])
def test_a_limit_that_is_not_known_stands_at_the_top(limit):
    states = tuple(state(verdict="unresolved", limit=x, relative=0.0) for x in (limit, 1e-9, 1e-3))
    figure = figure_of(report(states=states), "Directions through single states")
    heights = [float(y) for y in re.findall(r'class="limit v-unresolved" d="M[\d.]+ ([\d.]+)h', figure.svg)]
    top = min(float(y) for y in re.findall(r'class="grid" d="M[\d.]+ ([\d.]+)V', figure.svg))
    assert heights[0] == top < heights[2] < heights[1]


def bars_of(made):
    """The bars of each node of a run: what goes through it, its defect, and its share of bad states."""
    blocks = text_of(made).split('<details class="node">')[1:]
    return [re.findall(r'<svg class="small".*?</svg>', block, re.S) for block in blocks]


def length(bar):
    rail, fill = (float(x) for x in re.findall(r'class="(?:rail|fill)" x="0" y="2" width="([\d.]+)"', bar))
    return fill / rail


def ticks(bar):
    return {plain(words): float(x) / 200 for x, words in re.findall(r'<text x="([\d.]+)"[^>]*>([^<]*)<', bar)}


def test_bars_of_shares_have_an_axis_and_an_end():
    shares = (0.0, 0.4, 1.0, 1.001, 3.5, math.inf)
    bars = [bars[0] for bars in bars_of(run(*(node(f"Node{i}", contribution=share) for i, share in enumerate(shares))))]
    assert [length(bar) for bar in bars] == pytest.approx([0, 0.4, 1, 1, 1, 1])
    assert ["beyond" in bar for bar in bars] == [False, False, False, True, True, True]
    assert ticks(bars[1]) == {"0": 0, "50 %": 0.5, "100 %": 1}
    ((*_, bad),) = bars_of(run(node(share=0.4, share_low=0.1, share_high=1.0)))
    assert length(bad) == pytest.approx(0.4)
    assert re.search(r'class="whisker" d="M20\.0 5H200\.0', bad)


def test_bars_of_defects_have_an_axis_and_an_end():
    powers = {-20: 0, -12: 0, -8: 1 / 3, -4: 2 / 3, -1: 11 / 12, 0: 1, 3: 1}
    bars = [bars[1] for bars in bars_of(run(*(node(f"Node{power}", defect=10.0**power) for power in powers)))]
    assert [length(bar) for bar in bars] == pytest.approx(list(powers.values()), abs=1e-3)
    assert ticks(bars[0]) == pytest.approx({"10⁻¹²": 0, "10⁻⁸": 1 / 3, "10⁻⁴": 2 / 3, "1": 1}, abs=1e-3)
    assert length(bars_of(run(node(defect=0.0)))[0][1]) == 0


def test_shares_that_overlap_are_explained():
    page = page_of(run(node("First", contribution=12.5), node("Second", contribution=0.9), node("Third", contribution=None)))
    assert "can exceed 100 % where parts cancel" in page.text
    assert "1,250 %" in page.text
    assert "through it: not in the step kept, or not known" in page.text
    assert len(page.all("path", **{"class": "beyond"})) == 1


def test_tables_begin_with_the_gravest():
    states = (state(relative=1e-5), state(verdict="coherent", limit=1e-9), state(relative=1e-2), state(verdict="coherent", limit=1e-3))
    rows = rows_of(report(states=states), "Gravest first")
    assert [(row[3], row[6]) for row in rows] == [
        ("0.01", "1 × 10⁻¹²"),
        ("1 × 10⁻⁵", "1 × 10⁻¹²"),
        ("0.001", "0.001"),
        ("0.001", "1 × 10⁻⁹"),
    ]


def test_there_is_one_minus():
    at = [-0.5, 0.25, 0.75]
    states = tuple(state(i, at=x, state=f"kappa = {x}", argument="kappa") for i, x in enumerate(at))
    alarm = dataclasses.replace(ALARM, text="the supplied gradient is off by 0.001 at kappa = -0.5")
    curves = (curve("kappa", state="kappa = -0.5"), curve(state="kappa = -0.5"), curve(state="sweep 0 of the domain, t = -0.5"))
    made = report(findings=(alarm,), states=states, curves=curves, regions={"kappa": (Region(-1.0, 1.0, "incoherent", 1, 1, 0),)})
    shown = "".join(page_of(made).words).split("How to make it again")[0]
    assert not re.search(r"(?<!\w)-\d| = ", shown)
    assert shown.count("kappa\u00a0=\u00a0−0.5") == 1 + 1 + 1 + 1 + 1  # head, finding, curve, mark, table


def test_a_curve_tells_whether_it_leaves_its_band():
    drifting, flat, wide = figures_of(report(curves=(curve(), curve(off=0.0), curve(off=1e-3, allowance=1e-3)), states=()))[:3]
    assert "leaves it" in drifting.caption
    assert "too thin" in drifting.caption
    assert "stays in it" in flat.caption
    assert "random combination" in drifting.caption
    band = re.search(r'class="band" x="[\d.]+" y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', wide.svg)
    dots = [float(y) for y in re.findall(r'class="difference dot" cx="[\d.]+" cy="([\d.]+)"', wide.svg)]
    assert float(band[1]) == pytest.approx(min(dots), abs=0.11)  # the residual reaches the edge of its band, and not further
    assert float(band[1]) + float(band[2]) == pytest.approx(max(dots), abs=0.11)


def pictured(gap):
    return figure_of(report(picture=picture(gap=gap)), "The update on a plane")


def test_a_small_difference_of_fields_is_magnified():
    plain_one, small = pictured(0.5), pictured(3e-6)
    assert 'class="arrow work"' in plain_one.svg
    assert 'class="arrow difference"' not in plain_one.svg
    assert 'class="arrow difference"' in small.svg
    assert ("arrow difference", "supplied less consistent, 200,000 times larger") in small.key  # 4 sqrt(2) / (4 * 3e-6) = 471,000
    assert "arrow difference" not in pictured(0.0).svg


def test_arrows_point_downhill():
    """At the left of a bowl downhill is to the right, above it down, on the screen."""
    paths = re.findall(r'class="arrow value" d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)', pictured(0.5).svg)
    assert len(paths) == 9 * 9 - 1
    x, y, to_x, to_y = (float(part) for part in paths[0])  # (-4, -4): left, below
    assert to_x > x
    assert to_y < y
