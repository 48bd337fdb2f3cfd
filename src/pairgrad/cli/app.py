"""The command line: which commands there are, what each is for, and an example or two of each."""

from __future__ import annotations

from typing import Annotated

import typer

from pairgrad.cli import evidence_commands, exit_codes, run_commands, tool_commands
from pairgrad.cli.pages import Contents, add

_START, _AUDIT, _TRAIN, _PAPER, _ASK = (
    "Start here",
    "Audit a backward",
    "Train with a von Mises-Fisher loss",
    "Reproduce the paper",
    "Find out",
)

app = typer.Typer(
    cls=Contents,
    invoke_without_command=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        import pairgrad

        typer.echo(pairgrad.__version__)
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """The loss that a program reports and the gradient that it descends can belong to two functions. pairgrad makes them one object, and finds out where they
    are not.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


add(
    app,
    evidence_commands.demo,
    group=_START,
    short="The whole story, live, and one HTML report of it.",
    examples=[
        ("pairgrad demo", "Two minutes on two cores; the report is pairgrad-demo/report.html."),
        ("pairgrad demo --epochs 5 --open", "A shorter training, and the report in a browser."),
    ],
)
add(
    app,
    tool_commands.doctor,
    group=_START,
    short="What is installed, what works here, and a self-check.",
    examples=[
        ("pairgrad doctor", "Ten seconds."),
        ("pairgrad doctor --compile", "Try torch.compile, too: half a minute more."),
    ],
    codes=exit_codes.DOCTOR,
)
add(
    app,
    tool_commands.audit,
    group=_AUDIT,
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
)
add(
    app,
    run_commands.train,
    group=_TRAIN,
    short="Train one of the paper's systems, or go on with it.",
    examples=[
        ("pairgrad train", "List the recipes."),
        ("pairgrad train digits-lt --realization original --realization arfr", "Two arms, no download, half a minute each."),
        ("pairgrad train patt-cifar10-lt-if100 --data-root /my/data --dry-run", "Every setting, and what it would do here."),
        ("torchrun --nproc-per-node 8 -m pairgrad train proco-inat18", "On eight GPUs."),
    ],
    codes=exit_codes.TRAIN,
)
add(
    app,
    run_commands.evaluate,
    group=_TRAIN,
    short="Accuracy by shot group, and OOD detection.",
    examples=[("pairgrad evaluate runs/digits-lt-*", "Every run, and means over seeds.")],
)
add(
    app,
    tool_commands.plan,
    group=_TRAIN,
    short="Memory, bytes and time of a run on many ranks.",
    examples=[
        ("pairgrad plan --classes 1e7 --dim 512 --ranks 64 --batch 8192 --memory 40G", "Every layout of 64 ranks, and the best one."),
    ],
    codes=exit_codes.PLAN,
)
add(
    app,
    evidence_commands.report,
    group=_PAPER,
    short="All tables and figures on one page.",
    examples=[("pairgrad report --open", "From records, in a minute.")],
)
add(
    app,
    evidence_commands.tables,
    group=_PAPER,
    short="The paper's tables beside the published numbers.",
    examples=[
        ("pairgrad tables", "All of them."),
        ("pairgrad tables --only ratio-fidelity --only tab:parity-counterfactual", "Two, by name or by label."),
    ],
)
add(
    app,
    evidence_commands.figures,
    group=_PAPER,
    short="The paper's figures, drawn anew.",
    examples=[("pairgrad figures --only value-and-slope", "One, as SVG, PNG and PDF.")],
)
add(
    app,
    run_commands.fork,
    group=_PAPER,
    short="Several realizations from one start, on the same tensors.",
    examples=[
        ("pairgrad fork digits-lt --updates 100", "Four branches of the small benchmark."),
        ("pairgrad fork --from runs/digits-lt-original-seed3407", "From where a run has come."),
    ],
    codes=exit_codes.FORK,
)
add(
    app,
    run_commands.frozen,
    group=_PAPER,
    short="One state held still, the backward rule changed.",
    examples=[("pairgrad frozen runs/digits-lt-original-seed3407", "Three states of a run.")],
)
add(
    app,
    run_commands.states,
    group=_PAPER,
    short="Defects at the states that a run visits.",
    examples=[("pairgrad states runs/digits-lt-original-seed3407 --every 10", "Every tenth epoch.")],
)
add(
    app,
    run_commands.collect,
    group=_PAPER,
    short="Small records of runs, from which tables are made.",
    examples=[("pairgrad collect runs/digits-lt-* --records records", "Then: pairgrad tables --records records.")],
)
add(
    app,
    evidence_commands.times,
    group=_PAPER,
    short="Times by dimension, for the table complexity.",
    examples=[("pairgrad times --output records/complexity-times.jsonl", "Then: pairgrad tables --only complexity --records records.")],
)
add(
    app,
    tool_commands.certify,
    group=_ASK,
    short="Prove the error bounds again, or bound a learning state.",
    examples=[
        ("pairgrad certify", "The theorem for all x and nu, orders 1 to 8, in six seconds."),
        ("pairgrad certify --dim 512", "What is proven of one potential."),
        ("pairgrad certify --state state.safetensors", "Loss, gradients and predictions of a saved batch and bank."),
    ],
    codes=exit_codes.CERTIFY,
)
add(
    app,
    tool_commands.bench,
    group=_ASK,
    short="How fast it is on this machine, as ratios.",
    examples=[
        ("pairgrad bench", "On the CPU, half a minute."),
        ("pairgrad bench --device cuda --compile --classes 100000", "On a GPU, with torch.compile."),
    ],
)
add(
    app,
    tool_commands.realizations,
    group=_ASK,
    short="The ways to compute the potential, and what each trades.",
    examples=[("pairgrad realizations", "The list.")],
)
