"""Where a record comes from, without what belongs to one machine."""

from __future__ import annotations

import sys

import pytest

from pairgrad_paper.records import origin


def test_what_is_kept() -> None:
    environment = {
        "versions": {"torch": "2"},
        "device": {"type": "cpu"},
        "cpu": {"model": "M"},
        "hostname": "box",
        "source": {"revision": "0"},
        "data": {"files": [{"path": "/x"}]},
        "command": ["/bin/pairgrad", "other"],
    }
    assert origin(environment, ["/venv/bin/pairgrad", "train", "digits-lt"]) == {
        "versions": {"torch": "2"},
        "device": {"type": "cpu"},
        "cpu": {"model": "M"},
        "source": {"revision": "0"},
        "command": "pairgrad train digits-lt",
    }
    assert origin({"source": None}, []) == {"command": ""}  # outside a checkout


def test_without_a_command_that_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/a/b/pairgrad/__main__.py", "fork", "-o", "/tmp/x"])
    assert origin({}) == {"command": "pairgrad fork -o x"}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([], ""),
        (["pairgrad"], "pairgrad"),
        (["C:/x/pairgrad.exe", "train"], "pairgrad train"),
        (["pairgrad", "train", "--data-root", "/x/y"], "pairgrad train --data-root DATA"),
        (["pairgrad", "train", "--data-root", "data"], "pairgrad train --data-root DATA"),
        (["pairgrad", "train", "--data-root=/x"], "pairgrad train --data-root=DATA"),
        (["pairgrad", "train", "--output=/x/y/runs"], "pairgrad train --output=runs"),
        (["pairgrad", "train", "-o", "/x/y/runs", "--seed", "1"], "pairgrad train -o runs --seed 1"),
        (["pairgrad", "collect", "/x/runs/a", "--records", "/x/records"], "pairgrad collect a --records records"),
        (["pairgrad", "train", "--set", "optimizer.lr=0.1"], "pairgrad train --set optimizer.lr=0.1"),
        (["pairgrad", "train", "--set", "data.outliers=/x/y.npy"], "pairgrad train --set data.outliers=y.npy"),
    ],
)
def test_commands_have_no_absolute_paths(given: list[str], wanted: str) -> None:
    assert origin({}, given)["command"] == wanted
