"""`pairgrad train` under torchrun, and what can be done to its processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
ENVIRONMENT.pop("PYTEST_CURRENT_TEST", None)
SMALL = ("--set", "batch_size=48", "--set", "outlier_batch_size=24", "--monitor-every", "0", "--record-every", "1", "--threads", "1", "-q")
NAME = "digits-lt-paired-seed3407"
PATIENCE = 1000.0  # seconds: a safety net that a busy machine does not reach


class Launched:
    """A torchrun that trains digits-lt; everything that it says goes to a file.

    Args:
        output: directory of runs.
        processes: how many.
        more: options of `pairgrad train`.
        torchrun: options of torchrun.
        program: what each process runs instead of `-m pairgrad`.
    """

    def __init__(
        self, output: Path, processes: int, *more: str, torchrun: tuple[str, ...] = (), program: tuple[str, ...] = ("-m", "pairgrad")
    ) -> None:
        self.run = output / NAME
        self.log = output.with_suffix(".log")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), *torchrun, *program]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "train", "digits-lt", *SMALL, "--output", str(output), *more], env=ENVIRONMENT, stdout=log, stderr=log
            )
        self.seen: set[int] = set()

    def ranks(self) -> dict[int, int]:
        """The process ids of the ranks that are there now."""
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
                    variables = (folder / "environ").read_bytes() if parent == self.process.pid else b""
                except (OSError, IndexError):
                    continue
                for variable in variables.split(b"\0"):
                    if variable.startswith(b"RANK="):
                        found[int(variable[5:])] = int(folder.name)
        self.seen |= set(found.values())
        return found

    def events(self) -> list[dict[str, Any]]:
        path = self.run / "record.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []

    def wait_for_update(self, step: int) -> None:
        end = time.monotonic() + PATIENCE
        while not any(event["step"] >= step for event in self.events()):
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < end, f"update {step} was not reached: {self.text()}"
            time.sleep(0.02)

    def wait_for_words(self, words: str) -> None:
        end = time.monotonic() + PATIENCE
        while words not in self.text():
            assert time.monotonic() < end, f"{words!r} was not said: {self.text()}"
            time.sleep(0.05)

    def signal(self, rank: int, number: int) -> None:
        os.kill(self.ranks()[rank], number)

    def wait(self) -> int:
        """The exit code of torchrun, once it and all of its processes are gone."""
        end = time.monotonic() + PATIENCE
        while (code := self.process.poll()) is None:
            assert time.monotonic() < end, f"torchrun has not ended: {self.text()}"
            self.ranks()
            time.sleep(0.2)
        assert [pid for pid in self.seen if _is_there(pid)] == []
        return code

    def text(self) -> str:
        return self.log.read_text()

    def sentences(self) -> list[str]:
        """What the processes said when they gave up."""
        return [line.split("pairgrad train: ", 1)[1] for line in self.text().splitlines() if "pairgrad train: " in line]

    def __enter__(self) -> Launched:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in {*self.ranks().values(), *(pid for pid in self.seen if _is_there(pid))}:
            os.kill(pid, 9)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def _is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
