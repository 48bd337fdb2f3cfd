"""`pairgrad evaluate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from pairgrad.ground import printable, write_atomically
from pairgrad.ood import CONVENTIONS, SHOT_RULES
from pairgrad_paper.commands.evaluation_tables import Shown, compare, show
from pairgrad_paper.commands.run_commands import EvaluateOptions
from pairgrad_paper.data import Benchmark
from pairgrad_paper.evaluation import SCORES, Evaluation, Trained, evaluate_run
from pairgrad_paper.recipes.settings import SettingError
from pairgrad_paper.runs import RunDirectory, RunError


def run(options: EvaluateOptions, device: torch.device, console: Console) -> None:
    """Evaluate runs, print what was found, and write it beside each run."""
    wanted = _known("--score", options.score, SCORES)
    shown_conventions = _known("--convention", options.convention, CONVENTIONS)
    if options.shots is not None:
        _known("--shots", [options.shots], SHOT_RULES)
    _look_ahead(options.runs, options.json)
    loaded: dict[str, Benchmark] = {}
    results: list[Shown] = []
    told: set[str] = set()
    for path in options.runs:
        trained = Trained.open(
            path, options.step, lambda error: console.print(Text(printable(f"{error}; the checkpoint before it is evaluated")))
        )
        key = json.dumps(trained.run.facts["recipe"]["data"])
        if key in loaded:
            trained.check_data(loaded[key])
        else:
            loaded[key] = trained.data(options.data_root, verify=options.verify)
        evaluation, written = _evaluated(trained, loaded[key], wanted, options.shots, device, console)
        results.append((trained, evaluation))
        show(console, trained, evaluation, shown_conventions, told)
        told.update(evaluation.notes)
        console.print(Text(printable(f"written to {written}") + "\n"), soft_wrap=True)
    if len(results) > 1:
        compare(console, results, shown_conventions)
    if options.json is not None:
        _write(options.json, [_entry(trained, evaluation) for trained, evaluation in results])
        console.print(Text(printable(f"written to {options.json}")), soft_wrap=True)


def _known(option: str, given: Sequence[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    for name in given or ():
        if name not in known:
            raise SettingError(f"{option} must be one of {', '.join(known)}, got {name!r}")
    return tuple(name for name in known if not given or name in given)


def _look_ahead(paths: Sequence[Path], output: Path | None) -> None:
    """What can be known to be wrong before hours are spent on the first run."""
    if output is not None and not output.parent.is_dir():
        raise SettingError(f"--json must be a file in a directory that exists, got {output}: make {output.parent} first")
    if output is not None and output.is_dir():
        raise SettingError(f"--json must be a file, got the directory {output}")
    seen: set[Path] = set()
    for path in paths:
        _check_run(path)
        if path.resolve() in seen:
            raise SettingError(f"{path} was given twice: a run counts once in a mean")
        seen.add(path.resolve())


def _check_run(path: Path) -> None:
    """A RunError unless it is a run; near a run, it says where that is."""
    if not (path / "run.json").exists() and path.is_dir():
        inside = sorted(each.parent for each in path.glob("*/run.json"))
        if inside:
            raise RunError(f"{path} is not a run, but holds {len(inside)}: name them, such as {inside[0]}, or all with {path}/*")
        above = next((each for each in path.absolute().parents[:2] if (each / "run.json").is_file()), None)
        if above is not None:
            raise RunError(f"{path} is a part of a run: name {above}, and a checkpoint by the number of its update with --step")
    RunDirectory.open(path)


def _evaluated(
    trained: Trained, benchmark: Benchmark, scores: Sequence[str], shots: str | None, device: torch.device, console: Console
) -> tuple[Evaluation, Path]:
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)

        def tick(name: str, done: int, total: int) -> None:
            progress.update(task, description=name, completed=done, total=total)

        return evaluate_run(trained, benchmark, scores=scores, shots=shots, device=device, tick=tick)


def _write(output: Path, entries: list[dict[str, object]]) -> None:
    try:
        write_atomically(output, json.dumps(entries, indent=2, allow_nan=False) + "\n")
    except OSError as error:
        raise RunError(
            f"{output} cannot be written ({error.strerror or error}): the results of each run are in its directory, those of all in none"
        ) from error


def _entry(trained: Trained, evaluation: Evaluation) -> dict[str, object]:
    return {
        "run": str(trained.run.path),
        "recipe": trained.recipe.name,
        "realization": trained.realization,
        "seed": trained.seed,
        "step": trained.step,
        **evaluation.to_dict(),
    }
