"""The commands of the library: their options, their pages and their examples. What a command runs is imported when it is called."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from pairgrad.cli import exit_codes
from pairgrad.cli.mistakes import IN_FULL, THREADS, explained, fail
from pairgrad.cli.pages import Command, Group

_WHERE, _HOW, _REPORT = "What to audit it with", "How", "The report"
_RUN, _MACHINE = "The run", "The machines"
_ALL_POTENTIALS, _ONE_POTENTIAL = "For all potentials", "For one potential"


def _option(help: str, metavar: str | None = None, group: str | None = None, **more: Any) -> Any:
    return typer.Option(help=help, metavar=metavar, rich_help_panel=group, **more)


def _flag(*names: str, help: str, group: str | None = None) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=group)


def complete_realizations(incomplete: str) -> list[tuple[str, str]]:
    """Realizations, for the completion of a shell."""
    import pairgrad

    return [(r.name, r.summary) for r in pairgrad.realizations() if r.name.startswith(incomplete)]


@dataclass(frozen=True)
class AuditOptions:
    """What to audit, with what, and what to report."""

    targets: Annotated[
        list[str], typer.Argument(help="module:function, module:Class, module:object.attr or path/to/file.py:function.", metavar="TARGET")
    ]
    inputs: Annotated[
        str | None,
        _option(
            'What to call it with: "randn(32,128), randint(10,(32,))", "x=uniform(0.1,4,(16,)), n=3", @file.safetensors.', "SPEC", _WHERE
        ),
    ] = None
    inputs_from: Annotated[
        str | None, _option("A function that returns the inputs: module:function, or one beside the target.", "TARGET", _WHERE)
    ] = None
    sweep: Annotated[
        str | None,
        _option('Audit every combination: reduction=["mean", "none"], shape=[(4, 5), (8,)], weight=[..., rand(5)].', "GRID", _WHERE),
    ] = None
    domain: Annotated[str | None, _option('Where else to look: "0.1..4", "log 1e-3..1e3", "x=log 1..1e4, y=-1..1".', "RANGES", _WHERE)] = (
        None
    )
    constraints: Annotated[
        str | None, _option('What the inputs must stay: "symmetric", "simplex, _", "x=sphere, w=orthogonal".', "SETS", _WHERE)
    ] = None
    dtype: Annotated[str | None, _option("float64, float32, float16 or bfloat16, instead of that of the inputs.", "DTYPE", _WHERE)] = None
    seed: Annotated[int, _option("Seed of random inputs and of the audit.", "N", _WHERE)] = 0
    effort: Annotated[str, _option("quick, standard or thorough.", "HOW", _HOW)] = "standard"
    tolerance: Annotated[float, _option("Defects smaller than this, over the size of the gradient, do not decide.", "SHARE", _HOW)] = 0.0
    intent: Annotated[
        str | None,
        _option(
            "What is wanted: straight-through, clamped-straight-through, reversal, scaling, preconditioned, gradient-cap, "
            "implicit-reparameterization or overwrites-input.",
            "NAME",
            _HOW,
        ),
    ] = None
    second_order: Annotated[bool, _option("Audit the second backward too.", group=_HOW)] = True
    transforms: Annotated[bool, _option("Try forward mode and vmap too.", group=_HOW)] = True
    compiled: Annotated[str | None, _option("Compare with torch.compile too: inductor, aot_eager or another backend.", "BACKEND", _HOW)] = (
        None
    )
    consequences: Annotated[bool, _option("Look for causes and effects of a defect.", group=_HOW)] = True
    seconds: Annotated[
        float, _option("Seconds for the audit of each target, which then reports what it saw; 0 for as long as it takes.", "SECONDS", _HOW)
    ] = 60.0
    timeout: Annotated[float, _option("Seconds after which a target that does not return is ended; 0 for no end.", "SECONDS", _HOW)] = 300.0
    cache: Annotated[
        Path | None,
        _option("Keep results in this folder, and take from it what did not change.", "FOLDER", _HOW, envvar="PAIRGRAD_AUDIT_CACHE"),
    ] = None
    html: Annotated[
        Path | None, _option("Write the report as a page; a folder if there are several targets, or a sweep.", "FILE", _REPORT)
    ] = None
    json: Annotated[Path | None, _option("Write the report as data; a folder if there are several targets.", "FILE", _REPORT)] = None
    code_quality: Annotated[Path | None, _option("Write what does not pass in GitLab's code-quality format.", "FILE", _REPORT)] = None
    format: Annotated[str, _option("text, json, or github for annotations.", "FORMAT", _REPORT)] = "text"
    explain: Annotated[bool, _flag("--explain", help="Say it in plain words too.", group=_REPORT)] = False
    quiet: Annotated[bool, _flag("--quiet", "-q", help="No progress, and the verdict only.")] = False
    traceback: Annotated[bool, _flag("--traceback", help="Show the way to an exception, as --debug does.")] = False


def audit(options: AuditOptions) -> None:
    """Find out whether the backward of a function is the derivative of its forward.

    The function runs in a process of its own. Without --inputs and --inputs-from they are taken from the attribute example_inputs of the function or from
    <function>_inputs beside it. Ctrl-C keeps what was found.
    """
    from pairgrad.cli.audit import run

    raise typer.Exit(run(replace(options, traceback=options.traceback or IN_FULL.get())))


@dataclass(frozen=True)
class ProveOptions:
    """Which bounds to prove."""

    max_order: Annotated[
        int | None, _option("Prove orders 1 to this one; 24, the most, takes 40 s.", "N", _ALL_POTENTIALS, show_default="8")
    ] = None
    dim: Annotated[int | None, _option("Feature dimension.", "N", _ONE_POTENTIAL)] = None
    nu: Annotated[float | None, _option("Bessel order, instead of --dim.", "NU", _ONE_POTENTIAL)] = None
    order: Annotated[
        int | None, _option("Order of the expansion.", "N", _ONE_POTENTIAL, show_default="the order that 'paired' chooses")
    ] = None
    shift: Annotated[int | None, _option("Order shift of 'paired', with --order.", "N", _ONE_POTENTIAL)] = None


def prove(options: ProveOptions) -> None:
    """Prove the error bounds of the Bessel ratio again, in ball arithmetic.

    Without options: for all x and nu. With --dim or --nu: for one potential; where there is no theorem, the reason is printed, and that is not a failure.
    """
    with explained("prove"):
        from pairgrad.cli.prove import run

        if not run(options):
            raise typer.Exit(1)


@dataclass(frozen=True)
class CertifyOptions:
    """A class state, a batch, and how the batch is scored."""

    state: Annotated[
        Path,
        typer.Argument(
            help="The class bank: the state_dict of a ClassBank, or of a loss that has one, in a .pt or .safetensors file.", metavar="STATE"
        ),
    ]
    features: Annotated[
        Path | None,
        _option("Features as they are scored, (batch, dim) or (views, batch, dim).", "FILE", show_default="the tensor features of STATE"),
    ] = None
    labels: Annotated[Path | None, _option("Labels, (batch,).", "FILE", show_default="the tensor labels of STATE")] = None
    class_counts: Annotated[
        Path | None,
        _option(
            "Training samples per class, for the log prior and for head, medium and tail.",
            "FILE",
            show_default="the tensors log_prior and class_counts of STATE, if it has them",
        ),
    ] = None
    temperature: Annotated[float | None, _option("Tau.", "TAU", show_default="that of STATE, or 0.1")] = None
    realization: Annotated[
        list[str] | None,
        _option(
            "How the potential is computed; repeat to compare.",
            "NAME",
            show_default="arfr and paired",
            autocompletion=complete_realizations,
        ),
    ] = None
    dtype: Annotated[str | None, _option("float32 or float64 instead of the dtype of STATE.", "DTYPE")] = None
    bank: Annotated[str | None, _option("Prefix of the bank's tensors, if STATE has several banks.", "PREFIX")] = None
    json: Annotated[Path | None, _option("Write the bounds as data, schema pairgrad.certificate/1.", "FILE")] = None


def certify(options: CertifyOptions) -> None:
    """Bound the errors of a learning state: how far scores, losses, probabilities, predictions and gradients of a batch can be from the exact ones.

    STATE may hold the batch, too, as pairgrad.certificates.save_state writes it. Other files are .pt, .safetensors or .json and hold one tensor, or one of
    the name of the option. Nothing in a file is executed. A --realization without a theorem is refused.
    """
    with explained("certify", options.json, file="--json"):
        from pairgrad.cli.certify import run

        run(options)


@dataclass(frozen=True)
class PlanOptions:
    """A run on GPUs; numbers as text, 1e7 or 10M."""

    classes: Annotated[str, _option("Classes of the whole bank: 1e7, 10_000_000 or 10M.", "N", _RUN)]
    dim: Annotated[str, _option("Feature dimension.", "N", _RUN)]
    batch: Annotated[str, _option("Samples of a step, of all ranks together.", "N", _RUN)]
    views: Annotated[str, _option("Views of each sample.", "N", _RUN)] = "1"
    two_epochs: Annotated[bool, _flag("--two-epochs", help="A bank with memory='two-epochs'.", group=_RUN)] = False
    ranks: Annotated[str, _option("Processes with a GPU each: 64 for all layouts, 8x8 for replicas x shards.", "N", _MACHINE)] = "1"
    gpu: Annotated[str, _option("a100, h100, h200, b200 or mi300x.", "NAME", _MACHINE)] = "h100"
    memory: Annotated[str | None, _option("Bytes of a rank for the loss: 40G.", "BYTES", _MACHINE, show_default="all that the GPU has")] = (
        None
    )
    json: Annotated[Path | None, _option("Write the plan as data, schema pairgrad.plan/2.", "FILE")] = None


def plan(options: PlanOptions) -> None:
    """Before a run: which layouts of ranks fit, what travels between them, and what a step costs.

    For one rank it prints the floor in time and bytes on a GPU, and what each execution launches, moves and allocates, beside what was counted. Predictions
    are called so. A layout D x C has D replicas of the class bank, each sharded over C ranks.
    """
    from pairgrad.cli import plan as command
    from pairgrad.cli.streams import Console

    with explained("plan", options.json, file="--json", also=(command.WrongOption,)):
        found = command.run(options, Console())
    if found.shown.problem:
        raise typer.Exit(1)


@dataclass(frozen=True)
class DoctorOptions:
    """What to examine."""

    device: Annotated[str | None, _option("Check this device against the CPU, too: cuda, cuda:1, mps.", "DEVICE")] = None
    compiled: Annotated[bool, _flag("--compile", help="Try torch.compile, too, which takes longer.")] = False
    json: Annotated[Path | None, _option("Write it as data, too.", "FILE")] = None


def doctor(options: DoctorOptions) -> None:
    """Say what is installed, which extras are missing and what for, which devices and dtypes can be used, and check that the numbers are right.

    An extra that is missing is not a failure. What it prints is what a bug report needs. With --device it computes potentials, scores, losses, class banks,
    densities and samples on that device and on the CPU, and says how far apart they are; then whether a step waits for the device and fits into a graph.
    """
    with explained("doctor", options.json, file="--json"):
        from pairgrad.cli.doctor import run
        from pairgrad.cli.streams import Streams
        from pairgrad.ground.devices import usable_device

        try:
            device = None if options.device is None else usable_device("--device", options.device)
        except ValueError as error:
            fail("doctor", error)
        if not run(Streams("pairgrad doctor").out, options.compiled, options.json, device):
            raise typer.Exit(1)


@dataclass(frozen=True)
class BenchOptions:
    """What to measure, and where."""

    device: Annotated[str, _option("cpu, cuda, cuda:1, mps.", "DEVICE")] = "cpu"
    dtype: Annotated[str, _option("float32 or float64.", "DTYPE")] = "float32"
    batch: Annotated[int, _option("Samples of a step.", "N", min=1)] = 32
    classes: Annotated[int, _option("Classes of the bank.", "N", min=2)] = 1000
    dim: Annotated[int, _option("Feature dimension.", "N", min=2)] = 1024
    compiled: Annotated[bool, _flag("--compile", help="The compiled step, too, which takes longer.")] = False
    repeats: Annotated[int, _option("Repetitions of each call; the median counts.", "N", min=1)] = 21
    threads: Annotated[int, _option("Threads of the CPU.", "N", min=1, max=THREADS)] = 1
    json: Annotated[Path | None, _option("Write the times as data, too.", "FILE")] = None


def bench(options: BenchOptions) -> None:
    """Measure here what the documentation measured elsewhere: what a training step costs by way of computing it, with the paper's numbers beside it where
    pairgrad-paper is installed, the learning step over its two bare matrix products, and the potential by realization.

    The first rows of the first table take half a gigabyte of memory each, one of them two. In the other tables calls take turns and medians are compared, so
    that ratios can be trusted where times cannot. Run it on an idle machine.
    """
    with explained("bench", options.json, file="--json"):
        from pairgrad.cli import bench as command
        from pairgrad.cli.streams import Streams

        try:
            command.check(options)
        except ValueError as error:
            fail("bench", error)
        command.run(options, Streams("pairgrad bench").out)


def realizations() -> None:
    """List the ways to compute the potential and what each trades."""
    from rich.table import Table

    import pairgrad
    from pairgrad.cli.streams import Console

    table = Table("name", "coherent", "what it computes", "what it trades")
    for r in pairgrad.realizations():
        table.add_row(r.name, "yes" if r.coherent else "no", r.summary, r.trade)
    Console().print(table)


COMMANDS = (
    Command(
        doctor,
        Group.START,
        short="What is installed, what works here, and a self-check.",
        examples=[
            ("pairgrad doctor", "Ten seconds."),
            ("pairgrad doctor --compile", "Try torch.compile, too."),
            ("pairgrad doctor --device cuda", "Compare a GPU with the CPU."),
        ],
        codes=exit_codes.DOCTOR,
    ),
    Command(
        audit,
        Group.AUDIT,
        short="Is a backward the derivative of its forward?",
        examples=[
            ('pairgrad audit losses.py:penalty --inputs "randn(32, 8)"', "One function, at one random input."),
            (
                'pairgrad audit losses:penalty --domain "log 1e-3..1e3" --html audit.html',
                "Over a range, with a page that says where it goes wrong.",
            ),
            ("pairgrad audit losses:penalty --format github", "In continuous integration: annotations and an exit code."),
        ],
        codes=exit_codes.AUDIT,
    ),
    Command(
        plan,
        Group.TRAIN,
        short="Memory, bytes and floor of a step on GPUs, before a run.",
        examples=[
            ("pairgrad plan --classes 1e7 --dim 512 --batch 8192 --ranks 64", "Every layout of 64 ranks."),
        ],
        codes=exit_codes.PLAN,
    ),
    Command(
        prove,
        Group.FIND_OUT,
        short="Prove the error bounds of the Bessel ratio again.",
        examples=[
            ("pairgrad prove", "The theorem for all x and nu, orders 1 to 8."),
            ("pairgrad prove --dim 512", "What is proven of one potential."),
        ],
        codes=exit_codes.PROVE,
    ),
    Command(
        certify,
        Group.FIND_OUT,
        short="Bound loss, gradients and predictions of a learning state.",
        examples=[
            ("pairgrad certify loss.pt --features features.pt --labels labels.pt", "A batch against the bank in the state_dict of a loss."),
            ("pairgrad certify state.safetensors --json bounds.json", "A file of save_state, which holds the batch, too."),
        ],
    ),
    Command(
        bench,
        Group.FIND_OUT,
        short="How fast it is on this machine, as ratios.",
        examples=[
            ("pairgrad bench", "On the CPU."),
            ("pairgrad bench --device cuda --compile --classes 100000", "On a GPU, with torch.compile."),
        ],
    ),
    Command(
        realizations,
        Group.FIND_OUT,
        short="The ways to compute the potential, and what each trades.",
        examples=[("pairgrad realizations", "The list.")],
    ),
)
