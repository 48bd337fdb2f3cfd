"""What can be checked without derivatives: repeatability, linearity in the cotangent, edits in place."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from pairgrad.coherence.judge.verdict import Finding
from pairgrad.coherence.measure.limits import coarsest
from pairgrad.coherence.measure.path import random_cotangent
from pairgrad.coherence.subject.subject import Point, Subject, supplied

# Largest relative difference that rounding can make between results that are equal on paper: the backward may cancel.
SLACK = {torch.float64: 2.0**-32, torch.float32: 2.0**-12, torch.float16: 2.0**-5, torch.bfloat16: 2.0**-3}


def structural_findings(subject: Subject, generator: torch.Generator) -> list[Finding]:
    """What is wrong apart from the derivative: results that are not finite or not repeated, a backward that is not linear, edits in place."""
    dtype = coarsest([tensor.dtype for tensor in (*subject.tensors, *subject.outputs)])
    slack = SLACK[dtype]
    cotangent = random_cotangent(subject.outputs, generator)
    findings = [*_non_finite(subject, cotangent), *_repeated(subject, cotangent, slack)]
    if subject.connected:
        findings += [*_backward_twice(subject, cotangent, slack), *_linearity(subject, cotangent, generator, slack, dtype)]
        findings += _undefined(subject, cotangent, slack)
    findings += [Finding("edits", "alarm", "is edited in place", name) for name in subject.calls_edit(cotangent)]
    if subject.random:
        findings.append(Finding("note", "note", "draws random numbers: every call of the audit starts from the same generator state"))
    return findings


def _non_finite(subject: Subject, cotangent: Point) -> list[Finding]:
    evaluation = subject.pull(subject.tensors, cotangent)
    finite = all(bool(torch.isfinite(output).all()) for output in evaluation.outputs)
    found = []
    for name, gradient in zip(subject.names, evaluation.gradients, strict=True):
        bad = int((~torch.isfinite(gradient)).sum())
        if not bad or not finite:
            continue
        severity, text = "alarm", f"the gradient is not finite at {bad} of {gradient.numel()} elements although the value is"
        if _is_vertical(subject, cotangent, subject.names.index(name), gradient):
            severity = "warning"
            text = f"the gradient is infinite at {bad} of {gradient.numel()} elements, where the value itself is infinitely steep"
        found.append(Finding("non-finite", severity, text, name, {"elements": bad}))
    return found


def _is_vertical(subject: Subject, cotangent: Point, index: int, gradient: torch.Tensor, most: int = 4) -> bool:
    """Whether the first elements with an infinite gradient have quotients of differences that grow without end, with its sign: sqrt at 0."""
    places = (~torch.isfinite(gradient.reshape(-1))).nonzero().flatten().tolist()
    if bool(gradient.isnan().any()):
        return False
    start = _weighted(subject, subject.tensors, cotangent)
    for place in places[:most]:
        sign = float(gradient.reshape(-1)[place].sign())
        if not any(_steeper(subject, cotangent, index, place, side, sign, start) for side in (1.0, -1.0)):
            return False
    return True


def _steeper(subject: Subject, cotangent: Point, index: int, place: int, side: float, sign: float, start: float) -> bool:
    quotients = []
    for step in (2.0**-8, 2.0**-14, 2.0**-20):
        moved = subject.tensors[index].clone(memory_format=torch.contiguous_format)
        moved.view(-1)[place] += side * step
        width = float(moved.view(-1)[place] - subject.tensors[index].reshape(-1)[place])
        try:
            value = _weighted(subject, (*subject.tensors[:index], moved, *subject.tensors[index + 1 :]), cotangent)
        except Exception:
            return False
        quotients.append(sign * (value - start) / width if width else math.nan)
    return 0 < 1.2 * quotients[0] < quotients[1] and 1.2 * quotients[1] < quotients[2] < math.inf


def _weighted(subject: Subject, point: Point, cotangent: Point) -> float:
    return sum(float((output.double() * weight).sum()) for output, weight in zip(subject.outputs_at(point), cotangent, strict=True))


def _repeated(subject: Subject, cotangent: Point, slack: float) -> list[Finding]:
    """Two calls at one state, with everything put back that can be put back."""
    first, second = (subject.pull(subject.tensors, cotangent) for _ in range(2))
    value, gradient = apart(first.outputs, second.outputs), apart(first.gradients, second.gradients)
    numbers, most = {"value": value, "gradient": gradient}, max(value, gradient)
    if most > slack:
        what = "value" if value > slack else "gradient"
        text = f"a second call at the same state gives another {what}, off by {most:.2g} of its size"
        return [Finding("not-reentrant", "alarm", text, "", numbers)]
    text = f"two calls at the same state differ by {most:.2g} of their size"
    return [Finding("nondeterministic", "note", text, "", numbers)] if most else []


def _backward_twice(subject: Subject, cotangent: Point, slack: float) -> list[Finding]:
    """Two backwards through one graph."""
    outputs, leaves = subject.graph()
    try:
        first = tuple(gradient.clone() for gradient in supplied(outputs, leaves, cotangent, retain_graph=True))
    except RuntimeError as error:  # compiled graphs may give their buffers away in the first backward
        return [Finding("note", "note", f"the graph can be gone through once only: {str(error).splitlines()[0]}")]
    try:
        second = supplied(outputs, leaves, cotangent, retain_graph=True)
    except RuntimeError as error:
        text = f"a second backward through the same graph raises: {str(error).splitlines()[0]}"
        return [Finding("not-reentrant", "alarm", text)]
    difference = apart(first, second)
    if difference > slack:
        text = f"a second backward through the same graph gives another gradient, off by {difference:.2g} of its size"
        return [Finding("not-reentrant", "alarm", text, "", {"gradient": difference})]
    return []


def _linearity(subject: Subject, cotangent: Point, generator: torch.Generator, slack: float, dtype: torch.dtype) -> list[Finding]:
    """backward(a u + b w) = a backward(u) + b backward(w)."""
    other = tuple(
        random_cotangent([output], generator)[0] if output.numel() > 1 else -0.375 * torch.ones_like(output) for output in subject.outputs
    )
    at = subject.tensors
    first, second = subject.pull(at, cotangent).gradients, subject.pull(at, other).gradients
    if not (math.isfinite(norm(first)) and math.isfinite(norm(second))):
        return []  # that is another matter
    large = 8.0 if dtype in (torch.float16, torch.bfloat16) else 1024.0
    factors = {"zero": 0.0, "a negative multiple": -2.0, "a large multiple": large, "a small multiple": 1 / large}  # powers of two: exact
    cases = {name: (tuple(factor * u for u in cotangent), tuple(factor * g for g in first)) for name, factor in factors.items()}
    cases["a sum"] = tuple(u + w for u, w in zip(cotangent, other, strict=True)), tuple(g + h for g, h in zip(first, second, strict=True))
    noise = _own_rounding(subject, cotangent, first, dtype) + _own_rounding(subject, other, second, dtype)
    worst, of = 0.0, ""
    for name, (weights, expected) in cases.items():
        got = subject.pull(at, weights).gradients
        if name == "a large multiple" and not math.isfinite(norm(got)):
            continue  # too large for a narrower dtype inside
        apart_by = norm([g - e for g, e in zip(got, expected, strict=True)])
        if apart_by == 0 or apart_by <= 16 * noise * abs(factors.get(name, 2.0)):
            continue
        size = max(
            norm(expected), norm(first) * (1.0 if name != "a small multiple" else 1 / large), norm(second) if name == "a sum" else 0.0
        )
        off = apart_by / (size or apart_by)  # where nothing was expected, all that came is off
        off = off if math.isfinite(off) else math.inf
        if off > worst:
            worst, of = off, name
    if worst > slack:
        text = f"the backward is not linear in grad_output: for {of} of it, it is off by {worst:.2g} of its size"
        return [Finding("not-linear", "alarm", text, "", {"relative": worst})]
    return []


def _undefined(subject: Subject, cotangent: Point, slack: float) -> list[Finding]:
    """An output that nobody uses has no cotangent: None, if the backward does not have it materialized; it must do what zeros do."""
    found = []
    for i, name in enumerate(subject.output_names):
        if len(subject.outputs) == 1:
            break
        outputs, leaves = subject.graph()
        if not outputs[i].requires_grad:
            continue
        try:
            alone = supplied([outputs[i]], leaves, [cotangent[i]])
        except (RuntimeError, TypeError, AttributeError) as error:
            text = f"the backward raises if {name} alone is used, where the cotangents of the others are None: {str(error).splitlines()[0]}"
            found.append(Finding("undefined", "alarm", text))
            continue
        zeros = tuple(u if k == i else torch.zeros_like(u) for k, u in enumerate(cotangent))
        off = apart(alone, subject.pull(subject.tensors, zeros).gradients)
        if off > slack:
            text = f"if {name} alone is used, where the cotangents of the others are None, the gradient is off by {off:.2g} of its size"
            found.append(Finding("undefined", "alarm", text, "", {"relative": off}))
    return found


def _own_rounding(subject: Subject, cotangent: Point, gradients: Point, dtype: torch.dtype) -> float:
    """How far the backward of cotangents that differ by a little is from proportional: its rounding, and next to nothing of what is really not linear."""
    step = {torch.float64: 2.0**-20, torch.float32: 2.0**-10}.get(dtype, 2.0**-3)
    worst = 0.0
    for k in (1, 3, 5, 7):
        factor = 1 + k * step
        got = subject.pull(subject.tensors, tuple(factor * u for u in cotangent)).gradients
        off = norm([g.double() / factor - e for g, e in zip(got, gradients, strict=True)])
        worst = max(worst, off if math.isfinite(off) else 0.0)
    return worst


def norm(tensors: Sequence[torch.Tensor]) -> float:
    """Of all tensors together, without overflow of the squares."""
    largest = max((float(tensor.double().abs().max()) for tensor in tensors if tensor.numel()), default=0.0)
    if largest == 0 or not math.isfinite(largest):
        return largest
    return largest * math.sqrt(sum(float((tensor.double() / largest).square().sum()) for tensor in tensors))


def apart(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> float:
    """Largest relative difference of two lists of tensors, tensor by tensor; infinite where only one is finite."""
    worst = 0.0
    for a, b in zip(first, second, strict=True):
        if torch.equal(torch.isnan(a), torch.isnan(b)) and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)):
            continue
        size = max(norm([a]), norm([b]))
        off = norm([a - b]) / size
        worst = max(worst, off if math.isfinite(off) else math.inf)
    return worst
