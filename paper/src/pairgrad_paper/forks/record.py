"""The record of a fork."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from pairgrad_paper.forks.fork import ForkDirectory
from pairgrad_paper.records import Record, RecordError, origin
from pairgrad_paper.records.files import written_by

KINDS = ("probe", "distance", "control", "loss")


def fork_record(directory: ForkDirectory) -> Record:
    """What was measured, without weights and without what belongs to one machine alone.

    Lines: `probe` (see `pairgrad_paper.forks.probing`), `distance` (of a branch from the first: parameter, feature, feature_cosine), `control` (the
    same between two coherent branches), `loss` (of a branch at every tenth update: total, vmf, accuracy) and `end` (step, minutes).
    """
    with written_by("pairgrad fork", directory.path):
        facts = directory.facts
        events = directory.events()
        if max((event["step"] for event in events), default=0) < facts["updates"]:
            raise RecordError(f"{directory.path} is not finished: run the same command again to resume it")
        start = "random weights" if facts["start"] == "random" else f"a trained state, after {facts['start_step']} updates"
        return Record(
            name=directory.path.name,
            record="fork",
            title=f"Fork of {facts['recipe']['name']} from {start}: {', '.join(facts['branches'])} for {facts['updates']} updates",
            facts={**facts, "notes": directory.environment.get("data", {}).get("notes", [])},
            environment=origin(directory.environment, directory.environment.get("command")),
            lines=(
                *({key: value for key, value in event.items() if key != "time"} for event in events if event["kind"] in KINDS),
                {"kind": "end", "step": max(event["step"] for event in events), "minutes": _minutes(events)},
            ),
        )


def _minutes(events: list[dict[str, Any]]) -> float:
    """Between the first and the last event, without pauses of more than ten minutes: a fork does not say when it was taken up again."""
    times = [event["time"] for event in events if "time" in event]
    gaps = (later - earlier for earlier, later in itertools.pairwise(times))
    return round(sum(gap for gap in gaps if gap < 600) / 60, 1)


def is_fork(facts: Mapping[str, Any]) -> bool:
    """Whether the facts of a directory are those of a fork."""
    return "branches" in facts and "start" in facts
