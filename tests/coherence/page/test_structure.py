"""The page of a report is one file that needs nothing, says what the report says, and runs nothing that is in it."""

import dataclasses
import html
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
from pairgrad.coherence.judge.verdict import Judgement
from tests.coherence.page.reading import Page, cards_of, drawn, drawn_leaps, fact, figure_of, page_of, plain, rows_of, text_of
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
    text = text_of((REPORTS | EMPTY)[name])
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


def sentence(text):
    return f"{text[:1].upper()}{text[1:]}."


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_its_page(verdict):
    made = report(verdict=verdict, passed=verdict in ("coherent", "kink"))
    page = page_of(made)
    assert verdict.value in page.text
    assert sentence(made.meaning) in page.text
    assert ("The audit passes" in page.text) == (verdict in ("coherent", "kink"))
    style = "".join(page.raw["style"])
    assert re.search(rf"\.v-{verdict.value}[ ,]", style)


def test_the_head_says_what_where_and_how_large():
    text = page_of(report(seed=7, effort="thorough", dtype="float32", seconds=2.5)).text
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
    assert fact(report(), "Where") == ("input 0", "at the inputs; in Square (a.py:3)")
    assert fact(scanned(), "Where")[0] == "kappa from about 1,000 to 100,000"
    assert fact(REPORTS["coherent"], "How large")[0].startswith("none above 1 × 10⁻¹²")
    assert fact(EMPTY["nothing"], "How large") == ("not measured", "no direction was resolved")
    assert fact(report(), "Looked at") == ("6 directions through states", "4 show a defect and 2 show none")
    assert "stopped before its end" in page_of(EMPTY["stopped"]).text
    assert "declared as straight-through" in page_of(report(intent="straight-through", passed=True)).text


def test_the_page_begins_with_the_lines_of_the_report():
    made = report()
    lines = re.findall(r'<div class="summary">(.*?)</div>', text_of(made), re.S)
    assert [plain(line) for line in re.findall(r"<p>(.*?)</p>", lines[0])] == [
        "FAIL Square.backward  a.py:3",
        "gradient of input 0 (argument 1) is 1.001 x the true one",
        "first order WRONG, second not judged, re-entrant yes, layouts yes",
        "at input 0[1, 2]: supplied −0.502, true −0.501",
        "hint: the ratio is 1/5, the batch size: mean instead of sum?",
    ]
    assert page_of(run()).text.count("hint: the ratio is 1/5") == 2, "the node that fails, and the loss"


def test_verdicts_and_gradients_are_tables():
    excused = Judgement(Verdict.NOT_REENTRANT, text="an argument is edited", excused=True)
    made = report(verdicts=(*report().verdicts, excused), left_out=("second order: time was up",))
    assert rows_of(made, "All verdicts, gravest first") == [
        ["incoherent", "0.001", "8 × 10⁻⁹", "no", "Input 0: the supplied gradient is off by 0.001 (± 8 × 10⁻⁹)."],
        ["not-reentrant", "", "", "as declared", "An argument is edited."],
    ]
    assert rows_of(made, "Gradients at the inputs") == [
        ["input 0 (argument 1)", "0.001", "8 × 10⁻⁹", "1.001", "[1, 2]", "−0.502", "−0.501"]
    ]
    assert rows_of(EMPTY["not a number"], "Gradients at the inputs") == [["w", "∞", "not a number", "", "", "", ""]]
    assert "Second order: time was up." in page_of(made).text


def test_findings_say_causes_and_remedies():
    page = page_of(report())
    for words in (*ALARM.causes, ALARM.remedy):
        assert sentence(words) in page.text
    assert len(page.all("details", **{"class": "finding alarm"})) == 1
    many = page_of(report(findings=(ALARM,) * 300))
    shown = len(many.all("details", **{"class": "finding alarm"}))
    assert 20 <= shown < 300
    assert f"And {300 - shown} more" in many.text


def test_leaps_of_one_argument_are_told_together():
    made = leaping(-1.0, -7e-9, 1.000000001, 1.999999999, None)
    together = "kappa: 5 leaps, at −1, 0, 1 and 2, and at the inputs"
    assert cards_of(made) == [("jump", "warning", together)]
    assert fact(made, "Where") == (together, "")
    one_by_one = re.findall(r"<li>(The value leaps by 0\.375 at[^<]*)</li>", text_of(made))
    assert len(one_by_one) == 5
    assert plain(one_by_one[1]) == "The value leaps by 0.375 at −7 × 10⁻⁹ (± 1 × 10⁻⁹)."
    others = (leap(0.5, where="all inputs of the domain"), leap(-0.5, where="all inputs of the domain"), leap(0.0, "kink"), ALARM, ALARM)
    mixed = dataclasses.replace(made, findings=(*made.findings, *others))
    assert [kind for kind, _, _ in cards_of(mixed)] == ["jump", "jump", "kink", "defect", "defect"]
    assert cards_of(mixed)[1][2] == "all inputs of the domain: 2 leaps, on sweeps, at t = −0.5 and 0.5"
    assert fact(mixed, "Where")[0] == "input 0", "an alarm comes first"


def test_figures_are_there():
    """Two curves, first and second order, and the field; a scan has its own; a run those of its nodes and of its loss."""
    assert len(drawn(page_of(report()))) == 2 + 2 + 1
    assert len(drawn(page_of(scanned()))) == 2 + 1 + 1
    assert len(drawn(page_of(REPORTS["coherent"]))) == 2 + 2
    assert len(drawn(page_of(run()))) == (1 + 2 + 1) + (1 + 2 + 1) + (0 + 2 + 1) + (2 + 1 + 2)
    assert all(attrs["aria-label"] for attrs in drawn(page_of(report())))


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
        text = text_of(made)
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


def snippet(made):
    return html.unescape(re.search(r"<pre[^>]*><code>(.*?)</code></pre>", text_of(made), re.S)[1])


def test_the_snippet_is_python():
    for made in (report(name="f\n)(", intent="straight-through"), scanned(), run()):
        compile(snippet(made), "snippet", "exec")
    told = snippet(scanned())
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
    text = text_of(large)
    assert len(text) < 3 * MEGABYTE
    figure = figure_of(large, "Over kappa")
    assert "0.5 ±" in figure.svg
    assert "Of 5,000 readings" in figure.caption
    assert figure.svg.count("<title>") <= 1000
    rows = rows_of(large, "The [0-9]+ gravest of 5,000")
    assert 20 <= len(rows) < 1000
    assert rows[0][3] == "0.5"


def test_large_runs_stay_small_and_keep_the_first_nodes():
    states = tuple(state(i, "coherent", float(i), state=f"kappa = {i}", argument="kappa") for i in range(60))
    text = text_of(run(*(node(f"Node{i}", worst=report(states=states)) for i in range(200))))
    assert len(text) < 5 * MEGABYTE
    page = Page(text)
    first = int(re.search(r"Figures are drawn for the first (\d+) only", page.text)[1])
    assert 10 <= first < 200
    worst = [each["worst"] for each in json.loads(page.raw["script"][0])["nodes"]]
    assert [bool(each["curves"] and each["picture"]) for each in worst] == [i < first for i in range(200)]
    assert "Node199" in page.text


def test_data_that_is_too_large_is_cut_and_says_so():
    states = (*tuple(state(i, "coherent", relative=1e-15) for i in range(15_000)), state(relative=0.25))
    page = page_of(report(states=states))
    data = json.loads(page.raw["script"][0])
    assert 20 <= len(data["states"]) < 1000
    assert data["states"][0]["relative"] == 0.25
    assert "shortened" in data
    assert "lists are cut to the gravest" in page.text
    assert "lists are cut to the gravest" not in page_of(report()).text


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
    for made, words in ((pair, "a random combination of the outputs leaps by "), (one, "the value leaps by 1 at")):
        found = [finding for finding in made.findings if finding.kind == "jump" and finding.where == "input 0" and "at" in finding.numbers]
        assert {round(finding.numbers["at"]) for finding in found} >= {-1, 0, 1}
        assert all(finding.text.startswith(words) for finding in found), found
        assert len(drawn_leaps(figure_of(made, "Over "))) == len(found)
        cards = cards_of(made)
        assert any(", at −1, 0, 1" in text or ", at −2, −1, 0, 1" in text for _, _, text in cards)
        assert len(cards) <= 2


def test_a_kink_has_its_page():
    made = pg.audit(torch.abs, torch.tensor([0.0, 1.0], dtype=torch.float64), domain=(-1, 1), effort="quick", second_order=False)
    figure = figure_of(made, "Over ")
    assert drawn_leaps(figure, "kink") == pytest.approx([sum(figure.ends) / 2], abs=0.06)
    places = [finding.numbers.get("at") for finding in made.findings if finding.kind == "kink" and finding.where == "input 0"]
    assert None in places, "through the inputs: no place of the domain"


@pytest.mark.parametrize("x", [[math.nan, 1.0], [math.inf, 1.0], [-1.0, -2.0]])
def test_an_audit_of_what_is_not_finite_says_so(x):
    made = pg.audit(torch.log, torch.tensor(x, dtype=torch.float64), effort="quick")
    told = next(finding for finding in made.findings if finding.kind == "unresolved")
    assert "not finite here (NaN or infinity)" in told.text
    assert "inf of the gradient" not in str(made)
    assert "not finite (NaN or infinity) around these states" in page_of(made).text
