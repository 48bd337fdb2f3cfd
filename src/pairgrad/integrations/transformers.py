"""A callback for the Trainer of Hugging Face transformers around [`CoherenceMonitor`][pairgrad.CoherenceMonitor]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pairgrad.coherence.training.monitor import CoherenceMonitor
from pairgrad.integrations import base_class

_Callback = base_class("TrainerCallback", ("transformers.trainer_callback",), "transformers")


class CoherenceCallback(_Callback):
    """Watches the custom backwards of a training, and adds the scalars to `trainer.state.log_history`.

    A trainer gives its callbacks no way to its loggers; pass `writer=SummaryWriter(...)`, `log=wandb.log` or `csv=...` to have the scalars there.

    Args:
        every: steps of the optimizer between two looks.
        log: as for [`CoherenceMonitor`][pairgrad.CoherenceMonitor].
        options: likewise.

    Attributes:
        monitor: the monitor, with its `report` and `rows`.
    """

    def __init__(self, every: int = 1000, log: Any = None, **options: Any) -> None:
        self._history: list[Any] = []
        self._also = log
        self.monitor = CoherenceMonitor(every, log=self._send, **options)

    def _send(self, scalars: Mapping[str, float], step: int) -> None:
        self._history.append({**scalars, "step": step})
        if self._also is not None:
            self._also(scalars, step)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._history = state.log_history
        self.monitor.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.monitor.step(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.monitor.finish()
