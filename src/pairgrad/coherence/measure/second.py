"""Whether a second backward is refused: then it cannot be wrong in silence."""

from __future__ import annotations

import torch

from pairgrad.coherence.measure.path import OUTSIDE
from pairgrad.coherence.subject.backward import supplied
from pairgrad.coherence.subject.subject import Point, Subject

# Nodes that torch puts where a backward is marked once_differentiable, or has no derivative, are called these, or begin with NotImplemented.
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
