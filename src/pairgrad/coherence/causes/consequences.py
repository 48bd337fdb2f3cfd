"""Where an incoherent gradient comes from, whether it is only a matter of length, whether it is the gradient of anything, and what it does to training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

from pairgrad.coherence.causes.consistent import differentiated_forward
from pairgrad.coherence.causes.field import antisymmetry, circulation
from pairgrad.coherence.causes.fork import best_scaling, fork
from pairgrad.coherence.causes.nodes import Visit, replay, reproduced
from pairgrad.coherence.causes.recorder import is_reached, visits
from pairgrad.coherence.finding import Finding
from pairgrad.coherence.judge.verdict import Verdict
from pairgrad.coherence.measure.explore import Observation
from pairgrad.coherence.measure.gradient import Measured
from pairgrad.coherence.subject.intent import intent_of
from pairgrad.coherence.subject.subject import Point, Stopped, Subject

UPDATES = 32  # of the fork
_SAME = 1e-3  # how near the factors of all rows must be to the factor of the whole, over its distance from 1, to be left out
EXACT_FIELD = 128  # coordinates up to which the Jacobian of the field is taken whole


class Audited(Protocol):
    """What is needed of the report on a single Function."""

    @property
    def passed(self) -> bool: ...
    @property
    def headline(self) -> str: ...
    @property
    def defect(self) -> float: ...
    @property
    def verdict(self) -> Verdict: ...


_Report = TypeVar("_Report", bound=Audited)
AuditNode = Callable[[Callable[..., Any], Any, str | None], _Report]  # callable, arguments, declared intent


@dataclass(frozen=True)
class NodeVerdict:
    """A custom backward met on the way, audited alone."""

    visit: Visit
    reports: tuple[Audited, ...]
    constant: bool = False  # its value does not depend on its arguments
    unlike: str = ""  # why it was not judged: applied again, it does not do what it did

    @property
    def declared(self) -> str | None:
        """What it is declared as, if that accounts for what was measured."""
        intent = intent_of(self.visit.function)
        return intent if intent is not None and all(report.passed for report in self.reports) else None

    @property
    def coherent(self) -> bool:
        """Whether it was judged, and nothing speaks against it."""
        return self.declared is None and not self.unlike and (self.constant or all(report.passed for report in self.reports))

    @property
    def guilty(self) -> bool:
        """Whether it was judged, and is wrong."""
        return self.declared is None and not self.unlike and not self.coherent


def nodes(subject: Subject, worst: Observation | None, audit_node: AuditNode[Audited]) -> list[NodeVerdict]:
    """The custom Functions that one backward at the worst state, or at the inputs, goes through, each audited alone at the arguments it got there."""
    point, cotangent = subject.tensors, tuple(torch.ones_like(output) for output in subject.outputs)
    if worst is not None:
        point = worst.line.path.point(worst.reading.middle)[: len(subject.tensors)]  # a second derivative is taken in the cotangent too
        cotangent = worst.line.cotangent if worst.order == 1 else cotangent
    met = visits(lambda: subject.pull(point, cotangent), limit=2)
    by_function: dict[type, list[Visit]] = {}
    for visit in met:
        by_function.setdefault(visit.function, []).append(visit)
    found = []
    for group in by_function.values():
        reports, constant, unlike = [], False, ""
        for visit in group:
            try:
                off = reproduced(visit)
                if off:
                    unlike = f"applied again to what it got here, it sends on another gradient (off by {off:.2g})"
                    break
                report = alone(visit, audit_node)
            except Stopped:
                raise
            except Exception as error:  # arguments of a class of its own, which came back as plain tensors, may fail in any way
                unlike = f"it cannot be applied alone: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
                continue
            if report is None:
                constant = True
                break
            reports.append(report)
        found.append(NodeVerdict(group[0], tuple(reports), constant, "" if reports or constant else unlike))
    return found


def alone(visit: Visit, audit_node: AuditNode[_Report]) -> _Report | None:
    """The audit of a node at the arguments of a visit; None if its value does not depend on them."""
    fn, arguments = replay(visit)
    return None if _is_constant(fn, arguments) else audit_node(_reached(fn, visit), arguments, intent_of(visit.function))


def _is_constant(fn: Callable[..., Any], arguments: Any) -> bool:
    """Whether moving the differentiated arguments leaves every bit of the value as it is."""
    subject = Subject(fn, arguments)
    for factor, shift in ((1.25, 0.125), (7.0, 3.0), (-5.0, -2.0)):
        moved = tuple(tensor * factor + shift for tensor in subject.tensors)
        if not all(torch.equal(a, b) for a, b in zip(subject.outputs, subject.outputs_at(moved), strict=True)):
            return False
    return True


def _reached(fn: Callable[..., Any], visit: Visit) -> Callable[..., Any]:
    """The node with only those outputs that a gradient came back to: what it does with others is nobody's business here."""
    used = [i for i, cotangent in enumerate(visit.cotangents) if is_reached(cotangent)]
    if len(visit.cotangents) == 1 or not used:
        return fn

    def apply(*arguments: Any) -> Any:
        outputs = fn(*arguments)
        return tuple(outputs[i] for i in used)

    return apply


def node_findings(subject: Subject, verdicts: Sequence[NodeVerdict]) -> list[Finding]:
    """What the audits of single custom Functions say, one finding each."""
    found = []
    for verdict in verdicts:
        visit, bad = verdict.visit, [report for report in verdict.reports if not report.passed]
        place = f"{visit.name} ({visit.location})" if visit.location else visit.name
        numbers = {"location": visit.location, "visits": len(verdict.reports), "incoherent_visits": len(bad)}
        if verdict.unlike:
            found.append(Finding("node", "note", f"not judged: {verdict.unlike}", place, {"location": visit.location}))
        elif verdict.constant:
            text = "hands on a gradient that was computed beforehand: its own value does not depend on its arguments, so it cannot be judged alone"
            found.append(Finding("node", "note", text, place, {"location": visit.location}))
        elif len(verdicts) == 1 and subject.name == f"{visit.name}.apply":
            found.append(Finding("node", "note", "this is the custom backward that was audited", place, numbers))
        elif bad:
            worst = max(bad, key=lambda report: report.defect)
            text = f"audited alone: {worst.headline}, at {len(bad)} of {len(verdict.reports)} visits looked at"
            found.append(Finding("node", "warning", text, place, numbers | {"relative": worst.defect, "verdict": worst.verdict.value}))
        else:
            report = verdict.reports[0]
            declared = f", as declared: {verdict.declared}" if verdict.declared else ""
            found.append(
                Finding("node", "note", f"audited alone: {report.headline}{declared}", place, numbers | {"verdict": report.verdict.value})
            )
    return found


@dataclass(frozen=True, eq=False)
class Consistent:
    """The derivative of the value that is computed, at the inputs, and how it was measured: "forward" (its body differentiated) or "coordinates"."""

    supplied: Point
    gradient: Point
    method: str
    error: float  # relative


def differentiated(subject: Subject, cotangent: Point) -> Point | None:
    """What the gradients at the inputs are if the bodies of the forwards are differentiated; None where they cannot be. To be confirmed by differences."""
    try:
        with differentiated_forward():
            return subject.pull(subject.tensors, cotangent).gradients
    except RuntimeError:
        return None


def consistent_gradient(measured: Sequence[Measured], count: int) -> Consistent | None:
    """The gradients of all `count` arguments, if each of them is known in full."""
    known = {m.place: m for m in measured if m.gradient is not None}
    if len(known) < count:
        return None
    ordered = [known[place] for place in range(count)]
    method = "forward" if all(m.method == "forward" for m in ordered) else "coordinates"
    true = tuple(m.gradient for m in ordered if m.gradient is not None)
    return Consistent(tuple(m.given for m in ordered), true, method, max(m.error for m in ordered))


def scaling_findings(subject: Subject, consistent: Consistent) -> list[Finding]:
    """Whether the supplied gradient is the true one times a number (app:mechanism-interventions): overall, and sample by sample."""
    whole = best_scaling(consistent.supplied, consistent.gradient)
    factor, residual = float(whole.factor), float(whole.residual)
    numbers: dict[str, Any] = {"factor": factor, "residual": residual, "method": consistent.method, "error": consistent.error}
    text = f"the supplied gradient is {_factor(factor)} times the true gradient, up to {residual:.2g} of its length"
    batched = [i for i, tensor in enumerate(subject.tensors) if tensor.dim() >= 2 and len(tensor) > 1]
    if batched:
        i = batched[0]
        rows = best_scaling([consistent.supplied[i]], [consistent.gradient[i]], per_sample=True)
        assert isinstance(rows.factor, torch.Tensor)
        assert isinstance(rows.residual, torch.Tensor)
        low, high, left = float(rows.factor.min()), float(rows.factor.max()), float(rows.residual.median())
        numbers |= {"sample_factor_min": low, "sample_factor_max": high, "sample_residual_median": left}
        if max(high - factor, factor - low) > _SAME * abs(factor - 1) + 4 * consistent.error:
            text += f"; row by row of {subject.names[i]}, {_factor(low)} to {_factor(high)} times, up to {left:.2g} (median)"
    return [Finding("scaling", "note", text, "", numbers)]


def _factor(value: float) -> str:
    """A number near one by its distance from it."""
    return f"(1 {'+' if value > 1 else '-'} {abs(value - 1):.3g})" if 0 < abs(value - 1) < 1e-3 else f"{value:.6g}"


def field_findings(subject: Subject, seed: int) -> list[Finding]:
    """For a scalar value: whether the supplied field can be the gradient of anything (sec:ce-integrability)."""
    if len(subject.outputs) != 1 or subject.outputs[0].numel() != 1 or sum(tensor.numel() for tensor in subject.tensors) < 2:
        return []
    try:
        curl = antisymmetry(subject, exact_up_to=EXACT_FIELD, seed=seed)
        loop = circulation(subject, directions=curl, seed=seed)
    except (ValueError, RuntimeError):
        return []
    numbers = {
        "antisymmetry": curl.norm,
        "antisymmetry_error": curl.norm_error,
        "antisymmetry_share": curl.share,
        "circulation": loop.work,
        "circulation_error": loop.error,
        "not_a_gradient": loop.lower_bound_relative,
    }
    if not (curl.significant or loop.significant):
        text = f"the supplied field may be the gradient of some function: |J - J^T| = {curl.norm:.2g} (± {curl.norm_error:.1g})"
        return [Finding("field", "note", text, "", numbers | {"significant": False})]
    text = (
        f"the supplied field is the gradient of no function: |J - J^T| = {curl.norm:.4g} (± {curl.norm_error:.1g}, {curl.share:.2g} of J)"
    )
    if loop.significant:
        text += (
            f"; around a loop of radius {loop.radius:.2g} at least {loop.lower_bound_relative:.2g} of the update is no gradient of anything"
        )
    return [Finding("field", "warning", text, "", numbers | {"significant": True})]


def fork_findings(subject: Subject, module: torch.nn.Module | None) -> list[Finding]:
    """One update and a short training with the supplied and with the consistent gradient, from the same start."""
    if len(subject.outputs) != 1 or subject.outputs[0].numel() != 1:
        return []
    try:
        made = fork(subject.fn, subject.arguments(), steps=UPDATES, parameters=module)
    except (ValueError, RuntimeError):
        return []
    if not made.one_step:
        return []
    numbers: dict[str, Any] = {"steps": made.steps, "distance": float(made.distance[-1]), **made.one_step, "optimizer": made.optimizer}
    text = (
        f"from the same start, the first update differs by {made.one_step['update']:.3g} ({made.one_step['rescaled']:.2g} after the best rescaling), "
        f"and after {made.steps} updates ({made.optimizer}) the parameters are {float(made.distance[-1]):.3g} of their length apart"
    )
    return [Finding("fork", "note", text, "", numbers)]
