"""The record of a run: what it keeps of the run's directory, what it leaves out, and how a run ended."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pairgrad_paper.records import RecordError, record_of_run, write
from pairgrad_paper.runs import RunDirectory, RunError

FACTS = {
    "recipe": {"name": "digits-lt", "epochs": 2, "data": {"benchmark": "digits-lt", "outliers": "/data/ood/noise.npy"}},
    "realization": "original",
    "seed": 7,
    "processes": 1,
    "data": {"class_counts": [20, 5]},
}
ENVIRONMENT = {
    "versions": {"torch": "2"},
    "cpu": {"model": "M"},
    "device": {"type": "cpu"},
    "source": {"revision": "abc"},
    "hostname": "box",
    "command": ["/home/me/bin/pairgrad", "train", "digits-lt", "--data-root=/data", "--set", "data.outliers=/data/ood/noise.npy"],
    "data": {"notes": ["the source x is missing", "read from /data/ood/noise.npy"], "files": [{"path": "/data/a", "md5": "0"}]},
}


def step(number: int, time: float) -> dict[str, Any]:
    return {"kind": "step", "step": number, "time": time, "total": 1 / number, "vmf": 0.5, "accuracy": 0.25}


def epoch(number: int, at: int, time: float) -> dict[str, Any]:
    return {"kind": "epoch", "step": at, "time": time, "epoch": number, "train_total": 1.5, "lr": 0.1, "test_accuracy": 0.5}


def coherence(at: int, time: float, defect: float = 2e-3) -> dict[str, Any]:
    functions = [{"function": "Eager", "verdict": "incoherent", "defect": defect, "error": 1e-8, "looked": 1}]
    return {"kind": "coherence", "step": at, "time": time, "functions": functions}


def end(at: int, time: float) -> dict[str, Any]:
    return {"kind": "end", "step": at, "time": time}


def make(path: Path, *events: dict[str, Any], evaluations: Mapping[str, object] | None = None) -> Path:
    with RunDirectory.create(path, FACTS, ENVIRONMENT) as run:
        for event in events:
            rest = {key: value for key, value in event.items() if key not in ("kind", "step")}
            run.log.write(event["kind"], event["step"], **rest)
    for name, content in (evaluations or {}).items():
        (path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return path


WHOLE = ({"kind": "checkpoint", "step": 0, "name": "step-0"}, step(1, 100.0), coherence(2, 130.0), epoch(0, 2, 160.0), end(2, 220.0))


def test_what_is_kept(tmp_path: Path) -> None:
    evaluation = {"recipe": "digits-lt", "seed": 7, "step": 2, "environment": {"hostname": "box"}, "scores": {"msp": {"score": "msp"}}}
    record = record_of_run(make(tmp_path / "a-run", *WHOLE, evaluations={"evaluation-00000002.json": evaluation}))
    assert (record.name, record.record) == ("a-run", "run")
    assert record.title == "digits-lt, original, seed 7, 2 epochs"
    assert record.facts["seed"] == 7
    assert record.facts["data"] == {"class_counts": [20, 5]}
    assert record.facts["notes"][0] == "the source x is missing"
    assert [line["kind"] for line in record.lines] == ["step", "coherence", "epoch", "evaluation", "end"]
    assert record.one("epoch") == {"kind": "epoch", "step": 2, "epoch": 0, "train_total": 1.5, "lr": 0.1, "test_accuracy": 0.5}
    assert record.one("evaluation")["scores"] == {"msp": {"score": "msp"}}
    assert record.one("end") == {"kind": "end", "step": 2, "minutes": 2.0, "ending": "finished"}


def test_nothing_of_the_machine_is_kept(tmp_path: Path) -> None:
    record = record_of_run(make(tmp_path / "a", *WHOLE))
    assert set(record.environment) == {"versions", "cpu", "device", "source", "command"}
    assert record.command == "pairgrad train digits-lt --data-root=DATA --set data.outliers=noise.npy"
    assert record.facts["recipe"]["data"]["outliers"] == "noise.npy"
    assert record.facts["notes"][1] == "read from noise.npy"
    text = write(tmp_path / "a.jsonl", record).read_text()
    assert not re.search(r"/data|/home|box|\"time\"", text)


def test_the_commits_that_resumed_and_evaluated_it_are_kept(tmp_path: Path) -> None:
    """A run that several versions worked on is of none of them alone."""
    resume = {"kind": "resume", "step": 1, "time": 120.0, "environment": {"source": {"revision": "def"}}}
    own, other = ({"step": 2, "scores": {}, "environment": {"source": {"revision": each}}} for each in ("abc", "123"))
    evaluations = {"evaluation-00000001.json": own, "evaluation-00000002.json": other}
    environment = record_of_run(make(tmp_path / "a", step(1, 100.0), resume, resume, end(2, 220.0), evaluations=evaluations)).environment
    assert environment["source"] == {"revision": "abc"}
    assert environment["further_sources"] == [{"revision": "def"}, {"revision": "123"}]
    alike = record_of_run(make(tmp_path / "b", *WHOLE, evaluations={"evaluation-00000002.json": own})).environment
    assert "further_sources" not in alike


def test_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    run = make(tmp_path / "a", *WHOLE)
    first, second = (write(tmp_path / f"{name}.jsonl", record_of_run(run)).read_bytes() for name in "12")
    assert first == second


@pytest.mark.parametrize(
    ("last", "ending"),
    [
        (end(3, 5.0), "finished"),
        ({"kind": "stop", "step": 3, "time": 5.0, "reason": "SIGTERM"}, "stopped: SIGTERM"),
        ({"kind": "failure", "step": 3, "time": 5.0, "what": "the loss", "at": 3}, "stopped: the loss is not finite"),
        (step(3, 5.0), "interrupted, or still running"),
    ],
)
def test_how_it_ended(tmp_path: Path, last: dict[str, Any], ending: str) -> None:
    assert record_of_run(make(tmp_path / "a", step(1, 1.0), last)).one("end")["ending"] == ending


def test_the_time_in_which_it_did_not_run_does_not_count(tmp_path: Path) -> None:
    stop, resume = {"kind": "stop", "step": 2, "time": 60.0, "reason": "Ctrl-C"}, {"kind": "resume", "step": 2, "time": 9000.0}
    record = record_of_run(make(tmp_path / "a", step(1, 0.0), stop, resume, step(3, 9030.0), end(3, 9060.0)))
    assert record.one("end") == {"kind": "end", "step": 3, "minutes": 2.0, "ending": "finished"}
    assert [line["step"] for line in record.of("step")] == [1, 3]


def test_steps_are_thinned_and_nothing_else(tmp_path: Path) -> None:
    events = [e for n in range(1, 1001) for e in ([step(n, float(n))] + ([epoch(n // 20, n, float(n))] if n % 20 == 0 else []))]
    record = record_of_run(make(tmp_path / "a", *events, coherence(1000, 1000.0)))
    assert len(record.of("epoch")) == 50
    assert len(record.of("coherence")) == 1
    kept = [line["step"] for line in record.of("step")]
    assert kept[:3] == [1, 1 + kept[1] - kept[0], 1 + 2 * (kept[1] - kept[0])]
    assert 300 < len(kept) < 1000
    assert len(write(tmp_path / "a.jsonl", record).read_bytes()) < 63_000


def test_numbers_that_are_not_finite_are_null(tmp_path: Path) -> None:
    record = record_of_run(make(tmp_path / "a", step(1, 1.0), coherence(2, 2.0, float("nan"))))
    assert record.one("coherence")["functions"][0]["defect"] is None
    write(tmp_path / "a.jsonl", record)


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    run = make(tmp_path / "a", *WHOLE[:3])
    with (run / "record.jsonl").open("a") as file:
        file.write('{"kind": "step", "st')
    assert record_of_run(run).one("end")["step"] == 2


def test_evaluations_of_all_updates_the_whole_before_its_parts(tmp_path: Path) -> None:
    names = ("evaluation-00000002-msp.json", "evaluation-00000001.json", "evaluation-00000002.json")
    evaluations = {name: {"step": int(name[11:19]), "scores": {}, "file": name} for name in names}
    record = record_of_run(make(tmp_path / "a", *WHOLE, evaluations=evaluations))
    assert [line["file"] for line in record.of("evaluation")] == [names[1], names[2], names[0]]


@pytest.mark.parametrize(("content", "message"), [("{", "cannot be read"), ({"scores": {}}, "must have a step and scores")])
def test_damaged_evaluation(tmp_path: Path, content: object, message: str) -> None:
    run = make(tmp_path / "a", *WHOLE, evaluations={"evaluation-00000002.json": content})
    with pytest.raises(RecordError, match=rf"evaluation-00000002\.json {message}.*evaluate the run again"):
        record_of_run(run)


def test_no_run_and_no_events(tmp_path: Path) -> None:
    with pytest.raises(RunError):
        record_of_run(tmp_path)
    with pytest.raises(RecordError, match="has no events yet: train it first"):
        record_of_run(make(tmp_path / "a"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", {"format": 1, "facts": {"recipe": [1]}, "environment": {}}),
        ("run.json", {"format": 1, "facts": {}, "environment": {"command": 5}}),
        ("record.jsonl", {"kind": "step", "step": 1, "time": "x"}),
    ],
    ids=range(3),
)
def test_what_a_run_does_not_write_is_an_error_that_names_it(tmp_path: Path, name: str, content: dict[str, Any]) -> None:
    run = make(tmp_path / "run", step(1, 0.0), end(2, 1.0))
    path = run / name
    path.write_text((path.read_text() if name.endswith("l") else "") + json.dumps(content) + "\n")
    with pytest.raises(RecordError, match=r"run has something that is not as pairgrad train writes it"):
        record_of_run(run)


@pytest.mark.parametrize("name", ["run.json", "record.jsonl", "evaluation-00000002.json"])
def test_deep_json_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    run = make(tmp_path / "run", step(1, 0.0), end(2, 1.0))
    (run / name).write_text("[" * 900 + "]" * 900 + "\n")
    with pytest.raises((RecordError, RunError), match=rf"{name}.*nested more than 64 deep"):
        record_of_run(run)
