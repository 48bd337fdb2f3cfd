"""Runs of digits-lt that take a second, with a checkpoint after each of two epochs."""

from __future__ import annotations

from pathlib import Path

from pairgrad_paper.captured import Source
from pairgrad_paper.training import Options, train
from paper.tests.training.small import arm, made, opened

PER_EPOCH = 8


def train_run(folder: Path, method: str = "patt", realization: str = "arfr", stop_at: int | None = None) -> Path:
    given = arm(method, realization)
    with opened(folder / given.name, given) as run:
        train(run, made(given), Options(monitor_every=0, keep=9, stop_at=stop_at))
    return folder / given.name


def source(path: Path) -> Source:
    return Source.open(path)
