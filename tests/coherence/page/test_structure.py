"""The page of a report is one file that needs nothing, says what the report says, and runs nothing that is in it."""

import dataclasses
import itertools
import json
import math
import random
import re
import sys

import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import Finding, Region, Verdict
from pairgrad.coherence.page import LARGEST, content, figures, render, svg
from pairgrad.coherence.verdict import MEANING
from tests.coherence.page.reading import Page, drawn, drawn_leaps
from tests.coherence.page.reports import (
    ALARM,
    EMPTY,
    MEGABYTE,
    NASTY,
    REPORTS,
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
    text = render(large)
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
