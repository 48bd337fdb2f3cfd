"""A finished run, and copies of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .small import train_run


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_run(tmp_path_factory.mktemp("evaluation"))


@pytest.fixture
def trained_run(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of a run, to do with as one likes."""
    return Path(shutil.copytree(finished_run, tmp_path / finished_run.name))
