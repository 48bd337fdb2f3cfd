"""Kill a training process again and again, and look at what it leaves: run by `test_kill`, which reads the line of JSON it prints.

A process is forked per kill: importing torch anew would take seconds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from pairgrad_paper.runs import CheckpointError, RunDirectory, read_log, rewind

FACTS = {"seed": 1}
EVERY = 2  # steps between checkpoints


def state(step: int) -> dict[str, Any]:
    return {"x": torch.arange(50_000, dtype=torch.float64) * step, "optimizer": {0: {"step": step}}}


def fail(error: CheckpointError) -> None:
    raise AssertionError(f"a kill left a damaged checkpoint: {error}")


def work(folder: Path) -> None:
    with RunDirectory.create(folder, FACTS) as run:
        checkpoint = run.resume(fail)
        step = checkpoint.step if checkpoint else 0
        while True:
            step += 1
            run.log.write("step", step, loss=1 / step)
            if step % EVERY == 0:
                run.save(step, state(step), keep=2)


def look(folder: Path) -> int:
    """The step of the newest checkpoint, after everything about it was checked; 0 if there is none."""
    if not (folder / "run.json").exists():
        return 0
    run = RunDirectory.open(folder)
    checkpoint = run.latest(fail)
    if checkpoint is None:
        return 0
    assert torch.equal(checkpoint.state["x"], state(checkpoint.step)["x"])
    assert checkpoint.state["optimizer"] == {0: {"step": checkpoint.step}}
    steps = [event["step"] for event in read_log(run.log_path, lambda _: None) if event["kind"] == "step"]
    assert steps == list(range(1, len(steps) + 1)), "the log has a gap or a step twice"
    assert len(steps) >= checkpoint.step, "the log lacks steps that the checkpoint has"
    return checkpoint.step


def drill(folder: Path, kills: int) -> dict[str, int]:
    torch.set_num_threads(1)
    moments, newest, interrupted, seconds, done = random.Random(0), 0, 0, 0.05, 0
    # so often, and on a busy machine until enough of the kills have hit a save, and enough was saved between them
    while done < kills or interrupted < kills // 10 or newest <= kills // 5:
        done += 1
        child = os.fork()
        if child == 0:
            try:
                work(folder)
            finally:  # only an error ends the loop
                traceback.print_exc()
                os._exit(1)
        time.sleep(moments.uniform(0, seconds))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the training process failed by itself"
        step = look(folder)
        assert step >= newest, f"the newest checkpoint went back from step {newest} to {step}"
        seconds *= 1.3 if step == newest else 0.85  # disks differ: about every other process shall come to a checkpoint
        newest = step
        checkpoints = folder / "checkpoints"
        interrupted += checkpoints.is_dir() and any(checkpoints.glob(".step-*.partial"))
    with RunDirectory.create(folder, FACTS) as run:
        run.resume(fail)
        run.save(newest + EVERY, state(newest + EVERY), keep=2)
        names = sorted(os.listdir(run.checkpoints_path))
    assert rewind(run.log_path, newest + EVERY) == 0
    return {"newest": newest, "interrupted": interrupted, "left": len(names), "hidden": sum(name.startswith(".") for name in names)}


if __name__ == "__main__":
    print(json.dumps(drill(Path(sys.argv[1]), int(sys.argv[2]))))
