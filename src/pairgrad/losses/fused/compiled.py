"""The execution `"compiled"`: passes through torch.compile, each as one graph with static shapes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from types import FunctionType
from typing import Any

import torch

from pairgrad.ground.compilation import compile as compile_
from pairgrad.losses.fused.plan import Plan
from pairgrad.losses.fused.targets import Targets
from pairgrad.losses.fused.tiles import Result
from pairgrad.losses.fused.views import cross_entropy_of_targets, cross_entropy_of_views
from pairgrad.sphere.bank import Touched, Updating
from pairgrad.sphere.state import Classes


class Compiled:
    """One compiled graph for each plan and shape; where a plan has compiled tiles, or a compiled region is around, what is called is the eager pass.

    Args:
        mode: of torch.compile.
    """

    name = "compiled"
    compiled = True

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode
        self._graphs: dict[Hashable, Callable[..., Any]] = {}

    def of_targets(self, plan: Plan, view: torch.Tensor, targets: Targets, classes: Classes, log_prior: torch.Tensor | None) -> Result:
        kinds = tuple(None if tensor is None else tensor.shape for tensor in (targets.labels, targets.soft, log_prior))
        run = self._graph(cross_entropy_of_targets, plan, (view.shape, classes.rows.shape, kinds))
        return run(plan, view, targets, classes, log_prior)

    def of_views(
        self, plan: Plan, state: Updating, views: torch.Tensor, labels: torch.Tensor, log_prior: torch.Tensor | None, order: str
    ) -> tuple[Result, Touched | None]:
        run = self._graph(cross_entropy_of_views, plan, (views.shape, log_prior is None, order))
        return run(plan, state, views, labels, log_prior, order)

    def _graph(self, eager: FunctionType, plan: Plan, shapes: Hashable) -> Callable[..., Any]:
        if plan.compiled_tiles or torch.compiler.is_compiling():
            return eager
        known = replace(plan, temperature=0.0) if isinstance(plan.temperature, torch.Tensor) else plan  # a tensor is an input of the graph
        key = (eager.__name__, known, shapes)
        if key not in self._graphs:
            # torch.compile keeps at most eight graphs for a code object and then refuses: each of ours gets one of its own
            own = FunctionType(eager.__code__.replace(), eager.__globals__, eager.__name__, eager.__defaults__, eager.__closure__)
            self._graphs[key] = compile_(own, mode=self.mode)
        return self._graphs[key]

    def __getstate__(self) -> dict[str, Any]:
        return {"mode": self.mode, "_graphs": {}}

    def __deepcopy__(self, memo: dict[int, Any]) -> Compiled:
        return Compiled(self.mode)
