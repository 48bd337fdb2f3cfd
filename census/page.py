"""Makes docs/census.md and census/functions.csv of the records and the drivers' findings; nothing on them is written by hand."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.markdown import table

from census.package import FAMILIES, HERE, KINDS, Finding, Package, packages
from census.run import record_of
from pairgrad.ground.files import write_atomically

PAGE, FUNCTIONS = HERE.parent / "docs" / "census.md", HERE / "functions.csv"
TEMPLATE = """# The field, audited

Public packages carry thousands of hand-written backwards. This census installs released versions from the package index, audits their custom backwards
with [`pairgrad.audit`](auditor.md), and has every accusation borne out by a script in which the auditor has no part. Of {packages} packages from
{families} families, {faulty} have a backward that is not the derivative of its forward and is not documented as such: {findings} findings, each with a
place, a size and a reproduction.

Made by `make census` from the records in `census/records`. {machines}. {days}, pairgrad at commit {commits}.

A finding is a fact about a release at certain arguments. It does not say that results obtained with the package are wrong: many of these states are rare,
and many defects are small. The arguments were chosen after reading the backwards, ordinary ones and those at which a fault is likely, so the share of
audits that fail is not the share of backwards that are wrong.

## In numbers

{numbers}

The findings that no documentation mentions, by what is wrong:

{kinds}

## What was found

By family. Each entry has the place, the kind of fault and its size, what the audit says, what torch's gradcheck says with its defaults at the same
arguments, whether a report of the fault is known to us, and a script in `census/evidence` that shows it and needs the package alone. "No report known"
means that none was found in a stored copy of the package's tracker, or that it was not searched; for most of these `census/reports` has a draft.

{found}

## Documented by the package

Gradients that differ from the derivative where the package says so. They are no faults, and a user of the package should know them.

{documented}

## Beside gradcheck, opcheck and differences

On the same functions at the same arguments: torch's gradcheck with its defaults, and differences of the value along random directions, extrapolated to
step 0, in which pairgrad has no part. The differences look at the first derivative, at the arguments, in one layout. They cannot tell where the value has
too few digits, as in float32, or is not smooth.

{beside}

torch's opcheck, which looks at the registration of operators of torch.library:

{opcheck}

## Where the auditor was wrong

{wrong}

## Under the packages' own tests

Tests from the source archives under `pytest --coherence`, which records every custom backward that they run through and audits it afterwards.

{tests}

## Packages

Functions are classes with a backward, operators and JAX rules in the source of a package, whether or not this machine, which has no GPU, can run them.
`census/functions.csv` lists them one by one, with the audits that reach each.

{table}

{notes}

## How it is done

- Each group of packages has a virtual environment of its own, with the versions of `census/locks`. A driver for each package (`census/drivers`) says how
  its functions are called; `census/discovery.py` reads from the source which functions there are.
- Audits run in a process for each package, in one thread. A case that takes too long or too much memory is ended and costs no other. Rows are recorded at
  once: the same command again resumes with what is missing or has changed. `make census` takes hours; `make census ARGS="entmax"` minutes. The records
  here were made while other work ran on the same two cores, so that some audits left checks out for want of time, second derivatives above all: a record
  says so, and such a row can hide a miss.
- Triton kernels run in Triton's interpreter, with [its limits](how-to/audit-my-function.md#triton-kernels-without-a-gpu). Functions that need a GPU are not
  reached.
- What is wrong with a script or a sentence here is a bug of ours: please report it.
"""
# What an audit comes to, in the order of the columns.
STATUSES = ("coherent", "intended", "incoherent", "documented", "inconclusive", "no result", "false alarm", "miss")


NOT_RUN = "not run yet"


@dataclass(frozen=True)
class Surveyed:
    """One package with its record."""

    package: Package
    record: dict[str, Any]

    @property
    def audits(self) -> dict[str, dict[str, Any]]:
        """Rows by case; of one that has not been run, that."""
        rows = self.record.get("audits", {})
        return {case: rows.get(case, {"raises": NOT_RUN}) for case in self.package.cases}

    def findings_of(self, case: str) -> list[Finding]:
        """Those that name a case."""
        return [finding for finding in self.package.findings.values() if case in finding.cases]

    def borne_out(self, finding: Finding) -> bool:
        """Whether the script of evidence said so."""
        return self.record.get("evidence", {}).get(finding.id, {}).get("exit") == 0

    def status(self, case: str) -> str:
        """One of STATUSES."""
        audit, named = self.audits[case].get("audit"), self.findings_of(case)
        if audit is None:  # a backward that raises where the forward runs may be the finding
            if self.audits[case].get("raises") == NOT_RUN:
                return "no result"
            return "incoherent" if any(map(self.borne_out, named)) else "no result"
        if audit["passed"]:
            if any(finding.missed for finding in named):
                return "miss"
            return "intended" if audit["intent"] else "coherent"
        if audit["verdict"] == "inconclusive":
            return "inconclusive"
        shown = [finding for finding in named if not finding.missed and self.borne_out(finding)]
        if not shown:
            return "false alarm"
        return "incoherent" if any(not finding.documented for finding in shown) else "documented"

    def unexplained_tests(self) -> list[dict[str, Any]]:
        """Functions that fail under the package's own tests and that no finding accounts for."""
        named = {test for finding in self.package.findings.values() if self.borne_out(finding) for test in finding.tests}
        return [row for row in self.failing_tests() if row["name"] not in named]

    def failing_tests(self) -> list[dict[str, Any]]:
        """Functions that fail under the package's own tests."""
        rows = self.record.get("tests", {}).get("functions", [])
        return [row for row in rows if not row["passed"] and row["verdict"] != "inconclusive"]

    def functions(self) -> list[dict[str, Any]]:
        """Every function that the package defines, and the cases that reach it."""
        listed = [{**row, "cases": [], "in_tests": False} for row in self.record.get("functions", [])]
        for case, audit in self.audits.items():
            for met in audit.get("reached") or []:
                for row in listed:
                    if _same(row, met):
                        row["cases"].append(case)
        for met in self.record.get("tests", {}).get("functions", []):
            for row in listed:
                row["in_tests"] = row["in_tests"] or _same(row, met)
        return listed


def _same(row: dict[str, Any], met: dict[str, Any]) -> bool:
    """Whether a function that was reached is one that is defined."""
    if row["kind"] == "operator":
        return met["name"].split(".")[0] == row["name"] or met["name"].split("::")[-1].split(".")[0] == row["name"].split("::")[-1]
    file, _, line = met.get("where", "").rpartition(":")
    if file and not row["where"].startswith(f"{file}:"):
        return False
    inside = line.isdigit() and row["lines"][0] <= int(line) <= row["lines"][1]
    return inside or met["name"].split(".")[-1] == row["name"].split(".")[-1]


def surveyed() -> list[Surveyed]:
    """The packages that have a record, by family and name."""
    found = [Surveyed(package, record_of(package)) for package in packages().values()]
    return sorted((s for s in found if s.record.get("audits")), key=lambda s: (FAMILIES.index(s.package.family), s.package.name.lower()))


def write() -> Path:
    """Writes both files; returns the page."""
    all_of_them = surveyed()
    if not all_of_them:
        raise ValueError("there are no records in census/records: run `make census` first")
    write_atomically(FUNCTIONS, functions_csv(all_of_them))
    return write_atomically(PAGE, text(all_of_them))


def functions_csv(found: Sequence[Surveyed]) -> str:
    """A line for each function that a package defines."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["package", "version", "function", "kind", "where", "reached by cases", "reached by the package's tests"])
    for s in found:
        for row in s.functions():
            tests = ("yes" if row["in_tests"] else "no") if s.package.tests else "none run"
            writer.writerow([s.package.name, s.package.version, row["name"], row["kind"], row["where"], "; ".join(row["cases"]), tests])
    return out.getvalue()


def text(found: Sequence[Surveyed]) -> str:
    """The page."""
    ours = [(s, f) for s in found for f in s.package.findings.values() if s.borne_out(f)]
    accused = [(s, f) for s, f in ours if not f.documented]
    rows = [row for s in found for row in s.audits.values()]
    days = sorted({row["date"] for row in rows if "date" in row})
    kinds = Counter(f.kind for _, f in accused)
    return TEMPLATE.format(
        packages=len(found),
        families=len({s.package.family for s in found}),
        faulty=len({s.package.name for s, _ in accused}),
        findings=len(accused),
        machines="; ".join(sorted({s.record["machine"] for s in found})),
        days=days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}",
        commits=", ".join(sorted({row["commit"] for row in rows if "commit" in row})),
        numbers=table(["", "count"], _numbers(found), 1),
        kinds=table(["kind of fault", "findings"], [[kind, str(kinds[kind])] for kind in KINDS if kinds[kind]], 1),
        found=_by_family([(s, f) for s, f in accused if not f.missed]),
        documented=_by_family([(s, f) for s, f in ours if f.documented]),
        beside=_beside(found),
        opcheck=_opcheck(found),
        wrong=_wrong(found),
        tests=_own_tests(found),
        table=_packages(found),
        notes="\n".join(f"- {s.package.name}: {s.package.note}" for s in found if s.package.note),
    )


def _numbers(found: Sequence[Surveyed]) -> list[list[str]]:
    counts = Counter(s.status(case) for s in found for case in s.audits)
    functions = [row for s in found for row in s.functions()]
    rows = [row for s in found for row in s.audits.values()]
    numbers = {
        "packages": len(found),
        "functions with a backward of their own that they define": len(functions),
        "of these reached, by our drivers or by the packages' own tests": sum(bool(row["cases"] or row["in_tests"]) for row in functions),
        "audits": len(rows),
        "coherent": counts["coherent"],
        "an estimator, as its documentation says": counts["intended"],
        "incoherent, borne out": counts["incoherent"],
        "incoherent, and documented by the package": counts["documented"],
        "inconclusive": counts["inconclusive"],
        "no result: raised, or ended for time or memory": counts["no result"] - sum(row.get("raises") == NOT_RUN for row in rows),
        "not run yet": sum(row.get("raises") == NOT_RUN for row in rows),
        "false alarms: accusations that no script bears out": counts["false alarm"] + sum(len(s.unexplained_tests()) for s in found),
        "known misses: passed, and shown to be wrong": counts["miss"],
        "seconds of audits": round(sum(row.get("audit", {}).get("seconds", 0.0) for row in rows)),
        "seconds with gradcheck, opcheck and differences": round(sum(row.get("seconds", 0.0) for row in rows)),
    }
    return [[name, str(count)] for name, count in numbers.items()]


def _by_family(findings: Sequence[tuple[Surveyed, Finding]]) -> str:
    parts = []
    for family in FAMILIES:
        entries = [_entry(s, f) for s, f in findings if s.package.family == family]
        if entries:
            parts.append("\n".join([f"**{family[0].upper()}{family[1:]}**", "", *entries]))
    return "\n\n".join(parts) or "None."


def _entry(s: Surveyed, f: Finding) -> str:
    row = next((s.audits[case] for case in f.cases if case in s.audits), {})
    says = f"the audit: {row['audit']['headline']}" if "audit" in row else "seen under its own tests"
    if "raises" in row and "audit" not in row:
        says = "the audit has not been run yet" if row["raises"] == NOT_RUN else "the backward raises"
    beside = f"; gradcheck {row['gradcheck']['result']}" if "gradcheck" in row else ""
    if f.documented:
        status = f"documented: {f.documented}"
    elif f.known:
        status = f"[known]({f.known})" + (f", fixed in {f.fixed}" if f.fixed else "")
    else:
        status = f"fixed in {f.fixed}" if f.fixed else "no report known"
    return f"- **{s.package.name} {s.package.version}**, `{f.where}`, {f.kind}, {f.size}. {f.what} ({says}{beside}; {status}; `{f.evidence.name}`)"


GROUPS = (("coherent", ("coherent",)), ("incoherent, borne out", ("incoherent", "documented", "miss")), ("intended", ("intended",)))
RESULTS = ("passes", "fails", "raises", "not finished")


def _beside(found: Sequence[Surveyed]) -> str:
    lines = []
    for name, statuses in GROUPS:
        rows = [row for s in found for case, row in s.audits.items() if s.status(case) in statuses]
        checked = Counter(row.get("gradcheck", {}).get("result", "raises") for row in rows)
        agree = Counter(row.get("differences", {}).get("agrees") for row in rows)
        lines.append([name, str(len(rows)), *(str(checked[r]) for r in RESULTS), *(str(agree[a]) for a in (True, None, False))])
    return table(["audit", "number", *(f"gradcheck {r}" for r in RESULTS), "differences agree", "cannot tell", "disagree"], lines, 1)


def _opcheck(found: Sequence[Surveyed]) -> str:
    lines = []
    for name, statuses in GROUPS:
        rows = [row for s in found for case, row in s.audits.items() if s.status(case) in statuses and "opcheck" in row]
        checked = Counter(row["opcheck"]["result"] for row in rows)
        lines.append([name, str(len(rows)), *(str(checked[r]) for r in RESULTS)])
    return table(["audit", "operators", *(f"opcheck {r}" for r in RESULTS)], lines, 1)


def _wrong(found: Sequence[Surveyed]) -> str:
    cases = [(s, f"{s.package.name} {s.package.version}", case, row) for s in found for case, row in s.audits.items()]
    told = {True: "agree with the gradient", False: "contradict the gradient", None: "cannot tell"}
    alarms = [
        [name, case, row["audit"]["headline"], told[row.get("differences", {}).get("agrees")]]
        for s, name, case, row in cases
        if s.status(case) == "false alarm"
    ]
    for s in found:
        name = f"{s.package.name} {s.package.version}"
        alarms += [[name, f"{row['name']}, under its own tests", row["headline"], ""] for row in s.unexplained_tests()]
    misses = [
        [f"{s.package.name} {s.package.version}", ", ".join(f.cases), f.what, f"`{f.evidence.name}`"]
        for s in found
        for f in s.package.findings.values()
        if f.missed
    ]
    disagree = [
        [name, case, f"{row['differences']['relative']:.2g} of the gradient"]
        for s, name, case, row in cases
        if s.status(case) == "coherent" and row.get("differences", {}).get("agrees") is False
    ]
    parts = ["Accusations for which there is no script that bears them out. They count as false alarms, whatever the differences say:"]
    parts += [table(["package", "case", "the audit says", "differences"], alarms, 4) if alarms else "None."]
    parts += ["Functions that passed and are wrong:" if misses else "No function that passed is known to be wrong."]
    parts += [table(["package", "case", "what", "shown by"], misses, 4)] if misses else []
    if disagree:
        parts += ["Audits that pass, and where the differences disagree:", table(["package", "case", "off by"], disagree, 3)]
    return "\n\n".join(parts)


def _own_tests(found: Sequence[Surveyed]) -> str:
    rows = []
    for s in found:
        if "tests" in s.record:
            failing = ", ".join(f"`{row['name']}`" for row in s.failing_tests()) or "none"
            rows.append([f"{s.package.name} {s.package.version}", " ".join(s.package.tests), s.record["tests"]["said"], failing])
    return table(["package", "tests", "result", "functions that fail"], rows, 4)


def _packages(found: Sequence[Surveyed]) -> str:
    rows = []
    for s in found:
        counts, functions = Counter(s.status(case) for case in s.audits), s.functions()
        reached = sum(bool(row["cases"] or row["in_tests"]) for row in functions)
        seconds = sum(row.get("audit", {}).get("seconds", 0.0) for row in s.audits.values())
        name, share = f"{s.package.name} {s.package.version}", f"{reached} of {len(functions)}"
        rows.append([s.package.family, name, share, *(str(counts[k] or "") for k in STATUSES), f"{seconds:.0f}"])
    return table(["family", "package", "functions reached", *STATUSES, "seconds"], rows, 2)
