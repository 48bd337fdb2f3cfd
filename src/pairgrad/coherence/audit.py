"""The audit: is this backward the derivative of this forward?"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from pairgrad.coherence.cache import kept_in
from pairgrad.coherence.causes.recorder import recordings_paused
from pairgrad.coherence.judge.verdict import Verdict
from pairgrad.coherence.measure.explore import EFFORTS
from pairgrad.coherence.report.report import Report
from pairgrad.coherence.stages import Progress, Stages
from pairgrad.coherence.subject.constraint import resolve_constraints
from pairgrad.coherence.subject.domain import as_interval, is_strategy, resolve
from pairgrad.coherence.subject.intent import INTENTS, intent_of
from pairgrad.coherence.subject.subject import Subject, generators_restored
from pairgrad.ground.checks import HALF_DTYPES, boolean, describe, integer_at_least, one_of, real_number


def audit(
    fn: Callable[..., Any],
    inputs: Any = None,
    *,
    domain: Any = None,
    constraints: Any = None,
    dtype: torch.dtype | None = None,
    effort: str = "standard",
    second_order: bool = True,
    transforms: bool = True,
    compiled: bool | str = False,
    reference: Callable[..., Any] | None = None,
    consequences: bool = True,
    tolerance: float = 0.0,
    intent: str | None = None,
    module: torch.nn.Module | None = None,
    seed: int = 0,
    seconds: float | None = 60.0,
    progress: Callable[[Progress], None] | None = None,
    cache: str | os.PathLike[str] | bool | None = None,
) -> Report:
    """Whether the gradient that a callable supplies is the derivative of the value it computes, how well that is known, and where it is not.

    At the inputs, short differences of the value decide what the gradient there has to be. Along segments through the inputs and through other states, the
    change of the value must be the integral of the supplied gradient, and a defect is reported where differences agree with it beyond the noise of both.
    Beside that: forward and backward repeat, the backward is linear in grad_output, for all of its bits and for sizes of 2**-24 to 2**24, and gives the same
    for other memory layouts of the same numbers; nothing is edited in place; second derivatives are right. Kinks, jumps and straight-through estimators are
    distinguished from defects.

    Everything the callable changes (buffers, plain attributes and parameters of a module, random number generators, global settings of torch) is put back
    before each call and at the end. The arguments given are never written to.

    Args:
        fn: any callable from tensors to tensors: a function, an `nn.Module` (its parameters are audited too, in the mode it is in), `Function.apply`, a
            custom op, a compiled function, a function with `torch.func` transforms inside, or a JAX function through
            [`from_jax`][pairgrad.coherence.from_jax].
        inputs: its arguments: one tensor, a tuple of positional ones, or a dict of keyword ones. Tensors that require a gradient are differentiated; if none
            does, all floating-point ones are. Everything else passes through. May be left out if `domain` gives every argument.
        domain: where else to look: [`Box`][pairgrad.coherence.Box], [`LogRange`][pairgrad.coherence.LogRange], a pair (low, high) or a Hypothesis strategy,
            one for all inputs, a sequence with one (or None) for each, or a dict by name. States are drawn from it, and it is scanned from end to end; the
            report has the regions with their verdicts.
        constraints: sets that arguments stay in, such as "symmetric", "positive_definite", "simplex", "sphere", "orthogonal", or an object of
            `torch.distributions.constraints`; one for all inputs, a sequence with one (or None) for each, or a dict by name. Without it, an input that is a
            symmetric matrix bit for bit is read within the symmetric matrices too where it is off, and the report says which reading passes.
        dtype: make the audit in this dtype instead of that of the inputs.
        effort: "quick", "standard" or "thorough": how many lines, states and tiles. "glance": one line for each tensor. "whole": two lines that move all
            tensors at once, for large models.
        second_order: whether to audit the second backward too.
        transforms: whether to try forward mode (`jvp`), `vmap` and their nestings too, where custom Functions have rules for them; with
            effort="thorough", forward mode of torch's own functions too.
        compiled: compare with the function compiled by `torch.compile` too: values, gradients, second derivatives. True, or the name of a backend. What was
            compiled before is compiled again afterwards (`torch.compiler.reset`).
        reference: the same function written with torch's operations. In half precision its error is the measure for that of `fn`; without it, what
            rounding explains is. Where `fn` does not take float64, it says what the gradient should be.
        consequences: whether to look, where the backward is incoherent, for the custom Functions it comes from, for a scaling that explains it, for
            the part of the update that is not a gradient, and for what it does to training.
        tolerance: a defect smaller than this, over the size of the gradient, is reported but does not decide the verdict.
        intent: declares what is wanted, as [`intended`][pairgrad.intended] does. What it does not account for still fails.
        module: a module that `fn` uses, if it is not itself one: its parameters are differentiated too, and its state is put back.
        seed: of directions, cotangents and drawn states. The same seed gives the same report.
        seconds: how long it may take; None for as long as it takes. When the time is up the report is made of what was seen. What was not is in
            `Report.left_out`; if a verdict needs it, the report is not `complete` and does not pass.
        progress: called with a [`Progress`][pairgrad.coherence.Progress] now and then. What it raises ends the audit; what was found until then is in
            `Progress.report()`.
        cache: a folder in which results are kept. A result that is there, for the same function, source, arguments, settings and versions of pairgrad, torch
            and Python, is returned without a call of `fn`. None: the folder that the environment variable PAIRGRAD_AUDIT_CACHE names, if it is set.
            False: results are not kept.

    Raises:
        TypeError, ValueError: an argument is not as described.
        Exception: whatever `fn` raises at the inputs, with a note on what it was called with.

    Examples:
        >>> import torch, pairgrad as pg
        >>> class Square(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x
        ...
        ...     @staticmethod
        ...     def backward(ctx, grad_output):
        ...         (x,) = ctx.saved_tensors
        ...         return 2.000002 * x * grad_output
        >>> x = torch.tensor(1.5, dtype=torch.float64)
        >>> report = pg.audit(Square.apply, x)
        >>> report.verdict.value, f"{report.defect:.0e}"
        ('incoherent', '1e-06')
        >>> pg.audit(torch.square, x).headline
        'coherent, to 9.09e-13 of the gradient'
    """
    one_of("effort", effort, tuple(EFFORTS))
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be torch.float64, torch.float32, torch.float16 or torch.bfloat16, got {describe(dtype)}")
    seed = integer_at_least("seed", seed, 0)
    if intent is not None:
        one_of("intent", intent, INTENTS)
    expected = "a number from 0 to 1, relative to the size of the gradient"
    tolerance = real_number("tolerance", tolerance, expected, lambda share: 0 <= share < 1, kind=ValueError)
    second_order, consequences = boolean("second_order", second_order), boolean("consequences", consequences)
    transforms = boolean("transforms", transforms)
    compiled = compiled if isinstance(compiled, str) else "inductor" if boolean("compiled", compiled) else ""
    if compiled and compiled not in torch.compiler.list_backends(exclude_tags=()):
        known = ", ".join(map(repr, torch.compiler.list_backends()))
        raise ValueError(f"compiled must be True, False or a backend of torch.compile, such as 'aot_eager', {known}, got {compiled!r}")
    if reference is not None and not callable(reference):
        raise TypeError(f"reference must be a callable that takes the arguments of fn, or None, got {describe(reference)}")
    if seconds is not None:
        expected = "a number above 0, or None for as long as it takes"
        seconds = float(real_number("seconds", seconds, expected, lambda value: value > 0, kind=ValueError))
    if module is not None and not isinstance(module, torch.nn.Module):
        raise TypeError(f"module must be an nn.Module that fn uses, or None, got {describe(module)}")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a callable of a Progress, or None, got {describe(progress)}")
    if inputs is None:
        inputs = _inputs_of(domain, dtype)
    if dtype is not None and isinstance(fn, torch.nn.Module):
        fn = copy.deepcopy(fn).to(dtype)
    if dtype is not None and module is not None and any(p.dtype != dtype for p in module.parameters() if p.is_floating_point()):
        raise ValueError(
            f"dtype must be that of the parameters of module, got {dtype}: convert the module first, for example a copy.deepcopy of it"
        )
    started = time.perf_counter()
    options = {
        "domain": domain,
        "constraints": constraints,
        "dtype": dtype,
        "effort": effort,
        "second_order": second_order,
        "transforms": transforms,
    }
    options |= {
        "compiled": compiled,
        "reference": reference,
        "consequences": consequences,
        "tolerance": tolerance,
        "intent": intent,
        "module": module,
    }
    kept = kept_in(cache, fn, inputs, options | {"seed": seed})
    if kept is not None and kept.found is not None:
        return kept.found
    with kept.watching() if kept is not None else contextlib.nullcontext():
        report = _made(fn, inputs, seconds, started, progress, seed=seed, **options)
    if kept is not None:
        kept.keep(report)
    return report


def _made(
    fn: Callable[..., Any],
    inputs: Any,
    seconds: float | None,
    started: float,
    progress: Callable[[Progress], None] | None,
    *,
    domain: Any,
    constraints: Any,
    dtype: torch.dtype | None,
    effort: str,
    second_order: bool,
    transforms: bool,
    compiled: str,
    reference: Callable[..., Any] | None,
    consequences: bool,
    tolerance: float,
    intent: str | None,
    module: torch.nn.Module | None,
    seed: int,
) -> Report:
    """The audit, stage by stage."""
    with torch.inference_mode(False), generators_restored(), recordings_paused():
        try:
            subject = Subject(fn, inputs, dtype=dtype, module=module)
        except Exception as error:
            error.add_note("raised by fn, or while preparing it, at the inputs given to pairgrad.audit")
            raise
        with subject:
            subject.constraints = resolve_constraints(constraints, subject.names, subject.tensors)
            intervals = resolve(domain, subject.names)
            made = Stages(
                subject,
                effort,
                seed,
                intent or intent_of(fn),
                float(tolerance),
                seconds,
                started,
                progress,
                again=functools.partial(audit, cache=False),
            )
            plan: list[tuple[str, Callable[[], None]]] = [("repeating calls", made.structure), ("looking at the inputs", made.inputs)]
            if intervals:
                plan.append(("looking over the domain", lambda: made.domain(intervals)))
            if made.evidence.dtype in HALF_DTYPES:
                plan.append(("comparing with float64", lambda: made.precision(reference, second_order=second_order)))
            if second_order:
                plan.append(("looking at second derivatives", made.second_order))
            else:
                made.evidence.left_out.append("second order: switched off (second_order=False)")
            if transforms:
                plan.append(("trying forward mode and vmap", made.transforms))
            if compiled:
                plan.append(("comparing with the compiled function", lambda: made.compiled(compiled)))
            plan.append(("looking for causes", made.sizes))
            if consequences:
                plan.append(("looking for causes", made.consequences))
            made.look(plan)
            subject.watch = None
            return made.report()


def assert_coherent(fn: Callable[..., Any], inputs: Any = None, *, allow: Iterable[str] = (), **options: Any) -> Report:
    """Raises an AssertionError with the whole report unless the audit passes; returns the report if it does.

    Args:
        fn: as for [`audit`][pairgrad.coherence.audit.audit].
        inputs: likewise.
        options: likewise.
        allow: further verdicts that pass, such as "jump" or "inconclusive". Each excuses itself alone: an audit can come to several, and with
            allow=["not-reentrant"] a wrong gradient still fails.

    Examples:
        >>> import torch, pairgrad as pg
        >>> pg.assert_coherent(torch.special.erfcx, torch.linspace(-2, 5, 8, dtype=torch.float64)).verdict.value
        'coherent'
    """
    if not isinstance(allow, (tuple, list, set, frozenset)):
        raise TypeError(f"allow must be a sequence of verdicts, such as ('jump',), got {describe(allow)}")
    allowed = tuple(Verdict(one_of("allow", verdict, tuple(v.value for v in Verdict))) for verdict in allow)
    report = audit(fn, inputs, **options)
    if not report.passes(allowed):
        raise AssertionError(f"{report}\n\n{report.explain()}")
    return report


def _inputs_of(domain: Any, dtype: torch.dtype | None) -> Any:
    """One number for each entry of a domain, in its middle."""
    if domain is None:
        raise TypeError("inputs must be given unless domain is: a tensor, a tuple of arguments or a dict of keyword arguments")
    dtype = torch.float64 if dtype is None else dtype

    def start(value: Any) -> torch.Tensor:
        if value is None:
            raise ValueError("inputs must be given where domain leaves an argument out (None)")
        interval = as_interval(value)
        if is_strategy(interval):
            raise ValueError("inputs must be given where domain is a Hypothesis strategy: they tell the shape and dtype of the argument")
        return torch.tensor(interval.middle, dtype=dtype)

    if isinstance(domain, dict):
        return {key: start(value) for key, value in domain.items()}
    if isinstance(domain, (tuple, list)) and not all(isinstance(end, (int, float)) for end in domain):
        return tuple(start(value) for value in domain)
    return (start(domain),)
