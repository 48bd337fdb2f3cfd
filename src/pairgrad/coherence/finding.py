"""What an audit finds, one thing at a time, with the likely causes of each kind and what to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pairgrad.ground.text import printable

# Likely causes and remedies, by kind of finding.
ADVICE: dict[str, tuple[tuple[str, ...], str]] = {
    "defect": (
        (
            "a branch, clamp or normaliser of the forward that the backward does not know of (or the reverse)",
            "value and derivative from two approximations that do not belong together",
            "a term dropped on purpose (detach, truncated adjoint) or by mistake (factor, sign, reduction)",
        ),
        "differentiate the value that is computed, or compute the value whose derivative is supplied; declare a deliberate mismatch with pairgrad.intended",
    ),
    "second-order": (
        (
            "the backward uses tensors saved in the forward that are neither its inputs nor its outputs, so autograd takes them for constants",
            "detach, .data or numpy inside the backward",
        ),
        "save inputs and outputs only and recompute, give the backward a Function of its own, or mark it once_differentiable so that it raises instead",
    ),
    "forward-mode": (
        (
            "a jvp that was written or changed apart from the backward",
            "a tensor saved for the jvp that is not an input or an output (ctx.save_for_forward)",
        ),
        "let jvp and backward use one formula; remove a jvp that is not needed, so that torch raises instead",
    ),
    "vmap": (
        (
            "a vmap rule that ignores in_dims, or maps the wrong dimension",
            "shapes or dimensions counted from the front inside forward or backward",
        ),
        "set generate_vmap_rule = True instead of writing the rule, or count dimensions from the end",
    ),
    "no-grad": (
        (
            "a faster way for evaluation that computes something else",
            "a jax.custom_jvp or custom_vjp whose rule returns another value than the function",
        ),
        "let both compute the same value",
    ),
    "compiled": (
        (
            "a graph break around code that keeps state",
            "a custom operator whose fake kernel or autograd formula is not that of the eager one",
            "a fault of the compiler",
        ),
        "torch._dynamo.explain shows graph breaks; torch.library.opcheck checks registrations; TORCHDYNAMO_REPRO_AFTER writes a small program",
    ),
    "precision": (
        ("a constant, a normaliser or a partial sum that is rounded to half precision inside", "1 - p of a p that is rounded to 1"),
        "compute in float32 inside and round once, in the end; reference= compares with torch's own operations instead",
    ),
    "not-linear": (
        ("the backward ignores grad_output or a part of it", "a clip or a rescaling of the gradient inside the backward"),
        "multiply by grad_output as it comes; clip gradients after the backward, not inside it",
    ),
    "not-reentrant": (
        ("the backward edits a saved tensor in place", "state is kept between calls: a counter, a cache, a buffer outside the module"),
        "work on a copy; keep state in buffers of the module, so that it can be saved and restored",
    ),
    "edits": (
        ("an in-place operation on an argument or on grad_output, which belongs to the caller or to another branch of the graph",),
        "use the out-of-place operation; one that is meant is declared: intent='overwrites-input'",
    ),
    "nondeterministic": (
        ("atomic additions in a kernel", "an unseeded generator", "uninitialised memory"),
        "torch.use_deterministic_algorithms(True) shows which",
    ),
    "no-gradient": (
        ("detach, .data, .item() or numpy between this argument and the output", "a backward that returns None for it"),
        "if the argument is not meant to be differentiated, pass it without requires_grad",
    ),
    "non-finite": (
        ("0/0 or inf - inf in the backward, often behind a torch.where that hides it in the forward",),
        "mask the argument before the operation, not its result",
    ),
    "undefined": (
        ("ctx.set_materialize_grads(False), with a backward that does not ask each grad_output whether it is None",),
        "treat None as zeros, or leave the materializing to torch",
    ),
    "rounds": (
        ("grad_output is cast to a narrower dtype inside the backward, and back",),
        "compute with grad_output in its own dtype; cast what is saved, not what comes in",
    ),
    "layout": (
        ("a kernel, or .storage(), .data_ptr(), as_strided or .view, that takes a tensor for contiguous",),
        "call .contiguous() before a kernel, or hand it the strides",
    ),
    "size": (
        ("half precision inside the backward, without room for the sizes that loss scaling sends",),
        "compute in float32 inside, or scale before and after",
    ),
    "rough": (
        ("differences with too small a step inside the backward", "cancellation, or a narrower dtype inside"),
        "write the derivative as a formula, or take a step near the cube root of the rounding unit",
    ),
    "at-state": (
        ("a special case of the backward for this very value (0, a tie, a boundary) that the value does not have",),
        "give the derivative of one of the sides there, or the mean of both",
    ),
    "jump": (
        ("two formulas that do not meet at their joint", "rounding, sorting, thresholding"),
        "make the formulas meet, or declare the jump",
    ),
    "straight-through": (
        ("a quantiser or a threshold with the gradient of the identity",),
        "declare it: @pairgrad.intended('straight-through')",
    ),
    "unresolved": (
        ("noise, many kinks, or values so flat that rounding hides the gradient",),
        "audit in float64, at other states, or a smaller part of the function",
    ),
}


@dataclass(frozen=True)
class Finding:
    """One thing the audit found.

    Attributes:
        kind: "defect", "second-order", "forward-mode", "vmap", "no-grad", "compiled", "precision", "not-linear", "rounds", "layout", "size", "rough",
            "not-reentrant", "edits", "nondeterministic", "no-gradient", "non-finite", "undefined", "at-state", "jump", "kink", "stepwise",
            "straight-through", "unresolved", "constraint", "region", "node", "scaling", "looks-like", "field", "fork", "intent" or "note".
        severity: "alarm" (the verdict follows from it), "warning" or "note".
        text: one sentence with its numbers.
        where: argument, state or node.
        numbers: what was measured, for machines.
    """

    kind: str
    severity: str
    text: str
    where: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return printable(f"[{self.severity}] {self.where + ': ' if self.where else ''}{self.text}")

    @property
    def causes(self) -> tuple[str, ...]:
        """What is usually behind a finding of this kind."""
        return ADVICE.get(self.kind, ((), ""))[0]

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return ADVICE.get(self.kind, ((), ""))[1]
