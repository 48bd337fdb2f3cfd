"""A Lightning callback around [`CoherenceMonitor`][pairgrad.CoherenceMonitor]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pairgrad.coherence.training.monitor import CoherenceMonitor
from pairgrad.integrations import base_class

_Callback = base_class("Callback", ("lightning.pytorch", "pytorch_lightning"), "lightning")


class CoherenceCallback(_Callback):
    """Watches the custom backwards of a fit, and sends the scalars to the loggers of the trainer.

    Args:
        every: steps between two looks.
        options: as for [`CoherenceMonitor`][pairgrad.CoherenceMonitor], except `log`.

    Attributes:
        monitor: the monitor, with its `report` and `rows`.
    """

    def __init__(self, every: int = 1000, **options: Any) -> None:
        super().__init__()
        self._loggers: list[Any] = []
        self.monitor = CoherenceMonitor(every, log=self._send, **options)

    def _send(self, scalars: Mapping[str, float], step: int) -> None:
        for logger in self._loggers:
            logger.log_metrics(dict(scalars), step=step)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._loggers = list(trainer.loggers)
        self.monitor.start()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.monitor.step(trainer.global_step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.monitor.finish()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.monitor.stop()
