"""A package's own tests under `pytest --coherence`: the second way of meeting its functions."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

from census.environments import BUILD
from census.package import Package
from census.run import environment

AUDIT_SECONDS = 180  # for the audits at the end of the session


def tested(package: Package, python: Path, seconds: float) -> dict[str, Any]:
    """What the session recorded: each function with its verdict, and how the tests themselves came out."""
    source = _source(package, python)
    if source is None:
        return {"said": "no source archive could be unpacked", "functions": []}
    out = BUILD / "tests" / f"{package.name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)
    command = [
        str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--timeout=120",
        "--coherence-warn", f"--coherence-json={out}", f"--coherence-seconds={AUDIT_SECONDS}", *package.test_options, *package.tests,
    ]  # fmt: skip
    started = time.perf_counter()
    variables = environment()
    del variables["PYTHONPATH"]
    try:
        done = subprocess.run(command, cwd=source, capture_output=True, text=True, env=variables, timeout=seconds)
        text = done.stdout
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode(errors="replace") + f"\nended after {seconds:.0f} s"
    counts = [line.strip("= ") for line in text.splitlines() if re.search(r"\d+ (passed|failed|error|skipped)", line)]
    functions = _functions(out) if out.exists() else []
    failing = sum(not row["passed"] and row["verdict"] != "inconclusive" for row in functions)
    ended = (counts or text.strip().splitlines() or ["no output"])[-1][:200]
    said = f"{ended}; {len(functions)} functions met, {failing} fail"
    return {"said": said, "functions": functions, "seconds": round(time.perf_counter() - started, 1)}


def _functions(file: Path) -> list[dict[str, Any]]:
    from census.worker import finite

    data = json.loads(file.read_text())
    nodes = (data.get("run") or {}).get("nodes", [])
    rows = []
    for node in nodes:
        summary = (node.get("worst") or {}).get("summary") or ""  # a list of lines in the JSON
        told = summary if isinstance(summary, str) else "\n".join(summary)
        rows.append(
            {
                "name": node["name"],
                "where": re.sub(r".*site-packages/", "", node.get("location") or ""),
                "verdict": node["verdict"],
                "passed": node["passed"],
                "defect": finite(node.get("defect", 0.0)),
                "visits": node.get("backwards", node.get("visits")),
                "headline": node.get("headline", ""),
                "summary": re.sub(r"\S*site-packages/", "", told),
            }
        )
    return rows


def _source(package: Package, python: Path) -> Path | None:
    """The unpacked source archive of the release, without the package itself: its tests are to meet the one that is installed."""
    folder = BUILD / "sources" / f"{package.name}-{package.version}"
    if not folder.exists():
        archives = BUILD / "archives" / package.name
        archives.mkdir(parents=True, exist_ok=True)
        fetch = [
            str(python),
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            ":all:",
            "-d",
            str(archives),
            f"{package.name}=={package.version}",
        ]
        subprocess.run(fetch, capture_output=True, text=True, timeout=600)
        found = sorted(archives.glob("*.tar.gz")) + sorted(archives.glob("*.zip"))
        if not found:
            return None
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        if found[0].suffix == ".zip":
            zipfile.ZipFile(found[0]).extractall(part)
        else:
            with tarfile.open(found[0]) as archive:
                archive.extractall(part, filter="data")
        inner = [p for p in part.iterdir() if p.is_dir()]
        shutil.move(str(inner[0] if len(inner) == 1 else part), str(folder))
        shutil.rmtree(part, ignore_errors=True)
    for module in package.modules:  # tests beside a folder of the same name would import that
        for place in (folder / module, folder / "src" / module):
            if place.exists() and not any((folder / test).resolve().is_relative_to(place.resolve()) for test in package.tests):
                place.rename(place.with_name(f"{module}-as-packed"))
    return folder
