"""The execution `"triton"`: the pass over the classes in two kernels, and the update of the bank in one.

It needs the package triton, and a device for which triton compiles; with TRITON_INTERPRET=1 in the environment it also runs on the CPU, slowly, for tests.
What the kernels do not have is computed by the execution `"eager"`, and a line in the log says so; another potential or float64 is an error.
"""

from __future__ import annotations

import logging
import math
import os
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch

from pairgrad.ground.devices import ROCM, kind
from pairgrad.losses.fused.plan import Plan
from pairgrad.losses.fused.targets import Targets
from pairgrad.losses.fused.tiles import Result
from pairgrad.losses.fused.views import Eager, joined, lengths_of
from pairgrad.potentials import Potential
from pairgrad.potentials.expansion import Expansion
from pairgrad.sphere.bank import Touched, Updating
from pairgrad.sphere.state import Classes

PRODUCTS = ("3xtf32", "ieee", "tf32")
MAX_DIM = 8192  # a program holds a whole row
_PROGRAMS = 256  # how many should run: two for each multiprocessor of a large GPU
_MOST_BYTES = 2**26  # of partial sums
_EAGER = Eager()
_log = logging.getLogger("pairgrad")
_said: set[str] = set()
# looked up once: torch.compile cannot look
_INSTALLED = find_spec("triton") is not None
IN_INTERPRETER = os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "y", "yes")


class Tiles(NamedTuple):
    """Rows and classes of a tile, coordinates in one step of its products, and how many warps have it in their registers."""

    samples: int
    classes: int
    depth: int
    warps: int

    def options(self, generation: int | None, half: bool, logarithms: bool) -> dict[str, Any]:
        """What the kernel is compiled with, for operands in half precision or float32, and logarithms or series; `generation` as in `tiles_for`."""
        # Without a limit, ptxas may spill a few registers to use fewer of them. For Hopper in float32 it does so with a limit, and not without; and with
        # logarithms it spills what a second stage needs.
        limited = _is_blackwell(generation) or (generation == 9 and half)
        stages = 1 if generation == 9 and self.warps == 4 and logarithms and not half else 2
        return {"num_warps": self.warps, "num_stages": stages} | ({"maxnreg": 255} if limited else {})


def tiles_for(rows: int, num_classes: int, generation: int | None) -> Tiles:
    """Tiles that compile without spilling registers, and leave room for two programs on a multiprocessor (tests/device/test_triton_ahead.py).

    Args:
        generation: of NVIDIA's tensor cores, `devices.tensor_core_generation`; None for AMD's.
    """
    if generation is None:
        return Tiles(16, 32, 32, 1)  # one wave: `sweep` reads what it has written, and AMD's barrier between waves does not wait for memory
    classes = 16 if _is_blackwell(generation) else 32
    few = math.ceil(rows / 64) * math.ceil(num_classes / classes) < _PROGRAMS // 2
    return Tiles(32, classes, 32, 2) if few else Tiles(64, classes, 32, 4)


def _is_blackwell(generation: int | None) -> bool:
    return generation is not None and generation >= 10


def parts_of(tiles: Tiles, rows: int, dim: int, num_classes: int, gradient: bool) -> tuple[int, int]:
    """Into how many parts the classes are divided, each with partial sums of its own, and how many classes a part has."""
    most = max(1, _MOST_BYTES // max(1, 4 * rows * dim)) if gradient else _PROGRAMS
    parts = min(math.ceil(_PROGRAMS / math.ceil(rows / tiles.samples)), math.ceil(num_classes / tiles.classes), most)
    per_part = math.ceil(num_classes / parts / tiles.classes) * tiles.classes
    return math.ceil(num_classes / per_part), per_part


class Triton:
    """Two kernels for the pass, whatever the number of classes, and one for the update of the bank.

    Args:
        products: of float32 features and classes: `"ieee"`; `"3xtf32"`, three products of tensor cores, as accurate; or `"tf32"`, one of them, whose operands
            have ten bits. None: `"3xtf32"`, and `"ieee"` on AMD's GPUs, whose tensor cores have float32.
    """

    name = "triton"
    compiled = False
    half = True

    def __init__(self, products: str | None = None) -> None:
        if not _INSTALLED:
            raise ImportError(
                "execution='triton' needs the package triton, which is not installed: pip install 'pairgrad[triton]', or use execution='auto'"
            )
        if products == "3xtf32" and ROCM:
            raise ValueError(
                "products must be 'ieee' or 'tf32' on AMD's GPUs, for which triton has no '3xtf32', got '3xtf32': 'ieee' is as accurate"
            )
        self.products = ("ieee" if ROCM else "3xtf32") if products is None else products

    def check(self, pot: Potential) -> None:
        lacking = what_lacks(pot)
        if lacking is not None:
            raise ValueError(f"execution='triton' {lacking}: use execution='auto', 'compiled' or 'eager'")

    def check_place(self, dtype: torch.dtype, device: torch.device) -> None:
        if dtype == torch.float64:
            raise ValueError(
                "execution='triton' computes in float32, got float64: use execution='auto', or give float32 features and class state"
            )
        if not runs_on(device):
            raise ValueError(
                f"execution='triton' needs a GPU for which triton compiles, got features on {device}: use execution='auto' or 'eager'"
            )

    def of_targets(self, plan: Plan, view: torch.Tensor, targets: Targets, classes: Classes, log_prior: torch.Tensor | None) -> Result:
        if targets.labels is None:
            say("execution='triton': class probabilities in place of labels are computed operation by operation")
            return _EAGER.of_targets(plan, view.float(), targets, classes.to(torch.float32), log_prior)
        soft = None if targets.soft is None else targets.soft[0]
        return self._pass(plan, view, targets.labels, classes, log_prior, None, (targets.hard, soft, targets.counted))

    def of_views(
        self, plan: Plan, state: Updating, views: torch.Tensor, labels: torch.Tensor, log_prior: torch.Tensor | None, order: str
    ) -> tuple[Result, Touched | None]:
        if order == "no-update":
            return self._pass(plan, views, labels, state.classes(), log_prior, None), None
        if order == "before-update":
            results = []
            for view in views:
                results.append(self._pass(plan, view[None], labels, state.classes(), log_prior, None))
                self._absorb(plan, state, view[None], labels)
            return joined(results), None
        touched = self._absorb(plan, state, views, labels)
        if len(views) == 1:
            touched = None
        return self._pass(plan, views, labels, state.classes(), log_prior, touched), touched

    def of_seen(
        self,
        plan: Plan,
        views: torch.Tensor,
        labels: torch.Tensor,
        classes: Classes,
        touched: Touched | None,
        log_prior: torch.Tensor | None,
    ) -> Result:
        return self._pass(replace(plan, tangential=False), views, labels, classes, log_prior, touched)  # they have unit length already

    def _absorb(self, plan: Plan, state: Updating, views: torch.Tensor, labels: torch.Tensor) -> Touched:
        from pairgrad.losses.fused import triton_bank

        reason = triton_bank.supports(state.bank)
        if reason is None:
            return triton_bank.absorb(state.bank, views, labels, normalize=plan.tangential)
        say(f"execution='triton': the class bank is updated operation by operation, because {reason}")
        views = views.float()
        return state.absorb(views / lengths_of(views) if plan.tangential else views, labels)

    def _pass(
        self,
        plan: Plan,
        views: torch.Tensor,
        labels: torch.Tensor,
        classes: Classes,
        log_prior: torch.Tensor | None,
        touched: Touched | None,
        weights: tuple[torch.Tensor | None, ...] = (None, None, None),
    ) -> Result:
        from pairgrad.losses.fused.triton_loss import vmf_cross_entropy

        seen = [] if touched is None else [touched.rows, touched.rates, touched.concentration, touched.labels, touched.slots]
        entries = None if touched is None else touched.samples
        tau = plan.temperature
        at = (tau, 1.0) if isinstance(tau, torch.Tensor) else (None, tau)
        numbers, lengths = potential_numbers(plan.pot, plan.terms)
        loss, gradient, normaliser = vmf_cross_entropy(
            views,
            labels,
            *classes,
            log_prior,
            *weights,
            seen,
            entries,
            *at,
            numbers,
            lengths,
            plan.tangential,
            plan.gradient,
            plan.share,
            self.products,
        )
        return Result(loss, gradient if plan.gradient else None, normaliser, plan.share)


def what_lacks(pot: Potential) -> str | None:
    """What the kernels do not have of a potential, as words that follow "execution='triton'"; None: they have it."""
    formulas = pot.formulas(torch.float32)
    if not isinstance(formulas, Expansion) or pot.compute_dtype(torch.float32) != torch.float32:
        return f"has the realizations 'paired' and 'arfr', got {pot!r}"
    if formulas.shift:
        return f"has 'paired' from dim 30 on, where it needs no recurrence, got {pot!r}"
    return None if pot.dim is not None and pot.dim <= MAX_DIM else f"has dimensions up to {MAX_DIM}, got {pot!r}"


def potential_numbers(pot: Potential, terms: tuple[int, int] | None) -> tuple[list[float], list[int]]:
    """The constants of an expansion without shift as an operator takes them: all numbers in a row, and the lengths of its polynomials and series."""
    formulas = pot.formulas(torch.float32)
    assert isinstance(formulas, Expansion)
    k = formulas.numbers
    polynomials = (k.head, k.tail, k.tail_integral)
    numbers = [k.centre, k.expanded, k.stretch, *(number for polynomial in polynomials for number in polynomial)]
    return numbers, [*map(len, polynomials), *(terms or (0, 0))]


def runs_on(device: torch.device) -> bool:
    """Whether triton compiles for a device, or is interpreted where it is."""
    return _INSTALLED and (kind(device).triton or (kind(device).on_host and IN_INTERPRETER))


def say(message: str) -> None:
    """A line in the log, once."""
    if not torch.compiler.is_compiling() and message not in _said:
        _said.add(message)
        _log.info(message)
