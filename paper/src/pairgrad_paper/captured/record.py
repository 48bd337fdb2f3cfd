"""Everything that is measured at frozen states of one run, as the lines of a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from pairgrad.sphere import GEOMETRIES
from pairgrad_paper.captured.audit import audited
from pairgrad_paper.captured.capture import Captured, capture
from pairgrad_paper.captured.plane import measured_field, queries
from pairgrad_paper.captured.replay import replayed
from pairgrad_paper.captured.source import Source
from pairgrad_paper.captured.states import states_lines
from pairgrad_paper.captured.view import DOUBLE, TRAINING, Backward, View, changed
from pairgrad_paper.records import Record, origin
from pairgrad_paper.runs import environment

Say = Callable[[str], None]
BATCH_SIZE = 128


def default_steps(source: Source) -> tuple[int, ...]:
    """The first, the middle and the last checkpoint of those that an update was made before."""
    steps = [step for step in source.steps if step > 0] or [0]
    return tuple(sorted({steps[0], steps[(len(steps) - 1) // 2], steps[-1]}))


def frozen_record(
    source: Source,
    steps: Sequence[int] | None = None,
    batch_size: int = BATCH_SIZE,
    name: str | None = None,
    save: Path | None = None,
    say: Say = lambda _: None,
) -> Record:
    """The record `frozen` of a run.

    Args:
        source: the run.
        steps: checkpoints; three of them by default. The last is where the field, the queries and the crossed precisions are measured.
        batch_size: images of the captured batch.
        name: of the record.
        save: a directory for the captured views, as learning states.
        say: told what is being done.
    """
    chosen = default_steps(source) if steps is None else tuple(sorted(set(steps)))
    facts = {**source.facts(), "batch_size": batch_size, "steps": list(chosen)}
    lines = tuple(_frozen_lines(source, chosen, batch_size, save, say))
    title = f"Frozen states of {source.run.path.name} after {', '.join(map(str, chosen))} updates"
    return Record(name or f"frozen-{source.short_name}", "frozen", title, facts, origin(environment("cpu")), lines)


def states_record(source: Source, every: int = 1, name: str | None = None, say: Say = lambda _: None) -> Record:
    """The record `states` of a run; see `states_lines`."""
    network = source.trainer(0).network
    facts = {**source.facts(), "dim": network.dim, "temperature": source.recipe.loss.temperature}
    lines = []
    for line in states_lines(source, every):
        if line["kind"] == "capture":
            say(f"{line['when']}, {line['what']}: {100 * line['above']:.1f} % of {line['count']} above 1e-6, at most {line['maximum']:.2e}")
        lines.append(line)
    title = f"Coherence defects at the states that {source.run.path.name} visits"
    return Record(name or default_states_name(source), "states", title, facts, origin(environment("cpu")), tuple(lines))


def default_states_name(source: Source) -> str:
    """The name of a record of states that is given none."""
    return f"{source.recipe.loss.method}-{source.short_name}-states"


def _frozen_lines(source: Source, steps: Sequence[int], batch_size: int, save: Path | None, say: Say) -> Iterator[dict[str, Any]]:
    captured: Captured | None = None
    for step in steps:
        say(f"update {step}: a batch of {batch_size}")
        captured = capture(source.trainer(step), batch_size)
        if save is not None:
            captured.save(save, source.run.path.name)
        for number, view in captured.views.items():
            yield from _view_lines(captured, number, view)
        say(f"update {step}: one step of the optimizer with each backward")
        yield {"kind": "replay", **replayed(source, step)}
    assert captured is not None
    say(f"update {captured.step}: precisions, the field around a query, all queries")
    number, view = next(iter(captured.views.items()))
    place = {"step": captured.step, "view": number}
    yield from _crossed(view, place)
    facts, points = measured_field(view)
    yield {"kind": "field_facts", **place, **facts}
    yield from ({"kind": "field", **point} for point in points)
    for number, view in captured.views.items():
        yield from ({"kind": "query", "view": number, **query} for query in queries(view))


def _view_lines(captured: Captured, number: int, view: View) -> Iterator[dict[str, Any]]:
    place = {"step": captured.step, "view": number}
    field = view.field()
    loss = Backward.of(view, "original", **TRAINING).loss.item()
    bank = captured.banks[number - min(captured.views)]
    yield {
        "kind": "state",
        "step": captured.step,
        "epoch": captured.epoch,
        "view": number,
        "queries": field.radius.numel(),
        "capped": int((view.concentration >= bank.rule.cap).sum()),
        "classes": bank.num_classes,
        **_three("radius", field.radius / view.nu),
        **_three("feature_norm", torch.linalg.vector_norm(view.features.double(), dim=1)),
        "loss": loss,
    }
    defect = field.radial_defect.abs().max().item()
    yield {"kind": "counterfactual", **place, **changed(view, **TRAINING), "defect": defect, "mean_loss": loss}
    yield {"kind": "audit", **place, **audited(view)}


def _crossed(view: View, place: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Both precisions of the geometry with both ways to form it (app:mechanism-protocol); scalars in float64."""
    defect = view.field().radial_defect.abs().max().item()
    for dtype in (torch.float32, DOUBLE):
        for geometry in reversed(GEOMETRIES):
            found = changed(view, geometry, dtype, DOUBLE)
            yield {
                "kind": "cross",
                "precision": str(dtype).removeprefix("torch."),
                "geometry": geometry,
                **place,
                **found,
                "defect": defect,
            }


def _three(name: str, values: torch.Tensor) -> dict[str, float]:
    return {
        f"{name}_low": values.min().item(),
        f"{name}_median": values.quantile(0.5).item(),
        f"{name}_high": values.max().item(),
    }
