"""`pairgrad demo`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

import pairgrad as pg
from pairgrad.certificates.learning import LearningCertificate, certify_step
from pairgrad.cli import figures, tables
from pairgrad.cli.output import prepare, report
from pairgrad.cli.progress import shown_progress
from pairgrad.cli.streams import Streams
from pairgrad.experiments.catalogue import FIGURES, TABLES
from pairgrad.experiments.evaluation import Trained, evaluate_run
from pairgrad.experiments.figures.style import pyplot
from pairgrad.experiments.runs import RunDirectory
from pairgrad.experiments.settings import changed, recipe_named
from pairgrad.experiments.timing import one_thread
from pairgrad.experiments.training import train
from pairgrad.experiments.training.launch import Arm, load_data, make_trainer, run_directory
from pairgrad.experiments.training.loop import Options
from pairgrad.ground.balls import flint
from pairgrad.ground.certificate import rounded_up

_FIGURE = "value-and-slope"
_TABLES = ("ratio-fidelity", "difference-fidelity", "parity", "constants", "complexity", "synthetic-counterfactual")


def run(output: Path, epochs: int | None = None) -> None:
    """Print the demonstration and write its runs, its tables and its picture into `output`."""
    flint()  # what is missing is said before anything is computed
    pyplot()
    prepare(output)
    console = Streams("pairgrad demo").out
    _two_slopes(console)
    _three_arms(console)
    _audits(console)
    _training(console, output, epochs)
    picture = figures.make(console, {_FIGURE: FIGURES[_FIGURE]}, output)
    report(console, tables.make(console, {name: TABLES[name] for name in _TABLES}, output) + picture)


def _two_slopes(console: Console) -> None:
    original, consistent = pg.potential(128, "original"), pg.potential(128, "consistent")
    x = torch.tensor([64 * 63.0], dtype=torch.float64)
    console.print("[bold]Same value, different slopes[/bold]  (dim 128, x/nu = 64)")
    table = Table("realization", "value it reports", "slope it supplies", "derivative of its value")
    for pot in (original, consistent, pg.potential(128)):
        value, slope = pot.pair(x)
        table.add_row(pot.realization, f"{value.item() + pot.offset:.10f}", f"{slope.item():.6f}", f"{pot.derivative(x).item():.6f}")
    console.print(table)
    same = torch.equal(original.value(x), consistent.value(x))
    defect = original.defect(x).item()
    console.print(
        f"original and consistent: values equal bit for bit: {'yes' if same else 'NO'}; coherence defect of original: {defect:.3e}\n"
    )


def _three_arms(console: Console) -> None:
    """One step of a PATT loss on the features of a seeded random batch, in the three arms of the paper and with the default."""
    console.print("[bold]Same loss, different gradients[/bold]  (PATTLoss, 10 classes, dim 128, features as they come, two views of 32)")
    table = Table("realization", "loss", "gradient norm", "relative distance to consistent")
    arms = {name: _one_step(name) for name in ("original", "consistent", "arfr", "paired")}
    consistent = arms["consistent"].gradient
    for name, arm in arms.items():
        distance = (arm.gradient - consistent).norm() / consistent.norm()
        table.add_row(name, f"{arm.loss.item():.10f}", f"{arm.gradient.norm().item():.8f}", f"{distance.item():.2e}")
    console.print(table)
    same = torch.equal(arms["original"].loss, arms["consistent"].loss)
    console.print(f"original and consistent: losses equal bit for bit: {'yes' if same else 'NO'}")
    for name, arm in arms.items():
        if arm.certificate is not None:
            loss, gradient = (rounded_up(float(bound.total.max()), 2) for bound in (arm.certificate.loss, arm.certificate.gradient))
            console.print(f"{name}: proven to be within {loss} of the exact loss, and every gradient within {gradient}, rounding included")
    console.print()


def _audits(console: Console) -> None:
    """The same question put to the auditor, which knows nothing of the formulas: is this backward the derivative of this forward?"""
    console.print("[bold]Is the backward the derivative of the forward?[/bold]  (pairgrad.audit of value(x) at x/nu = 64 and 9.6, dim 128)")
    table = Table("realization", "verdict", "defect, or smallest it could have seen", "calls")
    x = torch.tensor([64 * 63.0, 606.0], dtype=torch.float64)
    for name in ("original", "consistent", "arfr", "paired"):
        report = pg.audit(pg.potential(128, name).value, x, effort="quick", second_order=False, consequences=False)
        seen = f"{report.defect:.3e} ± {report.defect_error:.0e}" if report.defect else f"< {report.limit:.1e}"
        table.add_row(name, report.verdict.value, seen, str(report.evaluations))
    console.print(table)
    console.print()


def _training(console: Console, output: Path, epochs: int | None) -> None:
    """The three arms of the paper, trained on digits that come with scikit-learn, and evaluated. A demonstration that was interrupted goes on here."""
    recipe = changed(recipe_named("digits-lt"), [] if epochs is None else [f"epochs={epochs}"])
    console.print(
        "[bold]The paper's three arms, trained[/bold]  (PATT on long-tailed digits, digits 7 to 9 held out; pairgrad train digits-lt)"
    )
    benchmark = load_data(recipe, None)
    table = Table("realization", "test accuracy", "of the rare classes", "AUROC of held-out digits", "the monitor says")
    for name in ("original", "consistent", "arfr"):
        arm = Arm(recipe, name, recipe.seed)
        path = output / "runs" / arm.name
        with one_thread(), run_directory(path, arm, benchmark) as run, shown_progress(console, name) as watcher:
            outcome = train(run, make_trainer(arm, benchmark), Options(monitor_every=100), watcher)
        if outcome.ending != "finished":
            raise KeyboardInterrupt
        evaluation, _ = evaluate_run(Trained.open(path), benchmark, scores=("energy",))
        found = evaluation.scores["energy"]
        assert found.ood is not None
        figures_of_merit = (found.accuracy.accuracy, found.accuracy.few, found.ood.mean.auroc)
        table.add_row(name, *("–" if value is None else f"{100 * value:.1f} %" for value in figures_of_merit), _last_look(path))
    console.print(table)
    console.print(Text(f"records, checkpoints and evaluations: {output / 'runs'}\n"))


def _last_look(path: Path) -> str:
    looks = [event for event in RunDirectory.open(path).events() if event["kind"] == "coherence"]
    words = []
    for function in looks[-1]["functions"] if looks else []:
        defect = f", defect {function['defect']:.1e}" if function["defect"] else ""
        words.append(function["verdict"] + defect)
    return "; ".join(words) or "no look"


class _Arm(NamedTuple):
    loss: torch.Tensor
    gradient: torch.Tensor
    certificate: LearningCertificate | None


def _one_step(realization: str) -> _Arm:
    generator = torch.Generator().manual_seed(3407)
    loss = pg.PATTLoss(
        10, 128, class_counts=[100 - 10 * k for k in range(10)], realization=realization, dtype=torch.float64, generator=generator
    )
    centres = torch.randn(10, 128, dtype=torch.float64, generator=generator)
    labels = torch.randint(10, (32,), generator=generator)
    noise = torch.randn(2, 32, 128, dtype=torch.float64, generator=generator)
    features = (0.1 * centres[labels] + 0.3 * noise).requires_grad_()
    bounded = loss.augmentation.potential.ratio_bound() is not None
    certificate = certify_step(loss, features, labels) if bounded else None
    total = loss.augmentation(features, labels)
    (gradient,) = torch.autograd.grad(total, features)
    return _Arm(total.detach(), gradient, certificate)
