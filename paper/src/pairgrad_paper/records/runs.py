"""Record `run`: what one training run left in its directory, without its weights and without what belongs to one machine.

Facts are those of `run.json`, with the notes on its data. Lines: `step`, thinned so that a record stays small; `epoch` and `coherence`, as the run wrote
them; `evaluation`, one for each file of `pairgrad evaluate`; and one `end`, which says how far the run came, in how many minutes, and how it ended.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from pairgrad.ground import read_bytes, read_json
from pairgrad_paper.records.files import Line, Record, RecordError, written_by
from pairgrad_paper.records.origin import origin, portable
from pairgrad_paper.runs import RunDirectory

SIZE = 60_000  # bytes that the lines `step` may fill up to
_KEPT = ("step", "epoch", "coherence")
_LEAST = 20  # lines `step` that are kept in any case

Event = Mapping[str, Any]


def record_of_run(path: str | os.PathLike[str]) -> Record:
    """The record of the run in a directory.

    Raises:
        RunError: there is no run, or its record is damaged.
        RecordError: a run without events, an evaluation that cannot be read, or what `pairgrad train` does not write.
    """
    run = RunDirectory.open(path)
    events = run.events(lambda _: None)  # a line that is being written is not there yet
    if not events:
        raise RecordError(f"{run.path} has no events yet: train it first")
    evaluations = [_line({"kind": "evaluation", **_evaluation(path)}) for path in _evaluation_files(run.path)]
    with written_by("pairgrad train", run.path):
        facts = portable({**run.facts, "notes": run.environment.get("data", {}).get("notes", [])})
        found = origin(run.environment, [str(word) for word in run.environment.get("command", [])])
        further = _further_sources(run, events)
        if further:
            found["further_sources"] = further
        measured = [_line(event) for event in events if event["kind"] in _KEPT]
        lines = [*measured, *evaluations, _end(events)]
        return Record(run.path.resolve().name, "run", _title(facts), facts, portable(found), _thinned(lines))


def _further_sources(run: RunDirectory, events: Sequence[Event]) -> list[Event]:
    """The other commits that resumed or evaluated the run, if there are any."""
    later = [event for event in events if event["kind"] == "resume"] + [_evaluation(path) for path in _evaluation_files(run.path)]
    sources = [each.get("environment", {}).get("source") for each in later]
    return [source for at, source in enumerate(sources) if source and source not in (run.environment.get("source"), *sources[:at])]


def _title(facts: Event) -> str:
    recipe = facts.get("recipe", {})
    return f"{recipe.get('name')}, {facts.get('realization')}, seed {facts.get('seed')}, {recipe.get('epochs')} epochs"


def _line(event: Event) -> Line:
    return portable({key: value for key, value in event.items() if key not in ("time", "environment")})


def _evaluation_files(folder: Path) -> list[Path]:
    """By update; a whole one before those of single scores."""
    return sorted(folder.glob("evaluation-*.json"), key=lambda each: each.stem)


def _evaluation(path: Path) -> Event:
    try:
        content = read_json(read_bytes(path))
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read ({error}): evaluate the run again") from error
    match content:
        case {"step": int(), "scores": dict()}:
            return content
    raise RecordError(f"{path} must have a step and scores, as pairgrad evaluate writes them: evaluate the run again")


def _end(events: Sequence[Event]) -> Line:
    return {
        "kind": "end",
        "step": max(event["step"] for event in events),
        "minutes": round(_seconds(events) / 60, 2),
        "ending": _ending(events),
    }


def _seconds(events: Sequence[Event]) -> float:
    """Time between the events, without the time before a run was taken up again."""
    timed = [event for event in events if "time" in event]
    return sum(max(0.0, after["time"] - before["time"]) for before, after in pairwise(timed) if after["kind"] != "resume")


def _ending(events: Sequence[Event]) -> str:
    """`"finished"`, or what is known of why not."""
    kinds = [event["kind"] for event in events]
    if "end" in kinds:
        return "finished"
    last = events[-1]
    if last["kind"] == "stop":
        return f"stopped: {last.get('reason', 'for an unknown reason')}"
    if last["kind"] == "failure":
        return f"stopped: {last.get('what', 'a number')} is not finite"
    return "interrupted, or still running"


def _thinned(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Every n-th line `step`, with the smallest n that leaves the whole below `SIZE`."""
    steps = [line for line in lines if line["kind"] == "step"]
    sizes = [len(json.dumps(line)) + 1 for line in steps]
    room = SIZE - sum(len(json.dumps(line)) + 1 for line in lines if line["kind"] != "step")
    stride = 1
    while len(sizes[::stride]) > _LEAST and sum(sizes[::stride]) > room:
        stride += 1
    kept = {id(line) for line in steps[::stride]}
    return tuple(line for line in lines if line["kind"] != "step" or id(line) in kept)
