"""`pairgrad collect` as a user runs it, on a run, on a record, on costs, and what it says when it cannot."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.cli.command import invoke

from pairgrad_paper.records import Record, Records, write
from paper.tests.evaluation.small import train_run
from paper.tests.records.cost_files import run, stored


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of eight updates, with its evaluation."""
    path = train_run(tmp_path_factory.mktemp("runs"))
    assert invoke("evaluate", str(path), "--device", "cpu").exit_code == 0
    return path


def test_a_run(trained: Path, tmp_path: Path) -> None:
    done = invoke("collect", str(trained), "--records", str(tmp_path / "records"))
    assert done.exit_code == 0, done.stderr
    assert f"{trained.name}.jsonl: run, lines: 2 epoch, 1 evaluation; finished; " in done.stdout
    assert " kB, new" in done.stdout
    (record,) = Records(tmp_path / "records")
    evaluation = json.loads((trained / "evaluation-00000008.json").read_text())
    assert record.name == trained.name == "digits-lt-arfr-seed1"
    assert record.one("evaluation")["scores"] == evaluation["scores"]
    assert record.one("evaluation")["classes"] == evaluation["classes"]
    assert "environment" not in record.one("evaluation")
    assert record.one("end")["step"] == 8
    path = tmp_path / "records" / f"{trained.name}.jsonl"
    assert str(tmp_path.parent) not in path.read_text()
    before = path.read_bytes()
    again = invoke("collect", str(trained), "--records", str(tmp_path / "records"))
    assert " kB, as it was" in again.stdout
    assert path.read_bytes() == before


def test_records_and_costs(tmp_path: Path) -> None:
    fork = write(tmp_path / "fork-a.jsonl", Record("fork-a", "fork", "T", {}, {"command": "pairgrad fork"}, ({"kind": "end", "step": 1},)))
    costs = stored(tmp_path / "costs.json", run())
    target = tmp_path / "records"
    write(target / "fork-a.jsonl", Record("fork-a", "fork", "Older", {}, {}, ()))
    done = invoke("collect", str(fork), str(costs), "--records", str(target))
    assert done.exit_code == 0, done.stderr
    assert "kB, replaced" in done.stdout
    assert (target / "fork-a.jsonl").read_bytes() == fork.read_bytes()
    assert sorted(path.name for path in target.iterdir()) == ["fork-a.jsonl", "local-costs-cpu.jsonl"]


def test_a_directory_of_records_as_fork_writes_it(tmp_path: Path) -> None:
    for name in ("fork-a", "fork-b"):
        write(tmp_path / "forks" / f"{name}.jsonl", Record(name, "fork", "T", {}, {}, ({"kind": "end", "step": 1},)))
    done = invoke("collect", str(tmp_path / "forks"), "--records", str(tmp_path / "records"))
    assert done.exit_code == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "records").iterdir()) == ["fork-a.jsonl", "fork-b.jsonl"]


def test_what_cannot_be_collected(trained: Path, tmp_path: Path) -> None:
    unknown = write(tmp_path / "x.jsonl", Record("x", "poem", "T", {}, {}, ()))
    (tmp_path / "empty").mkdir()
    for path, message in (
        (tmp_path / "missing", "does not exist: give a run's directory"),
        (tmp_path / "empty", "run.json"),
        (unknown, "is a record of kind 'poem', and tables and figures know run, fork, frozen, states, cost, times"),
        (trained / "record.jsonl", "is not a record"),
        (tmp_path / "missing.json", "cannot be read as a record of costs"),
    ):
        done = invoke("collect", str(trained), str(path), "--records", str(tmp_path / "records"))
        assert done.exit_code == 2, path
        assert done.stderr.startswith("pairgrad collect: ")
        assert message in done.stderr
        assert not (tmp_path / "records").exists()  # all or nothing


def test_two_of_one_name(trained: Path, tmp_path: Path) -> None:
    other = shutil.copytree(trained, tmp_path / trained.name)
    done = invoke("collect", str(trained), str(other), "--records", str(tmp_path / "records"))
    assert done.exit_code == 2
    assert f"are called {trained.name}: a record would replace another" in done.stderr


def test_a_directory_that_cannot_be_written(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = invoke("collect", str(trained), "--records", str(tmp_path / "file" / "below"))
    assert done.exit_code == 2
    assert "cannot write to" in done.stderr
    assert "choose another directory with --records" in done.stderr
