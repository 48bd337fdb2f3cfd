"""The execution `"compiled"`: passes through torch.compile, each as one graph with static shapes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import replace
from types import FunctionType
from typing import Any

import torch

from pairgrad.ground.compilation import compiled_copy
from pairgrad.losses.fused.plan import Plan
from pairgrad.losses.fused.targets import Targets
from pairgrad.losses.fused.tiles import Result
from pairgrad.losses.fused.views import Eager, cross_entropy_of_targets, cross_entropy_of_views
from pairgrad.sphere.bank import Touched, Updating
from pairgrad.sphere.state import Classes

# A stall of seconds in the middle of a run is a warning: without a configuration, Python shows those and nothing below them.
_log = logging.getLogger("pairgrad")


class Compiled(Eager):
    """One compiled graph for each kind of step, made for the first batch and again for a larger one, each time after a line in the log. A smaller batch,
    such as the last of an epoch, is computed operation by operation: compiling takes longer than thousands of such steps.

    Where a plan has compiled tiles, these alone are compiled; inside a region that is being compiled already, nothing is compiled here.

    Args:
        mode: of torch.compile.
    """

    name = "compiled"
    compiled = True

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode
        self._graphs: dict[Hashable, dict[int, Callable[..., Any]]] = {}

    def of_targets(self, plan: Plan, view: torch.Tensor, targets: Targets, classes: Classes, log_prior: torch.Tensor | None) -> Result:
        soft = None if targets.soft is None else len(targets.soft) == 1
        kind = (classes.rows.shape, targets.labels is None, soft, log_prior is None)
        run = self._run(cross_entropy_of_targets, plan, view, kind)
        return run(plan, view, targets, classes, log_prior)

    def of_views(
        self, plan: Plan, state: Updating, views: torch.Tensor, labels: torch.Tensor, log_prior: torch.Tensor | None, order: str
    ) -> tuple[Result, Touched | None]:
        run = self._run(cross_entropy_of_views, plan, views, (state.classes().rows.shape, log_prior is None, order))
        return run(plan, state, views, labels, log_prior, order)

    def _run(self, eager: FunctionType, plan: Plan, views: torch.Tensor, kind: Hashable) -> Callable[..., Any]:
        if torch.compiler.is_compiling():
            return eager
        # what depends on the size of the batch is left out, and a temperature that is an input of the graph
        tau = 0.0 if isinstance(plan.temperature, torch.Tensor) else plan.temperature
        number, batch, dim = views.shape
        known = replace(plan, temperature=tau, tile=0, eager_tile=0, compiled_tiles=False)
        made = self._graphs.setdefault((eager.__name__, known, number, dim, views.dtype, views.device, kind), {})
        if batch not in made:
            made[batch] = self._made(eager, plan, batch, max(made, default=None))
        return made[batch]

    def _made(self, eager: FunctionType, plan: Plan, batch: int, largest: int | None) -> Callable[..., Any]:
        if largest is not None and batch < largest:
            _log.info("batch of %d rows: computed in eager mode; the step is compiled for %d rows", batch, largest)
            return lambda plan, *rest: eager(plan.in_eager(), *rest)
        why = "" if largest is None else f" again, because the batch shape is new (before: {largest} rows)"
        _log.warning("compiling the loss for a batch of %d rows%s: this takes some seconds, once for this shape", batch, why)
        return eager if plan.compiled_tiles else compiled_copy(eager, mode=self.mode)

    def __getstate__(self) -> dict[str, Any]:
        return {"mode": self.mode, "_graphs": {}}

    def __deepcopy__(self, memo: dict[int, Any]) -> Compiled:
        return Compiled(self.mode)
