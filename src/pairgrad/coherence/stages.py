"""The stages of an audit: each looks at something, within its share of the time, and adds to the evidence, from which the report is made."""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from pairgrad.coherence.causes.consequences import (
    NodeVerdict,
    consistent_gradient,
    differentiated,
    field_findings,
    fork_findings,
    node_findings,
    nodes,
    scaling_findings,
)
from pairgrad.coherence.causes.picture import FieldPicture, field_picture, slope_picture
from pairgrad.coherence.finding import Finding
from pairgrad.coherence.judge.conclusions import TOGETHER, best_limits, by_argument, defective, of_order, tells, worst_of
from pairgrad.coherence.judge.evidence import Evidence, conclude, first_order_findings, incomplete
from pairgrad.coherence.judge.hints import hint
from pairgrad.coherence.judge.verdict import Verdict
from pairgrad.coherence.measure.compiled import examine_compiled
from pairgrad.coherence.measure.explore import ALONG, EFFORTS, Effort, Observation, groups, line_through, observe, observe_second, settled
from pairgrad.coherence.measure.gradient import Gradients, Measured
from pairgrad.coherence.measure.limits import FALSE_ALARM_RATE, TELLING, TESTS, coarsest
from pairgrad.coherence.measure.panel import DEGREE
from pairgrad.coherence.measure.path import OUTSIDE, Line, Path, guarded, random_cotangent
from pairgrad.coherence.measure.precision import examine_precision
from pairgrad.coherence.measure.scan import scan
from pairgrad.coherence.measure.second import not_numbers, refusal
from pairgrad.coherence.measure.state import STEPS_LIKE
from pairgrad.coherence.measure.straight import StraightThrough, straight_through
from pairgrad.coherence.measure.structure import structural_findings
from pairgrad.coherence.measure.transforms import examine_transforms
from pairgrad.coherence.report.readings import loudest_curves, state_defect
from pairgrad.coherence.report.report import ArgumentGradient, Report
from pairgrad.coherence.subject.constraint import as_constraint, is_exactly_symmetric
from pairgrad.coherence.subject.curves import Straight, scales, still
from pairgrad.coherence.subject.domain import Box, LogRange, draw_states
from pairgrad.coherence.subject.subject import Stopped, Subject
from pairgrad.ground._torch_private import pytree
from pairgrad.ground.checks import HALF_DTYPES


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
    _stages: Stages = field(repr=False)

    def report(self) -> Report:
        """A report of what was found so far: incoherent if that is already certain, else inconclusive, with what is known."""
        return self._stages.so_far()


# The stages of an audit, in their order, and the share of the time left that each may take.
STAGES = {
    "repeating calls": 0.3,
    "looking at the inputs": 0.6,
    "looking over the domain": 0.5,
    "comparing with float64": 0.5,
    "looking at second derivatives": 0.5,
    "trying forward mode and vmap": 0.5,
    "comparing with the compiled function": 0.9,
    "looking for causes": 1.0,
}
_WHOLE = 0.85  # of the time left, for the inputs of a whole model: what comes after has to do with the rest
_PAUSE = 0.1  # seconds between two calls of `progress`
_MEASURED = 12  # arguments whose gradients are measured in full


class Stages:
    """An audit in the making: it looks, stage by stage, and gathers evidence."""

    def __init__(
        self,
        subject: Subject,
        effort: str,
        seed: int,
        intent: str | None,
        tolerance: float,
        seconds: float | None,
        started: float,
        progress: Callable[[Progress], None] | None = None,
        *,
        again: Callable[..., Report],
    ) -> None:
        self._again = again  # an audit, of a part of the function or in another dtype
        self.subject, self.seed = subject, seed
        self.effort_name, self.effort = effort, EFFORTS[effort]
        self.generator = torch.Generator().manual_seed(seed)  # of what every audit looks at
        self.further = torch.Generator().manual_seed(seed + 1)  # of what can be switched off, which changes nothing else
        self.pending: list[Observation] = []  # of the state that is being looked at
        self._progress, self._stage = progress, next(iter(STAGES))
        self._planned = [self._stage]
        self._started, self._told = started, time.perf_counter()
        self._end = self._end_of_stage = math.inf if seconds is None else started + seconds
        subject.watch = self._called
        self.evidence = Evidence(
            names=subject.names,
            dtype=coarsest([tensor.dtype for tensor in (*subject.tensors, *subject.outputs)]),
            single=sum(output.numel() for output in subject.outputs) == 1,
            draws=subject.random,
            connected=subject.connected,
            tolerance=tolerance,
            intent=intent,
        )
        self.nodes: list[NodeVerdict] = []
        self.picture: FieldPicture | None = None

    # Time and progress ------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        if self._progress is not None:
            self._told = time.perf_counter()
            seconds = self._told - self._started
            step = self._planned.index(self._stage)
            self._progress(Progress(self._stage, step, len(self._planned), self.subject.evaluations, seconds, self))

    def _called(self) -> None:
        now = time.perf_counter()
        if now > self._end_of_stage:
            raise _TimeIsUp("time was up")
        if now - self._told >= _PAUSE:
            self._tell()

    def look(self, plan: Sequence[tuple[str, Callable[[], None]]]) -> None:
        """All stages of an audit, one after the other."""
        self._planned = list(dict.fromkeys(name for name, _ in plan))
        for name, look in plan:
            self._look(name, look)

    def _look(self, name: str, look: Callable[[], None]) -> None:
        """One stage, within its share of the time. What raises where it did not before ends the audit; what takes too long ends the stage."""
        evidence = self.evidence
        if not evidence.complete:
            return
        self._stage = name
        self._tell()
        now = time.perf_counter()
        share = _WHOLE if self.effort.separate == 1 and name == "looking at the inputs" else STAGES[name]
        self._end_of_stage = now + share * max(0.0, self._end - now) if math.isfinite(self._end) else math.inf
        try:
            look()
        except _TimeIsUp:
            self._settle()
            evidence.left_out.append(f"{name}: time was up")
            if name == "looking at the inputs" and not self._all_arguments_seen():
                self.evidence = incomplete(evidence, f"time was up while {name}: raise `seconds` to look at all of it")
        except Exception as error:
            if not isinstance(error, Stopped):
                if error is self.subject.failed:
                    error.add_note(f"raised by fn or its backward, by call {self.subject.evaluations} of an audit, while {name}")
                if error is not self.subject.failed or not isinstance(error, (*OUTSIDE, MemoryError)):
                    raise
            self._settle()
            why = str(error) if isinstance(error, Stopped) else f"fn raises {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            evidence.left_out.append(f"what comes after {name}: {why}")
            self.evidence = incomplete(evidence, f"the audit stopped while {name}: {why}")
        finally:
            self._end_of_stage = math.inf  # what is drawn in the end calls nothing that is not known

    def _all_arguments_seen(self) -> bool:
        seen = {observation.argument for observation in self.evidence.observations}
        if self.effort.separate == 1:
            return ALONG in seen or len(self.subject.names) == 1
        return {name for name, _ in groups(self.subject.names, self.effort.separate)} - seen <= {"all tensors"}

    def _collect(self, observations: Iterable[Observation]) -> None:
        """Takes the observations of one state one by one, so that an interruption loses none."""
        self.pending = []
        for observation in observations:
            self.pending.append(observation)
        self._settle()

    def _settle(self) -> None:
        self.evidence.observations += settled(self.pending)
        self.pending = []

    def so_far(self) -> Report:
        """The report of an audit that was stopped here. The callable is not called any more."""
        made = copy.copy(self)
        made.evidence = incomplete(self.evidence, f"stopped while {self._stage}: what comes after that was not looked at")
        made.evidence.observations = [*self.evidence.observations, *settled(self.pending)]
        return made.report()

    # Looking ----------------------------------------------------------------------------------------------------------

    def structure(self) -> None:
        for finding in structural_findings(self.subject, self.generator, brief=self.effort_name == "whole"):
            self.evidence.findings.append(finding)
        self.evidence.structure = True

    def inputs(self) -> None:
        known = any(
            finding.severity == "alarm" for finding in self.evidence.findings
        )  # then there is a verdict, and one line for each argument is enough
        effort = replace(self.effort, relative=min(1, self.effort.relative), even=0) if known else self.effort
        self._collect(observe(self.subject, self.subject.tensors, "the inputs", effort, self.generator))
        self._read_as_symmetric(effort)

    def _read_as_symmetric(self, effort: Effort) -> None:
        """Where a gradient is off at matrices that are exactly symmetric, looks once more within the symmetric ones."""
        subject, evidence = self.subject, self.evidence
        off = defective(evidence.observations, 1)
        places = [i for i, x in enumerate(subject.tensors) if i not in subject.constraints and is_exactly_symmetric(x)]
        if not off or not places:
            return
        before, subject.constraints = subject.constraints, subject.constraints | dict.fromkeys(places, as_constraint("symmetric"))
        within = settled(list(observe(subject, subject.tensors, "the inputs", effort, self.generator)))
        if defective(within, 1):
            subject.constraints = before
            return
        evidence.observations = within
        named = ", ".join(subject.names[i] for i in places)
        relative = max(observation.reading.relative for observation in off)
        triangle = all(_reads_one_triangle(subject, i) for i in places)
        text = f"within the symmetric matrices the gradient is right; out of them it is off by {relative:.2g} of its size"
        if triangle:
            text += ", where the value reads one triangle alone: it is taken for a function of symmetric matrices"
        else:
            text += ": say which is meant, with constraints='symmetric', or with an input that is not symmetric"
        evidence.findings.append(Finding("constraint", "note" if triangle else "warning", text, named, {"relative": relative}))

    def domain(self, domain: dict[int, Any]) -> None:
        """States drawn from the domain, every interval from end to end, and all of them at once."""
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
        self.evidence.scans.append((name, found, line))
        for reading in found.readings:
            place = f"{name} = {reading.middle:.6g}" if regions else f"sweep {sweep} of the domain, t = {reading.middle:.6g}"
            self.evidence.observations.append(Observation(place, name, reading, line, 1.0 if regions else None))
        if regions:
            self.evidence.regions[name] = found.regions

    def second_order(self) -> None:
        """The second backward, if there is one and the first is right; one that raises is safe."""
        if self.evidence.precision is not None or not self.subject.connected or defective(self.evidence.observations, 1):
            return
        refused = refusal(self.subject, random_cotangent(self.subject.outputs, self.generator))
        if refused:
            self.evidence.refused = refused
            self.evidence.findings.append(Finding("note", "note", f"second derivatives raise instead of being wrong silently: {refused}"))
            return
        self.evidence.findings.extend(not_numbers(self.subject))
        self._collect(observe_second(self.subject, self.subject.tensors, self.effort, self.generator))

    def precision(self, reference: Callable[..., Any] | None, *, second_order: bool) -> None:
        """In half precision: the gradient beside that of float64, and the second derivative there, where rounding does not hide it."""
        evidence, subject = self.evidence, self.subject
        alarms = any(finding.severity == "alarm" for finding in evidence.findings)
        if not subject.connected or evidence.intent is not None or alarms or defective(evidence.observations, 1):
            return
        in_float64 = self._in_float64(subject.fn if subject.is_whole else None, second_order=second_order)
        if isinstance(in_float64, str) and reference is not None:
            in_float64 = self._in_float64(reference, second_order=False)
        if isinstance(in_float64, str):
            evidence.left_out.append(f"half precision beside float64: {in_float64}")
            return
        wide, report = in_float64
        off = next((judgement.relative for judgement in report.verdicts if judgement.verdict is Verdict.INCOHERENT), 0.0)
        with wide:
            beside = None if reference is None else Subject(reference, subject.arguments())
            found = examine_precision(subject, wide, self.further, beside, max(evidence.tolerance, off))
        if off > found.limit:
            found.result = "wrong"
            text = f"in float64, where more can be seen, the gradient is off by {off:.3g}"
            found.findings.append(Finding("precision", "alarm", text, "", {"relative": off, "error": 0.0}))
        evidence.precision = found
        evidence.findings += [
            *found.findings,
            *(replace(f, text=f"in float64, {f.text}") for f in report.findings if f.kind == "second-order"),
        ]
        evidence.second = report.checks["second order"]

    def _in_float64(self, fn: Callable[..., Any] | None, *, second_order: bool) -> tuple[Subject, Report] | str:
        """A function in float64 and the report on it there, or why there is none."""
        if fn is None:
            return "fn uses a module that is not its own, so that it cannot be run in float64: give reference="
        self.subject.restore()
        fn = copy.deepcopy(fn).double() if isinstance(fn, torch.nn.Module) else fn
        arguments = pytree.tree_map_only(torch.Tensor, _doubled, self.subject.arguments())
        left = self._end_of_stage - time.perf_counter()
        options: dict[str, Any] = {"seconds": max(0.1, left / 2) if math.isfinite(left) else None, "seed": self.seed}
        try:
            report = self._again(fn, arguments, effort="quick", second_order=second_order, transforms=False, consequences=False, **options)
            wide = Subject(fn, arguments)
        except Stopped:
            raise
        except Exception as error:  # of any kind: what a function does with a dtype that it does not take
            return f"in float64 it raises {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        if any(output.dtype in HALF_DTYPES for output in wide.outputs):
            return "its outputs are in half precision in float64 too"
        if report.verdict is Verdict.INCONCLUSIVE:
            return f"nothing can be said of it there: {report.headline}"
        return wide, report

    def compiled(self, backend: str) -> None:
        """The compiled function beside the eager one."""
        evidence = self.evidence
        if any(finding.kind == "not-reentrant" for finding in evidence.findings):
            return
        second = any(map(tells, of_order(evidence.observations, 2)))
        found = examine_compiled(self.subject, backend, self.further, second=second)
        evidence.transforms["compiled"] = found.result
        evidence.findings += found.findings
        if found.why:
            evidence.left_out.append(f"the compiled function: {found.why}")

    def transforms(self) -> None:
        """Forward mode and vmap, where custom Functions have rules for them. What is declared is about the backward, and they may go by the value."""
        evidence = self.evidence
        if (
            not self.subject.connected
            or evidence.intent is not None
            or any(finding.kind == "not-reentrant" for finding in evidence.findings)
        ):
            return
        second = any(map(tells, of_order(evidence.observations, 2))) and not defective(evidence.observations, 2)
        first = not defective(evidence.observations, 1)
        found = examine_transforms(self.subject, self.further, first=first, second=second, all_functions=self.effort_name == "thorough")
        evidence.transforms |= found.results
        evidence.findings += found.findings

    def sizes(self) -> None:
        """How far the gradients are off, and whether the value moves in steps, where there is a defect."""
        evidence, subject = self.evidence, self.subject
        first = defective(evidence.observations, 1)
        if not first:
            return
        cotangent = random_cotangent(subject.outputs, torch.Generator().manual_seed(0))  # the same for every seed
        if any(observation.state == "the inputs" for observation in first):
            candidate = differentiated(subject, cotangent)
            gradients = Gradients(subject, subject.tensors, cotangent)
            named = {observation.argument for observation in first}
            places = [i for i, name in enumerate(subject.names) if name in named or len(subject.names) <= _MEASURED or i < 2]
            for place in places:
                measured = gradients.measure(place, candidate)
                evidence.gradients += [measured] if measured is not None else []
        for argument, group in by_argument(first):
            worst = worst_of(group)
            if worst.state == "the inputs" or argument not in subject.names:
                continue
            point = worst.line.path.point(worst.reading.middle)
            measured = Gradients(subject, point, worst.line.cotangent).measure(subject.names.index(argument))
            if measured is not None:
                evidence.sizes[argument] = measured
        defects = [f for f in first_order_findings(evidence) if f.kind == "defect" and f.severity == "alarm"]
        if any(finding.numbers["relative"] >= STEPS_LIKE for finding in defects):
            worst = worst_of(first)
            if worst.reading.middle == 0 or evidence.intent is not None:
                evidence.straight = self._straight(worst)

    def _straight(self, worst: Observation) -> StraightThrough:
        """Whether the value moves in steps that the gradient accounts for over long distances, along the worst line or one of two others through the state."""
        declared = self.evidence.intent is not None
        found = straight_through(worst.line, declared=declared)
        for _ in range(2):
            if found.falls or found.jump is not None or worst.state != "the inputs":
                break
            cotangent = random_cotangent(self.subject.outputs, self.generator)
            line, _ = line_through(
                self.subject, self.subject.tensors, range(len(self.subject.tensors)), cotangent, self.generator, relative=True
            )
            other = straight_through(line, declared=declared)
            found = other if other.falls or other.jump is not None else found
        return found

    # Causes -----------------------------------------------------------------------------------------------------------

    def consequences(self) -> None:
        """Where an incoherent gradient comes from, and what it does."""
        evidence = self.evidence
        wrong = defective(evidence.observations, 1) or defective(evidence.observations, 2)
        blamed = any(finding.severity == "alarm" and finding.kind in ("layout", "rounds", "not-linear") for finding in evidence.findings)
        if conclude(evidence).passed or not (wrong or blamed):
            return
        self.nodes = nodes(self.subject, worst_of(wrong) if wrong else None, self._audit_node)
        evidence.findings += node_findings(self.subject, self.nodes)
        inside = [verdict for verdict in self.nodes if verdict.declared is not None]
        evidence.declared = {verdict.visit.name: verdict.declared for verdict in inside if verdict.declared is not None}
        evidence.accounted = bool(inside) and all(verdict.coherent or verdict.declared is not None for verdict in self.nodes)
        self.picture = slope_picture(self.subject, evidence.scans)
        at_inputs = [observation for observation in defective(evidence.observations, 1) if observation.state == "the inputs"]
        if not at_inputs or (evidence.straight is not None and evidence.straight.like):
            return
        consistent = consistent_gradient(evidence.gradients, len(self.subject.tensors))
        if consistent is not None:
            evidence.findings += scaling_findings(self.subject, consistent)
        evidence.findings += field_findings(self.subject, self.seed)
        if consistent is not None and consistent.method == "forward":
            evidence.findings += fork_findings(self.subject, self.subject.module)
        self.picture = self.picture or field_picture(self.subject, consistent, seed=self.seed)

    def _audit_node(self, fn: Callable[..., Any], arguments: Any, intent: str | None) -> Report:
        left = self._end_of_stage - time.perf_counter()
        seconds = max(0.1, left / 4) if math.isfinite(left) else None
        second = bool(defective(self.evidence.observations, 2))
        options: dict[str, Any] = {"second_order": second, "consequences": False, "intent": intent, "seed": self.seed, "seconds": seconds}
        return self._again(fn, arguments, effort="quick", **options)

    # Reporting --------------------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """Of the evidence, and of nothing else."""
        evidence, subject = self.evidence, self.subject
        concluded = conclude(evidence)
        limits = [*best_limits(evidence.observations).values()]
        if evidence.precision is not None and evidence.precision.result == "right":
            limits = [evidence.precision.limit]
        lines = {id(observation.line): observation.line for observation in evidence.observations}
        tests = DEGREE * sum(line.panels for line in lines.values())
        guilty = [verdict.visit for verdict in self.nodes if verdict.guilty]
        return Report(
            name=subject.name,
            verdict=concluded.verdict,
            passed=concluded.passed,
            intent=concluded.intent,
            limit=max(limits, default=math.inf),
            typical_limit=statistics.median(limits) if limits else math.inf,
            defect=concluded.defect,
            defect_error=concluded.defect_error,
            findings=concluded.findings,
            states=tuple(state_defect(observation) for observation in evidence.observations),
            regions=evidence.regions,
            false_alarm_rate=FALSE_ALARM_RATE * max(1.0, tests / TESTS),
            tests=tests,
            evaluations=subject.evaluations,
            seconds=time.perf_counter() - self._started,
            dtype=str(evidence.dtype).removeprefix("torch."),
            seed=self.seed,
            effort=self.effort_name,
            complete=evidence.complete,
            curves=loudest_curves(evidence.observations),
            picture=self.picture,
            verdicts=concluded.verdicts,
            gradients=tuple(_argument_gradient(subject.names[m.place], m) for m in evidence.gradients),
            checks=concluded.checks,
            left_out=tuple(evidence.left_out),
            scales=_scales(evidence.observations),
            hint=hint(evidence.gradients, subject) if not concluded.passed else "",
            place="; ".join(f"{visit.name} ({visit.location})" if visit.location else visit.name for visit in guilty[:1]),
        )


def _doubled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().double().requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else tensor


class _TimeIsUp(Stopped):
    """The budget of a stage is used up."""


def _argument_gradient(name: str, m: Measured) -> ArgumentGradient:
    return ArgumentGradient(name, m.relative, m.error, m.factor, m.index, m.supplied, m.true, m.method)


def _scales(observations: Sequence[Observation]) -> tuple[float, float]:
    """The shortest and the longest distance from a state, over the size of the argument, at which something was resolved."""
    readings = [observation.reading for observation in observations if tells(observation) and observation.order == 1]
    short = [reading.slope.shortest for reading in readings if reading.slope is not None and reading.slope.limit <= TELLING]
    panels = [reading.panel.half for reading in readings if reading.panel is not None and reading.slope is not None]
    return min([*short, *panels], default=math.nan), max(panels, default=math.nan)


def _reads_one_triangle(subject: Subject, place: int) -> bool:
    """Whether the value does not change by a bit when one of the two triangles of a matrix does, and the gradient is symmetric, as is usual then."""
    matrix, cotangent = subject.tensors[place], random_cotangent(subject.outputs, torch.Generator().manual_seed(0))
    gradient = subject.pull(subject.tensors, cotangent).gradients[place]
    if float((gradient - gradient.mT).norm()) > 1e-3 * float(gradient.norm()):
        return False
    noise = torch.rand(matrix.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(matrix)
    for triangle in (noise.triu(1), noise.tril(-1)):
        moved = matrix + 0.125 * scales(matrix, relative=False).to(matrix) * (triangle + triangle.sign())
        outputs = guarded(subject, lambda moved=moved: subject.outputs_at((*subject.tensors[:place], moved, *subject.tensors[place + 1 :])))
        if outputs is not None and all(torch.equal(a, b) for a, b in zip(outputs, subject.outputs, strict=True)):
            return True
    return False
