"""Elementwise functions whose derivative is the one we supply.

`differentiable` turns a kernel and its partial derivatives into a function of tensors that autograd, `torch.func` (vmap, grad, jvp) and
`torch.compile(fullgraph=True)` can use. A partial derivative is itself written with differentiable functions, which is what makes double
backward work. There is one rule in three forms: a custom `jvp` and fullgraph capture exclude each other, so a compiled region gets the rule without it;
transforms need `setup_context`, for which torch inspects a signature at every call, longer than a kernel of few numbers takes; and where no
derivative is wanted the kernel is called as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import Function

from pairgrad.ground._torch_private import forward_mode, maybe_current_level

Kernel = Callable[..., torch.Tensor]


def differentiable(kernel: Kernel, *partials: Kernel, uses_output: bool = False) -> Kernel:
    """apply(owner, *tensors) = kernel(owner, *tensors), with d/d tensors[i] = partials[i](owner, output, *tensors), for one or two tensors.

    `owner` is whatever object the kernel needs (a potential). With `uses_output` the result is kept for the partials, which otherwise get
    None in its place.
    """

    # torch.compile binds the arguments to the signature of forward, so that has to name them
    def unary(owner: Any, x: torch.Tensor) -> torch.Tensor:
        return kernel(owner, x)

    def binary(owner: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return kernel(owner, a, b)

    named: Kernel = unary if len(partials) == 1 else binary

    class Compiled(Function):
        forward = staticmethod(named)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
            ctx.owner = inputs[0]
            ctx.save_for_backward(*inputs[1:], *((output,) if uses_output else ()))

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
            tensors, output = _split(ctx.saved_tensors)
            return None, *(
                grad * partial(ctx.owner, output, *tensors) if wanted else None
                for partial, wanted in zip(partials, ctx.needs_input_grad[1:], strict=True)
            )

    class Transformed(Compiled):
        generate_vmap_rule = True

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
            Compiled.setup_context(ctx, inputs, output)
            ctx.save_for_forward(*inputs[1:], *((output,) if uses_output else ()))

        @staticmethod
        def jvp(ctx: Any, _owner: None, *tangents: torch.Tensor | None) -> torch.Tensor:  # type: ignore[override]
            tensors, output = _split(ctx.saved_tensors)
            pairs = zip(partials, tangents, strict=True)
            products = [d * partial(ctx.owner, output, *tensors) for partial, d in pairs if d is not None]
            return sum(products[1:], start=products[0])

    class Eager(Function):
        @staticmethod
        def forward(ctx: Any, owner: Any, *tensors: torch.Tensor) -> torch.Tensor:
            output = kernel(owner, *tensors)
            Transformed.setup_context(ctx, (owner, *tensors), output)
            return output

        backward, jvp = Compiled.backward, Transformed.jvp  # type: ignore[assignment]

    def _split(saved: tuple[torch.Tensor, ...]) -> tuple[tuple[torch.Tensor, ...], torch.Tensor | None]:
        return (saved[:-1], saved[-1]) if uses_output else (saved, None)

    def apply(owner: Any, *tensors: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            return Compiled.apply(owner, *tensors)
        if maybe_current_level() is not None:
            return Transformed.apply(owner, *tensors)
        if _wanted(tensors):
            return Eager.apply(owner, *tensors)
        with torch.no_grad():
            return kernel(owner, *tensors)

    return apply


def differentiable_pair(
    kernel: Callable[..., tuple[torch.Tensor, torch.Tensor]], curvature: Kernel
) -> Callable[..., tuple[torch.Tensor, ...]]:
    """apply(owner, x) = (value, slope) with d value = slope and d slope = curvature(owner, x). For eager mode."""

    class Transformed(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(owner: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return kernel(owner, x)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
            ctx.owner = inputs[0]
            ctx.set_materialize_grads(False)  # whoever uses the value alone does not pay for the curvature
            ctx.save_for_backward(inputs[1], output[1])
            ctx.save_for_forward(inputs[1], output[1])

        @staticmethod
        def backward(ctx: Any, d_value: torch.Tensor | None, d_slope: torch.Tensor | None) -> tuple[None, torch.Tensor | None]:  # type: ignore[override]
            x, slope = ctx.saved_tensors
            parts = []
            if d_value is not None:
                parts.append(d_value * slope)
            if d_slope is not None:
                parts.append(d_slope * curvature(ctx.owner, x))
            return None, sum(parts[1:], start=parts[0]) if parts else None

        @staticmethod
        def jvp(ctx: Any, _owner: None, tangent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
            x, slope = ctx.saved_tensors
            return tangent * slope, tangent * curvature(ctx.owner, x)

    class ValueAndSlope(Function):
        @staticmethod
        def forward(ctx: Any, owner: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            output = kernel(owner, x)
            Transformed.setup_context(ctx, (owner, x), output)
            return output

        backward, jvp = Transformed.backward, Transformed.jvp  # type: ignore[assignment]

    def apply(owner: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if maybe_current_level() is not None:
            return Transformed.apply(owner, x)
        if _wanted((x,)):
            return ValueAndSlope.apply(owner, x)
        with torch.no_grad():
            return kernel(owner, x)

    return apply


def _wanted(tensors: tuple[torch.Tensor, ...]) -> bool:
    """Whether a derivative of what is computed from these tensors may be wanted."""
    return (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)) or forward_mode()
