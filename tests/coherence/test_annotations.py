"""Reports as code hosts take them."""

from __future__ import annotations

import functools
import inspect
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import Finding, NodeReport, Report, RunReport, Verdict
from pairgrad.coherence.report.annotations import annotations, callable_location, code_quality, failure_annotation
from tests.coherence.functions import Round, sine_with

HERE = "tests/coherence/test_annotations.py"
FUNCTIONS = "tests/coherence/functions.py"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    monkeypatch.delenv("CI_PROJECT_DIR", raising=False)


def made(verdict=Verdict.INCOHERENT, findings=(), **fields):
    report = Report("loss", verdict, False, None, 1e-12, 1e-12, 0.25, 1e-9, tuple(findings), ())
    return replace(report, **fields)


DEFECT = Finding("defect", "alarm", "the supplied gradient is off by 50 % of its size", "x")


def node(name, location, severity="warning", **numbers):
    return Finding(
        "node", severity, "audited alone: incoherent", f"{name} ({location})", {"location": location, "verdict": "incoherent", **numbers}
    )


def fields(line):
    """Level, properties and message of an annotation, as the host reads them."""
    empty, command, message = line.split("::", 2)
    assert empty == ""
    level, _, listed = command.partition(" ")
    properties = dict(pair.split("=", 1) for pair in listed.split(","))

    def back(text):
        return text.replace("%2C", ",").replace("%3A", ":").replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%")

    return level, {name: back(value) for name, value in properties.items()}, back(message)


def test_nothing_is_said_of_what_passes():
    report = made(Verdict.COHERENT, passed=True)
    assert annotations(report, "a.py:3") == []
    assert code_quality(report, "a.py:3") == []


def test_a_real_audit_is_put_where_its_backward_is():
    sine = sine_with(lambda x: 1.01)
    report = pg.audit(sine.apply, torch.tensor([0.3, 0.7], dtype=torch.float64), effort="quick")
    (line,) = annotations(report)
    level, properties, message = fields(line)
    written = inspect.getsourcelines(sine.backward)[1]
    assert level == "error"
    assert properties == {"file": FUNCTIONS, "line": str(written), "title": "Sine.apply is incoherent"}
    assert message.startswith("gradient of input 0 (argument 1) is 1.01 x the true one\nfirst order WRONG, ")
    assert "input 0: the supplied gradient is off by 0.01 of the true one" in message
    assert "What to do: differentiate the value that is computed" in message


def test_one_line_each_and_nothing_that_ends_it_early():
    line = failure_annotation("a, b: 100 %\nc", "50 %, x: y\r\n::error::z", "dir,with:odd%name.py:7")
    assert "\n" not in line
    assert "\r" not in line
    assert line == "::error file=dir%2Cwith%3Aodd%25name.py,line=7,title=a%2C b%3A 100 %25%0Ac::50 %25, x: y\\r%0A\\x3a:error::z"
    assert fields(line) == (
        "error",
        {"file": "dir,with:odd%name.py", "line": "7", "title": "a, b: 100 %\nc"},
        "50 %, x: y\\r\n\\x3a:error::z",
    )


def test_a_place_is_left_out_where_there_is_none():
    assert annotations(made(findings=[DEFECT]))[0].startswith("::error title=loss is incoherent::incoherent, by 0.25")
    (entry,) = code_quality(made(findings=[DEFECT]))
    assert entry["location"] == {"path": "unknown", "lines": {"begin": 1}}


def test_places_are_seen_from_the_root_of_the_checkout(monkeypatch, tmp_path):
    report = made(findings=[DEFECT])
    inside = tmp_path / "src" / "loss.py"
    assert fields(annotations(report, f"{inside}:4")[0])[1]["file"] == inside.as_posix()
    for name in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
        assert fields(annotations(report, f"{inside}:4")[0])[1]["file"] == "src/loss.py"
        assert code_quality(report, f"{inside}:4")[0]["location"] == {"path": "src/loss.py", "lines": {"begin": 4}}
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("verdict", "level", "title", "severity"),
    [
        (Verdict.INCOHERENT, "error", "loss is incoherent", "critical"),
        (Verdict.JUMP, "error", "loss has a jump", "critical"),
        (Verdict.NOT_REENTRANT, "error", "loss is not-reentrant", "critical"),
        (Verdict.STRAIGHT_THROUGH, "error", "loss is straight-through-like", "critical"),
        (Verdict.INCONCLUSIVE, "warning", "loss could not be decided", "minor"),
    ],
)
def test_verdicts(verdict, level, title, severity):
    said, properties, _ = fields(annotations(made(verdict), "a.py:1")[0])
    assert (said, properties["title"]) == (level, title)
    (entry,) = code_quality(made(verdict), "a.py:1")
    assert entry["severity"] == severity
    assert entry["check_name"] == f"pairgrad/{verdict.value}"


def test_an_inconclusive_report_says_its_warnings():
    report = made(
        Verdict.INCONCLUSIVE, [Finding("unresolved", "warning", "nothing can be said here", "x"), Finding("note", "note", "by the way")]
    )
    message = fields(annotations(report)[0])[2]
    assert "x: nothing can be said here." in message
    assert "by the way" not in message


def test_bad_nodes_are_annotated_where_they_are():
    report = made(findings=[DEFECT, node("First", "one.py:10"), node("Second", "two.py:20"), node("Fine", "three.py:30", "note")])
    lines = [fields(line) for line in annotations(report, "loss.py:5")]
    assert [(level, p["file"], p["line"], p["title"]) for level, p, _ in lines] == [
        ("error", "loss.py", "5", "loss is incoherent"),
        ("warning", "one.py", "10", "First is incoherent"),
        ("warning", "two.py", "20", "Second is incoherent"),
    ]
    assert "Met in the audit of loss." in lines[1][2]
    assert len({entry["fingerprint"] for entry in code_quality(report, "loss.py:5")}) == 3


def test_the_only_bad_node_is_the_place_of_a_function_without_one():
    report = made(findings=[DEFECT, node("First", "one.py:10"), node("Fine", "three.py:30", "note")])
    (line,) = annotations(report)
    assert fields(line)[1]["file"] == "one.py"
    two = made(findings=[DEFECT, node("First", "one.py:10"), node("Second", "two.py:20")])
    assert "file" not in fields(annotations(two)[0])[1]


def test_fingerprints_stay_when_numbers_and_lines_change():
    def prints(report, location="a.py:3", key=""):
        return [entry["fingerprint"] for entry in code_quality(report, location, key=key)]

    report = made(findings=[DEFECT])
    again = made(findings=[replace(DEFECT, text="off by 51 %")], defect=0.26)
    assert prints(report) == prints(again, "a.py:9")
    others = [prints(report, "b.py:3"), prints(replace(report, name="other")), prints(made(Verdict.JUMP)), prints(report, key="test_a")]
    assert len({prints(report)[0], *(p[0] for p in others)}) == 5


def test_code_quality_is_json_with_what_the_host_asks_for():
    (entry,) = json.loads(json.dumps(code_quality(made(findings=[DEFECT]), "a.py:3")))
    assert set(entry) == {"description", "check_name", "fingerprint", "severity", "location"}
    assert "\n" not in entry["description"]
    assert entry["description"].startswith("loss is incoherent: incoherent, by 0.25")


def run_node(name, location, verdict, passed):
    worst = made(verdict, passed=passed, checks={"first order": "right" if passed else "wrong"})
    return NodeReport(name, location, verdict, passed, None, 9, 4, 0 if passed else 2, 0.5, 0.1, 0.9, 0.25, 1e-9, 0.3, (), worst)


def test_every_failing_node_of_a_run():
    nodes = (
        run_node("Clip", "clip.py:7", Verdict.INCOHERENT, False),
        run_node("Fine", "fine.py:8", Verdict.COHERENT, True),
        run_node("Dim", None, Verdict.INCONCLUSIVE, False),
    )
    run = RunReport(Verdict.INCOHERENT, False, nodes, made(findings=[DEFECT]), "", 3)
    lines = [fields(line) for line in annotations(run, "train.py:1")]
    assert [(level, p["file"], p["title"]) for level, p, _ in lines] == [
        ("error", "clip.py", "Clip is incoherent"),
        ("warning", "train.py", "Dim could not be decided"),
        ("error", "train.py", "loss is incoherent"),
    ]
    assert "at 2 of 4 visited states" in lines[0][2]
    assert lines[0][2].endswith("\nfirst order WRONG"), "what is wrong at the worst state"
    assert [entry["check_name"] for entry in code_quality(run)] == ["pairgrad/incoherent", "pairgrad/inconclusive", "pairgrad/incoherent"]
    assert annotations(RunReport(Verdict.COHERENT, True, nodes[1:2], None, "", 3)) == []


class Net(torch.nn.Module):
    def forward(self, x):
        return x


def plain(x):
    return x


@functools.wraps(plain)
def wrapped(*args):
    return plain(*args)


@pytest.mark.parametrize(
    ("fn", "written", "file"),
    [
        (plain, plain, HERE),
        (wrapped, plain, HERE),
        (functools.partial(plain, 3), plain, HERE),
        (Net(), Net, HERE),
        (Net, Net, HERE),
        (Net().forward, Net.forward, HERE),
        (Round.apply, Round.backward, FUNCTIONS),
    ],
)
def test_where_callables_are(fn, written, file):
    path, _, line = (callable_location(fn) or "").rpartition(":")
    assert os.path.relpath(path) == file
    assert int(line) == inspect.getsourcelines(written)[1]


def test_a_builtin_is_nowhere():
    assert callable_location(torch.sin) is None
