"""Every table and figure of the paper has an item of the catalogue beside it, and its label chooses that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pairgrad_paper.catalogue import FIGURES, TABLES, UnknownName, chosen
from pairgrad_paper.tables import PAPER, SECTIONS, item_of, named, section_of

EVIDENCE = Path(__file__).resolve().parents[2] / "docs" / "evidence"
LABELS = {
    "tab:task-summary",
    "tab:backward-counterfactual",
    "tab:parity-counterfactual",
    "tab:captured-audit",
    "tab:dimension-main",
    "tab:endpoint-scaling",
    "tab:h100-local",
    "tab:task-complete",
    "fig:overview",
    "fig:theoretical-field",
    "fig:patt-trajectory",
    "fig:proco-conditions",
    "fig:dimension-error",
    "fig:efficiency-compact",
    "fig:proco-state-distribution",
    "fig:class-count-control",
    "fig:patt-measured-field",
    "fig:mechanism-controls",
    "fig:regime-scaling",
}


def test_all_tables_and_figures_of_the_paper() -> None:
    assert set(PAPER) == LABELS
    assert len([label for label in PAPER if label.startswith("tab:")]) == 8


@pytest.mark.parametrize("label", sorted(LABELS))
def test_it_is_in_the_catalogue(label: str) -> None:
    item = PAPER[label]
    assert item.name in (TABLES if label.startswith("tab:") else FIGURES)
    assert set(item.also) <= {*TABLES, *FIGURES}
    assert item.section in SECTIONS
    assert item.shows.endswith(".")


_PRINTED = re.compile(r"In the paper: `([^`]+)`")


@pytest.mark.parametrize("name", sorted({*TABLES, *FIGURES} - {"numbers"}))  # which stands beside all of them
def test_every_label_that_a_page_prints_chooses_what_is_on_the_page(name: str) -> None:
    known = TABLES if name in TABLES else FIGURES
    labels = _PRINTED.search((EVIDENCE / f"{name}.md").read_text(encoding="utf-8"))
    assert labels
    for label in labels[1].split(", "):
        assert name in named(label, known), label


def test_every_label_in_the_list_of_tables_chooses_its_table() -> None:
    rows = re.findall(
        r"^\| \[[^]]*\]\(([a-z0-9-]+)\.md\).*?\| ([a-z0-9:, -]+) \|", (EVIDENCE / "index.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(rows) > 15
    for name, labels in rows:
        assert any(name in named(label, TABLES) for label in labels.split(", ")), name
        assert all(named(label, TABLES) for label in labels.split(", ")), labels


def test_every_choice_in_the_documentation_can_be_made() -> None:
    """The page of the commands is made of their help, so its examples are among them."""
    pages = [EVIDENCE.parents[1] / "README.md", *EVIDENCE.parent.rglob("*.md")]
    commands = {
        each
        for page in pages
        for each in re.findall(r"pairgrad (tables|figures)((?: --[a-z]+ [a-z0-9:/-]+)+)", page.read_text(encoding="utf-8"))
    }
    choices = {(kind, word) for kind, options in commands for word in re.findall(r"--only ([a-z0-9:-]+)", options)}
    assert len(choices) > 5
    for kind, word in choices:
        assert chosen(TABLES if kind == "tables" else FIGURES, [word], kind)


def test_a_figure_that_is_asked_for_as_a_table_is_pointed_to() -> None:
    with pytest.raises(UnknownName, match=r"overview is a figure: pairgrad figures --only overview$"):
        chosen(TABLES, ["fig:overview"], "table")
    with pytest.raises(UnknownName, match=r"parity is a table: pairgrad tables --only parity$"):
        chosen(FIGURES, ["tab:parity-counterfactual"], "figure")


def test_an_item_stands_beside_one_thing() -> None:
    names = [name for item in PAPER.values() for name in item.names]
    assert len(names) == len(set(names))
    assert item_of("parity") is PAPER["tab:parity-counterfactual"]
    assert item_of("constants") is None


def test_sections() -> None:
    assert section_of("clipped-defect", "anything") == "app:mechanism-interventions"
    assert section_of("constants", "fig:dimension-error, app:curl-proof") == "sec:fidelity"
    assert section_of("new", "cor:complexity-certificate") == "sec:f2"
    assert section_of("new", "thm:unheard") == ""
    places = {section_of("new", label) for label in ("app:curl-proof", "app:mechanism-protocol", "sec:mismatch-regimes")}
    assert places == {"app:theory", "app:mechanism-protocol", "sec:mismatch-regimes"}


def test_choosing_by_label() -> None:
    assert list(chosen(TABLES, ["tab:dimension-main"], "table")) == ["ratio-fidelity"]
    assert list(chosen(TABLES, ["dimension-main", "parity-counterfactual"], "table")) == ["ratio-fidelity", "parity"]
    assert list(chosen(FIGURES, ["fig:proco-conditions", "cubic-decay"], "figure")) == ["cubic-decay", "concentration-depth"]
    assert list(chosen(TABLES, ["fig:class-count-control"], "table")) == ["class-count"]
    assert list(chosen(FIGURES, ["tab:class-count-control"], "figure")) == ["class-count-control"]  # the paper has both labels
    assert named("parity", ["parity", "parity-counterfactual"]) == ["parity"]


def test_what_is_near_is_named() -> None:
    with pytest.raises(UnknownName, match=r"no table is called 'ratio-fidelty'; there are .*; did you mean ratio-fidelity.*\?$"):
        chosen(TABLES, ["ratio-fidelty"], "table")
    with pytest.raises(UnknownName, match=r"did you mean ratio-fidelity\?"):
        chosen(TABLES, ["tab:dimension-mian"], "table")
    with pytest.raises(UnknownName, match=r"there are .*[^?]$"):
        chosen(TABLES, ["zzz"], "table")
