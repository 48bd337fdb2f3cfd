"""Whether a second backward is refused: then it cannot be wrong in silence. And whether it gives numbers where the gradient has a derivative."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from pairgrad.coherence.finding import Finding
from pairgrad.coherence.measure.path import OUTSIDE, random_cotangent
from pairgrad.coherence.subject.backward import supplied
from pairgrad.coherence.subject.curves import random_signs
from pairgrad.coherence.subject.subject import Point, Subject

# Nodes that torch puts where a backward is marked once_differentiable, or has no derivative, are called these, or begin with NotImplemented.
_PLACES = 4  # elements whose differences are taken
_SETTLED = (
    0.1  # of the quotients: those of a derivative come nearer to each other than that, and those of a leap grow 16 times with each step
)
_REFUSALS = ("Error", "DelayedError")


def refusal(subject: Subject, cotangent: Point) -> str:
    """Why differentiating the gradient is refused, or an empty string if it is not.

    A backward marked `once_differentiable` hands back gradients whose node raises, but only if its grad_output asks for a gradient, and the node has no edge to
    the arguments: `autograd.grad(..., allow_unused=True)` would take it for a zero. So the cotangent asks, and the graph is searched for such nodes.

    Only the second backward may refuse. If the forward or the first backward fails, or memory is short, nothing is known: `Subject.outside` ends the audit.
    """
    subject.pull(subject.tensors, cotangent)
    outputs, leaves = subject.graph()
    asking = tuple(weight.detach().clone().requires_grad_() for weight in cotangent)
    try:
        gradients = supplied(outputs, leaves, asking, create_graph=True)
        found = _search(gradients)
        if found:
            return found
        total = [gradient.double().sum() for gradient in gradients if gradient.requires_grad]
        if total:
            torch.autograd.grad(sum(total), [*leaves, *asking], allow_unused=True)  # pyright: ignore[reportArgumentType, reportCallIssue]
    except OUTSIDE as error:
        subject.outside(error)
        return (str(error).splitlines() or [type(error).__name__])[0]
    return ""


def not_numbers(subject: Subject) -> Iterator[Finding]:
    """Infinite or undefined second derivatives at the inputs, where quotients of differences of the gradient settle on a number.

    Where they do not settle, as at the origin of a norm, there is no second derivative to supply, and nothing is found.
    """
    generator = torch.Generator().manual_seed(0)
    cotangent = random_cotangent(subject.outputs, generator)
    weights = tuple(random_signs(tensor, generator) for tensor in subject.tensors)
    made = subject.pull_twice(subject.tensors, cotangent, weights)
    if not all(bool(torch.isfinite(output).all()) for output in made.outputs):
        return
    for index, name in enumerate(subject.names):
        places = (~torch.isfinite(made.gradients[index].reshape(-1))).nonzero().flatten().tolist()
        if any(_settles(subject, cotangent, weights, index, place) for place in places[:_PLACES]):
            of = made.gradients[index].numel()
            text = f"the gradient is right, but the second derivative is not finite at {len(places)} of {of} elements, where differences of the gradient are"
            yield Finding("second-order", "alarm", text, name, {"relative": math.inf, "error": math.inf, "elements": len(places)})


def _settles(subject: Subject, cotangent: Point, weights: Point, index: int, place: int) -> bool:
    """Whether the weighted gradient has a derivative in one element: one-sided quotients of two steps agree."""
    one = subject.tensors[index]
    unit = max(float(one.abs().max()), 2.0**-20)

    def gradient(shift: float) -> float:
        moved = one.clone(memory_format=torch.contiguous_format)
        moved.view(-1)[place] += shift
        found = subject.pull((*subject.tensors[:index], moved, *subject.tensors[index + 1 :]), cotangent).gradients
        return math.fsum(float((g.double() * w).sum()) for g, w in zip(found, weights, strict=True))

    coarse = torch.finfo(one.dtype).eps > 1e-10
    steps = [unit * 2.0**-k for k in ((6, 8) if coarse else (12, 16))]
    try:
        start = gradient(0.0)
        quotients = [side * (gradient(side * h) - start) / h for h in steps for side in (1.0, -1.0)]
    except OUTSIDE:
        return False
    size = max(map(abs, quotients))
    return math.isfinite(size) and max(quotients) - min(quotients) <= _SETTLED * size


def _search(gradients: Point) -> str:
    waiting = [gradient.grad_fn for gradient in gradients if gradient.grad_fn is not None]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        name = node.name().rsplit("::", 1)[-1]
        if name in _REFUSALS or name.startswith("NotImplemented"):
            return "a backward is marked once_differentiable"
        waiting += [following for following, _ in node.next_functions]
    return ""
