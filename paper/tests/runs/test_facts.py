"""What a run writes down about its surroundings."""

from __future__ import annotations

import json
import platform
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch

import pairgrad
from pairgrad_paper.runs import environment, source_revision


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True).stdout.strip()


def test_versions_device_and_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pairgrad", "train", "--seed", "1"])
    found = environment()
    assert found["versions"] == {
        "pairgrad": pairgrad.__version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }
    assert found["command"] == ["pairgrad", "train", "--seed", "1"]
    assert (found["device"]["type"], found["device"]["count"]) == ("cpu", 1)
    assert found["device"]["name"] in found["cpu"]["model"]
    assert found["cpu"]["threads"] == torch.get_num_threads()
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_the_hostname_is_there_only_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "a-name-of-a-machine")
    assert "a-name-of-a-machine" not in json.dumps(environment())
    assert environment(hostname=True)["hostname"] == "a-name-of-a-machine"


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_revision_is_of_the_checkout_that_has_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, elsewhere = tmp_path / "checkout" / "src", tmp_path / "checkout" / ".venv" / "lib"
    package.mkdir(parents=True)
    elsewhere.mkdir(parents=True)
    assert source_revision(package) is None
    (package / "a.py").write_text("1")
    (elsewhere / "a.py").write_text("1")
    git(tmp_path / "checkout", "init")
    assert source_revision(package) is None, "nothing is committed"
    git(tmp_path / "checkout", "add", "src")
    git(tmp_path / "checkout", "commit", "-m", "x")
    revision = git(tmp_path / "checkout", "rev-parse", "HEAD")
    assert source_revision(package) == {"revision": revision, "changed": False}
    assert source_revision(elsewhere) is None, "installed inside a checkout, and not part of it"
    monkeypatch.setenv("GIT_DIR", str(tmp_path))  # as in a hook of another checkout
    assert source_revision(package) == {"revision": revision, "changed": False}
    (package / "new.py").write_text("2")
    assert source_revision(package) == {"revision": revision, "changed": True}
    (package / "new.py").unlink()
    (package / "a.py").write_text("3")
    assert source_revision(package) == {"revision": revision, "changed": True}


def test_without_git_there_is_no_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert source_revision() is None
    assert environment()["source"] is None


def test_a_git_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def hanging(*_: object, timeout: float, **__: object) -> None:
        raise subprocess.TimeoutExpired("git", timeout)

    monkeypatch.setattr(subprocess, "run", hanging)
    assert source_revision() is None
