"""The five chapters. Each says and shows what it finds while it finds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch.nn.functional import normalize

import pairgrad as pg
from pairgrad.certificates import certify_step, measured_ratio_error, prove_potential
from pairgrad.cli import progress
from pairgrad.ground import rounded_up, threads
from pairgrad_paper.catalogue import FIGURES, TABLES
from pairgrad_paper.commands.demo.bars import watched
from pairgrad_paper.commands.demo.miniature import DIM, Miniature
from pairgrad_paper.commands.demo.pictures import descent_picture, training_picture
from pairgrad_paper.commands.demo.telling import Grid, Teller
from pairgrad_paper.commands.show import show
from pairgrad_paper.data import Benchmark
from pairgrad_paper.evaluation import Trained, evaluate_run
from pairgrad_paper.recipes import Recipe
from pairgrad_paper.recipes.settings import changed, recipe_named
from pairgrad_paper.records import Records
from pairgrad_paper.report import collected
from pairgrad_paper.runs import RunDirectory
from pairgrad_paper.tables.writers import write
from pairgrad_paper.training import train
from pairgrad_paper.training.launch import Arm, load_data, make_trainer, run_directory
from pairgrad_paper.training.loop import Options

ARMS = ("original", "consistent", "arfr")
FIGURE = "value-and-slope"
PAPER_TABLES = ("ratio-fidelity", "difference-fidelity", "parity", "constants", "complexity", "backward-counterfactual")
_X = 64 * 63.0  # x / nu = 64 at dim 128
_UPDATES = 20
_SHOWN = (0, 1, 2, 3, 5, 10, 15, 20)


@dataclass(frozen=True)
class Setting:
    """Where the story takes place."""

    output: Path
    recipe: Recipe
    benchmark: Benchmark

    @classmethod
    def of(cls, output: Path, epochs: int | None) -> Self:
        recipe = changed(recipe_named("digits-lt"), [] if epochs is None else [f"epochs={epochs}"])
        return cls(output, recipe, load_data(recipe, None))


def same_loss_different_gradients(teller: Teller, setting: Setting) -> None:
    """One value with two slopes; then two trainings in miniature that report the same losses and part."""
    teller.say(
        f"A von Mises-Fisher loss is made of one function of one number x, at dimension {DIM} here. Public code computes its value by a finite recurrence and "
        "hands out, as its derivative, a ratio that is clipped at 1 (`original`). `consistent` computes the same value and hands out its derivative; "
        "`paired`, the default of pairgrad, computes both as one object."
    )
    teller.begin(Grid(("realization", "value at x/nu = 64", "slope handed out", "derivative of value"), (11, 18, 16, 19)))
    x = torch.tensor([_X], dtype=torch.float64)
    for name in ("original", "consistent", "paired"):
        pot = pg.potential(DIM, name)
        value, slope = pot.pair(x)
        cells = (f"{value.item() + pot.offset:.10f}", f"{slope.item():.6f}", f"{pot.derivative(x).item():.6f}")
        teller.row(name, *cells, style="" if pot.coherent else "yellow")
    teller.end()
    for item in collected({}, {FIGURE: FIGURES[FIGURE]}, Records()):
        teller.keep(item)
    FIGURES[FIGURE].save(FIGURES[FIGURE].table(lambda: None, Records()), setting.output)

    teller.say(
        "Now the same in a loss (`PATTLoss`, 10 classes, two views of 32 samples), descended twice from one start. In each row both backward rules are put to "
        "the state that `consistent` has reached: is the loss the same, and how far apart are the two gradients? The last column is how far the two descents "
        "are apart."
    )
    teller.begin(Grid(("update", "loss that both report", "same bits", "gradients apart", "descents apart"), (6, 21, 9, 15, 14), words=0))
    descents = Miniature()
    rows = []
    for update in range(_UPDATES + 1):
        seen = descents.look()
        rows.append((update, seen))
        if update in _SHOWN:
            teller.row(str(update), f"{seen.loss:.15f}", "yes" if seen.same_bits else "NO", f"{seen.gradients:.2e}", f"{seen.descents:.2e}")
        descents.step()
    teller.end()
    teller.keep(descent_picture(rows))
    same = sum(seen.same_bits for _, seen in rows)
    teller.say(
        f"The losses are equal in every bit at {same} of {len(rows)} states, and the gradients at none: the loss alone does not show which function is "
        "descended."
    )


def the_certificate(teller: Teller, setting: Setting) -> None:
    """What is proven of the pair: the slope, and a loss and its gradient."""
    teller.say(
        "How far can a pair be from the exact function? That is a theorem, proven again here in ball arithmetic: for every x at once, at this dimension, "
        "before rounding. Beside it the largest error at 121 points."
    )
    teller.begin(Grid(("realization", "proven: |slope - R| <=", "measured", "steps checked", "holds"), (11, 22, 9, 13, 5)))
    for name in ("arfr", "paired"):
        pot = pg.potential(DIM, name)
        proof = prove_potential(pot)
        assert proof.bound is not None
        measured = measured_ratio_error(pot).bound
        teller.row(name, f"{proof.bound:.3e}", f"{measured:.2e}", str(len(proof.steps)), "yes" if proof.holds else "NO")
    teller.end()
    teller.say("From there to what is trained: the step of the first chapter, rounding included.")
    teller.begin(Grid(("realization", "loss within", "every gradient within"), (11, 12, 21)))
    for name in ("arfr", "paired"):
        certificate = certify_step(*Miniature().step_of(name))
        teller.row(name, *(rounded_up(float(bound.total.max()), 2) for bound in (certificate.loss, certificate.gradient)))
    teller.end()


def three_arms_training(teller: Teller, setting: Setting) -> None:
    """The paper's arms, trained on digits that come with scikit-learn, and evaluated. An interrupted demonstration resumes here."""
    teller.say(
        "The paper's three arms, trained with PATT on long-tailed digits of which 7 to 9 are held out as unknown (`pairgrad train digits-lt`), one after the "
        "other. A coherence monitor watches the custom backwards."
    )
    paths = {}
    with watched(teller.console, ARMS) as observers:
        for name in ARMS:
            arm = Arm(setting.recipe, name, setting.recipe.seed)
            paths[name] = setting.output / "runs" / arm.name
            with threads(1), run_directory(paths[name], arm, setting.benchmark) as directory:
                outcome = train(directory, make_trainer(arm, setting.benchmark), Options(monitor_every=100), observers[name])
            if outcome.ending != "finished":
                raise KeyboardInterrupt
    teller.end()
    teller.begin(Grid(("realization", "accuracy", "rare classes", "AUROC, unknown", "the monitor says"), (11, 8, 12, 14, 27)))
    for name, path in paths.items():
        evaluation, _ = evaluate_run(Trained.open(path), setting.benchmark, scores=("energy",))
        found = evaluation.scores["energy"]
        assert found.ood is not None
        merit = (found.accuracy.accuracy, found.accuracy.few, found.ood.mean.auroc)
        looked = _last_look(path)
        teller.row(
            name,
            *("-" if value is None else f"{100 * value:.1f} %" for value in merit),
            looked,
            style="yellow" if "incoh" in looked else "",
        )
    teller.end()
    teller.keep(training_picture(paths))
    teller.say(
        "One seed of a small benchmark says nothing about which arm is better. It does say which of them follows the gradient of the loss that it reports."
    )


def what_the_auditor_says(teller: Teller, setting: Setting) -> None:
    """The same question put to the auditor, which knows nothing of the formulas."""
    teller.say(
        "The auditor (`pairgrad audit`) knows nothing of these formulas. It takes any function and tests whether its backward is the derivative of its "
        "forward, and how small a defect it could have seen."
    )
    teller.begin(Grid(("function", "verdict", "defect, or limit", "calls"), (34, 10, 18, 5), words=2))
    explained = ""
    x = torch.tensor([_X, 606.0], dtype=torch.float64)
    for name in (*ARMS, "paired"):
        report = pg.audit(pg.potential(DIM, name).value, x, effort="quick", second_order=False, consequences=False)
        _verdict(teller, f"potential({DIM}, {name!r}).value", report)
        explained = explained or report.explain().split("How it was found")[0]
    points = normalize(torch.randn(4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=1) * 3
    _verdict(
        teller, "a clipped norm, by hand", pg.audit(_ClippedNorm.apply, points, effort="quick", second_order=False, consequences=False)
    )
    teller.end()
    teller.say(f"What it says of `original`: {' '.join(explained.split())}")


def _verdict(teller: Teller, name: str, report: pg.coherence.Report) -> None:
    seen = f"{report.defect:.3e} +- {report.defect_error:.0e}" if report.defect else f"< {report.limit:.1e}"
    teller.row(name, report.verdict.value, seen, str(report.evaluations), style="" if report.passed else "yellow")


class _ClippedNorm(torch.autograd.Function):
    """A backward as it is often written: right below 1, clipped above."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.square().sum(dim=-1) / 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (x,), (gradient,) = ctx.saved_tensors, gradients
        return gradient[..., None] * x / x.norm(dim=-1, keepdim=True).clamp(min=1)


def the_papers_tables(teller: Teller, setting: Setting) -> None:
    """Six tables of the paper, computed again."""
    teller.say(
        "Tables of the paper, computed again on this machine, with the published digits beside ours. All of them, and the figures: `pairgrad report`."
    )
    items = collected(
        {name: TABLES[name] for name in PAPER_TABLES}, {}, Records(), lambda name, steps: progress(teller.console, name, steps)
    )
    teller.begin(Grid(("table", "rows", "checks that hold"), (24, 4, 16)))
    for item in items:
        assert item.table is not None
        teller.row(
            item.name,
            str(len(item.table.rows)),
            f"{item.held} of {len(item.checks)}",
            style="" if item.held == len(item.checks) else "yellow",
        )
        write(item.table, setting.output)
    teller.end()
    shown = next(item.table for item in items if item.name == "ratio-fidelity")
    assert shown is not None
    show(teller.console, shown)
    for item in items:
        teller.keep(item)
    for item in items:
        if item.table is not None and item.held < len(item.checks):
            failing = " ".join(str(check) for check in item.checks if not check.held)
            teller.say(f"`{item.name}`: {failing}. {' '.join(item.table.notes)}")


def _last_look(path: Path) -> str:
    looks = [event for event in RunDirectory.open(path).events() if event["kind"] == "coherence"]
    words = []
    for function in looks[-1]["functions"] if looks else []:
        defect = f", defect {function['defect']:.1e}" if function["defect"] else ""
        words.append(function["verdict"] + defect)
    return "; ".join(words) or "no look"


CHAPTERS: dict[str, Callable[[Teller, Setting], None]] = {
    "Same loss, different gradients": same_loss_different_gradients,
    "What can be proven of a pair": the_certificate,
    "Three arms, trained": three_arms_training,
    "Is the backward the derivative of the forward?": what_the_auditor_says,
    "The paper's tables, computed again": the_papers_tables,
}
