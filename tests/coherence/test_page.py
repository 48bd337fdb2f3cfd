"""The page of a report: one file that needs nothing, says what the report says, runs nothing that is in it, and works in a browser."""

import dataclasses
import itertools
import json
import math
import random
import re
import sys
import time
from html.parser import HTMLParser

import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import Curve, FieldPicture, Finding, Region, Report, StateDefect, Verdict
from pairgrad.coherence.page import LARGEST, content, figures, render, svg
from pairgrad.coherence.run import NodeReport, NodeState, RunReport, interval
from pairgrad.coherence.verdict import MEANING
from tests.coherence.browser import NAMES, Browser, found

NASTY = '<img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>\'"&{{ 7*7 }}'
MEGABYTE = 1_000_000
PHONE = 360


# Reports made by hand -------------------------------------------------------------------------------------------------


def state(i=0, verdict="incoherent", at=None, order=1, **changes):
    given = {
        "state": "the inputs",
        "argument": "input 0",
        "relative": 1e-3,
        "error": 1e-9,
        "by_differences": 1e-3,
        "limit": 1e-12,
        "absolute": 0.1,
    }
    return StateDefect(**given | {"verdict": verdict, "order": order, "at": at} | changes)


def curve(name="input 0", off=1e-3, **changes):
    t = [i / 8 - 1 for i in range(17)]
    given = {"state": "the inputs", "argument": name, "verdict": "incoherent", "allowance": 1e-12}
    return Curve(**given | {"t": tuple(t), "value": tuple(t), "work": tuple((1 + off) * x for x in t)} | changes)


def picture(size=9, gap=0.5, bad=()):
    ticks = tuple(i - size // 2 for i in range(size))
    field = [[(float(x), float(y)) for x in ticks] for y in ticks]
    for i, j in bad:
        field[i][j] = (math.nan, math.nan)
    value = tuple(tuple(a * a + b * b for a, b in row) for row in field)
    supplied = tuple(tuple((a, b + gap * a) for a, b in row) for row in field)
    return FieldPicture(("along the gradient", "across it"), ticks, ticks, value, supplied, tuple(map(tuple, field)))


ALARM = Finding("defect", "alarm", "the supplied gradient is off by 0.001 (± 8e-09)", "input 0", {"relative": 1e-3, "lines": 4})
NODE = Finding("node", "warning", "incoherent alone", "Square (a.py:3)", {"relative": 1e-3, "verdict": "incoherent", "location": "a.py:3"})


def report(**changes):
    given = {
        "name": "Square.apply",
        "verdict": Verdict.INCOHERENT,
        "passed": False,
        "intent": None,
        "limit": 1e-12,
        "typical_limit": 1e-12,
        "defect": 1e-3,
        "defect_error": 8e-9,
        "findings": (ALARM, NODE),
        "states": tuple(state(i) for i in range(4)) + tuple(state(i, "coherent", order=2) for i in range(2)),
        "curves": (curve(), curve("input 1", 0.0, verdict="coherent")),
        "picture": picture(),
        "evaluations": 1234,
        "tests": 99,
    }
    return Report(**given | changes)


def scanned(count=64):
    """Off above 1e3, over five decades."""
    ends = [10 ** (5 * (i + 0.5) / count) for i in range(count)]
    states = tuple(
        state(i, "incoherent" if at > 1e3 else "coherent", at, state=f"kappa = {at:.6g}", argument="kappa") for i, at in enumerate(ends)
    )
    regions = (Region(1.0, 1e3, "coherent", 0.0, 0.0, 1e-12), Region(1e3, 1e5, "incoherent", 1e-5, 1e-3, 1e-12))
    return report(states=states, regions={"kappa": regions})


def leap(at=None, kind="jump", where="kappa", width=1e-9, **changes):
    text = f"the value leaps by 0.375 at {'the inputs' if at is None else f'{at:.10g} (± {width:.1g})'}"
    numbers = {"size": 0.375} | ({} if at is None else {"at": at, "width": width})
    return Finding(**{"kind": kind, "severity": "warning", "text": text, "where": where, "numbers": numbers} | changes)


def leaping(*places, **changes):
    """Coherent from -2 to 2, with leaps."""
    states = tuple(state(i, "coherent", -1.75 + i / 2, state=f"kappa = {-1.75 + i / 2}", argument="kappa") for i in range(8))
    given = {"verdict": Verdict.JUMP, "defect": 0.0, "findings": tuple(map(leap, places)), "states": states, "picture": None}
    return report(**given | {"regions": {"kappa": (Region(-2.0, 2.0, "coherent", 0.0, 0.0, 1e-12),)}} | changes)


def node(name="Square", failed=3, looked=8, visits=100, worst=None, **changes):
    low, high = interval(failed, looked, visits)
    states = tuple(
        NodeState(10 * i, "incoherent" if i < failed else "coherent", i >= failed, 1e-4, 1e-9, 1e-12, "x: (3,)") for i in range(looked)
    )
    given = {
        "name": name,
        "location": "a.py:3",
        "verdict": Verdict.INCOHERENT if failed else Verdict.COHERENT,
        "passed": failed == 0,
        "intent": None,
    }
    given |= {"visits": visits, "looked": looked, "failed": failed, "share": failed / max(looked, 1), "share_low": low, "share_high": high}
    given |= {"defect": 1e-4 if failed else 0.0, "defect_error": 1e-9, "contribution": 0.4, "states": states, "worst": worst or report()}
    return NodeReport(**given | changes)


def run(*nodes, **changes):
    nodes = nodes or (node("First"), node("Second", 0), node("Third", 0, 0, 5, contribution=None, states=(), note="not kept"))
    given = {
        "verdict": Verdict.INCOHERENT,
        "passed": False,
        "nodes": nodes,
        "loss": report(name="loss"),
        "loss_note": "at step 3",
        "backwards": 100,
    }
    return RunReport(**given | {"notes": ("two were not seen",), "seconds": 1.5} | changes)


REPORTS = {
    "incoherent": report(),
    "coherent": report(verdict=Verdict.COHERENT, passed=True, defect=0.0, findings=(), picture=None),
    "scanned": scanned(),
    "leaping": leaping(-1.0, -7e-9, 1.000000001, 1.999999999, None),
    "one number": report(
        picture=FieldPicture(("x", ""), (1.0, 2.0, 3.0), (0.0,), ((1.0, 4.0, 9.0),), (((2.1, 0.0),) * 3,), (((2.0, 0.0),) * 3,))
    ),
    "run": run(),
}
EMPTY = {
    "nothing": report(findings=(), states=(), curves=(), picture=None, defect=0.0, limit=math.inf, typical_limit=math.inf),
    "stopped": report(complete=False, verdict=Verdict.INCONCLUSIVE, defect=0.0, picture=None),
    "infinite": report(states=(state(limit=math.inf, error=math.inf), state(verdict="unresolved", limit=math.inf)), limit=math.inf),
    "not a number": report(
        states=tuple(state(v, limit=math.nan, relative=math.nan, error=math.nan) for v in ("coherent", "incoherent")),
        curves=(curve(value=(math.nan,) * 17),),
        picture=picture(bad=[(0, 0), (4, 4)]),
        defect=math.nan,
    ),
    "huge and tiny": report(
        curves=(curve(value=(1e308, -1e308) * 8 + (0.0,)), curve(value=(5e-324,) * 17, work=(0.0,) * 17), curve(t=(0.5,) * 17)),
        states=(state(relative=5e-324, limit=0.0), state(relative=1e308)),
        picture=picture(gap=1e-300),
    ),
    "nowhere finite": report(
        verdict=Verdict.INCONCLUSIVE,
        defect=0.0,
        limit=math.inf,
        findings=(),
        states=tuple(state(i, "outside", relative=0.0, error=math.inf, limit=math.inf) for i in range(4)),
        curves=(curve(value=(math.nan,) * 17),),
        picture=picture(bad=list(itertools.product(range(9), repeat=2))),
    ),
    "one state": report(states=(state(),), curves=(curve(t=(0.0,), value=(0.0,), work=(0.0,)),)),
    "empty run": run(node(), nodes=(), loss=None, loss_note="", notes=()),
    "nothing looked at": run(node("Third", 0, 0, 5, states=(), worst=None, contribution=None)),
}


# Structure ------------------------------------------------------------------------------------------------------------

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Reads a page and insists that every element is closed in its turn."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.words, self.raw = [], [], [], {}
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"an attribute is given twice: {tag} {attrs}"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"closed but not open: {tag}"
        assert self.open.pop() == tag, f"{tag} is closed inside another"

    def handle_data(self, data):
        if self.open and self.open[-1] in ("script", "style"):
            self.raw.setdefault(self.open[-1], []).append(data)
        else:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def all(self, tag, **wanted):
        return [
            attrs for name, attrs in self.elements if name == tag and all(attrs.get(k.replace("_", "-")) == v for k, v in wanted.items())
        ]


def drawn(page):
    return page.all("svg", role="img")


@pytest.mark.parametrize("name", [*REPORTS, *EMPTY])
def test_the_page_is_well_formed_and_needs_nothing(name):
    text = render((REPORTS | EMPTY)[name])
    page = Page(text)
    assert text.startswith("<!doctype html>")
    assert [len(page.all(tag)) for tag in ("html", "head", "body", "h1", "main")] == [1] * 5
    for tag, attrs in page.elements:
        assert tag not in ("img", "iframe", "object", "embed", "base", "form")
        assert not [key for key in attrs if key.startswith("on")], attrs
        assert not [
            value
            for key, value in attrs.items()
            if key in ("src", "href", "action", "data") and not (value or "").startswith(("#", "data:,"))
        ]
    assert not re.search(r"url\(|@import|https?:|//[a-z]", "".join(page.raw["style"]))
    assert "default-src 'none'" in page.all("meta", http_equiv="Content-Security-Policy")[0]["content"]
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert all(attrs["aria-labelledby"] in ids for _, attrs in page.elements if "aria-labelledby" in attrs)
    assert not re.search(r'="[^"]*\b(nan|inf)\b[^"]*"', "".join(re.findall(r"<svg.*?</svg>", text, re.S))), "a coordinate that is no number"
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels
    assert json.loads(page.raw["script"][0]) == (REPORTS | EMPTY)[name].to_dict()


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_its_page(verdict):
    page = Page(render(report(verdict=verdict, passed=verdict in ("coherent", "kink"))))
    assert verdict.value in page.text
    assert content.sentence(MEANING[verdict]) in page.text
    assert ("The audit passes" in page.text) == (verdict in ("coherent", "kink"))
    style = "".join(page.raw["style"])
    assert re.search(rf"\.v-{verdict.value}[ ,]", style)


def test_the_head_says_what_where_and_how_large():
    text = Page(render(report(seed=7, effort="thorough", dtype="float32", seconds=2.5))).text
    for words in (
        "0.001 of the gradient",
        "± 8\u00a0×\u00a010⁻⁹",
        "input 0",
        "Square (a.py:3)",
        "float32",
        "thorough",
        "1,234",
        "2.5 s",
        torch.__version__,
    ):
        assert " ".join(words.split()) in text, words
    assert "input 0" in content.where(report())[0]
    assert content.where(scanned())[0] == "kappa from about 1,000 to 100,000"
    assert content.size(REPORTS["coherent"])[0].startswith("none above 1\u00a0×\u00a010⁻¹²")
    assert content.size(EMPTY["nothing"]) == ("not measured", "no line could tell")
    assert content.looked(report()) == ("6 lines through states", "4 show a defect and 2 show none")
    assert "stopped before its end" in Page(render(EMPTY["stopped"])).text
    assert "declared as straight-through" in Page(render(report(intent="straight-through", passed=True))).text


def test_findings_say_causes_and_remedies():
    page = Page(render(report()))
    for words in (*ALARM.causes, ALARM.remedy):
        assert content.sentence(words) in page.text
    assert len(page.all("details", **{"class": "finding alarm"})) == 1
    many = Page(render(report(findings=(ALARM,) * (content.FINDINGS + 5))))
    assert "And 5 more" in many.text
    assert len(many.all("details", **{"class": "finding alarm"})) == content.FINDINGS


def test_leaps_of_one_argument_are_told_together():
    made = leaping(-1.0, -7e-9, 1.000000001, 1.999999999, None)
    several = [card.text for card in content.cards(made)]
    assert several == ["5 leaps, at −1, 0, 1 and 2, and at the inputs"]
    assert content.where(made) == ("kappa: 5 leaps, at −1, 0, 1 and 2, and at the inputs", "")
    page = Page(render(made))
    assert len(page.all("details", **{"class": "finding warning"})) == 1
    for finding in made.findings:
        assert " ".join(content.sentence(svg.prettily(finding.text)).split()) in page.text
    others = (leap(0.5, where="all inputs of the domain"), leap(-0.5, where="all inputs of the domain"), leap(0.0, "kink"), ALARM, ALARM)
    mixed = dataclasses.replace(made, findings=(*made.findings, *others))
    assert [(card.first.kind, len(card.findings)) for card in content.cards(mixed)] == [
        ("jump", 5),
        ("jump", 2),
        ("kink", 1),
        *[("defect", 1)] * 2,
    ]
    assert content.cards(mixed)[1].text.replace("\u00a0", " ") == "2 leaps, on sweeps, at t = −0.5 and 0.5"
    assert content.where(mixed)[0] == "input 0", "an alarm comes first"


def test_figures_are_there():
    """Two curves, first and second order, and the field; a scan has its own; a run those of its nodes and of its loss."""
    assert len(drawn(Page(render(report())))) == 2 + 2 + 1
    assert len(drawn(Page(render(scanned())))) == 2 + 1 + 1
    assert len(drawn(Page(render(REPORTS["coherent"])))) == 2 + 2
    assert len(drawn(Page(render(run())))) == (1 + 2 + 1) + (1 + 2 + 1) + (0 + 2 + 1) + (2 + 1 + 2)
    assert all(attrs["aria-label"] for attrs in drawn(Page(render(report()))))


def test_nothing_in_a_report_is_markup():
    bad = Finding(NASTY, "alarm", NASTY, NASTY, {NASTY: NASTY, "relative": 0.1, "list": [NASTY]})
    nasty = report(
        name=NASTY,
        intent=NASTY,
        findings=(bad, dataclasses.replace(bad, kind="node")),
        states=(
            *(state(i, state=NASTY, argument=f"{NASTY}{i % 2}") for i in range(4)),
            *(state(argument=NASTY, at=at, verdict=verdict) for at, verdict in ((1.0, "coherent"), (2.0, NASTY))),
        ),
        regions={NASTY: (Region(0.0, 3.0, "coherent", 0, 0, 1e-12),)},
        curves=(curve(NASTY, state=NASTY), curve(NASTY)),
        picture=dataclasses.replace(picture(), axes=(NASTY, NASTY)),
        dtype=NASTY,
        effort=NASTY,
    )
    both = run(node(NASTY, location=NASTY, worst=nasty, note=NASTY, intent=NASTY), loss=nasty, loss_note=NASTY, notes=(NASTY,))
    for made in (nasty, both):
        text = render(made)
        page = Page(text)
        assert not page.all("img")
        assert len(page.all("script")) == 2
        assert "<img" not in text
        assert "{{ 7*7 }}" in page.text
        assert json.loads(page.raw["script"][0]) == made.to_dict()
        assert re.fullmatch(r"[\w.-]+\.json", page.all("button", id="download")[0]["data-name"])
        assert "unsafe" not in page.all("meta", http_equiv="Content-Security-Policy")[0]["content"]


def test_a_missing_jinja2_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'pairgrad[html]'")):
        report().to_html(tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_to_html_writes_one_file(tmp_path):
    path = report().to_html(str(tmp_path / "new" / "page.html"))
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]
    assert path == tmp_path / "new" / "page.html"
    assert run().to_html(path) == path
    assert "A recorded run" in path.read_text(encoding="utf-8")


def test_the_snippet_is_python():
    for made in (report(name="f\n)(", intent="straight-through"), scanned(), run()):
        compile(content.snippet(made), "snippet", "exec")
    told = content.snippet(scanned())
    assert "domain={'kappa': (1.0, 100000.0)}" in told
    assert "seed=0" in told
    assert "effort='standard'" in told


# Figures --------------------------------------------------------------------------------------------------------------


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


def drawn_leaps(figure, kind="jump"):
    return [float(x) for x in re.findall(rf'class="event v-{kind}" d="M([\d.]+) ', figure.svg)]


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


def test_large_reports_stay_small_and_keep_the_gravest():
    rng = random.Random(1)
    states = tuple(
        state(
            i,
            "incoherent" if i % 7 == 0 else "coherent",
            float(i),
            state=f"kappa = {i}",
            argument="kappa",
            relative=10 ** rng.uniform(-9, -4),
        )
        for i in range(5000)
    )
    worst = dataclasses.replace(states[2100], relative=0.5)
    large = report(states=(*states[:2100], worst, *states[2101:]))
    started = time.perf_counter()
    text = render(large)
    assert time.perf_counter() - started < 20
    assert len(text) < 3 * MEGABYTE
    figure = content.defects(large)[0]
    assert f"{svg.pretty(0.5)} ±" in figure.svg
    assert "Of 5,000 readings" in figure.caption
    assert figure.svg.count("<title>") <= 2 * figures.MOST
    assert f"The {content.ROWS} gravest of 5,000" in Page(text).text
    many = run(*(node(f"Node{i}", worst=report(states=states[:60])) for i in range(200)))
    text = render(many)
    assert len(text) < 5 * MEGABYTE
    page = Page(text)
    worst = [each["worst"] for each in json.loads(page.raw["script"][0])["nodes"]]
    assert [bool(each["curves"] and each["picture"]) for each in worst] == [i < content.NODES for i in range(200)]
    assert "Node199" in page.text
    assert f"first {content.NODES} only" in page.text


def test_data_that_is_too_large_is_cut_and_says_so():
    states = (*tuple(state(i, "coherent", relative=1e-15) for i in range(LARGEST // 150)), state(relative=0.25))
    page = Page(render(report(states=states)))
    data = json.loads(page.raw["script"][0])
    assert len(data["states"]) == 100
    assert data["states"][0]["relative"] == 0.25
    assert "shortened" in data
    assert "lists are cut to the gravest" in page.text
    assert "lists are cut to the gravest" not in Page(render(report())).text


def test_a_real_audit_has_its_page(tmp_path):
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output * 3 * x.clamp(max=2) ** 2

    made = pg.audit(Cube.apply, domain=(1, 3), effort="quick")
    page = Page(made.to_html(tmp_path / "cube.html").read_text(encoding="utf-8"))
    assert "input 0 from about 2 to 3" in page.text
    assert len(drawn(page)) >= 3
    assert json.loads(page.raw["script"][0]) == made.to_dict()


def test_a_real_jump_has_its_page():
    """Every leap is 1; that of two outputs at once is one of their combination."""
    pair = pg.audit(
        lambda x: x.floor() + x, torch.tensor([0.3, 0.6], dtype=torch.float64), domain=(-2, 2), effort="quick", second_order=False
    )
    one = pg.audit(lambda x: x.floor() + x, torch.tensor(0.3, dtype=torch.float64), domain=(-2, 2), effort="quick", second_order=False)
    for made, words in ((pair, "a random combination of the outputs leaps by 0."), (one, "the value leaps by 1 at")):
        found = [finding for finding in made.findings if finding.kind == "jump" and finding.where == "input 0" and "at" in finding.numbers]
        assert {round(finding.numbers["at"]) for finding in found} >= {-1, 0, 1}
        assert all(finding.text.startswith(words) for finding in found), found
        assert len(drawn_leaps(content.defects(made)[0])) == len(found)
        assert any(", at −1, 0, 1" in card.text or ", at −2, −1, 0, 1" in card.text for card in content.cards(made))
        assert len(content.cards(made)) <= 2


def test_a_kink_has_its_page():
    made = pg.audit(torch.abs, torch.tensor([0.0, 1.0], dtype=torch.float64), domain=(-1, 1), effort="quick", second_order=False)
    middle = (svg.LEFT + svg.WIDTH - svg.RIGHT) / 2
    assert drawn_leaps(content.defects(made)[0], "kink") == pytest.approx([middle], abs=0.06)
    places = [finding.numbers.get("at") for finding in made.findings if finding.kind == "kink" and finding.where == "input 0"]
    assert None in places, "through the inputs: no place of the domain"


@pytest.mark.parametrize("x", [[math.nan, 1.0], [math.inf, 1.0], [-1.0, -2.0]])
def test_an_audit_of_what_is_not_finite_says_so(x):
    made = pg.audit(torch.log, torch.tensor(x, dtype=torch.float64), effort="quick")
    told = next(finding for finding in made.findings if finding.kind == "unresolved")
    assert "not finite here (NaN or infinity)" in told.text
    assert "inf of the gradient" not in str(made)
    assert "not finite (NaN or infinity)" in content.meaning(made)


# In a browser ---------------------------------------------------------------------------------------------------------

BROWSER = found()
in_browser = pytest.mark.skipif(BROWSER is None, reason=f"no browser to look at pages with: none of {', '.join(NAMES)} is on the path")
LONG = "a_function_with_a_very_long_name_" * 6
WIDE = report(
    name=LONG,
    findings=(dataclasses.replace(ALARM, where=f"{LONG}.weight", numbers={LONG: LONG}),),
    curves=(curve(f"{LONG}.weight"), curve(t=tuple(-13200.0 + 100 * i for i in range(17)))),
    regions=scanned().regions,
    states=scanned().states + report().states,
)


@pytest.fixture(scope="module")
def browser():
    with Browser(BROWSER) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    made = REPORTS | EMPTY | {"wide": WIDE, "nasty": report(name=NASTY, findings=(dataclasses.replace(ALARM, text=NASTY, where=NASTY),))}
    return {name: each.to_html(folder / f"{name}.html") for name, each in made.items()}


VISIBLE = "[...document.querySelectorAll('svg[role=img]')].filter(s => s.getBoundingClientRect().height > 50).length"
OVERLAPS = """(() => {
  const bad = [];
  for (const svg of document.querySelectorAll('svg[role=img]')) {
    const frame = svg.closest('figure').getBoundingClientRect();
    const boxes = [...svg.querySelectorAll('text')].filter(t => !t.getAttribute('transform')).map(t => [t.textContent, t.getBoundingClientRect()]);
    boxes.forEach(([words, a], i) => {
      if (a.width && (a.left < frame.left || a.right > frame.right)) bad.push(words + ' is cut');
      for (const [other, b] of boxes.slice(i + 1))
        if (a.width && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)
          bad.push(words + ' is over ' + other);
    });
  }
  return bad;
})()"""


@in_browser
@pytest.mark.parametrize("name", [*REPORTS, *EMPTY, "wide"])
def test_pages_load_without_complaint(browser, pages, name):
    for dark in (False, True):
        browser.open(pages[name], dark=dark)
        assert browser.complaints == []
        assert browser.requests == [pages[name].as_uri()]
        assert browser.ask(OVERLAPS) == []
        if name in ("incoherent", "scanned", "coherent", "one number"):
            assert browser.ask(VISIBLE) >= 3
    assert browser.ask("getComputedStyle(document.documentElement).backgroundColor") == "rgb(20, 23, 27)"


@in_browser
@pytest.mark.parametrize("name", [*REPORTS, "wide", "not a number"])
def test_a_phone_scrolls_in_one_direction_only(browser, pages, name):
    browser.open(pages[name], width=PHONE, height=740)
    browser.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    browser.ask("document.querySelectorAll('.away').forEach(d => d.classList.remove('away'))")
    assert browser.ask("document.documentElement.scrollWidth") <= PHONE
    assert browser.ask(OVERLAPS) == []
    assert browser.ask("parseFloat(getComputedStyle(document.querySelector('svg[role=img] text')).fontSize) * 330 / 560") >= 8


@in_browser
def test_a_click_and_a_key_open_a_finding(browser, pages):
    browser.open(pages["incoherent"])
    opened = "document.querySelector('details.finding').open"
    height = "document.querySelector('.finding .inside').getBoundingClientRect().height"
    assert not browser.ask(opened)
    browser.click("details.finding summary")
    assert browser.ask(opened)
    assert browser.ask(height) > 50
    browser.ask("document.querySelector('details.finding summary').focus()")
    browser.press("Enter", 13)
    assert not browser.ask(opened)
    browser.open(pages["run"])
    browser.click("details.node summary")
    assert browser.ask("document.querySelector('details.node svg[role=img]').getBoundingClientRect().height") > 50


@in_browser
def test_one_curve_is_chosen(browser, pages):
    browser.open(pages["incoherent"])
    shown = "[...document.querySelectorAll('.choice')].map(c => c.getBoundingClientRect().height > 0)"
    assert browser.ask(shown) == [True, False]
    browser.click(".choices button:nth-child(2)")
    assert browser.ask(shown) == [False, True]
    assert browser.ask("[...document.querySelectorAll('.choices button')].map(b => b.getAttribute('aria-pressed'))") == ["false", "true"]


@in_browser
def test_light_and_dark_are_toggled(browser, pages):
    browser.open(pages["coherent"])
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    before = browser.ask(ground)
    browser.click("#theme")
    assert browser.ask(ground) != before
    browser.click("#theme")
    assert browser.ask(ground) == before


@in_browser
def test_pages_can_be_printed(browser, pages):
    browser.open(pages["incoherent"], dark=True)
    printed = browser.pdf()
    assert printed.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 2
    assert browser.complaints == []
    browser.open(pages["incoherent"], dark=True, media="print")
    assert browser.ask("[...document.querySelectorAll('.finding .inside')].map(e => e.checkVisibility())") == [True, True]
    browser.open(pages["incoherent"])
    assert browser.ask("[...document.querySelectorAll('.finding .inside')].map(e => e.checkVisibility())") == [False, False]
    browser.open(pages["incoherent"], dark=True, media="print")
    assert browser.ask("[...document.querySelectorAll('.choice')].every(c => c.getBoundingClientRect().height > 0)")
    assert browser.ask("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask("getComputedStyle(document.body).color") == "rgb(28, 33, 40)"


@in_browser
def test_the_data_is_handed_out(browser, pages):
    browser.open(pages["nasty"])
    browser.ask("HTMLAnchorElement.prototype.click = function () { window.given = [this.download, fetched]; };")
    browser.ask("var fetched; URL.createObjectURL = blob => { fetched = blob.text(); return 'blob:x'; };")
    browser.click("#download")
    name, data = browser.ask("window.given[0]"), json.loads(browser.ask("window.given[1]"))
    assert name.endswith(".json")
    assert data["name"] == NASTY
    assert data == json.loads(json.dumps(data))


@in_browser
def test_nothing_in_a_report_is_run(browser, pages):
    browser.open(pages["nasty"])
    assert browser.ask("window.hacked") is None
    assert browser.complaints == []
    assert browser.ask("document.querySelector('h1').textContent") == NASTY


@in_browser
def test_the_browser_tells_of_a_broken_page(browser, pages, tmp_path):
    """What the tests above rely on: a script that throws, a foreign script, a picture from elsewhere and a wide line are seen."""
    whole = pages["incoherent"].read_text(encoding="utf-8")
    lax = re.sub(r"script-src '[^']*'", "script-src 'unsafe-inline'", whole.replace("&#39;", "'"))
    broken = tmp_path / "broken.html"
    for text, complaint in (
        (lax.replace('"use strict";', '"use strict"; throw new Error("broken on purpose");'), "broken on purpose"),
        (whole.replace("</body>", "<script>window.hacked = 1</script></body>"), "Content Security Policy"),
        (whole.replace("</body>", '<img src="https://example.org/x.png"></body>'), "Content Security Policy"),
    ):
        broken.write_text(text, encoding="utf-8")
        browser.open(broken)
        browser.ask("new Promise(r => setTimeout(r, 50))")
        assert complaint in "".join(browser.complaints)
        assert browser.ask("window.hacked") is None
    broken.write_text(whole.replace("overflow-wrap: anywhere", "").replace("<h1>", f"<h1>{'x' * 500}"), encoding="utf-8")
    browser.open(broken, width=PHONE)
    assert browser.ask("document.documentElement.scrollWidth") > PHONE
    broken.write_text(whole.replace('x="62"', 'x="-300"', 1), encoding="utf-8")
    browser.open(broken)
    assert browser.ask(OVERLAPS) == ["change of the value is cut"]
