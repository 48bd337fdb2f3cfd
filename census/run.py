"""Runs cases, evidence and the packages' own tests in the environments of their groups, and keeps records. A run that is stopped resumes with the next case."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from census.environments import ROOT, python_of
from census.package import Package
from pairgrad.ground.files import write_atomically
from pairgrad.ground.timing import machine_line

START_SECONDS = 300  # until a worker begins with its first case
CASE_SECONDS = 420  # for a case, beside the seconds of its audit; then the worker is ended
MEMORY_MB = 8192
EVIDENCE_SECONDS = 600
TEST_SECONDS = 900  # for a package's own tests


def engine() -> str:
    """Changes with the auditor."""
    made = hashlib.sha256()
    for file in sorted((ROOT / "src" / "pairgrad" / "coherence").rglob("*.py")):
        made.update(file.read_bytes())
    return made.hexdigest()[:12]


def commit() -> str:
    """The last one that changed the library, with "+" where its files have changed since."""

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)

    named = git("log", "-1", "--format=%h", "--abbrev=10", "--", "src/pairgrad").stdout.strip()
    return f"{named}+" if git("diff", "--quiet", "HEAD", "--", "src/pairgrad").returncode else named or "not recorded"


def record_of(package: Package) -> dict[str, Any]:
    """What is known of a package, empty if nothing is."""
    return json.loads(package.record.read_text()) if package.record.exists() else {}


def census_of(package: Package, fresh: bool = False, only: str = "") -> dict[str, Any]:
    """Brings the record of a package up to date: cases that are new or changed since, its evidence, its tests."""
    record = {} if fresh else record_of(package)
    python, now = python_of(package.group), engine()
    record |= {
        "package": package.name,
        "version": package.version,
        "family": package.family,
        "group": package.group,
        "machine": machine_line(),
    }
    record["facts"] = json.loads(_inside(python, "import json; from census.worker import facts; print(json.dumps(facts()))"))
    listing = hashlib.sha256(
        f"{package.version}{package.modules}".encode() + Path(__file__).with_name("discovery.py").read_bytes()
    ).hexdigest()[:16]
    if record.get("listing") != listing:
        found = f"[asdict(d) for m in {package.modules!r} for d in defined(m)]"
        code = f"import json; from dataclasses import asdict; from census.discovery import defined; print(json.dumps({found}))"
        record |= {"functions": json.loads(_inside(python, code)), "listing": listing}
    rows = {name: row for name, row in record.get("audits", {}).items() if name in package.cases}
    wanted = [name for name, case in package.cases.items() if only in name]
    stale = [name for name in wanted if (rows.get(name, {}).get("key"), rows.get(name, {}).get("engine")) != (package.cases[name].key, now)]
    for name, row in audits(package, python, stale):
        rows[name] = {**row, "engine": now, "commit": commit(), "date": date.today().isoformat()}
        record["audits"] = {name: rows[name] for name in package.cases if name in rows}
        _keep(package, record)
        print(f"  {package.name}: {name}: {said(row)}", flush=True)
    record["audits"] = {name: rows[name] for name in package.cases if name in rows}
    shown = record.get("evidence", {})
    record["evidence"] = {}
    for finding in package.findings.values():
        key = hashlib.sha256(finding.evidence.read_bytes()).hexdigest()[:16] if finding.evidence.exists() else "no script"
        known = shown.get(finding.id, {})
        record["evidence"][finding.id] = (
            known if known.get("key") == key and known["exit"] is not None else {"key": key, **_evidence(python, finding.evidence)}
        )
        print(
            f"  {package.name}: evidence of {finding.id}: {'borne out' if record['evidence'][finding.id]['exit'] == 0 else 'NOT borne out'}",
            flush=True,
        )
    key = hashlib.sha256(repr((package.version, package.tests, package.test_options, now)).encode()).hexdigest()[:16]
    if not package.tests:
        record.pop("tests", None)
    elif not only and record.get("tests", {}).get("key") != key:
        from census.their_tests import tested

        record["tests"] = {"key": key, **tested(package, python, TEST_SECONDS)}
        print(f"  {package.name}: its own tests: {record['tests']['said']}", flush=True)
    _keep(package, record)
    return record


def said(row: dict[str, Any]) -> str:
    """A row in a line for the terminal."""
    found = row["audit"]["headline"] if "audit" in row else row.get("raises", "no result")
    beside = row.get("differences", {}).get("agrees", None)
    return f"{found}; differences {({True: 'agree', False: 'DISAGREE', None: 'cannot tell'})[beside]}; {row.get('seconds', 0):.0f} s"


def _keep(package: Package, record: dict[str, Any]) -> None:
    write_atomically(package.record, json.dumps(record, indent=1, sort_keys=True) + "\n")


def environment() -> dict[str, str]:
    """The variables of workers: one thread, no GPU, and this checkout among the places of modules."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    ours = {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1", "CUDA_VISIBLE_DEVICES": ""}
    return {**os.environ, **ours}


def _inside(python: Path, code: str) -> str:
    """The last line that some code prints in an environment."""
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, env=environment(), cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{python}: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip().splitlines()[-1]


def audits(
    package: Package, python: Path, names: list[str], seconds: float = CASE_SECONDS, memory: int = MEMORY_MB
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of some cases, from as many workers as it takes: one that exceeds its seconds or megabytes, or dies, costs its case alone."""
    left = list(names)
    while left:
        triton = package.cases[left[0]].triton
        batch = [name for name in left if package.cases[name].triton == triton]
        for name, row in _worked(package, python, batch, seconds, memory):
            left.remove(name)
            yield name, row


def _worked(package: Package, python: Path, names: list[str], seconds: float, memory: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows until the worker is through, or is ended; at least one."""
    left, limit = list(names), float(START_SECONDS)
    first = package.cases[left[0]]
    command = [str(python), "-m", "census.worker", first.make.__module__, *left]
    variables = environment() | ({"TRITON_INTERPRET": "1"} if first.triton else {})  # to be set before triton is imported
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=variables, cwd=ROOT, start_new_session=True
        ) as worker,
    ):
        lines: queue.Queue[str | None] = queue.Queue()
        reader = threading.Thread(target=_read, args=(worker, lines), daemon=True)
        reader.start()
        started = time.monotonic()
        try:
            while left:
                try:
                    line = lines.get(timeout=0.5)
                except queue.Empty:
                    spent, held = time.monotonic() - started, _memory(worker.pid)
                    if spent > limit or held > memory:
                        why = f"ended after {limit:.0f} s" if spent > limit else f"ended at {held} MB"
                        yield left[0], {"key": package.cases[left[0]].key, "raises": why, "seconds": round(spent, 2)}
                        return
                    continue
                if line is None:
                    code = worker.wait()
                    errors.seek(0)
                    last = (errors.read().strip().splitlines() or ["no message"])[-1][:300]
                    yield left[0], {"key": package.cases[left[0]].key, "raises": f"the process ended with {code}: {last}", "seconds": 0.0}
                    return
                told = json.loads(line)
                started = time.monotonic()
                if "begin" in told:
                    limit = seconds + package.cases[told["begin"]].options.get("seconds", 0.0)
                else:
                    yield left.pop(0), {name: value for name, value in told.items() if name != "end"}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
            reader.join()


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    for line in process.stdout or ():
        lines.put(line)
    lines.put(None)


def _memory(pid: int) -> int:
    """Resident memory in MB."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmRSS")), 0)


def _told(output: str) -> str:
    """The end of what a script prints, without lines that name folders of this machine."""
    lines = [line for line in output.splitlines() if str(ROOT) not in line and str(Path.home()) not in line]
    return "\n".join(lines[-8:])[-1200:]


def _evidence(python: Path, script: Path) -> dict[str, Any]:
    """What a script of evidence says: exit code 0 means borne out."""
    if not script.exists():
        return {"exit": None, "says": f"there is no {script.relative_to(ROOT)}"}
    started, variables = time.perf_counter(), environment()
    del variables["PYTHONPATH"]  # the script has nothing of ours
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [str(python), "-W", "ignore", str(script)],
                capture_output=True,
                text=True,
                env=variables,
                cwd=folder,
                timeout=EVIDENCE_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return {"exit": None, "says": f"not finished after {EVIDENCE_SECONDS} s"}
    output = done.stdout.strip() if done.returncode in (0, 1) and done.stdout.strip() else done.stderr.strip()[-400:]
    return {"exit": done.returncode, "says": _told(output), "seconds": round(time.perf_counter() - started, 2)}
