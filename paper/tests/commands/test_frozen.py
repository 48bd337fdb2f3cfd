"""`pairgrad frozen` and `pairgrad states` as a user runs them, and what they say when they cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import invoke

from pairgrad_paper.records import read
from paper.tests.captured.small import train_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(train_run(tmp_path_factory.mktemp("runs")))


def files(path: str) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in Path(path).rglob("*") if each.is_file()}


def test_frozen(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = files(run)
    done = invoke("frozen", run, "--step", "16", "--batch-size", "40", "--save", "views")
    assert done.exit_code == 0, done.stderr
    assert files(run) == before
    record = read("frozen-digits.jsonl")
    assert (record.name, record.facts["steps"], record.facts["batch_size"]) == ("frozen-digits", [16], 40)
    assert "update 16: a batch of 40" in done.stdout
    assert "written to frozen-digits.jsonl" in done.stdout
    assert "2 captured views written to views" in done.stdout
    assert done.stdout.count("equal") == 2
    assert "\x1b" not in done.stdout
    (view, _) = sorted(Path("views").iterdir())
    certified = invoke("certify", str(view))
    assert certified.exit_code == 0
    assert "40 samples, 7 classes, dim 128" in certified.stdout


def test_states(run: str, tmp_path: Path) -> None:
    done = invoke("states", run, "--every", "2", "--quiet", "-o", str(tmp_path / "mine.jsonl"))
    assert done.exit_code == 0, done.stderr
    record = read(tmp_path / "mine.jsonl")
    assert record.name == "mine"
    assert [line["when"] for line in record.of("capture")] == ["first batch", "first batch", "epoch 2", "epoch 2"]
    assert done.stdout.split() == f"written to {tmp_path / 'mine.jsonl'}".split()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("frozen", "--step", "5"), "no checkpoint of update 5; it has 0, 8, 16"),
        (("frozen", "--batch-size", "1"), "--batch-size must be from 2 to 286, the number of training images, got 1"),
        (("frozen", "--batch-size", "5000"), "--batch-size must be from 2 to 286, the number of training images, got 5000"),
        (
            ("frozen", "-o", "nowhere/a.jsonl"),
            "--output must be a file in a directory that exists, got nowhere/a.jsonl: make nowhere first",
        ),
        (("states", "-o", "."), "--output must be a file, got the directory ."),
    ],
)
def test_what_cannot_be_done(run: str, arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke(arguments[0], run, *arguments[1:])
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.startswith(f"pairgrad {arguments[0]}: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["frozen", "states"])
def test_no_run(command: str, tmp_path: Path) -> None:
    done = invoke(command, str(tmp_path))
    assert done.exit_code == 2
    assert f"is {tmp_path} the directory of a run?" in done.stderr
