"""What can be done to the processes of `pairgrad train`, from outside: kills, stops, and memory that is not there.

Each run is resumed by the same command until it ends, and then compared with one that was left alone: every tensor of its last checkpoint by its bits, and
every number of its record.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paper.tests.commands.several import ENVIRONMENT, NAME, SMALL, Launched
from paper.tests.training.small import different

from benchmarks.drills.row import Row
from benchmarks.progress import progress
from pairgrad_paper.runs import RunDirectory, load_checkpoint

STARVED = ("-m", "benchmarks.drills.starved")
PATIENCE = 300.0  # seconds for anything that should happen
HUNG = 15.0  # seconds, --timeout of the drill of a process that hangs
SAVING = ("--checkpoint-minutes", "0")  # after each update: many kills meet a save


class Alone:
    """A process of `pairgrad train` that no other shares the run with; the counterpart of `Launched`."""

    def __init__(self, output: Path, *more: str) -> None:
        self.run = output / NAME
        self.log = output.with_suffix(".log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pairgrad", "train", "digits-lt", *SMALL, "--output", str(output), *more],
                env=ENVIRONMENT,
                stdout=log,
                stderr=log,
            )

    def ranks(self) -> dict[int, int]:
        return {0: self.process.pid}

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def text(self) -> str:
        return self.log.read_text()

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def started(output: Path, processes: int, *more: str, **options: Any) -> Alone | Launched:
    return Alone(output, *more) if processes == 1 else Launched(output, processes, *more, **options)


def ended(output: Path) -> tuple[Any, list[dict[str, Any]]]:
    """The state of the last checkpoint, every byte of it checked, and the record without clock times and what a kill adds."""
    run = RunDirectory.open(output / NAME)
    events = [event for event in run.events(_torn) if event["kind"] in ("step", "epoch", "end")]
    return load_checkpoint(run.checkpoints()[-1]).state, [{key: value for key, value in event.items() if key != "time"} for event in events]


def _torn(sentence: str) -> None:
    raise AssertionError(sentence)


def compared(output: Path, whole: tuple[Any, list[dict[str, Any]]]) -> str | None:
    """What differs between a run that was resumed and one that was left alone."""
    state, events = ended(output)
    if (tensors := different(state, whole[0])) != []:
        return f"{len(tensors)} tensors differ: {tensors[:3]}"
    if events != whole[1]:
        return f"the record has {len(events)} events, and that of a run that was left alone {len(whole[1])}, or their numbers differ"
    return None


def finish(output: Path, processes: int, *more: str) -> str | None:
    """Run to the end; what went wrong."""
    with started(output, processes, *more) as last:
        return _failed(last)


def _failed(process: Alone | Launched) -> str | None:
    """What went wrong in a process that nothing was done to, once it has ended."""
    code = process.wait()
    return None if code == 0 else f"exit code {code}: {process.text()[-300:]}"


def undisturbed(output: Path, processes: int, *more: str) -> tuple[tuple[Any, list[dict[str, Any]]], list[str]]:
    """What a run that is left alone has in the end, and what went wrong."""
    trouble = finish(output, processes, *more)
    return ended(output), [trouble] if trouble else []


def kills(directory: Path, few: bool) -> Iterator[Row]:
    """kill -9 at random moments, of the process or of one of two; how long the other needs to name it."""
    for processes, epochs in ((1, 24), (2, 12)):
        more = ("--set", f"epochs={epochs}", *SAVING)
        wanted = 2 if few else 20
        whole, wrong = undisturbed(directory / f"whole-{processes}", processes, *more)
        chance, killed, saving, runs, seconds = random.Random(processes), 0, 0, 0, list[float]()
        output = directory / f"killed-{processes}-0"
        while killed < wanted and len(wrong) < wanted:
            with started(output, processes, *more) as process:
                before = _size(output)
                if training := chance.random() < 0.8:  # else at any moment from the start on, also before the processes have met
                    _wait(lambda: _size(output) > before or process.process.poll() is not None, process)  # noqa: B023
                    time.sleep(chance.uniform(0, 0.7))
                else:
                    time.sleep(chance.uniform(0, 4))
                ranks = process.ranks()
                if process.process.poll() is None and len(ranks) == processes:
                    os.kill(ranks[rank := chance.randrange(processes)], signal.SIGKILL)
                    began = time.monotonic()
                    if processes > 1 and training:
                        seconds += _named(process, rank, began, wrong)
                    process.wait()
                    killed += 1
                    saving += any((output / NAME / "checkpoints").glob(".step-*"))
                    progress(f"kill -9, {processes} processes", killed, wanted)
                    continue
                trouble = _failed(process)
            wrong += filter(None, [trouble or finish(output, processes, *more) or compared(output, whole)])  # it was at its end
            runs += 1
            output = directory / f"killed-{processes}-{runs}"
        wrong += filter(None, [finish(output, processes, *more) or compared(output, whole)])
        what = "kill -9 of the process" if processes == 1 else "kill -9 of one of two processes (torchrun)"
        found = f"{saving} met a checkpoint being written; all resumed; records lost 0, bits changed 0"
        yield Row(f"{what} at a random moment of a training run", f"{killed} kills", _or(wrong, found), len(wrong))
        if seconds:
            found = f"named after {statistics.median(seconds):.1f} s (median), {max(seconds):.1f} s at most"
            yield Row("time until the other process names the one that died", f"{len(seconds)} kills", found, 0)


def stops(directory: Path, few: bool) -> Iterator[Row]:
    """SIGSTOP: of the only process, which does not matter, and of one of two, which the other names after its --timeout."""
    more = ("--set", "epochs=24", *SAVING)
    whole, wrong = undisturbed(directory / "whole", 1, *more)
    number = 1 if few else 5
    for each in range(number):
        output = directory / f"stopped-{each}"
        with started(output, 1, *more) as process:
            _wait(lambda: _size(output) > 0, process)  # noqa: B023
            time.sleep(0.1 * each)
            os.kill(process.process.pid, signal.SIGSTOP)
            time.sleep(0.5 if few else 3)
            second = subprocess.run(_again(output, *more), env=ENVIRONMENT, capture_output=True, text=True, check=False)
            if second.returncode != 2 or "is in use by process" not in second.stderr:
                wrong.append(f"a second process was not refused: {second.stderr[-200:]}")
            os.kill(process.process.pid, signal.SIGCONT)
            trouble = _failed(process)
        wrong += filter(None, [trouble or compared(output, whole)])
        progress("SIGSTOP, 1 process", each + 1, number)
    found = "a second process was refused while it stood still; bits changed 0"
    yield Row("SIGSTOP of the process, and SIGCONT seconds later", f"{number} stops", _or(wrong, found), len(wrong))
    if few:
        return
    more, seconds, number = ("--set", "epochs=12", *SAVING), list[float](), 3
    whole, wrong = undisturbed(directory / "whole-2", 2, *more)
    for each in range(number):
        output = directory / f"hung-{each}"
        with Launched(output, 2, *more, "--timeout", str(HUNG)) as process:
            _wait(lambda: _size(output) > 0, process)  # noqa: B023
            rank = each % 2
            os.kill(process.ranks()[rank], signal.SIGSTOP)
            seconds += _named(process, rank, time.monotonic(), wrong)
            _wait(lambda: "Sending process" in process.text() or process.process.poll() is not None, process)
            for pid in process.ranks().values():
                os.kill(pid, signal.SIGCONT)
            process.wait()
        wrong += filter(None, [finish(output, 2, *more) or compared(output, whole)])
        progress("SIGSTOP, 2 processes", each + 1, number)
    found = f"named after {max(seconds):.1f} s at most; resumed with bits changed 0" if seconds else "not named"
    yield Row(f"SIGSTOP of one of two processes, --timeout {HUNG:g}", f"{number} stops", _or(wrong, found), len(wrong))


def memory(directory: Path, few: bool) -> Iterator[Row]:
    """The second of two processes gets no more memory in the middle of an update."""
    more = ("--set", "epochs=12", *SAVING)
    whole, wrong = undisturbed(directory / "whole", 2, *more)
    seconds, number = list[float](), 1 if few else 3
    for each in range(number):
        output = directory / f"starved-{each}"
        with Launched(output, 2, *more, program=(*STARVED, str(7 + 11 * each))) as process:
            _wait(lambda: (output / "starved").exists(), process)  # noqa: B023
            seconds += _named(process, 1, (output / "starved").stat().st_mtime - time.time() + time.monotonic(), wrong)
            if process.wait() == 0:
                wrong.append("the run ended as if nothing had happened")
            if "allocate memory" not in process.text():
                wrong.append(f"the process that ran out of memory did not say so: {process.text()[-300:]}")
        wrong += filter(None, [finish(output, 2, *more) or compared(output, whole)])
        progress("out of memory", each + 1, number)
    found = f"both said so, the other after {max(seconds):.1f} s at most; resumed with bits changed 0" if seconds else "not named"
    yield Row("an allocation fails in an update of one of two processes", f"{number} runs", _or(wrong, found), len(wrong))


def _again(output: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "pairgrad", "train", "digits-lt", *SMALL, "--output", str(output), *more]


def _named(process: Alone | Launched, rank: int, began: float, wrong: list[str]) -> list[float]:
    """The seconds until another process says that this one is lost."""
    assert isinstance(process, Launched)
    while time.monotonic() - began < PATIENCE:
        if (sentences := process.sentences()) and f"rank {rank}" in sentences[0].split(":", 1)[1]:
            return [time.monotonic() - began]
        if process.process.poll() is not None:
            break
        time.sleep(0.02)
    text = process.text()
    if f"rank {rank}" in text.split("pairgrad train: ")[-1]:
        return [time.monotonic() - began]
    wrong.append(f"rank {rank} was not named: {text[-300:]}")
    return []


def _size(output: Path) -> int:
    """Of the record."""
    path = output / NAME / "record.jsonl"
    return path.stat().st_size if path.exists() else 0


def _wait(what: Any, process: Alone | Launched) -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        if time.monotonic() > end or process.process.poll() is not None:
            raise RuntimeError(f"what the drill waits for did not happen: {process.text()[-1000:]}")
        time.sleep(0.01)


def _or(wrong: list[str], found: str) -> str:
    return f"{len(wrong)} went wrong, the first: {wrong[0]}" if wrong else found
