"""The list of commands: what each is for, and an example or two."""

from collections.abc import Mapping

from pairgrad.cli import Columns, Command, Group
from pairgrad_paper.commands.evidence_commands import demo, figures, report, tables, times
from pairgrad_paper.commands.run_commands import check, collect, evaluate, fork, frozen, states, train

FORK = {3: "A loss that is not finite.", 4: "A checkpoint or the record could not be written."}
TRAIN = {**FORK, 5: "Another process died, hangs or has different settings."}


def published_costs() -> Mapping[str, Mapping[str, str]]:
    """What the paper has on an H100, for the table of `pairgrad bench` (tab:h100-local)."""
    from pairgrad_paper.tables.published import H100_MEBIBYTES, H100_MILLISECONDS

    return {
        "H100, ms": {row: H100_MILLISECONDS[row].text for row in H100_MILLISECONDS},
        "H100, MiB": {row: H100_MEBIBYTES[row].text for row in H100_MEBIBYTES},
    }


COMMANDS = (
    Columns("local costs", published_costs),
    Command(
        demo,
        Group.START,
        short="The whole story, live, and one HTML report of it.",
        examples=[
            ("pairgrad demo", "Two minutes on two cores; the report is pairgrad-demo/report.html."),
            ("pairgrad demo --epochs 5 --open", "A shorter training; opens the report in a browser."),
        ],
    ),
    Command(
        train,
        Group.TRAIN,
        short="Train a recipe or resume a run.",
        examples=[
            ("pairgrad train", "List the recipes."),
            ("pairgrad train digits-lt --realization original --realization arfr", "Two arms, no download."),
            ("pairgrad train patt-cifar10-lt-if100 --data-root /my/data --dry-run", "Every setting, and what it would do here."),
            ("torchrun --nproc-per-node 8 -m pairgrad train proco-inat18", "On eight GPUs."),
        ],
        codes=TRAIN,
    ),
    Command(
        check,
        Group.TRAIN,
        short="Whether a run's files are as they were written.",
        examples=[("pairgrad check runs/digits-lt-*", "Every checkpoint and record, byte for byte.")],
        codes={1: "A file of a run is damaged."},
    ),
    Command(
        evaluate,
        Group.TRAIN,
        short="Accuracy by shot group, and OOD detection.",
        examples=[("pairgrad evaluate runs/digits-lt-*", "Every run, and means over seeds.")],
    ),
    Command(
        report,
        Group.PAPER,
        short="All tables and figures on one page.",
        examples=[("pairgrad report --open", "From records, or computed on the spot.")],
    ),
    Command(
        tables,
        Group.PAPER,
        short="The paper's tables, with the published numbers.",
        examples=[
            ("pairgrad tables", "All of them."),
            ("pairgrad tables --only ratio-fidelity --only tab:parity-counterfactual", "Two, by name or by label."),
        ],
    ),
    Command(
        figures,
        Group.PAPER,
        short="The paper's figures.",
        examples=[("pairgrad figures --only value-and-slope", "One, as SVG, PNG and PDF.")],
    ),
    Command(
        fork,
        Group.PAPER,
        short="Several realizations from one start, on the same tensors.",
        examples=[
            ("pairgrad fork digits-lt --updates 100", "Four branches of the small benchmark."),
            ("pairgrad fork --from runs/digits-lt-original-seed3407", "From the newest checkpoint of a run."),
        ],
        codes=FORK,
    ),
    Command(
        frozen,
        Group.PAPER,
        short="One captured state under several backward rules.",
        examples=[("pairgrad frozen runs/digits-lt-original-seed3407", "Three states of a run.")],
    ),
    Command(
        states,
        Group.PAPER,
        short="Defects at the states that a run visits.",
        examples=[("pairgrad states runs/digits-lt-original-seed3407 --every 10", "Every tenth epoch.")],
    ),
    Command(
        collect,
        Group.PAPER,
        short="Small records of runs, from which tables are made.",
        examples=[("pairgrad collect runs/digits-lt-* --records records", "Then: pairgrad tables --records records.")],
    ),
    Command(
        times,
        Group.PAPER,
        short="Times by dimension, for the table complexity.",
        examples=[("pairgrad times --output records/complexity-times.jsonl", "Then: pairgrad tables --only complexity --records records.")],
    ),
)
