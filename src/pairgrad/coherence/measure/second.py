"""Whether a second backward is refused: then it cannot be wrong in silence."""

from __future__ import annotations

import torch

from pairgrad.coherence.subject.subject import Point, Subject, supplied

# Nodes that torch puts where a backward is marked once_differentiable, or has no derivative, are called these, or begin with NotImplemented.
_REFUSALS = ("Error", "DelayedError")


def second_backward_raises(subject: Subject, cotangent: Point) -> str:
    """Why differentiating the gradient raises, or an empty string if it does not.

    A backward marked `once_differentiable` hands back gradients whose node raises, but only if its grad_output asks for a gradient, and the node has no edge to
    the arguments: `autograd.grad(..., allow_unused=True)` would take it for a zero. So the cotangent asks, and the graph is searched for such nodes.
    """
    outputs, leaves = subject.graph()
    asking = tuple(weight.detach().clone().requires_grad_() for weight in cotangent)
    gradients = supplied(outputs, leaves, asking, create_graph=True)
    refusal = _search(gradients)
    if refusal:
        return refusal
    total = [gradient.double().sum() for gradient in gradients if gradient.requires_grad]
    if total:
        torch.autograd.grad(sum(total), [*leaves, *asking], allow_unused=True)  # pyright: ignore[reportArgumentType, reportCallIssue]
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
