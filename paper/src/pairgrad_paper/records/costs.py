"""Record `cost`: what `python -m benchmarks.learning` measured of the learning step at the paper's size, B = 32, K = 1000, p = 1024 (tab:h100-local).

Facts: protocol, size, seed, warm-ups, repetitions, machine, device, date. Lines: `cost`, with the name of the contestant, its row in the paper's table or
null, the median, the first and the third quartile of its times in milliseconds, how many times faster than the original recurrence it is (the median over
the rounds that both took part in), and the peak of the memory that it takes in addition, in MiB.
"""

from __future__ import annotations

import os
import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pairgrad.ground import read_bytes, read_json
from pairgrad_paper.records.files import Line, Record, RecordError, to_lines, written_by
from pairgrad_paper.records.origin import origin

FORMAT = 1
SETTING = "paper"
PUBLISHED = {
    "original": "Original recurrence",
    "consistent": "Consistent recurrence",
    "log-miller": "Log-domain Miller",
    "arfr dense": "AR/FR",
    "structure-aware arfr compiled": "Structure-aware AR/FR",
}  # contestants, and their rows in the paper's table


def records_of_costs(path: str | os.PathLike[str]) -> list[Record]:
    """A record for each protocol in the file: `local-costs-<device>`, with `-paper` behind it for the paper's own.

    Raises:
        RecordError: the file is not of `python -m benchmarks.learning`, or has nothing of the paper's size.
    """
    path = Path(path)
    try:
        content = read_json(read_bytes(path))
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read as a record of costs ({error})") from error
    match content:
        case {"format": 1, "runs": dict(runs)}:
            pass
        case _:
            raise RecordError(f"{path} must have format {FORMAT} and runs, as python -m benchmarks.learning writes them")
    with written_by("python -m benchmarks.learning", path):
        found = [_record(run) for run in runs.values() if any(row["setting"] == SETTING for row in run["rows"])]
    if not found:
        raise RecordError(f"{path} has nothing of the setting {SETTING!r}: python -m benchmarks.learning --parts {SETTING} measures it")
    return found


def _record(run: Mapping[str, Any]) -> Record:
    rows = [row for row in run["rows"] if row["setting"] == SETTING]
    device = run["device"].partition(":")[0]
    size, computer = rows[0]["size"], run["machine"]
    original: Sequence[float] = next((row["seconds"] for row in rows if row["contestant"] == "original"), ())
    environment = {
        "versions": {"torch": computer["torch"], "python": computer["Python"]},
        "device": {
            "type": device,
            "name": computer["CPU"] if device == "cpu" else computer.get("GPU", "a GPU whose name was not recorded"),
        },
        "cpu": {
            "model": computer["CPU"],
            "instruction_set": computer["instruction set used by torch"],
            "threads": int(computer["threads"]),
            "system": computer["system"],
        },
    }
    kept = ("protocol", "date", "seed", "warmups", "repeats", "budget", "quick", "interrupted")
    return Record(
        f"local-costs-{device}{'-paper' if run['protocol'] == 'paper' else ''}",
        "cost",
        f"Cost of the learning step on the {device.upper()}, B = {size['batch']}, K = {size['classes']}, p = {size['dim']}",
        {**{key: run[key] for key in kept}, "size": size, "device": device, "machine": computer},
        origin(environment, shlex.split(run["command"])),
        to_lines("cost", (_row(row, original) for row in rows)),
    )


def _row(row: Mapping[str, Any], original: Sequence[float]) -> Line:
    times = [1e3 * seconds for seconds in row["seconds"]]
    quotients = [theirs / own for theirs, own in zip(original, row["seconds"], strict=False)]
    low, median, high = _quartiles(times)
    return {
        "method": row["contestant"],
        "published_name": PUBLISHED.get(row["contestant"]),
        "median_ms": median,
        "low_ms": low,
        "high_ms": high,
        "faster": statistics.median(quotients) if quotients else None,
        "peak_mib": None if row["peak"] is None else row["peak"] / 2**20,
        "repetitions": len(times),
        "note": row["note"],
    }


def _quartiles(times: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    if not times:
        return None, None, None
    if len(times) == 1:
        return times[0], times[0], times[0]
    first, _, third = statistics.quantiles(times, n=4, method="inclusive")
    return first, statistics.median(times), third
