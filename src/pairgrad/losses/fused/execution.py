"""The executions of the fused pass, by name."""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import torch

from pairgrad.ground.checks import one_of
from pairgrad.ground.compilation import checked_mode
from pairgrad.ground.devices import kind, tensor_core_generation
from pairgrad.losses.fused.compiled import Compiled
from pairgrad.losses.fused.plan import Plan
from pairgrad.losses.fused.targets import Targets
from pairgrad.losses.fused.tiles import Result
from pairgrad.losses.fused.triton import PRODUCTS, Triton, runs_on, say, what_lacks
from pairgrad.losses.fused.views import Eager
from pairgrad.potentials import Potential
from pairgrad.sphere.bank import Touched, Updating
from pairgrad.sphere.state import Classes


class Execution(Protocol):
    """One way to run a pass over the classes. It gets arguments that are checked and detached, on one device and in one dtype, and no gradient is recorded.

    Attributes:
        compiled: for which sizes of tiles a plan is made: those of generated code, or those of single operations.
        half: whether features and class rows in half precision are taken as they are; else they come as float32.
    """

    name: str
    compiled: bool
    half: bool

    def check(self, pot: Potential) -> None:
        """A ValueError for a potential that it does not have."""
        ...

    def check_place(self, dtype: torch.dtype, device: torch.device) -> None:
        """A ValueError for a dtype or a device that it does not have."""
        ...

    def of_targets(self, plan: Plan, view: torch.Tensor, targets: Targets, classes: Classes, log_prior: torch.Tensor | None) -> Result:
        """Loss, gradient in the features and log-sum-exp of each row of a view (1, B, p) against fixed classes."""
        ...

    def of_views(
        self, plan: Plan, state: Updating, views: torch.Tensor, labels: torch.Tensor, log_prior: torch.Tensor | None, order: str
    ) -> tuple[Result, Touched | None]:
        """The same of views (V, B, p) against a bank that learns from them: see `views.cross_entropy_of_views`."""
        ...

    def of_seen(
        self,
        plan: Plan,
        views: torch.Tensor,
        labels: torch.Tensor,
        classes: Classes,
        touched: Touched | None,
        log_prior: torch.Tensor | None,
    ) -> Result:
        """The same of views, as they are scored, against a bank that has learned from them already, and classes as each of them saw it."""
        ...


EXECUTIONS = ("eager", "compiled", "triton", "auto")
_EAGER = Eager()
_AMPERE = 8  # the first generation of NVIDIA's tensor cores that has TF32
_LAUNCH_BOUND = 2**24  # scores up to which a step takes about as long as its launches, by the arithmetic of `pairgrad plan`
_shared = cache(Compiled)  # by mode: a function has no place of its own for its graphs


class Auto(Eager):
    """The execution that `settled` replaces by another, when device and dtype are known."""

    name = "auto"

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled

    def pick(self, pot: Potential, dtype: torch.dtype, device: torch.device, rows: int, num_classes: int) -> Execution:
        """`"triton"` on a GPU, up to where the classes are so many that `"compiled"` is predicted to be faster; `"compiled"` for what Triton's kernels do not
        have; `"eager"` elsewhere.
        """
        chosen: Execution = self._compiled
        if not kind(device).queued or not runs_on(device):
            chosen, why = _EAGER, "nothing to compile, few launches to save" if kind(device).on_host else "triton does not run there"
        elif dtype != torch.float32:
            why = f"the kernels of 'triton' have float32, not {dtype}".replace("torch.", "")
        elif (lacking := what_lacks(pot)) is not None:
            why = f"'triton' {lacking}"
        elif (tensor_core_generation(device) or _AMPERE) < _AMPERE:
            why = "'triton' needs tensor cores from Ampere on"
        elif rows * num_classes > _LAUNCH_BOUND:
            why = f"more than {_LAUNCH_BOUND} scores, where 'triton' is predicted to be slower and to take less memory"
        else:
            chosen, why = Triton(), "fewest launches"
        say(f"execution='auto' is {chosen.name!r} for {rows} rows and {num_classes} classes on {device}: {why}")
        return chosen


def settled(execution: Execution, pot: Potential, dtype: torch.dtype, device: torch.device, rows: int, num_classes: int) -> Execution:
    """The execution itself, or what `"auto"` picks."""
    return execution.pick(pot, dtype, device, rows, num_classes) if isinstance(execution, Auto) else execution


def execution_of(execution: Any, compile_mode: Any = None, products: Any = None, *, shared: bool = False) -> Execution:
    """The execution that a user's keywords name; `shared` for functions, which all use the same graphs."""
    one_of("execution", execution, EXECUTIONS)
    if compile_mode is not None and execution != "compiled":
        raise ValueError(f"compile_mode belongs to execution='compiled', got compile_mode={compile_mode!r} with execution={execution!r}")
    if products is not None and execution != "triton":
        raise ValueError(f"products belongs to execution='triton', got products={products!r} with execution={execution!r}")
    if execution == "triton":
        return Triton(None if products is None else one_of("products", products, PRODUCTS))
    if execution in ("compiled", "auto"):
        mode = None if compile_mode is None else checked_mode("compile_mode", compile_mode)
        compiled = _shared(mode) if shared else Compiled(mode)
        return compiled if execution == "compiled" else Auto(compiled)
    return _EAGER
