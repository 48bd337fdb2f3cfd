"""What the census says of other people's packages: nothing without evidence, and nothing on the page that is not in the records."""

from __future__ import annotations

import ast
import hashlib
import importlib
import re
from pathlib import Path

import pytest
from census import page
from census.package import HERE, Finding, Package

DRIVERS = sorted(path.stem for path in (HERE / "drivers").glob("*.py") if path.stem != "__init__")
SCRIPTS = sorted((HERE / "evidence").glob("*.py"))


@pytest.fixture(scope="module")
def surveyed() -> list[page.Surveyed]:
    return page.surveyed()


@pytest.mark.parametrize("name", DRIVERS)
def test_a_driver_is_importable_without_its_package(name: str) -> None:
    package = importlib.import_module(f"census.drivers.{name}").package
    assert isinstance(package, Package)
    assert package.cases
    assert (HERE / "locks" / f"{package.group}.txt").exists()
    locked = (HERE / "locks" / f"{package.group}.txt").read_text().lower().replace("_", "-")
    assert f"{package.name.lower().replace('_', '-')}=={package.version}" in locked


def test_the_census_is_a_census(surveyed: list[page.Surveyed]) -> None:
    assert len(surveyed) == len(DRIVERS), "a package without a record: run python -m census NAME"
    assert len(surveyed) >= 40
    assert len({s.package.family for s in surveyed}) >= 10
    for s in surveyed:
        assert s.record["version"] == s.package.version
        assert set(s.record["audits"]) <= set(s.package.cases), f"{s.package.name} has rows of cases that its driver lacks"


def test_every_accusation_is_borne_out(surveyed: list[page.Surveyed]) -> None:
    for s in surveyed:
        for finding in s.package.findings.values():
            shown = s.record["evidence"][finding.id]
            assert shown["exit"] == 0, f"{finding.id} is not borne out: {shown['says']}"
            assert shown["key"] == hashlib.sha256(finding.evidence.read_bytes()).hexdigest()[:16], (
                f"{finding.evidence} changed since it ran"
            )


def test_a_finding_names_cases_that_fail(surveyed: list[page.Surveyed]) -> None:
    """A missed one, cases that pass."""
    for s in surveyed:
        for finding in s.package.findings.values():
            assert finding.cases or finding.tests, f"{finding.id} names no case"
            for case in finding.cases:
                row = s.audits[case]
                if finding.missed and any(not other.missed for other in s.findings_of(case)):
                    continue  # the case fails for another reason, and this one was missed
                if "audit" in row:
                    assert row["audit"]["passed"] is finding.missed, f"{finding.id}: {case}: {row['audit']['headline']}"
                else:
                    assert "Error" in row["raises"] or row["raises"] == page.NOT_RUN, f"{finding.id}: {case}: {row['raises']}"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_evidence_is_short_and_has_no_part_of_the_auditor(script: Path) -> None:
    text = script.read_text()
    assert len(text.splitlines()) <= 40
    nodes = list(ast.walk(ast.parse(text)))
    imported = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {(node.module or "").split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not imported & {"pairgrad", "census", "benchmarks", "tests"}
    assert "SystemExit" in text or "sys.exit" in text, "the exit code says whether the accusation is true"


def test_scripts_and_reports_belong_to_findings(surveyed: list[page.Surveyed]) -> None:
    findings = [finding for s in surveyed for finding in s.package.findings.values()]
    assert {finding.evidence for finding in findings} == set(SCRIPTS)
    assert set((HERE / "reports").glob("*.md")) <= {finding.report for finding in findings}


def test_the_page_and_the_list_are_made_of_the_records(surveyed: list[page.Surveyed]) -> None:
    assert page.PAGE.read_text() == page.text(surveyed), "run python -m census --page"
    assert page.FUNCTIONS.read_text() == page.functions_csv(surveyed), "run python -m census --page"


def made(cases: dict[str, dict], evidence: dict[str, int], findings: list[Finding]) -> page.Surveyed:
    package = Package("made", "1.0", family="torch", group="made", modules=["made"])
    for case in cases:
        package.case(case)(lambda: (abs, ()))
    package.findings = {finding.id: finding for finding in findings}
    audits = {
        case: {"seconds": 2.0, "date": "2026-01-01", "commit": "abc", "reached": [{"name": "F", "where": "made/a.py:5"}], **row}
        for case, row in cases.items()
    }
    functions = [
        {"name": "F", "where": "made/a.py:4", "lines": [4, 9], "kind": "Function"},
        {"name": "G", "where": "made/a.py:14", "lines": [14, 19], "kind": "Function"},
    ]
    shown = {name: {"exit": code} for name, code in evidence.items()}
    return page.Surveyed(package, {"audits": audits, "evidence": shown, "functions": functions, "machine": "a machine"})


def audit(verdict: str, passed: bool, intent: str | None = None) -> dict:
    headline = f"{verdict} headline"
    return {
        "audit": {"verdict": verdict, "passed": passed, "intent": intent, "headline": headline, "seconds": 1.0},
        "gradcheck": {"result": "passes"},
    }


def test_the_page_counts_what_was_not_borne_out_and_what_was_missed() -> None:
    fault = {"kind": "gradient", "where": "made/a.py:7", "what": "Half is supplied.", "size": "factor 2"}
    s = made(
        {
            "right": audit("coherent", True),
            "meant": audit("straight-through-like", True, "straight-through"),
            "wrong": audit("incoherent", False),
            "said so": audit("incoherent", False),
            "accused": audit("incoherent", False),
            "unnamed": audit("second-order", False),
            "rough": audit("inconclusive", False),
            "silent": {"raises": "ended after 9 s"},
            "backward": {"raises": "RuntimeError: no"},
            "passed": audit("coherent", True),
        },
        {"made-a": 0, "made-b": 0, "made-c": 1, "made-d": 0},
        [
            Finding("made-a", cases=["wrong", "backward"], **fault),
            Finding("made-b", cases=["said so"], documented="in its docstring", **fault),
            Finding("made-c", cases=["accused"], **fault),
            Finding("made-d", cases=["passed"], missed=True, **fault),
        ],
    )
    assert {case: s.status(case) for case in s.audits} == {
        "right": "coherent",
        "meant": "intended",
        "wrong": "incoherent",
        "said so": "documented",
        "accused": "false alarm",
        "unnamed": "false alarm",
        "rough": "inconclusive",
        "silent": "no result",
        "backward": "incoherent",
        "passed": "miss",
    }
    text = page.text([s])
    for row, count in {
        "false alarms": 2,
        "known misses": 1,
        "incoherent, borne out": 2,
        "no result": 1,
        "functions with a backward": 2,
        "of these reached": 1,
    }.items():
        assert re.search(rf"^\| {row}[^|]*\| {count} \|$", text, re.MULTILINE), row
    assert "| made 1.0 | accused | incoherent headline | cannot tell |" in text
    assert "made,1.0,G,Function,made/a.py:14,,none run" in page.functions_csv([s])


def test_what_a_driver_says_wrongly_is_refused() -> None:
    with pytest.raises(ValueError, match="family of made must be one of"):
        Package("made", "1.0", family="unheard of", group="made", modules=["made"])
    package = Package("made", "1.0", family="torch", group="made", modules=["made"])
    with pytest.raises(ValueError, match="say where the package documents what is intended"):
        package.case(intent="reversal")
    package.case("one")(lambda: (abs, ()))
    with pytest.raises(ValueError, match="two cases with the name 'one'"):
        package.case("one")(lambda: (abs, ()))
    with pytest.raises(ValueError, match="kind of made-x must be one of"):
        package.finding("made-x", kind="bad", where="", what="", size="")
    with pytest.raises(ValueError, match="does not have: \\['two'\\]"):
        package.finding("made-x", kind="gradient", where="", what="", size="", cases=["two"])
    with pytest.raises(ValueError, match="begin with the name of its package"):
        package.finding("other-x", kind="gradient", where="", what="", size="")
