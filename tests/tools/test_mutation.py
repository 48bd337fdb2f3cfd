"""The mutation tool on a tiny project of its own: it counts what the tests notice and what they do not, and resumes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray", reason="installed by make mutation")
ROOT = Path(__file__).parents[2]
FILES = {
    "pyproject.toml": '[tool.mutation]\npackage = "src/tiny"\nfolders = {sums = ["tests/sums"]}\n',
    "src/tiny/__init__.py": "",
    "src/tiny/sums/__init__.py": "",
    # The annotation and the large number are not mutated.
    "src/tiny/sums/tested.py": "def difference(a: int | float, b):\n    return a - b\n\n\nLARGE = 1e18\n",
    "src/tiny/sums/untested.py": "def total(a, b):\n    return a + b\n",
    "src/tiny/sums/endless.py": "def last(items):\n    while True:\n        for item in items:\n            return item\n",
    "src/tiny/sums/constant.py": "SIZE = True\n",
    "tests/sums/test_sums.py": (
        "from tiny.sums import constant, endless, tested, untested\n\n\n"
        "def test_difference():\n    assert tested.difference(3, 1) == 2\n\n\n"
        "def test_total():\n    assert untested.total(3, 0) == 3\n\n\n"
        "def test_last():\n    assert endless.last([1]) == 1\n\n\n"
        "def test_constant():\n    assert constant.SIZE\n"
    ),
    "docs/mutation-testing.md": "Counts.\n<!-- counts -->\n<!-- end of counts -->\nThe end.\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def tool(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.mutation", *arguments, "--root", str(project)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=250, check=False)


def test_counts_of_killed_and_surviving_mutants(project: Path) -> None:
    done = tool(project, "run", "--modules", "sums/tested.py", "sums/untested.py", "sums/constant.py", "--least", "67")
    assert done.returncode == 1, done.stdout + done.stderr  # two of three are 66.7 %
    assert "survived: sums/untested.py:2  return a + b  ->  return a - b" in done.stdout
    for row in ("| `sums/tested.py` | 1 | 1 | 0 | 0 | 0 |", "| `sums/untested.py` | 1 | 0 | 0 | 1 | 0 |", "| all | 3 | 2 | 0 | 1 | 0 |"):
        assert row in done.stdout.splitlines()

    again = tool(project, "run", "--least", "60", "--minutes", "0")  # resumes, and has no time left for the fourth file
    assert again.returncode == 0, again.stdout + again.stderr
    assert "the tests noticed 2 of 3 mutants that were run (66.7 %)" in again.stdout

    assert tool(project, "page").returncode == 0
    page = (project / "docs" / "mutation-testing.md").read_text()
    assert page.startswith("Counts.\n<!-- counts -->\n| file | mutants | killed | timed out | survived | not run |\n")
    assert "| `sums/constant.py` | 1 | 1 | 0 | 0 | 0 |\n" in page
    assert "endless" not in page
    assert page.endswith("| all | 3 | 2 | 0 | 1 | 0 |\n<!-- end of counts -->\nThe end.\n")

    test = project / "tests" / "sums" / "test_sums.py"
    test.write_text(test.read_text().replace("total(3, 0) == 3", "total(3, 1) == 4"))
    better = tool(project, "run", "--modules", "sums/untested.py", "--least", "100")  # survivors are run again after the tests change
    assert better.returncode == 0, better.stdout + better.stderr
    assert "| `sums/untested.py` | 1 | 1 | 0 | 0 | 0 |" in better.stdout.splitlines()


def test_a_mutant_that_never_ends_is_stopped(project: Path) -> None:
    done = tool(project, "run", "--modules", "sums/endless.py", "--jobs", "2", "--patience", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "timed out: sums/endless.py:3" in done.stdout  # the loop that returns is not entered


def test_unknown_modules_are_refused(project: Path) -> None:
    done = tool(project, "run", "--modules", "sums/absent.py")
    assert done.returncode == 1
    assert "got ['sums/absent.py']" in done.stderr
