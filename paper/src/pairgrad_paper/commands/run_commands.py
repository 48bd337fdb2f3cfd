"""Commands about runs and their options: train, check, evaluate, fork, collect, frozen, states."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pairgrad.cli import THREADS, Streams, complete_realizations
from pairgrad_paper.commands import completion
from pairgrad_paper.commands.mistakes import explained, known_realizations

_WHAT, _LOOK, _WHERE, _SEVERAL = "What to train", "Checkpoints, logs and evaluations", "Where", "With several processes"


@dataclass(frozen=True)
class TrainOptions:
    """What to train, where, and what to keep."""

    recipe: Annotated[
        str | None,
        typer.Argument(help="A recipe; without one, the recipes are listed.", metavar="RECIPE", autocompletion=completion.recipes),
    ] = None
    realization: Annotated[
        list[str] | None,
        typer.Option(
            help="How the potential is computed: original, consistent, arfr, paired; repeat for several runs.",
            metavar="NAME",
            rich_help_panel=_WHAT,
            autocompletion=complete_realizations,
        ),
    ] = None
    seed: Annotated[
        list[int] | None, typer.Option(help="Seed, instead of the recipe's; repeat for several runs.", metavar="N", rich_help_panel=_WHAT)
    ] = None
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting: optimizer.lr=0.01; repeat.", metavar="KEY=VALUE", rich_help_panel=_WHAT),
    ] = None
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for the runs, each in a subdirectory.", metavar="DIR", rich_help_panel=_WHAT)
    ] = Path("runs")
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Resume from this checkpoint of the run, or a copy of it, and keep later ones under other names.",
            show_default="the newest intact one",
            metavar="CHECKPOINT",
            rich_help_panel=_WHAT,
        ),
    ] = None
    data_root: Annotated[
        Path | None, typer.Option(help="Where the data are.", show_default="$PAIRGRAD_DATA", metavar="DIR", rich_help_panel=_WHAT)
    ] = None
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1.", show_default="a GPU if there is one", metavar="DEVICE", rich_help_panel=_WHERE)
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=THREADS, help="CPU threads; equal bits need an equal number.", metavar="N", rich_help_panel=_WHERE),
    ] = None
    workers: Annotated[int, typer.Option(min=0, help="Processes that prefetch image files.", metavar="N", rich_help_panel=_WHERE)] = 0
    keep: Annotated[int, typer.Option(min=1, help="Checkpoints to keep.", metavar="N", rich_help_panel=_LOOK)] = 2
    checkpoint_every: Annotated[
        int, typer.Option(min=1, help="Epochs between two checkpoints.", metavar="EPOCHS", rich_help_panel=_LOOK)
    ] = 1
    checkpoint_minutes: Annotated[
        float, typer.Option(min=0, help="Write a checkpoint at least this often.", metavar="MINUTES", rich_help_panel=_LOOK)
    ] = 10.0
    record_every: Annotated[
        int, typer.Option(min=1, help="Updates between two lines of the log.", metavar="UPDATES", rich_help_panel=_LOOK)
    ] = 10
    evaluate_every: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Epochs between two evaluations on the test images (0 = never).",
            show_default="a tenth of the run",
            metavar="EPOCHS",
            rich_help_panel=_LOOK,
        ),
    ] = None
    monitor_every: Annotated[
        int,
        typer.Option(
            min=0, help="Updates between two checks of the custom backwards (0 = never).", metavar="UPDATES", rich_help_panel=_LOOK
        ),
    ] = 50
    stop_at: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many updates, with a checkpoint.", metavar="UPDATE", rich_help_panel=_LOOK)
    ] = None
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write scalars for TensorBoard too.", rich_help_panel=_LOOK)] = False
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Compare files with their published md5.", rich_help_panel=_WHERE)
    ] = True
    deterministic: Annotated[
        bool, typer.Option("--deterministic/--fast", help="Use deterministic algorithms on GPUs.", rich_help_panel=_WHERE)
    ] = True
    class_parallel: Annotated[
        int, typer.Option(min=1, help="Ranks to shard classes over (1 = replicate).", metavar="N", rich_help_panel=_SEVERAL)
    ] = 1
    exchange: Annotated[
        str, typer.Option(help="How class banks are synchronized: auto, gather, reduce.", metavar="HOW", rich_help_panel=_SEVERAL)
    ] = "auto"
    wrap: Annotated[str, typer.Option(help="ddp replicates the weights, fsdp shards them.", metavar="HOW", rich_help_panel=_SEVERAL)] = (
        "ddp"
    )
    timeout: Annotated[
        float, typer.Option(help="Give up after waiting this long for another process.", metavar="SECONDS", rich_help_panel=_SEVERAL)
    ] = 600.0
    reshare: Annotated[
        bool,
        typer.Option(
            "--reshare",
            help="Resume with another number of processes, or other options of this group, from the last checkpoint.",
            rich_help_panel=_SEVERAL,
        ),
    ] = False
    estimate: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Make two updates of what each of this many processes would do, and say how long the runs take and what memory they need; noise stands "
            "in for data that are missing. Nothing is written.",
            metavar="PROCESSES",
            rich_help_panel=_WHAT,
        ),
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would happen, and do nothing.", rich_help_panel=_WHAT)] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False


def train(options: TrainOptions) -> None:
    """Train a recipe or resume a run: the same command again continues from the last checkpoint.

    Several realizations or seeds are trained one after the other.
    """
    with explained("train", options.output):
        from pairgrad_paper.commands import train as command

        console = Streams("pairgrad train").out
        if options.recipe is None:
            command.show_recipes(console)
            return
        known_realizations(options.realization)
        how = command.dry_run if options.dry_run else command.run if options.estimate is None else command.show_estimate
        code = how(command.Request.of(options), console)
    if code:
        raise typer.Exit(code)


@dataclass(frozen=True)
class EvaluateOptions:
    """Which runs to evaluate, and how."""

    runs: Annotated[list[Path], typer.Argument(help="Run directories written by pairgrad train.", metavar="RUN")]
    score: Annotated[
        list[str] | None, typer.Option(help="msp, energy, patt-paper or patt-released; repeat.", show_default="all", metavar="NAME")
    ] = None
    convention: Annotated[
        list[str] | None, typer.Option(help="Conventions of FPR95: patt, sc-ood or openood; repeat.", show_default="all", metavar="NAME")
    ] = None
    shots: Annotated[
        str | None,
        typer.Option(
            help="Classes with many, medium and few training images by the rule of patt (thirds of up to 100 classes) or proco (above 100, below 20).",
            show_default="that of the recipe's system",
            metavar="RULE",
        ),
    ] = None
    step: Annotated[
        int | None, typer.Option(help="Evaluate the checkpoint of this update.", show_default="the newest", metavar="UPDATE")
    ] = None
    data_root: Annotated[Path | None, typer.Option(help="Where the data are.", show_default="$PAIRGRAD_DATA", metavar="DIR")] = None
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps.", show_default="a GPU if there is one", metavar="DEVICE")] = (
        None
    )
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Compare files with their published md5.")] = True
    json: Annotated[Path | None, typer.Option(help="Write the results of all runs into this file too.", metavar="FILE")] = None


def evaluate(options: EvaluateOptions) -> None:
    """Accuracy by shot group and detection of out-of-distribution images, by score, source and convention.

    Results go to evaluation-<update>.json in each run's directory. For several runs, means and standard deviations over seeds follow.
    """
    with explained("evaluate"):
        from pairgrad.cli import Console
        from pairgrad_paper.commands import evaluate as command
        from pairgrad_paper.training import Process

        command.run(options, Process().device(options.device), Console())


@dataclass(frozen=True)
class CheckOptions:
    """Which runs to check."""

    runs: Annotated[list[Path], typer.Argument(help="Run directories written by pairgrad train or fork.", metavar="RUN")]


def check(options: CheckOptions) -> None:
    """Compare every byte of the checkpoints and the record of a run with what was written, and say from where it would resume.

    Nothing is changed. Exit code 1 if anything is damaged; each damage is shown with sizes, hashes and offsets, and with what to do.
    """
    with explained("check"):
        from pairgrad_paper.commands.check import run

        console = Streams("pairgrad check").out
        damaged = [path for path in options.runs if not run(path, console)]
    if damaged:
        raise typer.Exit(1)


@dataclass(frozen=True)
class CollectOptions:
    """What to collect."""

    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Directories of runs, records (.jsonl) of pairgrad fork, frozen or states, the file of python -m benchmarks.learning (.json).",
            metavar="PATH",
        ),
    ]
    records: Annotated[Path, typer.Option("--records", help="Directory for the records.", metavar="DIR")] = Path("records")


def collect(options: CollectOptions) -> None:
    """Make small records of runs, from which tables and figures are made without weights and on any machine.

    A run's record has its recipe, its learning curves, the findings of the coherence monitor and its evaluations; no weights, paths or clock times.
    The same arguments again give the same bytes.
    """
    with explained("collect"):
        from pairgrad.cli import Console
        from pairgrad_paper.commands.collect import run

        run(options.paths, options.records, Console())


@dataclass(frozen=True)
class ForkOptions:
    """Where the branches start, and what they do."""

    recipe: Annotated[
        str | None,
        typer.Argument(
            help="A recipe, to fork from random weights, and then from the state that its first branch reached.",
            metavar="RECIPE",
            show_default=False,
            autocompletion=completion.recipes,
        ),
    ] = None
    source: Annotated[
        Path | None, typer.Option("--from", help="Fork from a checkpoint of this run instead.", metavar="RUN", show_default=False)
    ] = None
    step: Annotated[
        int | None, typer.Option(help="With --from: the checkpoint of this update.", show_default="the newest", metavar="UPDATE")
    ] = None
    updates: Annotated[
        int | None,
        typer.Option(min=1, help="Updates that each branch makes.", show_default="1000, or as many as the recipe allows", metavar="N"),
    ] = None
    probes: Annotated[
        int | None,
        typer.Option(min=2, help="Local probes of each fork.", show_default="43, or as many as fit between the updates", metavar="N"),
    ] = None
    branch: Annotated[
        list[str] | None,
        typer.Option(
            help="A realization; repeat. The first must be original.",
            show_default="original, consistent, arfr, paired",
            metavar="NAME",
            autocompletion=complete_realizations,
        ),
    ] = None
    second: Annotated[
        bool, typer.Option("--second/--no-second", help="Fork again from the first branch after its updates, as the paper does.")
    ] = True
    seed: Annotated[int | None, typer.Option(help="Seed, instead of the recipe's.", metavar="N")] = None
    set_: Annotated[list[str] | None, typer.Option("--set", help="Change a setting: optimizer.lr=0.01; repeat.", metavar="KEY=VALUE")] = (
        None
    )
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for the forks, each with a subdirectory and a record.", metavar="DIR")
    ] = Path("forks")
    data_root: Annotated[Path | None, typer.Option(help="Where the data are.", show_default="$PAIRGRAD_DATA", metavar="DIR")] = None
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1.", show_default="a GPU if there is one", metavar="DEVICE")] = None
    threads: Annotated[int | None, typer.Option(min=1, max=THREADS, help="CPU threads; equal bits need an equal number.", metavar="N")] = (
        None
    )
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Compare files with their published md5.")] = True
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False


def fork(options: ForkOptions) -> None:
    """Train several realizations from one start on the same augmented tensors, and measure how their gradients and weights diverge.

    At every probe the scores, losses and gradients of all realizations are compared at one state; between probes each branch trains on its own. The same
    command again resumes a fork that was stopped.
    """
    with explained("fork", options.output):
        from pairgrad_paper.commands import fork as command
        from pairgrad_paper.commands.train import seeds_of

        known_realizations(options.branch, "--branch")
        seeds_of(None if options.seed is None else [options.seed])
        code = command.run(options, Streams("pairgrad fork").out)
    if code:
        raise typer.Exit(code)


_Run = Annotated[Path, typer.Argument(help="Run directory written by pairgrad train.", metavar="RUN")]
_RecordFile = Annotated[Path | None, typer.Option("--output", "-o", help="File for the record.", metavar="FILE", show_default=False)]


@dataclass(frozen=True)
class FrozenOptions:
    """Which states of a run to hold still."""

    run: _Run
    step: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            help="A checkpoint, 0 for the untrained start; repeat.",
            show_default="the first, the middle one, the last",
            metavar="UPDATE",
        ),
    ] = None
    batch_size: Annotated[int, typer.Option(help="Images in the captured batch.", metavar="N")] = 128
    data_root: Annotated[Path | None, typer.Option(help="Where the data are.", show_default="$PAIRGRAD_DATA", metavar="DIR")] = None
    output: _RecordFile = None
    save: Annotated[Path | None, typer.Option(help="Directory for the captured views, which pairgrad certify reads.", metavar="DIR")] = None
    threads: Annotated[int | None, typer.Option(min=1, max=THREADS, help="CPU threads.", metavar="N")] = None
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Compare files with their published md5.")] = True
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False


def frozen(options: FrozenOptions) -> None:
    """Capture states of a run and change the backward rule alone: compare scores, losses, gradients and one update.

    Writes the record frozen-<data>.jsonl, from which tables and figures are made. The run is read, not changed.
    """
    with explained("frozen", options.output or options.save):
        from pairgrad.cli import Console
        from pairgrad_paper.commands import frozen as command

        command.run(options, Console())


@dataclass(frozen=True)
class StatesOptions:
    """Which states of a run to measure."""

    run: _Run
    every: Annotated[int, typer.Option(min=1, help="Measure the checkpoint of every EPOCHS-th epoch, and the last.", metavar="EPOCHS")] = 1
    data_root: Annotated[Path | None, typer.Option(help="Where the data are.", show_default="$PAIRGRAD_DATA", metavar="DIR")] = None
    output: _RecordFile = None
    threads: Annotated[int | None, typer.Option(min=1, max=THREADS, help="CPU threads.", metavar="N")] = None
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Compare files with their published md5.")] = True
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False


def states(options: StatesOptions) -> None:
    """Measure the defects of queries and class banks at the states that a run visits, from the first batch on.

    Writes the record <method>-<data>-states.jsonl, from which figures are made. The run is read, not changed.
    """
    with explained("states", options.output):
        from pairgrad.cli import Console
        from pairgrad_paper.commands import states as command

        command.run(options, Console())
