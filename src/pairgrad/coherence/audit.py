"""The audit: is this backward the derivative of this forward?"""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from pairgrad.coherence.causes.consequences import (
    NodeVerdict,
    consistent_gradient,
    field_findings,
    fork_findings,
    node_findings,
    nodes,
    scaling_findings,
)
from pairgrad.coherence.causes.picture import field_picture, slope_picture
from pairgrad.coherence.judge.conclusions import (
    TOGETHER,
    best_limits,
    by_argument,
    defect_finding,
    defective,
    distinct,
    event_findings,
    loudest_curves,
    second_order_finding,
    size_at,
    state_defect,
    straight_through_finding,
    undecided,
)
from pairgrad.coherence.judge.excuses import EXCUSABLE, excused
from pairgrad.coherence.judge.verdict import Finding, Verdict
from pairgrad.coherence.measure.explore import EFFORTS, Effort, Observation, observe, observe_second, settled
from pairgrad.coherence.measure.limits import FALSE_ALARM_RATE, TESTS, coarsest
from pairgrad.coherence.measure.panel import DEGREE
from pairgrad.coherence.measure.path import Line, Path, Straight, random_cotangent, still
from pairgrad.coherence.measure.scan import Region, Scan, scan
from pairgrad.coherence.measure.second import second_backward_raises
from pairgrad.coherence.measure.straight import StraightThrough, straight_through
from pairgrad.coherence.measure.structure import structural_findings
from pairgrad.coherence.report.report import FieldPicture, Report, passes
from pairgrad.coherence.subject.domain import Box, LogRange, as_interval, draw_states, is_strategy, resolve
from pairgrad.coherence.subject.intent import INTENTS, intent_of
from pairgrad.coherence.subject.subject import Subject, generators_restored
from pairgrad.coherence.training.recorder import recordings_paused
from pairgrad.ground.checks import boolean, describe, integer_at_least, one_of, real_number

_GRAVITY = {"alarm": 0, "warning": 1, "note": 2}


def audit(
    fn: Callable[..., Any],
    inputs: Any = None,
    *,
    domain: Any = None,
    dtype: torch.dtype | None = None,
    effort: str = "standard",
    second_order: bool = True,
    consequences: bool = True,
    tolerance: float = 0.0,
    intent: str | None = None,
    module: torch.nn.Module | None = None,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Whether the gradient that a callable supplies is the derivative of the value it computes, how well that is known, and where it is not.

    Two methods look at every state. Along segments through it, the change of the value must be the integral of the supplied gradient; at the state, the
    derivative must be what extrapolated differences of the value say. A defect is reported where both contradict the backward, agree with each other, and
    exceed their own noise. Beside that: repeatability of forward and backward, linearity in grad_output, edits in place, second derivatives, kinks, jumps
    and straight-through estimators, told from defects.

    Everything the callable changes (buffers, plain attributes and parameters of a module, random number generators) is put back before each call and at the
    end. The arguments given are never written to.

    Args:
        fn: any callable from tensors to tensors: a function, an `nn.Module` (its parameters are audited too, in the mode it is in), `Function.apply`, a
            custom op, a compiled function, a function with `torch.func` transforms inside, or a JAX function through
            [`from_jax`][pairgrad.coherence.from_jax].
        inputs: its arguments: one tensor, a tuple of positional ones, or a dict of keyword ones. Tensors that require a gradient are differentiated; if none
            does, all floating-point ones are. Everything else passes through. May be left out if `domain` gives every argument.
        domain: where else to look: [`Box`][pairgrad.coherence.Box], [`LogRange`][pairgrad.coherence.LogRange], a pair (low, high) or a Hypothesis strategy,
            one for all inputs, a sequence with one (or None) for each, or a dict by name. States are drawn from it, and it is scanned from end to end; the
            report has the regions with their verdicts.
        dtype: make the audit in this dtype instead of that of the inputs.
        effort: "quick", "standard" or "thorough": how many lines, states and tiles. "glance": one line for each tensor. "whole": two lines that move all
            tensors at once, for large models.
        second_order: whether to audit the second backward too.
        consequences: whether to look, where the backward is incoherent, for the custom Functions it comes from, for a scaling that explains it, for
            the part of the update that is no gradient, and for what it does to training.
        tolerance: a defect smaller than this, over the size of the gradient, is reported but does not decide the verdict.
        intent: declares what is wanted, as [`intended`][pairgrad.intended] does.
        module: a module that `fn` uses, if it is not itself one: its parameters are differentiated too, and its state is put back.
        seed: of directions, cotangents and drawn states. The same seed gives the same report.
        progress: called with a [`Progress`][pairgrad.coherence.Progress] now and then. What it raises ends the audit; what was found until then is in
            `Progress.report()`.

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
    with torch.inference_mode(False), generators_restored(), recordings_paused():
        try:
            subject = Subject(fn, inputs, dtype=dtype, module=module)
        except Exception as error:
            error.add_note("raised by fn, or while preparing it, at the inputs given to pairgrad.audit")
            raise
        with subject:
            made = _Audit(subject, effort, seed, intent or intent_of(fn), float(tolerance), started, progress)
            made.structure()
            made.inputs()
            made.domain(resolve(domain, subject.names))
            if second_order:
                made.second_order()
            made.classify()
            if consequences:
                made.consequences()
            return made.report()


@dataclass(frozen=True)
class Progress:
    """How far an audit is.

    Attributes:
        stage: what it is doing, such as "looking at the inputs".
        step, steps: the number of the stage, and how many there are.
        calls: of the callable so far.
        seconds: so far.
    """

    stage: str
    step: int
    steps: int
    calls: int
    seconds: float
    _audit: _Audit = field(repr=False)

    def report(self) -> Report:
        """Of what was found so far: incoherent if that is already certain, else inconclusive, with what is known."""
        return self._audit.so_far()


def assert_coherent(fn: Callable[..., Any], inputs: Any = None, *, allow: Iterable[str] = (), **options: Any) -> Report:
    """Raises an AssertionError with the whole report unless the audit passes; returns the report if it does.

    Args:
        fn: as for [`audit`][pairgrad.coherence.audit.audit].
        inputs: likewise.
        options: likewise.
        allow: further verdicts that pass, such as "jump" or "inconclusive".

    Examples:
        >>> import torch, pairgrad as pg
        >>> pg.assert_coherent(torch.special.erfcx, torch.linspace(-2, 5, 8, dtype=torch.float64)).verdict.value
        'coherent'
    """
    if not isinstance(allow, (tuple, list, set, frozenset)):
        raise TypeError(f"allow must be a sequence of verdicts, such as ('jump',), got {describe(allow)}")
    allowed = tuple(Verdict(one_of("allow", verdict, tuple(v.value for v in Verdict))) for verdict in allow)
    report = audit(fn, inputs, **options)
    if not report.passed and report.verdict not in allowed:
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


STAGES = ("repeating calls", "looking at the inputs", "looking over the domain", "looking at second derivatives", "looking for causes")
_PAUSE = 0.1  # seconds between two calls of `progress`


class _Audit:
    """An audit in the making: observations and findings, and what follows from them."""

    def __init__(
        self,
        subject: Subject,
        effort: str,
        seed: int,
        intent: str | None,
        tolerance: float,
        started: float,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.subject, self.seed, self.intent, self.tolerance = subject, seed, intent, tolerance
        self.effort_name, self.effort = effort, EFFORTS[effort]
        self.generator = torch.Generator().manual_seed(seed)
        self.complete = True
        self.pending: list[Observation] = []  # of the state that is being looked at
        self._progress, self._stage = progress, 0
        self._started, self._told = started, time.perf_counter()
        if progress is not None:
            subject.watch = self._called
        self.findings: list[Finding] = []
        self.observations: list[Observation] = []
        self.regions: dict[str, tuple[Region, ...]] = {}
        self.scans: list[tuple[str, Scan, Line]] = []
        self.verdict: Verdict | None = None
        self.straight: StraightThrough | None = None
        self.nodes: list[NodeVerdict] = []
        self.picture: FieldPicture | None = None

    # Progress ---------------------------------------------------------------------------------------------------------

    def _enter(self, stage: int) -> None:
        self._stage = stage
        self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._told = time.perf_counter()
            seconds = self._told - self._started
            self._progress(Progress(STAGES[self._stage], self._stage, len(STAGES), self.subject.evaluations, seconds, self))

    def _called(self) -> None:
        if time.perf_counter() - self._told >= _PAUSE:
            self._tell()

    def _collect(self, observations: Iterable[Observation]) -> None:
        """Takes the observations of one state one by one, so that an interruption loses none."""
        self.pending = []
        for observation in observations:
            self.pending.append(observation)
        self.observations += settled(self.pending)
        self.pending = []

    def so_far(self) -> Report:
        """The report of an audit that was stopped here. The callable is not called any more."""
        made = copy.copy(self)
        made.complete = False
        made.findings, made.observations = list(self.findings), [*self.observations, *settled(self.pending)]
        if self.verdict is None:
            made.classify()
        if passes(made.verdict):
            made.verdict = Verdict.INCONCLUSIVE
        text = f"stopped while {STAGES[self._stage]}: what comes after that was not looked at"
        made.findings.append(Finding("note", "warning", text))
        return made.report()

    # Looking ----------------------------------------------------------------------------------------------------------

    def structure(self) -> None:
        self._enter(0)
        try:
            self.findings += structural_findings(self.subject, self.generator)
        except Exception as error:
            error.add_note("raised by fn or its backward at the inputs given to pairgrad.audit")
            raise

    def inputs(self) -> None:
        self._enter(1)
        self._collect(observe(self.subject, self.subject.tensors, "the inputs", self.effort, self.generator))

    def domain(self, domain: dict[int, Any]) -> None:
        """States drawn from the domain, every interval from end to end, and all of them at once."""
        if not domain:
            return
        self._enter(2)
        tensors = self.subject.tensors
        single = Effort(1, 0, 0, 0, 0)
        for i, state in enumerate(draw_states(domain, tensors, self.effort.states, self.generator)):
            self._collect(observe(self.subject, state, f"state {i} of the domain", single, self.generator))
        intervals = {place: value for place, value in domain.items() if isinstance(value, (Box, LogRange))}
        for place, interval in intervals.items():
            curves = [still(tensor) for tensor in tensors]
            curves[place] = Straight(torch.zeros_like(tensors[place]), torch.ones_like(tensors[place], dtype=torch.float64))
            self._scan(f"{self.subject.names[place]}", Path(tuple(curves)), interval)
        if sum(tensors[place].numel() for place in intervals) > 1:
            for k in range(self.effort.sweeps):
                curves = [
                    intervals[place].sweep(tensor, self.generator) if place in intervals else still(tensor)
                    for place, tensor in enumerate(tensors)
                ]
                self._scan(TOGETHER, Path(tuple(curves)), Box(-1, 1), regions=False, sweep=k)

    def _scan(self, name: str, path: Path, interval: Box | LogRange, *, regions: bool = True, sweep: int = 0) -> None:
        line = Line(self.subject, path, random_cotangent(self.subject.outputs, self.generator), through_origin=regions)
        found = scan(line, interval.edges(self.effort.tiles), interval.between)
        if all(reading.verdict in ("outside", "unresolved") for reading in found.readings):
            return
        self.scans.append((name, found, line))
        for reading in found.readings:
            place = f"{name} = {reading.middle:.6g}" if regions else f"sweep {sweep} of the domain, t = {reading.middle:.6g}"
            self.observations.append(Observation(place, name, reading, line, 1.0 if regions else None))
        if regions:
            self.regions[name] = found.regions

    def second_order(self) -> None:
        """The second backward, if there is one and the first is right; one that raises is safe."""
        if not self.subject.connected or defective(self.observations, 1):
            return
        self._enter(3)
        try:
            raises = second_backward_raises(self.subject, random_cotangent(self.subject.outputs, self.generator))
        except (RuntimeError, NotImplementedError) as error:
            raises = str(error).splitlines()[0]
        if raises:
            self.findings.append(Finding("note", "note", f"second derivatives raise instead of being wrong silently: {raises}"))
            return
        self._collect(observe_second(self.subject, self.subject.tensors, self.effort, self.generator))

    # Concluding -------------------------------------------------------------------------------------------------------

    def classify(self) -> None:
        """The verdict, and a finding for each of its reasons."""
        first, second = defective(self.observations, 1), defective(self.observations, 2)
        self.findings += [
            defect_finding(argument, group, self.observations, self.tolerance)
            for argument, group in by_argument(first)
            if argument != "all tensors" or len(first) == len(group)
        ]
        if any(finding.severity == "alarm" for finding in self.findings if finding.kind == "defect"):
            worst = max(first, key=lambda observation: observation.reading.relative)
            self.straight = straight_through(worst.line) if worst.reading.middle == 0 and self.complete else None
        self.findings += [
            second_order_finding(argument, group, self.observations, self.tolerance) for argument, group in by_argument(second)
        ]
        value = "the value" if sum(output.numel() for output in self.subject.outputs) == 1 else "a random combination of the outputs"
        self.findings = distinct([*self.findings, *event_findings(self.observations, self.scans, self.regions, value)])
        kinds = {finding.kind for finding in self.findings if finding.severity == "alarm"}
        if kinds & {"not-reentrant", "edits"}:
            self.verdict = Verdict.NOT_REENTRANT
        elif self.straight is not None and self.straight.like:
            self.verdict = Verdict.STRAIGHT_THROUGH
            self.findings.append(straight_through_finding(self.straight))
        elif kinds:
            self.verdict = Verdict.INCOHERENT
        else:
            open_question, unknown = undecided(self.observations)
            self.findings += unknown
            met = [verdict for verdict in (Verdict.JUMP, Verdict.KINK) if any(finding.kind == verdict for finding in self.findings)]
            self.verdict = Verdict.INCONCLUSIVE if open_question else (*met, Verdict.COHERENT)[0]

    def consequences(self) -> None:
        """Where an incoherent gradient comes from, and what it does."""
        wrong = defective(self.observations, 1) or defective(self.observations, 2)
        if not wrong or passes(self.verdict):
            return
        self._enter(4)
        worst = max(wrong, key=lambda observation: observation.reading.relative)
        self.nodes = nodes(self.subject, worst, self._audit_node)
        self.findings += node_findings(self.subject, self.nodes)
        self.picture = slope_picture(self.subject, self.scans)
        at_inputs = [observation for observation in defective(self.observations, 1) if observation.state == "the inputs"]
        if not at_inputs or self.verdict is Verdict.STRAIGHT_THROUGH:
            return
        consistent = consistent_gradient(self.subject, max(at_inputs, key=lambda observation: observation.reading.relative))
        if consistent is not None:
            self.findings += scaling_findings(self.subject, consistent)
        self.findings += field_findings(self.subject, self.seed)
        if consistent is not None and consistent.method == "forward":
            self.findings += fork_findings(self.subject, self.subject.module)
        self.picture = self.picture or field_picture(self.subject, consistent, seed=self.seed)

    def _audit_node(self, fn: Callable[..., Any], arguments: Any, intent: str | None) -> Report:
        second = bool(defective(self.observations, 2))
        return audit(fn, arguments, effort="quick", second_order=second, consequences=False, intent=intent, seed=self.seed)

    # Reporting --------------------------------------------------------------------------------------------------------

    def report(self) -> Report:
        assert self.verdict is not None
        limits = best_limits(self.observations)
        wrong = defective(self.observations, 1) or defective(self.observations, 2)
        worst = max(wrong, key=lambda observation: observation.reading.relative) if wrong else None
        intent, passed = self.intent, passes(self.verdict)
        alarms = [finding for finding in self.findings if finding.severity == "alarm"]
        inside = [verdict for verdict in self.nodes if verdict.declared is not None]
        explained = inside and all(verdict.coherent or verdict.declared is not None for verdict in self.nodes)
        if intent is None and explained and alarms and not {finding.kind for finding in alarms} - EXCUSABLE:
            intent, passed = inside[0].declared, True
            named = ", ".join(f"{verdict.visit.name} ({verdict.declared})" for verdict in inside)
            text = (
                f"declared inside: {named}; every other custom backward is coherent, and a further mismatch behind these would not be seen"
            )
            self.findings.append(Finding("intent", "note", text))
        elif intent is not None and alarms:
            facts = {"verdict": self.verdict, "straight": self.straight, "complete": self.complete}
            passed, why = excused(intent, alarms, self.subject, self.observations, **facts)
            self.findings.append(Finding("intent", "note" if passed else "warning", why))
        lines = {id(observation.line): observation.line for observation in self.observations}
        tests = DEGREE * sum(line.panels for line in lines.values())
        dtype = coarsest([tensor.dtype for tensor in (*self.subject.tensors, *self.subject.outputs)])
        return Report(
            name=self.subject.name,
            verdict=self.verdict,
            passed=passed,
            intent=intent,
            limit=max(limits, default=math.inf),
            typical_limit=statistics.median(limits) if limits else math.inf,
            defect=0.0 if worst is None else size_at(worst, self.observations).relative,
            defect_error=0.0 if worst is None else size_at(worst, self.observations).error,
            findings=tuple(sorted(self.findings, key=lambda finding: _GRAVITY[finding.severity])),
            states=tuple(state_defect(observation) for observation in self.observations),
            regions=self.regions,
            false_alarm_rate=FALSE_ALARM_RATE * max(1.0, tests / TESTS),
            tests=tests,
            evaluations=self.subject.evaluations,
            seconds=time.perf_counter() - self._started,
            dtype=str(dtype).removeprefix("torch."),
            seed=self.seed,
            effort=self.effort_name,
            complete=self.complete,
            curves=loudest_curves(self.observations),
            picture=self.picture,
        )
