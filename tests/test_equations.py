"""The paper's numbers, the code, and the page that joins them: what is mapped exists and cites, and what is cited is in the paper."""

from __future__ import annotations

import os
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from docs.equations import DOCS, PAGE, ROOT, SOURCES, Entry, anchor, anchors, citations, cites, entries, labels, order, page

# What the paper has: labels by prefix, and the last number of each count.
LABELS = {"eq": 64, "thm": 4, "cor": 3, "lem": 1, "prop": 1, "tab": 9, "fig": 11, "sec": 9, "app": 23}
LAST = {"equation": 87, "theorem": 9, "table": 8, "figure": 11}
SHARED_COUNT = ("theorem", "corollary", "lemma", "proposition")
# Names that stand for any label, or for one that is wrong on purpose.
MADE_UP = {"eq:n", "fig:x", "tab:x", "tab:any", "tab:some", "thm:unheard", "tab:dimension-mian"}
# Items of our own are called tables and figures too, and the sections of the report have keys where the paper has no label.
OWN = {
    *(f"{prefix}:{path.stem}" for path in (DOCS / "evidence").glob("*") for prefix in ("tab", "fig")),
    *("sec:introduction", "sec:trajectories", "sec:fidelity", "sec:tasks", "sec:efficiency", "app:stress"),
}
FILES = sorted(
    path
    for pattern in [*(f"{source}/**/*.py" for source in SOURCES), "docs/**/*.md", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    for path in ROOT.glob(pattern)
    if path != Path(__file__)  # names made-up labels to see them refused
)


def identity(entry: Entry) -> str:
    return entry.label or f"{entry.kind} {entry.number}"


@cache
def source(path: Path) -> str:
    return path.read_text()


@cache
def headings_of(name: str) -> frozenset[str]:
    """Anchors of a page, as mkdocs makes them from its headings."""
    text = re.sub(r"^```.*?^```", "", source(DOCS / name), flags=re.DOTALL | re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return frozenset(re.sub(r"[-\s]+", "-", heading) for heading in plain)


def test_it_has_all_labels_of_the_paper() -> None:
    named = [entry.label for entry in entries() if entry.label]
    assert len(named) == len(set(named))
    assert Counter(label.partition(":")[0] for label in named) == LABELS


def numbered(latex: str) -> tuple[dict[str, str], Counter[str]]:
    """The number that LaTeX gives every label of an article, and how many equations, theorems, tables and figures it counts; as amsmath and amsthm count."""
    counts: Counter[str] = Counter()
    sections, appendix, float_kind, here, inside = [0, 0, 0], False, "", "", ""
    numbers: dict[str, str] = {}
    wanted = (
        r"\\(begin|end|label|caption|captionof|setcounter|section|subsection|subsubsection|appendix)\b(?:\{([^}]*)\})?(?:\{(\d+)\})?|(\\\\)"
    )
    for command, argument, value, row in re.findall(wanted, re.sub(r"(?<!\\)%.*", "", latex)):
        if command == "begin" and argument in ("equation", "align"):
            counts["equation"] += 1
            inside, here = argument, str(counts["equation"])
        elif command == "end" and argument in ("equation", "align"):
            inside = ""
        elif row and inside == "align":
            counts["equation"] += 1
            here = str(counts["equation"])
        elif command == "begin" and argument in SHARED_COUNT:
            counts["theorem"] += 1
            here = str(counts["theorem"])
        elif command == "setcounter" and argument in counts:
            counts[argument] = int(value)
        elif command == "begin" and argument.removesuffix("*") in ("table", "figure", "wrapfigure"):
            float_kind = "table" if argument.startswith("table") else "figure"
        elif command in ("caption", "captionof"):
            kind = argument if command == "captionof" else float_kind
            counts[kind] += 1
            here = str(counts[kind])
        elif command == "appendix":
            sections, appendix = [0, 0, 0], True
        elif command.endswith("section"):
            level = command.count("sub")
            sections = [*sections[:level], sections[level] + 1, *[0] * (2 - level)]
            first = chr(ord("A") + sections[0] - 1) if appendix else str(sections[0])
            here = ".".join([first, *map(str, sections[1 : level + 1])])
        elif command == "label":
            numbers[argument] = here
    return numbers, counts


def test_counting_as_latex_does() -> None:
    latex = r"""
    \section{One} \label{sec:one} \subsection{Two} \label{sec:two} % \label{sec:no}
    \begin{theorem} \label{thm:a} \begin{equation} \begin{split} x \\ y \end{split} \label{eq:a} \end{equation} \end{theorem}
    \begin{align} x \label{eq:b} \\ y \\ z \label{eq:c} \end{align} \setcounter{theorem}{4} \begin{lemma} \label{lem:b} \end{lemma}
    \begin{table*} \caption{x} \label{tab:a} \end{table*} \begin{wrapfigure}{r} \caption{y} \label{fig:a} \end{wrapfigure} \captionof{figure}{z} \label{fig:b}
    \appendix \section{Three} \subsection{Four} \subsubsection{Five} \label{app:five} \section{Six} \label{app:six}"""
    numbers, counts = numbered(latex)
    assert numbers == {
        **{"sec:one": "1", "sec:two": "1.1", "thm:a": "1", "eq:a": "1", "eq:b": "2", "eq:c": "4", "lem:b": "5"},
        **{"tab:a": "1", "fig:a": "1", "fig:b": "2", "app:five": "A.1.1", "app:six": "B"},
    }
    assert counts == {"equation": 4, "theorem": 5, "table": 1, "figure": 2}


@pytest.mark.skipif("PAIRGRAD_PAPER" not in os.environ, reason="PAIRGRAD_PAPER does not name the LaTeX source of the paper")
def test_labels_and_numbers_are_those_of_the_source() -> None:
    numbers, counts = numbered(Path(os.environ["PAIRGRAD_PAPER"]).read_text())
    assert {entry.label: entry.number for entry in entries() if entry.label} == numbers
    assert counts == LAST


@pytest.mark.parametrize("kind", LAST)
def test_every_number_is_there_once(kind: str) -> None:
    kinds = SHARED_COUNT if kind == "theorem" else (kind,)
    second_label = "tab:class-count-control"
    numbers = sorted(int(entry.number) for entry in entries() if entry.kind in kinds and entry.label != second_label)
    assert numbers == list(range(1, LAST[kind] + 1))


def test_sections_have_numbers_in_the_order_of_the_paper() -> None:
    sections = [entry for entry in entries() if entry.kind == "section"]
    assert sections == sorted(sections, key=order)
    assert all(re.fullmatch(r"(\d|[A-G])(\.\d){0,2}", entry.number) for entry in sections)


def test_entries_say_what_and_where() -> None:
    for entry in entries():
        name = identity(entry)
        assert entry.says.endswith("."), name
        assert entry.kind in {*SHARED_COUNT, "equation", "table", "figure", "section"}, name
        assert bool(entry.label) != bool(entry.of), f"{name}: a number has a label, or is a step of something that has one"
        assert not entry.of or entry.of in labels(), name
        assert entry.code or entry.tests or entry.pages, f"{name} lives nowhere"
        assert entry.kind == "section" or entry.tests or entry.pages, f"{name}: nothing checks it and nothing explains it"


def test_code_exists_and_cites_it() -> None:
    public = set(anchors().values())
    wrong = []
    for entry, name in [(each, name) for each in entries() for name in each.code]:
        if name not in public and not (name.endswith(".py") and (ROOT / name).is_file()):
            wrong.append(f"{name} is neither a public name of the reference nor a file")
        elif entry.cited_as not in cites(name):
            wrong.append(f"{name} does not cite {entry.cited_as}")
    assert not wrong


def test_tests_and_pages_exist() -> None:
    wrong = []
    for entry in entries():
        wrong += [f"{name} is not a file of tests" for name in entry.tests if not (ROOT / name).is_file() or "/test_" not in name]
        for place in entry.pages:
            name, _, anchor = place.partition("#")
            if anchor and anchor not in headings_of(name):
                wrong.append(f"{place}: there is no such heading")
    assert not wrong


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(eq. a2)", {"eq:a2"}),
        ("eqs. f2 and a2 of the paper", {"eq:f2", "eq:a2"}),
        (
            "eqs. a2 and f2, with the stable difference of eqs. stable-delta and stable-f2.",
            {"eq:a2", "eq:f2", "eq:stable-delta", "eq:stable-f2"},
        ),
        ("Eqs. miller-b to miller-three, as printed", {"eq:miller-b", "eq:miller-three"}),
        ("Theorem thm:a2, eq. cor:endpoint-fidelity", {"thm:a2", "cor:endpoint-fidelity"}),
        ("lem. finite-state says why, and so does Lemma finite-state", {"lem:finite-state"}),
        ("Tables dimension-main and endpoint-scaling", {"tab:dimension-main", "tab:endpoint-scaling"}),
        ("as in the table below, and a figure to remember", set()),
        ("[wood1994simulation, Eq. n] and [olver1954asymptotic]", set()),
        ("eq. unheard", {"eq:unheard"}),
        ("eqs. a2, not-there", {"eq:a2", "eq:not-there"}),
        ("Figure not-there", {"fig:not-there"}),
        ("(app:curl-proof), https://host/app:x", {"app:curl-proof"}),
        ('"(eqs. miller-b, "\n        "miller-three)"', {"eq:miller-b", "eq:miller-three"}),
        ("eqs. miller-b,\n    miller-three", {"eq:miller-b", "eq:miller-three"}),
    ],
)
def test_what_is_a_citation(text: str, found: set[str]) -> None:
    assert set(citations(text)) == found


def test_what_is_cited_is_in_the_map() -> None:
    unknown = {str(path.relative_to(ROOT)): set(citations(source(path))) - labels() - OWN - MADE_UP for path in FILES}
    unknown = {name: found for name, found in unknown.items() if found}
    assert not unknown, "a citation of what the paper does not have: docs/equations.toml has its labels"


def test_the_page_is_up_to_date() -> None:
    assert source(PAGE) == page(), "run `make equations`, or python -m docs.equations"


def test_the_page_has_every_number_and_every_label() -> None:
    text = source(PAGE)
    for entry in entries():
        shown = f"({entry.number})" if entry.kind == "equation" else entry.number
        name = f"`{entry.label}`" if entry.label else f"a step of `{entry.of}`"
        assert f"\n**{shown}**{{ #{anchor(entry)} }} {name}\n" in text
    assert len({anchor(entry) for entry in entries()}) == len(entries())


def test_links_lead_into_the_reference() -> None:
    assert {"pairgrad.Potential.defect", "pairgrad.certificates.ratio.paper_theorem"} <= set(anchors().values())
    assert "[`Potential.defect`][pairgrad.Potential.defect]" in source(PAGE)
