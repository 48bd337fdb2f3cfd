"""The executions of the fused pass, by name."""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import torch

from pairgrad.ground.checks import one_of
from pairgrad.ground.compilation import checked_mode
from pairgrad.losses.fused.compiled import Compiled
from pairgrad.losses.fused.plan import Plan
from pairgrad.losses.fused.targets import Targets
from pairgrad.losses.fused.tiles import Result
from pairgrad.losses.fused.views import Eager
from pairgrad.sphere.bank import Touched, Updating
from pairgrad.sphere.state import Classes


class Execution(Protocol):
    """One way to run a pass over the classes. It gets arguments that are checked and detached, on one device and in one dtype, and no gradient is recorded.

    `compiled` says for which sizes of tiles a plan is made: those of generated code, or those of single operations.
    """

    name: str
    compiled: bool

    def of_targets(self, plan: Plan, view: torch.Tensor, targets: Targets, classes: Classes, log_prior: torch.Tensor | None) -> Result:
        """Loss, gradient in the features and log-sum-exp of each row of a view (1, B, p) against fixed classes."""
        ...

    def of_views(
        self, plan: Plan, state: Updating, views: torch.Tensor, labels: torch.Tensor, log_prior: torch.Tensor | None, order: str
    ) -> tuple[Result, Touched | None]:
        """The same of views (V, B, p) against a bank that learns from them: see `views.cross_entropy_of_views`."""
        ...


EXECUTIONS = ("eager", "compiled")
_EAGER = Eager()
_shared = cache(Compiled)  # by mode: a function has no place of its own for its graphs


def execution_of(execution: Any, compile_mode: Any, *, shared: bool = False) -> Execution:
    """The execution that a user's keywords name; `shared` for functions, which all use the same graphs."""
    one_of("execution", execution, EXECUTIONS)
    if execution == "compiled":
        compile_mode = None if compile_mode is None else checked_mode("compile_mode", compile_mode)
        return _shared(compile_mode) if shared else Compiled(compile_mode)
    if compile_mode is not None:
        raise ValueError(f"compile_mode belongs to execution='compiled', got compile_mode={compile_mode!r} with execution={execution!r}")
    return _EAGER
