"""`pairgrad train`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from rich.text import Text

from pairgrad.cli import GPUS, Console
from pairgrad.distributed import RankError
from pairgrad.ground import printable
from pairgrad_paper.augment import pipeline
from pairgrad_paper.commands.progress import Bar, Lines, Silent, shown_progress, tell
from pairgrad_paper.commands.run_commands import TrainOptions
from pairgrad_paper.data import Benchmark, DataError, noise
from pairgrad_paper.evaluation import accuracy_on_test
from pairgrad_paper.recipes import RECIPES, Recipe
from pairgrad_paper.recipes.settings import SettingError, changed, keys, recipe_named
from pairgrad_paper.runs import CheckpointWriteError, RunDirectory, RunLockLost, RunLogWriteError, SpaceError, required_space
from pairgrad_paper.runs.space import free_space, in_words
from pairgrad_paper.training import Batches, Elsewhere, Estimate, NonFinite, Outcome, Process, Sharing, estimate, train
from pairgrad_paper.training.launch import Arm, load_data, make_trainer, run_directory, would_go_on
from pairgrad_paper.training.loop import Options, set_deterministic

COULD_NOT_START, NOT_FINITE, NO_SPACE, ANOTHER_PROCESS, INTERRUPTED = 2, 3, 4, 5, 130  # exit codes


@dataclass(frozen=True)
class Request:
    """The options of a command line, checked."""

    recipe: str
    realizations: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: tuple[str, ...]
    output: Path
    source: Path | None
    data_root: Path | None
    device: str | None
    threads: int | None
    workers: int
    verify: bool
    deterministic: bool
    tensorboard: bool
    quiet: bool
    options: Options
    estimate: int | None = None
    sharing: Sharing = field(default_factory=Sharing)

    @staticmethod
    def of(options: TrainOptions) -> Request:
        if options.recipe is None:
            raise SettingError("RECIPE must be given")
        if options.source is not None and (len(options.realization or ()) > 1 or len(options.seed or ()) > 1):
            raise SettingError("--from is a checkpoint of one run: give one --realization and one --seed with it")
        settings = tuple(options.set_ or ())
        tenth = max(1, changed(recipe_named(options.recipe), settings).epochs // 10)
        return Request(
            recipe=options.recipe,
            realizations=tuple(options.realization or ("paired",)),
            seeds=seeds_of(options.seed),
            settings=settings,
            output=options.output,
            source=options.source,
            data_root=options.data_root,
            device=options.device,
            threads=options.threads,
            workers=options.workers,
            verify=options.verify,
            deterministic=options.deterministic,
            tensorboard=options.tensorboard,
            quiet=options.quiet,
            options=Options(
                checkpoint_every=options.checkpoint_every,
                checkpoint_minutes=options.checkpoint_minutes,
                keep=options.keep,
                record_every=options.record_every,
                evaluate_every=tenth if options.evaluate_every is None else options.evaluate_every,
                monitor_every=options.monitor_every,
                stop_at=options.stop_at,
            ),
            estimate=options.estimate,
            sharing=Sharing(options.class_parallel, options.exchange, options.wrap, options.timeout, options.reshare),
        )

    def arms(self) -> list[Arm]:
        recipe = changed(recipe_named(self.recipe), self.settings)
        return [Arm(recipe, realization, seed) for seed in self.seeds or (recipe.seed,) for realization in self.realizations]


def show_recipes(console: Console) -> None:
    """Every recipe with its summary."""
    table = Table("recipe", "what it is")
    for recipe in RECIPES.values():
        table.add_row(recipe.name, recipe.summary)
    console.print(table)
    console.print("pairgrad train RECIPE --dry-run shows every setting of one, and what it would do here.")


def run(request: Request, console: Console) -> int:
    """Train every arm, one after the other; the exit code."""
    arms = request.arms()
    process = Process.here(request.sharing)
    console = console if process.first else Console(quiet=True)
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    set_deterministic(request.deterministic)
    device = process.device(request.device, torch.float64)
    benchmark = load_data(arms[0].recipe, request.data_root, verify=request.verify)
    process.check_classes(len(benchmark.class_names))
    try:
        with process.joined(device):
            for arm in arms:
                code = _run_arm(arm, request, benchmark, device, process, console)
                if code:
                    return code
    except Elsewhere:  # the other process has said why
        return COULD_NOT_START
    except RankError as error:  # every process says it, the first may be the one that is gone
        print(printable(f"pairgrad train: {error}"), file=sys.stderr, flush=True)
        return ANOTHER_PROCESS
    return 0


def _run_arm(arm: Arm, request: Request, benchmark: Benchmark, device: torch.device, process: Process, console: Console) -> int:
    path = request.output / arm.name
    again = "run the same command again to resume"
    with ExitStack() as stack:
        directory = stack.enter_context(run_directory(path, arm, benchmark, device, process))
        trainer = make_trainer(arm, benchmark, device, process, request.workers)
        tell(console, f"{arm.name}: {_sizes(trainer.network, benchmark)}; {trainer.steps} updates on {device}; writes to {path}")
        unused = request.sharing.without_effect() if process.world == 1 else None
        for sentence in (
            *filter(None, [unused]),
            *arm.recipe.notes,
            *_rates(arm.recipe),
            *benchmark.notes,
            *filter(None, [directory.warning]),
            *_changes(directory, device),
        ):
            tell(console, f"note: {sentence}", style="dim")
        writer = _writer(path, stack) if request.tensorboard and process.first else None
        watcher = stack.enter_context(_observer(request, console, process))
        try:
            outcome = train(directory, trainer, request.options, watcher, evaluate=_curve, writer=writer, source=request.source)
        except NonFinite as error:
            watcher.finish()
            kept = f"The batch and the state are in {error.kept}; the" if error.kept else "The"
            tell(
                console,
                f"stopped: {error}. {kept} checkpoints before it are intact. A smaller --set optimizer.lr often helps",
                style="red",
            )
            return NOT_FINITE
        except Elsewhere:
            watcher.finish()
            return NO_SPACE
        except RankError:
            watcher.finish()
            raise
        except (CheckpointWriteError, RunLockLost, RunLogWriteError, SpaceError) as error:
            watcher.finish()
            process.say(f"stopped: {error}")
            tell(console, f"stopped: {error}", style="red")
            return NO_SPACE
        except OSError as error:
            watcher.finish()
            process.say(f"stopped: {error}")
            tell(console, f"stopped: {error}. Older checkpoints are as they were; when that is fixed, {again}", style="red")
            return NO_SPACE
    return _ended(outcome, path, again, console)


def _ended(outcome: Outcome, path: Path, again: str, console: Console) -> int:
    if outcome.ending == "finished":
        tell(console, f"finished after {outcome.step} updates: pairgrad evaluate {path}")
        return 0
    tell(console, f"stopped after update {outcome.step} ({outcome.reason}), everything is in {path}: {again}")
    return 0 if outcome.reason.startswith("--stop-at") else INTERRUPTED


def _rates(recipe: Recipe) -> Iterator[str]:
    """Milestones that a shorter run never reaches."""
    late = [milestone for milestone in recipe.schedule.milestones if milestone >= recipe.epochs]
    if recipe.schedule.kind == "steps" and late:
        yield (
            f"the learning rate would fall at epoch {', '.join(map(str, late))}, and the run has {recipe.epochs}: --set schedule.milestones=... moves that"
        )


def _curve(trainer: Any) -> dict[str, float]:
    return accuracy_on_test(trainer.network, trainer.benchmark, trainer.recipe)


def _observer(request: Request, console: Console, process: Process) -> Bar | Lines | Silent:
    if request.quiet or not process.first:
        return Silent(console)
    return shown_progress(console)


def _writer(path: Path, stack: ExitStack) -> Callable[[int], Any]:
    """What makes the writer, and has it closed with the stack."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ImportError("--tensorboard needs TensorBoard: pip install tensorboard") from None
    return lambda step: stack.enter_context(SummaryWriter(str(path / "tensorboard"), purge_step=step))


def _sizes(network: torch.nn.Module, benchmark: Benchmark) -> str:
    weights = sum(parameter.numel() for parameter in network.parameters())
    return f"{len(benchmark.train)} training images of {len(benchmark.class_names)} classes, {weights:,} weights"


def _changes(run: RunDirectory, device: torch.device) -> Iterator[str]:
    """The same bits need the same number of threads, device and version of torch."""
    if not run.resumed:
        return
    began = run.environment
    before, now = began.get("cpu", {}).get("threads"), torch.get_num_threads()
    if before not in (None, now):
        yield f"this run began with {before} threads and continues with {now}: sums may round differently. --threads {before} keeps the bits"
    for what, before, now in (
        ("on", began.get("device", {}).get("type"), device.type),
        ("with torch", began.get("versions", {}).get("torch"), str(torch.__version__)),
    ):
        if before not in (None, now):
            yield f"this run began {what} {before} and is now {what} {now}: sums may round differently"


def dry_run(request: Request, console: Console) -> int:
    """Say what `run` would do, and write nothing; exit code 2 if it could not start."""
    arms = request.arms()
    recipe = arms[0].recipe
    process = Process.here(request.sharing)
    console = console if process.first else Console(quiet=True)
    parent = request.output
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise SettingError(f"--output must be a directory, got {request.output}: {parent} is a file")
    console.print(Text(f"{recipe.name}: {recipe.summary}", style="bold"))
    _show_settings(console, recipe)
    device = process.device(request.device, torch.float64)
    try:
        benchmark = load_data(recipe, request.data_root, verify=request.verify)
    except DataError as error:
        console.print(Text(printable(f"would stop at once: {error}"), style="red"))
        return 2
    _show_data(console, benchmark, recipe)
    Batches(benchmark, recipe, arms[0].seed, device, process)  # whether the processes can share a batch
    process.check_classes(len(benchmark.class_names))
    trainer = make_trainer(arms[0], benchmark, device)
    each = required_space([trainer.state(), *trainer.still_to_come()])
    console.print(
        Text(
            f"{_sizes(trainer.network, benchmark)}; {trainer.recipe.epochs} epochs of {trainer.batches.per_epoch} updates on {device}\n"
            f"checkpoints of {in_words(each)}, {request.options.keep} kept; {in_words(free_space(parent))} free in {printable(str(parent))}"
        )
    )
    refused = False
    for arm in arms:
        path = request.output / arm.name
        there = RunDirectory.open(path) if (path / "run.json").exists() else None
        differences = there.differences(arm.facts(benchmark, process)) if there is not None else ()
        good = would_go_on(differences, process)
        refused |= not good
        console.print(Text(printable(_would(path, there, () if good else differences)), style="" if good else "red"))
    return 2 if refused else 0


def show_estimate(request: Request, console: Console) -> int:
    """Say how long `run` would take and what memory it needs; two updates of each realization are made, and nothing is written."""
    arms = request.arms()
    recipe, processes, process = arms[0].recipe, request.estimate or 1, Process.here(request.sharing)
    if process.world > 1:
        raise SettingError(f"--estimate is made by one process, got {process.world}: give it their number, without torchrun")
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    set_deterministic(request.deterministic)
    device = process.device(request.device, torch.float64)
    with ExitStack() as stack:
        try:
            benchmark = load_data(recipe, request.data_root, verify=request.verify)
        except DataError as error:
            benchmark = stack.enter_context(noise(recipe.data.benchmark, recipe.data.imbalance))
            console.print(Text(printable(f"note: {error}")))
        for note in benchmark.notes:
            console.print(Text(printable(f"note: {note}")))
        total = least = 0.0
        for realization in request.realizations:
            found = estimate(Arm(recipe, realization, arms[0].seed), benchmark, device, processes, request.workers)
            runs = sum(arm.realization == realization for arm in arms)
            console.print(Text(_estimated(realization, found, runs, request.workers), style="bold"))
            total += runs * found.updates * (max(found.seconds, found.loading) if request.workers else found.seconds + found.loading)
            least += runs * found.updates * found.flops / GPUS["h100"].tf32
    threads = torch.get_num_threads()
    where = f"{device} with {threads} {'threads' if threads > 1 else 'thread'}" if device.type == "cpu" else str(device)
    each = "" if processes == 1 else f" on each of {processes} processes, without what they say to one another"
    console.print(
        f"{len(arms)} {'runs' if len(arms) > 1 else 'run'} of {recipe.epochs} epochs: {_long(total)} on {where}{each}; without evaluations."
    )
    console.print(
        f"No {GPUS['h100'].name} is faster than {_long(least)}: the counted operations at its peak in TF32, which no training reaches."
    )
    return 0


def _estimated(realization: str, found: Estimate, runs: int, workers: int) -> str:
    loading = f"{found.loading:.3g} s to load and augment them{' beside it' if workers else ''}"
    many = "" if runs == 1 else f", {runs} runs"
    return (
        f"{realization}: {found.updates:,} updates{many}; measured: {found.images} images in {found.seconds:.3g} s, {loading}; "
        f"{found.flops:.3g} operations, {in_words(found.memory)} of memory at the most"
    )


def _long(seconds: float) -> str:
    """A time that need not be exact.

    >>> _long(0.1), _long(50), _long(4000), _long(400000)
    ('a second', '50 s', '67 min', '4.6 days')
    """
    if seconds < 1:
        return "a second"
    for unit, size, most in (("s", 1.0, 120), ("min", 60.0, 7200), ("hours", 3600.0, 172_800)):
        if seconds < most:
            return f"{seconds / size:.2g} {unit}" if seconds / size < 10 else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.2g} days" if seconds < 864_000 else f"{seconds / 86400:.0f} days"


def _would(path: Path, there: RunDirectory | None, differences: Sequence[str]) -> str:
    if there is None:
        return f"would train in the new directory {path}"
    if differences:
        return f"would stop at once: {path} holds another run. What differs: {'; '.join(differences)}"
    found = there.checkpoints()
    return f"would resume from {found[-1].name} in {path}" if found else f"would start again in {path}"


def _show_settings(console: Console, recipe: Recipe) -> None:
    table = Table("--set", "value")
    for key, value in keys(recipe).items():
        table.add_row(key, Text(_word(value)))
    console.print(table)


def _word(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _show_data(console: Console, benchmark: Benchmark, recipe: Recipe) -> None:
    table = Table("data", "images", "seen as")
    views = recipe.views
    table.add_row("train", str(len(benchmark.train)), pipeline(views.regular).describe())
    table.add_row("", "", f"twice {pipeline(views.contrast).describe()}")
    if benchmark.outliers is not None and views.outliers is not None:
        table.add_row("outliers", str(len(benchmark.outliers)), pipeline(views.outliers).describe())
    table.add_row("test", str(len(benchmark.test)), pipeline(views.test).describe())
    for source in benchmark.ood:
        table.add_row(f"OOD: {source.name}", str(len(source.images)), pipeline(views.test).describe())
    console.print(table)
    console.print(Text(f"images per class: {', '.join(map(str, benchmark.class_counts))}"))
    for note in (*recipe.notes, *_rates(recipe), *benchmark.notes):
        console.print(Text(printable(f"note: {note}")))


def seeds_of(given: Sequence[int] | None) -> tuple[int, ...]:
    """The seeds asked for, if all are in range."""
    for seed in given or ():
        if not 0 <= seed < 2**63:
            raise SettingError(f"--seed must be from 0 to 2**63 - 1, got {seed}")
    return tuple(given or ())
