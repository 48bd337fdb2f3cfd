"""A virtual environment for each group of packages, under build/census, with the versions of locks/<group>.txt."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from census.package import HERE, packages

ROOT = HERE.parent
BUILD = ROOT / "build" / "census"
OURS = ["pytest", "pytest-timeout", "mpmath", "jinja2", "scipy"]  # what the auditor, the evidence and the tests of packages need
PINNED = ("torch==", "numpy==", "triton==", "jax==")  # of constraints.txt, also where there is no lock yet


def python_of(group: str) -> Path:
    """The interpreter of a group; makes its environment where there is none, or where its lock has changed."""
    folder, lock = BUILD / "environments" / group, HERE / "locks" / f"{group}.txt"
    python, stamp = folder / "bin" / "python", folder / "census-stamp"
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest() if lock.exists() else "no lock"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    if not lock.exists():
        raise FileNotFoundError(
            f"there is no {lock.relative_to(ROOT)}: python -m census --lock {group} makes it from the versions that drivers name"
        )
    print(f"installing the packages of {group} (census/locks/{group}.txt)", flush=True)
    _made(folder)
    _pip(python, "install", "--no-deps", "-r", str(lock))
    _pip(python, "install", "--no-deps", "-e", str(ROOT))
    stamp.write_text(wanted)
    return python


def lock(group: str, extra: list[str]) -> Path:
    """Installs what the drivers of a group name, with what that needs, and writes the versions down. `extra` are further requirements."""
    wanted = [f"{package.name}=={package.version}" for package in packages().values() if package.group == group and package.name != "torch"]
    pins = BUILD / f"{group}-pins.txt"
    pins.parent.mkdir(parents=True, exist_ok=True)
    pins.write_text("\n".join(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith(PINNED)) + "\n")
    folder = BUILD / "environments" / group
    python = folder / "bin" / "python"
    _made(folder)
    _pip(python, "install", "-c", str(pins), "torch", "numpy", *OURS, *extra, *wanted)
    frozen = _pip(python, "freeze", "--exclude-editable").splitlines()
    target = HERE / "locks" / f"{group}.txt"
    target.write_text("\n".join(sorted(_plain(line) for line in frozen if not line.startswith(("pairgrad", "-e")))) + "\n")
    return target


def _plain(line: str) -> str:
    """A requirement without the file it was installed from, and without the mark of a CPU build."""
    name, found, file = line.partition(" @ ")
    made = f"{name}=={file.rsplit('/', 1)[-1].split('-')[1]}" if found else line
    return made.replace("%2B", "+").partition("+cpu")[0]


def _made(folder: Path) -> None:
    if not (folder / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)


def _pip(python: Path, *arguments: str) -> str:
    done = subprocess.run([str(python), "-m", "pip", "--disable-pip-version-check", "-q", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"pip {' '.join(arguments[:2])} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout
