"""Sweeps: the audit over every configuration of a function, because most wrong backwards need a configuration, not precision, to show."""

from __future__ import annotations

import copy
import inspect
import math
import time
from collections.abc import Callable
from typing import Any

import torch

from pairgrad.coherence.audit import audit
from pairgrad.coherence.report.sweep import SweepReport, SweepRow, row_of
from pairgrad.coherence.subject.configurations import Configuration, combined, elements, listed, maker, shown
from pairgrad.coherence.subject.signature import signature
from pairgrad.coherence.subject.subject import arguments_of, generators_restored
from pairgrad.ground._torch_private import pytree
from pairgrad.ground.checks import describe, integer_at_least, real_number

_SHARE = 4  # of the time that is left, one audit may take a part
_LEAST = 1.0  # seconds that an audit is given in any case
_NAMED = 10  # configurations not reached that are named
_OWN = {"fn", "inputs", "dtype", "seed", "seconds", "progress"}


def sweep(
    fn: Callable[..., Any],
    inputs: Any = None,
    *,
    seconds: float | None = 60.0,
    seed: int = 0,
    progress: Callable[[SweepRow, int, int], None] | None = None,
    **grid: Any,
) -> SweepReport:
    """Audits a function in every combination of the values that its arguments are given.

    Combinations that change one value of the first ones come first, then those that change two: when time is up, each value was tried at least
    with the first values of the others.

    Args:
        fn: the function, as for [`audit`][pairgrad.coherence.audit.audit].
        inputs: its other arguments, the same for all configurations; or a function that makes them and takes the values that it needs by name, such as
            `lambda shape: (torch.randn(shape), torch.randint(5, shape[:1]))`. Without it, `shape` makes them.
        seconds: how long the sweep may take; None for as long as it takes. What was not reached is listed.
        seed: of the inputs and the audits.
        progress: called with each row, its number and the number of all configurations.
        grid: a list of values for each name, such as `reduction=["mean", "none"]`; anything else is a single value. A value goes to the function that has an
            argument of that name, `fn`, `inputs` or both; `...` leaves the argument out. A tensor among the values is held fixed unless it requires a
            gradient. `dtype=[torch.float32, torch.bfloat16]` makes the audits in these dtypes. Without `inputs`, `shape=[(4, 5), (2, 3, 4, 5)]` gives
            normally distributed tensors in float64; a list of shapes gives several, a dict of shapes gives them by name. Names of other arguments of
            `audit`, such as `effort` ("quick" by default), `tolerance` or `compiled`, are handed to it.

    Raises:
        TypeError, ValueError: an argument is not as described, or a name is an argument of neither `fn` nor `inputs`.

    Examples:
        >>> import torch, pairgrad as pg
        >>> class SquaredError(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x, reduction):
        ...         ctx.save_for_backward(x)
        ...         return x.square().mean() if reduction == "mean" else x.square()
        ...
        ...     @staticmethod
        ...     def backward(ctx, grad_output):
        ...         (x,) = ctx.saved_tensors
        ...         return grad_output * 2 * x / x.numel(), None
        >>> report = pg.sweep(SquaredError.apply, shape=[(4,), (4, 3)], reduction=["mean", "none"], dtype=[torch.float64])
        >>> report.headline
        '2 fail, 2 pass of 4 configurations'
        >>> report.rule
        "it fails exactly where reduction is 'none'"
    """
    if not callable(fn):
        raise TypeError(f"fn must be callable, got {describe(fn)}")
    seed = integer_at_least("seed", seed, 0)
    if seconds is not None:
        expected = "a number above 0, or None for as long as it takes"
        seconds = float(real_number("seconds", seconds, expected, lambda value: value > 0, kind=ValueError))
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a callable of a row, its number and the number of all, or None, got {describe(progress)}")
    taken = signature(fn)
    for_audit = set(inspect.signature(audit).parameters) - _OWN - (set(taken.parameters) if taken is not None else set())
    options: dict[str, Any] = {"effort": "quick"} | {name: value for name, value in grid.items() if name in for_audit}
    values = listed({name: value for name, value in grid.items() if name not in for_audit})
    if not values:
        raise TypeError(
            "grid must have at least one name with a list of values, such as shape=[(4, 5), (2, 3, 4)] or reduction=['mean', 'none']"
        )
    make = maker(fn, inputs, values, seed)
    total, name = math.prod(map(len, values.values())), ""
    started, end = time.perf_counter(), math.inf if seconds is None else time.perf_counter() + seconds
    rows: list[SweepRow] = []
    missed: list[str] = []
    for configuration in combined(values, make):
        left = end - time.perf_counter()
        if left <= 0:
            missed.append(str(configuration))
            if len(missed) == _NAMED:
                break
            continue
        own = options | {"seconds": max(_LEAST, left / _SHARE) if math.isfinite(left) else None, "seed": seed}
        row = _row(fn, configuration, own, takes_dtype=taken is not None and "dtype" in taken.parameters)
        name = name or (row.report.name if row.report is not None else "")
        rows.append(row)
        if progress is not None:
            progress(row, len(rows), total)
    return SweepReport(
        name=name or getattr(fn, "__qualname__", type(fn).__name__),
        rows=tuple(sorted(rows, key=lambda row: row.size)),
        not_reached=tuple(missed),
        total=total,
        seconds=time.perf_counter() - started,
        factors={name: tuple(map(shown, chosen)) for name, chosen in values.items()},
    )


def _row(fn: Callable[..., Any], configuration: Configuration, options: dict[str, Any], *, takes_dtype: bool) -> SweepRow:
    """The audit of one configuration. Where the function itself raises, it refuses the configuration; where only its backward does, that is a failure."""
    started, count = time.perf_counter(), 0
    dtype = None if takes_dtype else configuration.values.get("dtype")
    refused, outcome = False, ""
    try:
        inputs = configuration.inputs
        count = elements(inputs)
        outcome = audit(fn, inputs, dtype=dtype, **options)
    except Exception as error:
        refused = not _runs(fn, configuration, dtype)
        what = "raises" if refused else "the forward runs, the backward raises"
        outcome = f"{what} {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return row_of(configuration.shown, configuration.changed, count, outcome, refused=refused, seconds=time.perf_counter() - started)


def _runs(fn: Callable[..., Any], configuration: Configuration, dtype: torch.dtype | None) -> bool:
    """Whether the forward runs in a configuration, and gives a floating-point tensor."""
    try:
        args, kwargs = arguments_of(configuration.inputs)
        if dtype is not None:
            args, kwargs = pytree.tree_map_only(torch.Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, (args, kwargs))
            fn = copy.deepcopy(fn).to(dtype) if isinstance(fn, torch.nn.Module) else fn
        with generators_restored():
            made = pytree.tree_leaves(fn(*args, **kwargs))
    except Exception:
        return False
    return any(isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel() for leaf in made)
