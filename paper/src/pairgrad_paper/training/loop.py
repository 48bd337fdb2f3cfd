"""The loop around the updates: records, checkpoints, the monitor, and every way in which a run can end."""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pairgrad.coherence import CoherenceMonitor, RunReport
from pairgrad.ground import write_atomically
from pairgrad_paper.runs import CheckpointError, RunDirectory, RunError, environment
from pairgrad_paper.training.chance import seed_all
from pairgrad_paper.training.failure import save_failure
from pairgrad_paper.training.observer import Observer
from pairgrad_paper.training.seeds import stream_seed
from pairgrad_paper.training.signals import StopRequest
from pairgrad_paper.training.trainer import NonFinite, Trainer

AGREE_EVERY = 10  # updates after which several processes tell one another that one was asked to stop, or that a checkpoint is due


@dataclass(frozen=True)
class Options:
    """How a run is watched over; nothing here changes a bit of its weights.

    Attributes:
        checkpoint_every: epochs between two checkpoints.
        checkpoint_minutes: a checkpoint in the middle of an epoch, when the last is older than this.
        keep: checkpoints that are kept.
        record_every: updates between two lines of the record.
        evaluate_every: epochs between two evaluations on the test images, in the record; 0: never.
        monitor_every: updates between two looks of the coherence monitor; 0: no monitor.
        stop_at: end, with a checkpoint, before this update; None: at the end.
    """

    checkpoint_every: int = 1
    checkpoint_minutes: float = 10.0
    keep: int = 2
    record_every: int = 10
    evaluate_every: int = 0
    monitor_every: int = 50
    stop_at: int | None = None


@dataclass(frozen=True)
class Outcome:
    """How a run ended: `"finished"`, `"stopped"` by a signal (`reason`) or at `stop_at`, after `step` updates."""

    ending: str
    step: int
    reason: str = ""


def train(
    run: RunDirectory,
    trainer: Trainer,
    options: Options | None = None,
    observer: Observer | None = None,
    *,
    evaluate: Callable[[Trainer], Mapping[str, float]] | None = None,
    writer: Callable[[int], Any] | None = None,
    source: str | os.PathLike[str] | None = None,
) -> Outcome:
    """Train to the end, from the newest whole checkpoint of the run if it has one.

    Args:
        run: where everything is written.
        trainer: what is trained.
        options: how often what is done.
        observer: is told what happens.
        evaluate: what to measure every `options.evaluate_every` epochs.
        writer: makes a TensorBoard SummaryWriter for what comes from an update on; what is there of later ones will come again.
        source: the checkpoint to resume from instead of the newest; see `RunDirectory.resume`.

    Raises:
        NonFinite: a loss is not finite; the batch and the state are in the run's directory.
        CheckpointWriteError: a checkpoint could not be written; older ones are as they were.
        RunLockLost: another process may have entered the directory; nothing was written since.
        RankError: another process is gone, or the processes do not agree.
        Elsewhere: another process stopped, and says why.
    """
    loop = _Loop(run, trainer, options or Options(), observer or Observer(), evaluate, writer, source)
    with StopRequest() as request:
        return loop.run(request)


class _Loop:
    def __init__(
        self,
        run: RunDirectory,
        trainer: Trainer,
        options: Options,
        observer: Observer,
        evaluate: Callable[[Trainer], Mapping[str, float]] | None,
        writer: Callable[[int], Any] | None,
        source: str | os.PathLike[str] | None,
    ) -> None:
        self.directory, self.trainer, self.options, self.observer = run, trainer, options, observer
        self.evaluate, self.make_writer, self.writer = evaluate, writer, None
        self.source = source
        self.first = trainer.process.first
        self.saved_step, self.saved_at = -1, time.monotonic()

    def run(self, request: StopRequest) -> Outcome:
        trainer, observer = self.trainer, self.observer
        self._resume()
        began = trainer.step
        end = trainer.steps if self.options.stop_at is None else min(self.options.stop_at, trainer.steps)
        observer.started(trainer.step, trainer.steps, trainer.batches.per_epoch)
        monitor = self._monitor()
        try:
            for batch in trainer.batches.stream(trainer.step, end):
                update = trainer.update(batch)
                self._after_update(update.read if self._is_due(self.options.record_every) else None)
                if monitor is not None and (report := monitor.step(trainer.step)) is not None:
                    self._looked(report)
                if self._should_stop(request):
                    return self._stop(request.wanted or "a signal to another process")
        except NonFinite as error:
            if error.together:
                self._keep_failure(error)
                trainer.process.barrier("leaving together")  # torchrun ends all processes when one has left
            else:
                trainer.process.say(f"stopped: {error}")
            raise
        finally:
            if monitor is not None:
                monitor.stop()
        self._save()
        if monitor is not None and monitor.report is None and trainer.step > began:
            self._looked(monitor.look(trainer.step))
        if trainer.step < trainer.steps:
            return self._stop(f"--stop-at {end}")
        if not self._already_ended():
            self._write("end")
        return Outcome("finished", trainer.step)

    def _resume(self) -> None:
        trainer, run = self.trainer, self.directory
        with trainer.process.together("reading the newest checkpoint"):
            if self.first:
                found = run.resume(self._damaged, source=self.source)
            else:
                found = run.latest(self._damaged) if self.source is None else run.chosen(self.source)
        step = -1 if found is None else found.step
        trainer.process.require_equal("reading the newest checkpoint", "the update of the newest whole checkpoint", step)
        if found is None:
            seed_all(stream_seed(trainer.seed, "global"))
        else:
            trainer.load(found.state)
            if found.step < trainer.steps:
                self._write("resume", environment=environment(trainer.device), **({"changed": list(run.changed)} if run.changed else {}))
                self._say(f"resuming after update {found.step} of {trainer.steps}")
                for line in run.changed:
                    self._say(f"resumed with other options from here on: {line}")
        trainer.process.barrier("reading the newest checkpoint")  # none writes one while another still reads
        sizes = [trainer.state(), *trainer.still_to_come()]
        with trainer.process.together("looking for space"):
            if self.first:
                run.check_space(sizes, self.options.keep)
        if found is None or self.source is not None:
            self._save()  # what cannot be written is found out now, not after an epoch; and a copy becomes a checkpoint of the run
        else:
            self.saved_step = trainer.step
        if self.first and self.make_writer is not None:
            self.writer = self.make_writer(trainer.step + 1)

    def _damaged(self, error: CheckpointError) -> None:
        self._say(f"{error}. Looking at the checkpoint before it")

    def _say(self, message: str) -> None:
        if self.first:
            self.observer.said(message)

    def _monitor(self) -> CoherenceMonitor | None:
        if not self.first or not self.options.monitor_every:
            return None
        looks = self.directory.path / "coherence.csv"
        _cut_back(looks, self.trainer.step)
        return CoherenceMonitor(self.options.monitor_every, csv=looks, writer=self.writer, reaction="ignore").start()

    def _is_due(self, every: int) -> bool:
        return self.trainer.step % every == 0 or self._epoch_is_over()

    def _epoch_is_over(self) -> bool:
        return self.trainer.step % self.trainer.batches.per_epoch == 0

    def _after_update(self, read: Callable[[], dict[str, float]] | None) -> None:
        trainer = self.trainer
        measures = None
        if read is not None:
            trainer.look()
            measures = read()
            if trainer.step % self.options.record_every == 0:
                self._write("step", **measures)
                self._scalars("train", measures)
        if self._epoch_is_over():
            self._end_epoch()
        epoch_due = self._epoch_is_over() and trainer.epoch % self.options.checkpoint_every == 0
        if epoch_due or self._is_old():
            self._save()
        self.observer.updated(trainer.step, measures)

    def _is_old(self) -> bool:
        """Whether the newest checkpoint is, by the clock of the first process."""
        old = self.first and time.monotonic() - self.saved_at > 60 * self.options.checkpoint_minutes
        process = self.trainer.process
        return old if process.world == 1 else self.trainer.step % AGREE_EVERY == 0 and process.any(old, "whether a checkpoint is due")

    def _end_epoch(self) -> None:
        trainer = self.trainer
        facts: dict[str, Any] = {f"train_{name}": value for name, value in trainer.means().items()}
        facts["lr"] = trainer.optimizer.param_groups[0]["lr"]
        every = self.options.evaluate_every
        if self.evaluate is not None and every and (trainer.epoch % every == 0 or trainer.step == trainer.steps):
            facts |= {f"test_{name}": value for name, value in self.evaluate(trainer).items()}
        self._write("epoch", epoch=trainer.epoch - 1, **facts)
        self._scalars("epoch", facts)
        self.observer.epoch(trainer.epoch - 1, facts)

    def _looked(self, report: RunReport) -> None:
        self.observer.looked(self.trainer.step, report)
        nodes = [
            {"function": node.name, "verdict": node.verdict.value, "defect": node.defect, "error": node.defect_error, "looked": node.looked}
            for node in report.nodes
        ]
        self._write("coherence", functions=nodes)

    def _should_stop(self, request: StopRequest) -> bool:
        trainer = self.trainer
        if trainer.process.world > 1:
            if trainer.step % AGREE_EVERY and not self._epoch_is_over():
                return False
            return trainer.process.any(request.wanted is not None, "whether to stop")
        return request.wanted is not None

    def _stop(self, reason: str) -> Outcome:
        self._save()
        self._write("stop", reason=reason)
        self.trainer.process.barrier("leaving together")  # torchrun ends all processes when one has left
        return Outcome("stopped", self.trainer.step, reason)

    def _keep_failure(self, error: NonFinite) -> None:
        state = self.trainer.state()
        if not self.first:
            return
        try:
            error.kept = save_failure(self.directory, self.trainer, state, error)
            self._write("failure", what=error.what, at=error.step)
        except RunError as trouble:
            self._say(f"the batch and the state of update {error.step} could not be kept: {trouble}")

    def _already_ended(self) -> bool:
        return self.first and any(event["kind"] == "end" for event in self.directory.events())

    def _save(self) -> None:
        trainer = self.trainer
        trainer.look()
        if trainer.step == self.saved_step:
            return
        state = trainer.state()
        with trainer.process.together("writing a checkpoint"):
            if self.first:
                path = self.directory.save(trainer.step, state, keep=self.options.keep)
                self.observer.saved(trainer.step, path)
        self.saved_step, self.saved_at = trainer.step, time.monotonic()

    def _write(self, kind: str, **facts: Any) -> None:
        if self.first:
            self.directory.log.write(kind, self.trainer.step, time=time.time(), **facts)

    def _scalars(self, group: str, facts: Mapping[str, Any]) -> None:
        if self.writer is not None and self.first:
            for name, value in facts.items():
                if isinstance(value, (int, float)):
                    self.writer.add_scalar(f"{group}/{name}", value, self.trainer.step)


def _cut_back(path: Path, step: int) -> None:
    """Take from the monitor's file the looks after `step`, which will come again, and a row that was not finished."""
    if not path.exists():
        return
    try:
        head, *rows = list(csv.reader(io.StringIO(path.read_text(errors="replace"), newline=""))) or [[]]
    except csv.Error as error:
        raise RunError(f"{path} is damaged ({error}): move it elsewhere, and the run starts another") from error
    kept = [row for row in rows if len(row) == len(head) and row[0].isdecimal() and len(row[0]) < 20 and int(row[0]) <= step]
    if kept != rows:
        text = io.StringIO(newline="")
        csv.writer(text).writerows([head, *kept])
        write_atomically(path, text.getvalue())


def set_deterministic(wanted: bool) -> None:
    """Ask torch for algorithms that give the same bits every time; on the CPU they all do. To be called before the first use of a GPU."""
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS may choose another order of summation each time
    torch.backends.cudnn.deterministic = wanted
    torch.backends.cudnn.benchmark = not wanted
    torch.use_deterministic_algorithms(wanted, warn_only=True)
