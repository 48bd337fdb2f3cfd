"""`pairgrad check`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pairgrad.ground import printable
from pairgrad_paper.runs import RunDirectory, RunError, check_checkpoint
from pairgrad_paper.runs.listing import step_of
from pairgrad_paper.runs.manifest import ADVICE
from pairgrad_paper.runs.space import in_words


def run(path: Path, console: Console) -> bool:
    """Say what the run in `path` has and what of it is damaged; whether all of it is intact."""
    directory = RunDirectory.open(path)
    console.print(Text(printable(str(path)), style="bold"), soft_wrap=True)
    intact: list[Path] = []
    problems = 0
    for place, problem in _examined(directory):
        if problem is None and place.parent == directory.checkpoints_path:
            intact.append(place)
        problems += problem is not None
        style, words = ("green", "intact") if problem is None else ("red", f"DAMAGED: {problem}")
        size = f", {in_words(_bytes(place))}" if problem is None else ""
        console.print(Text(printable(f"  {place.relative_to(path)}{size}: {words}"), style=style), soft_wrap=True)
    console.print(Text(f"  {_next(directory, intact)}"), soft_wrap=True)
    return not problems


def _examined(run: RunDirectory) -> Iterator[tuple[Path, str | None]]:
    """Each file or checkpoint, and what is wrong with it."""
    yield run.run_path, None  # it was read
    if run.log_path.exists():
        torn: list[str] = []
        try:
            run.events(torn.append)
        except RunError as error:
            yield run.log_path, str(error)
        else:
            yield run.log_path, None  # an incomplete last line is what a killed process leaves, and is cut off
    for path in run.checkpoints():
        try:
            check_checkpoint(path)
        except RunError as error:
            yield path, str(error).removesuffix(f". {ADVICE}").replace(f"{path}/", "")
        else:
            yield path, None


def _next(run: RunDirectory, intact: list[Path]) -> str:
    if intact:
        older = "; --from resumes from another one" if len(intact) > 1 else ""
        return f"pairgrad train with the options of this run resumes after update {step_of(intact[-1])}{older}"
    if run.checkpoints():
        return "no checkpoint is intact, and nothing was removed: resume from a copy of one with --from COPY, or start in another directory with --output"
    return "no checkpoint was written: pairgrad train with the options of this run starts at the beginning"


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir()) if path.is_dir() else path.stat().st_size
