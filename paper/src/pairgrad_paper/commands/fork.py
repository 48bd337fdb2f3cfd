"""`pairgrad fork`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pairgrad_paper.commands.progress import tell
from pairgrad_paper.commands.run_commands import ForkOptions
from pairgrad_paper.commands.train import INTERRUPTED, NO_SPACE, NOT_FINITE
from pairgrad_paper.data import Benchmark
from pairgrad_paper.evaluation import Trained
from pairgrad_paper.forks import PROBES, ForkRun, Plan, Start, fork_record, random_start, trained_start
from pairgrad_paper.forks.record import is_fork
from pairgrad_paper.recipes import Recipe
from pairgrad_paper.recipes.settings import SettingError, changed, from_data, recipe_named
from pairgrad_paper.records import Record, write
from pairgrad_paper.runs import CheckpointWriteError, RunDirectory, RunError, RunLogWriteError, SpaceError
from pairgrad_paper.training import NonFinite, Process
from pairgrad_paper.training.launch import load_data
from pairgrad_paper.training.loop import set_deterministic

UPDATES = Plan.updates  # that each branch makes unless told


@dataclass(frozen=True)
class _Beginning:
    recipe: Recipe
    seed: int
    state: dict[str, Any] | None  # None: random weights


def run(request: ForkOptions, console: Console) -> int:
    """Run one fork, or two of which the second begins where the first branch of the first ended; the exit code."""
    beginning = _beginning(request)
    plan = _plan(request, request.updates or UPDATES)
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    set_deterministic(True)
    device = Process().device(request.device, torch.float64)
    benchmark = load_data(beginning.recipe, request.data_root, verify=request.verify)
    for note in (*beginning.recipe.notes, *benchmark.notes):
        tell(console, f"note: {note}", style="dim")
    recipe, seed = beginning.recipe, beginning.seed
    twice = beginning.state is None and request.second
    start = random_start(recipe, benchmark, seed) if beginning.state is None else trained_start(beginning.state)
    per_epoch = len(benchmark.train) // recipe.batch_size
    if request.updates is None:
        room = (recipe.epochs * per_epoch - start.step - 1) // (2 if twice else 1)
        if 1 <= room < UPDATES:
            plan = _plan(request, room)
    if twice:
        _check_length(recipe, per_epoch, plan)
    code, state = _run(recipe, benchmark, seed, start, plan, request, device, console)
    if code or not twice:
        return code
    code, _ = _run(recipe, benchmark, seed, trained_start(state), plan, request, device, console)
    return code


def _plan(request: ForkOptions, updates: int) -> Plan:
    return Plan(
        updates,
        min(PROBES, updates + 1) if request.probes is None else request.probes,
        tuple(request.branch) if request.branch else Plan().branches,
    )


def _check_length(recipe: Recipe, per_epoch: int, plan: Plan) -> None:
    """That the second fork fits into the recipe as well, before an hour goes into the first."""
    if 2 * plan.updates >= recipe.epochs * per_epoch:
        raise SettingError(
            f"two forks of {plan.updates} updates go beyond the {recipe.epochs * per_epoch} updates of {recipe.name}: "
            f"--set epochs={2 * plan.updates // max(per_epoch, 1) + 1} or more, fewer --updates, or --no-second"
        )


def _beginning(request: ForkOptions) -> _Beginning:
    if (request.recipe is None) == (request.source is None):
        raise SettingError("give either a recipe, to fork from random weights, or --from RUN, to fork from a checkpoint")
    if request.recipe is not None:
        if request.step is not None:
            raise SettingError("--step chooses a checkpoint: give --from RUN with it, not a recipe")
        recipe = changed(recipe_named(request.recipe), request.set_ or ())
        return _Beginning(recipe, recipe.seed if request.seed is None else request.seed, None)
    assert request.source is not None
    if request.seed is not None:
        raise SettingError("--seed is that of the run with --from: leave it out")
    facts = RunDirectory.open(request.source).facts
    if is_fork(facts):
        if request.step is not None:
            raise SettingError("--step chooses a checkpoint of a run; of a fork, where its first branch has come to is taken: leave it out")
        state = _newest(request.source)["branches"][facts["branches"][0]]
        return _Beginning(changed(from_data(facts["recipe"]), request.set_ or ()), facts["seed"], state)
    trained = Trained.open(request.source, request.step)
    return _Beginning(changed(trained.recipe, request.set_ or ()), trained.seed, trained.state)


def _newest(path: Path) -> dict[str, Any]:
    found = RunDirectory.open(path).latest(lambda _: None)
    if found is None:
        raise RunError(f"{path} has no intact checkpoint: run the command that made it again")
    return found.state


def _run(
    recipe: Recipe, benchmark: Benchmark, seed: int, start: Start, plan: Plan, request: ForkOptions, device: torch.device, console: Console
) -> tuple[int, dict[str, Any]]:
    fork = ForkRun(recipe, benchmark, seed, start, plan, device)
    again = "run the same command again to resume"
    with fork.directory(request.output) as directory, _shown(console, fork, request.quiet) as tick:
        begin = "random weights" if start.kind == "random" else f"the state after update {start.step}"
        tell(console, f"{fork.name}: {', '.join(plan.branches)}, {plan.updates} updates each from {begin} on {device}")
        try:
            outcome = fork.run(directory, tick, lambda message: tell(console, message))
        except NonFinite as error:
            tell(console, f"stopped: {error}. A smaller --set optimizer.lr often helps", style="red")
            return NOT_FINITE, {}
        except (CheckpointWriteError, RunLogWriteError, SpaceError) as error:
            tell(console, f"stopped: {error}", style="red")
            return NO_SPACE, {}
        if not outcome.finished:
            tell(console, f"stopped after update {outcome.step} ({outcome.stopped}), everything is in {directory.path}: {again}")
            return INTERRUPTED, {}
        record = fork_record(directory)
    written = write(request.output / f"{record.name}.jsonl", record)
    show(console, record)
    tell(console, f"written to {written}")
    tell(console, "")
    return 0, fork.first.state()


def show(console: Console, record: Record) -> None:
    """What a fork found, in a few lines."""
    probes = record.of("probe")
    equal = sum(line["scores_equal"] and line["loss_equal"] for line in probes)
    tell(console, f"scores and losses of original and consistent equal in every bit at {equal} of {len(probes)} probes")
    for key, words in (("feature_gap", "of the features"), ("parameter_gap", "of the parameters")):
        gaps = [line[key] for line in probes]
        tell(console, f"gap of the gradients {words}: {min(gaps):.2e} to {max(gaps):.2e}")
    last = max(line["step"] for line in record.of("distance"))
    for line in (line for line in record.of("distance") if line["step"] == last):
        words = f"after {last} updates {line['branch']} is {line['parameter']:.2e} away in its parameters, {line['feature']:.2e} in its features"
        tell(console, words)


@contextmanager
def _shown(console: Console, fork: ForkRun, quiet: bool) -> Iterator[Any]:
    """A bar on a terminal, a line for every tenth of the updates elsewhere."""
    if quiet:
        yield lambda step, measured: None
    elif not console.is_terminal:
        yield _lines(console, fork)
    else:
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[live]}", markup=False),
            console=console,
            transient=True,
        ) as bar:
            task = bar.add_task(f"fork from {fork.start.kind}", total=fork.plan.updates, live="")

            def tick(step: int, measured: dict[str, Any] | None) -> None:
                bar.update(task, completed=step)
                if measured is not None:
                    bar.update(task, live=_words(measured))

            yield tick


def _lines(console: Console, fork: ForkRun) -> Any:
    shown = -fork.plan.updates

    def tick(step: int, measured: dict[str, Any] | None) -> None:
        nonlocal shown
        if measured is not None and "probe" in measured and step - shown >= fork.plan.updates / 10:
            shown = step
            tell(console, f"update {step}  {_words(measured)}")

    return tick


def _words(measured: dict[str, Any]) -> str:
    words = [f"{name} {value:.1e} away" for name, value in measured.items() if name != "probe"]
    if "probe" in measured:
        words.insert(0, f"gradient gap {measured['probe']['feature_gap']:.2e}")
    return "  ".join(words)
