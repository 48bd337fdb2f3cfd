"""`pairgrad audit` with its worker in a process of its own: interruptions, time limits, crashes, streams that close."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pairgrad.cli import audit_child
from pairgrad.coherence import Report
from tests.cli.audit.command import QUICK, audit, quick

PROGRAM = (str(Path(sys.executable).with_name("pairgrad")),)
PATIENT = (sys.executable, "-c", "from pairgrad.cli import audit_child, main; audit_child._GRACE = 86400; main()")  # with a busy machine


def started(folder, *arguments, program=PROGRAM, stdout=subprocess.PIPE, **env):
    """`pairgrad audit ARGUMENTS` in a process group of its own, as a shell starts it."""
    return subprocess.Popen(
        [*program, "audit", *arguments],
        cwd=folder,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "COLUMNS": "300", **env},
    )


class Clock:
    """The clock by which the parent waits: it stands still, and jumps ahead half a second after a mark is seen. How fast the machine is plays no part."""

    def __init__(self, folder):
        self.seen = {folder / f"{word}.mark": None for word in ("stuck", "swallowed")}

    def monotonic(self):
        now = time.monotonic()
        for mark, since in self.seen.items():
            self.seen[mark] = now if since is None and mark.exists() else since
        return 1e6 * sum(since is not None and now > since + 0.5 for since in self.seen.values())


@pytest.fixture
def clock(folder, monkeypatch):
    monkeypatch.setattr(audit_child, "time", Clock(folder))


def until(process, word):
    for line in process.stdout:
        if word in line:
            return
    raise AssertionError(f"ended before {word!r}: {process.stderr.read()}")


@pytest.mark.slow
def test_an_incoherent_function_of_another_folder(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    arguments = (f"{folder}/losses.py:bad", "--inputs", "randn(3)", "--effort", "quick", "--json", "report.json", "--html", "report.html")
    process = started(elsewhere, *arguments)
    out, err = process.communicate(timeout=1000)
    assert process.returncode == 1, err
    assert out.startswith("FAIL bad\n")
    assert "bad: incoherent, by 0.2" in out
    assert f"Sine ({folder}/losses.py:" in out
    assert [line.split(" (")[0] for line in err.splitlines()[:2]] == ["[1/5] repeating calls", "[2/5] looking at the inputs"]
    assert "Written: report.html, report.json" in err
    report = Report.from_dict(json.loads((elsewhere / "report.json").read_text()))
    assert report.complete
    assert str(report) == out.rstrip("\n")
    assert "<html" in (elsewhere / "report.html").read_text()


def test_an_interruption_keeps_what_was_found(folder):
    process = started(folder, "losses:stuck", "--inputs", "randn(2)", "--domain", "-2..2", "--json", "report.json", program=PATIENT)
    until(process, "stuck")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=1000)
    assert process.returncode == 130, err
    assert "pairgrad audit: interrupted while looking" in err
    assert re.search(r"\(\d{3} calls\), at losses\.py:\d+, in (stuck|mark)\b", err)
    assert "; this was found until then:" in err
    assert "Traceback" not in err
    assert out.startswith("FAIL stuck\n")
    assert "stuck: incoherent, by 0." in out
    report = Report.from_dict(json.loads((folder / "report.json").read_text()))
    assert report.verdict == "incoherent"
    assert not report.complete
    assert report.evaluations > 390  # the report is of the moment of the interruption, not the last one that was sent before it


def test_a_second_interruption_ends_at_once(folder):
    """The first one, which asks to end as a batch system does, is swallowed by the function; it would be waited for until tomorrow."""
    with started(folder, "losses:deaf", "--inputs", "randn(2)", program=PATIENT) as process:
        until(process, "stuck")
        process.terminate()
        until(process, "swallowed")
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=1000)
    assert process.returncode == 130, err
    assert "pairgrad audit:" not in err
    assert "Traceback" not in err


def test_an_interruption_while_the_target_is_imported(folder):
    (folder / "slow.py").write_text("import time\nprint('stuck', flush=True)\ntime.sleep(86400)\n")
    process = started(folder, "slow:f", "--inputs", "randn(2)")
    until(process, "stuck")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=1000)
    assert process.returncode == 130, err
    assert "pairgrad audit: interrupted while importing slow" in err
    assert "Traceback" not in err


def test_time_over(folder, clock):
    code, out, err = audit("losses:stuck", "--inputs", "randn(2)", "--domain", "-2..2", "--timeout", 3, "--json", "report.json")
    assert code == 1, err
    assert "pairgrad audit: losses:stuck timed out after 3 s while looking" in err
    assert re.search(r"\(\d{3} calls\), at losses\.py:\d+, in (stuck|mark)\b", err)
    assert out.startswith("FAIL stuck\n")
    assert "stuck: incoherent" in out
    assert not json.loads((folder / "report.json").read_text())["complete"]


def test_a_deaf_function_is_killed_and_its_prints_are_kept_out_of_the_data(folder, clock, capfd):
    code, out, err = audit("losses:deaf", "--inputs", "randn(2)", "--timeout", 1, "--format", "json")
    assert code == 2
    assert "losses:deaf timed out after 1 s while calling deaf for the first time, at losses.py:" in err
    assert json.loads(out)["error"] in err
    assert capfd.readouterr() == ("", "stuck\nswallowed\n")


def test_a_crash(folder):
    code, out, err = audit("losses:crashes", "--inputs", "randn(2)", "--json", "report.json")
    assert code == 2
    assert "the process that audits losses:crashes was ended by SIGSEGV while repeating calls" in err
    assert "at losses.py:" in err
    assert "in crashes" in err
    assert "nothing was found until then" in err
    assert out == ""
    assert json.loads((folder / "report.json").read_text())["complete"] is False


def test_everything_that_a_worker_said_is_heard_on_a_busy_machine(folder, monkeypatch):
    """The thread that listens to it gets its turn only when the worker has been over for a while."""
    listen, grace = audit_child.Child._read, audit_child._GRACE

    def late(child, descriptor):
        while not hasattr(child, "_process") or child._process.poll() is None:
            time.sleep(0.01)
        time.sleep(grace / 4)
        listen(child, descriptor)

    monkeypatch.setattr(audit_child.Child, "_read", late)
    monkeypatch.setattr(audit_child, "_GRACE", 1000.0)
    code, out, err = quick("losses:good", "--inputs", "randn(2)")
    assert code == 0, err
    assert out.startswith("PASS good\ncoherent, to ")


def test_a_worker_without_a_parent_ends(folder):
    """Its function never returns and swallows interruptions."""
    with started(folder, "losses:deaf", "--inputs", "randn(2)") as process:
        until(process, "stuck")
        process.kill()
        process.stdout.read()  # until the worker, which has inherited it, is gone, or the time limit of tests


@pytest.mark.slow
def test_nobody_reads(folder):
    """As in `pairgrad audit ... | true`: the file is written, and the exit code is that of the verdict."""
    reading, writing = os.pipe()
    os.close(reading)
    process = started(folder, "losses:good", *QUICK, "--json", "report.json", stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=1000)
    assert process.returncode == 0, err
    assert "rror" not in err
    assert json.loads((folder / "report.json").read_text())["passed"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(("target", "code"), [("losses:good", 2), pytest.param("losses:bad", 1, marks=pytest.mark.slow)])
def test_standard_output_is_full(folder, target, code):
    with open("/dev/full", "w") as full:
        process = started(folder, target, *QUICK, "--json", "report.json", stdout=full)
        _, err = process.communicate(timeout=1000)
    assert process.returncode == code, err
    assert "pairgrad audit: cannot write to standard output: No space left on device" in err
    assert "Traceback" not in err
    assert json.loads((folder / "report.json").read_text())["passed"] is (target == "losses:good")


def test_a_locale_without_the_characters(folder):
    process = started(
        folder, "losses:bad", *QUICK, "--json", "r.json", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii"
    )
    out, err = process.communicate(timeout=1000)
    assert process.returncode == 1, err
    assert out.startswith("FAIL bad\n")
    assert "bad: incoherent, by 0.25 of the gradient (? " in out
    assert (folder / "r.json").exists()


@pytest.mark.slow
def test_what_the_function_started_ends_with_the_audit(folder):
    code, out, err = quick("losses:leaves_a_process_behind", "--inputs", "randn(2)")
    assert code == 0, out + err
    pid = int((folder / "pid").read_text())
    while _is_running(pid):  # until the time limit of tests
        time.sleep(0.1)


def _is_running(pid):
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.mark.slow
def test_a_script_with_arguments_of_its_own(folder):
    """It gets none: those of the worker are not its."""
    (folder / "script.py").write_text(
        "import argparse, sys\nparser = argparse.ArgumentParser()\nparser.add_argument('--n', default=3)\n"
        "n = parser.parse_args().n\nassert sys.argv == ['script.py']\n\ndef f(x):\n    return n * x\n"
    )
    for target in ("script:f", "script.py:f"):
        code, out, err = quick(target, "--inputs", "randn(2)")
        assert code == 0, out + err
