"""What is published: the wheels and source archives of pairgrad and pairgrad-paper, installed into a clean environment outside the checkout.

Slow, and they need a package index: `make package` runs them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import pairgrad
import pairgrad_paper

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = list(PROJECT["optional-dependencies"])


def run(*command: str | Path, cwd: Path, timeout: float = 600) -> str:
    """What the command prints; its errors if it fails. No variable of this process leads it back to the checkout."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PAIRGRAD", "COV", "PYTEST"))}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheels and the source archives."""
    directory = tmp_path_factory.mktemp("dist")
    for project in (ROOT, ROOT / "paper"):
        run(sys.executable, "-m", "hatchling", "build", "-d", directory, cwd=project)
    return directory


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("pairgrad-*.whl"))


@pytest.fixture(scope="module")
def paper_wheel(built: Path) -> Path:
    return next(built.glob("pairgrad_paper-*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of commands of a new environment with `pairgrad[all]` from the wheel."""
    directory = tmp_path_factory.mktemp("installed")
    venv.create(directory / "venv", with_pip=True)
    commands = directory / "venv" / ("Scripts" if os.name == "nt" else "bin")
    run(commands / "python", "-m", "pip", "install", "--quiet", "-c", CONSTRAINTS, f"{wheel}[all]", cwd=directory)
    return commands


def _files(source: Path) -> set[str]:
    files = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    return {name for name in files if "__pycache__" not in name}


@pytest.mark.slow
def test_the_wheels_have_every_file_of_their_packages(wheel: Path, paper_wheel: Path) -> None:
    there, papers = (set(zipfile.ZipFile(path).namelist()) for path in (wheel, paper_wheel))
    assert _files(ROOT / "src") <= there, _files(ROOT / "src") - there
    assert _files(ROOT / "paper" / "src") <= papers, _files(ROOT / "paper" / "src") - papers
    assert {name.split("/")[0] for name in papers} == {"pairgrad_paper", f"pairgrad_paper-{pairgrad_paper.__version__}.dist-info"}
    assert {name.split("/")[0] for name in there} == {"pairgrad", "pytest_pairgrad.py", f"pairgrad-{pairgrad.__version__}.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in there)


@pytest.mark.slow
def test_the_source_archive_builds_the_same_wheel(built: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(next(built.glob("pairgrad-*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    for name in ("README.md", "LICENSE", "CITATION.cff", "SECURITY.md", "CHANGELOG.md", "Makefile", "constraints.txt", "tests", "docs"):
        assert (unpacked / name).exists(), name
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "again", cwd=unpacked)
    again = next((tmp_path / "again").glob("*.whl"))
    contents = [{info.filename: info.CRC for info in zipfile.ZipFile(path).infolist()} for path in (wheel, again)]
    assert contents[0] == contents[1]


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(900)
def test_the_doctor_is_content_with_the_wheel(environment: Path, tmp_path: Path) -> None:
    run(environment / "pairgrad", "doctor", "--json", "doctor.json", cwd=tmp_path)
    found = json.loads((tmp_path / "doctor.json").read_text())
    status = {each["name"]: each["status"] for each in found["packages"]}
    assert found["healthy"]
    assert {name for name, each in status.items() if each == "missing"} == {
        "[jax]",
        "[integrations]",
        "pairgrad-paper",
    }  # what [all] leaves out


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(900)
def test_the_commands_of_the_paper_come_with_its_wheel(environment: Path, paper_wheel: Path, tmp_path: Path) -> None:
    place = run(environment / "python", "-c", "import pairgrad; print(pairgrad.__file__)", cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(environment.parent)
    without = subprocess.run([environment / "pairgrad", "demo"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert without.returncode == 2
    assert without.stderr == "pairgrad demo: this command comes with the paper's experiments: pip install pairgrad-paper\n"
    run(environment / "python", "-m", "pip", "install", "--quiet", "-c", CONSTRAINTS, paper_wheel, cwd=tmp_path)
    printed = run(environment / "pairgrad", "demo", "--epochs", "2", cwd=tmp_path)
    report = tmp_path / "pairgrad-demo" / "report.html"
    assert str(report) in printed
    assert report.stat().st_size > 100_000


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(900)
@pytest.mark.parametrize("extra", EXTRAS)
def test_extras_can_be_resolved(extra: str, wheel: Path, environment: Path, tmp_path: Path) -> None:
    options = ("--dry-run", "--quiet", "--report", "report.json", "-c", CONSTRAINTS)
    run(environment / "python", "-m", "pip", "install", *options, f"{wheel}[{extra}]", cwd=tmp_path)


def test_the_citation_names_this_version() -> None:
    import yaml

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == pairgrad.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["title"] == PROJECT["name"]
    bibliography = (ROOT / "docs" / "references.bib").read_text()
    (paper,) = re.findall(r"@misc\{same_loss,.*?author = \{(.*?)\}", bibliography, re.DOTALL)
    authors = [f"{each['family-names']}, {each['given-names']}" for each in citation["references"][0]["authors"]]
    assert " and ".join(authors) == paper
