"""Rules for vmap, values without a gradient, and gradients that are worse than half precision allows."""

from functools import partial

import torch
from torch.autograd import Function

from tests.coherence.zoo.specimen import Specimen, uniform


def sine_inputs(seed, dtype):
    return (uniform(seed, dtype, (6,), 0.2, 1.4),)


def centred(*, counts_from_the_end):
    """x less its mean over the last dimension, with a vmap rule that takes the batch for the last dimension where it should not."""

    class Centred(Function):
        @staticmethod
        def forward(x):
            return x - x.mean(-1, keepdim=True)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, grad):
            return Centred.apply(grad)

        @staticmethod
        def vmap(info, in_dims, x):
            return Centred.apply(x.movedim(in_dims[0], 0 if counts_from_the_end else -1)), 0 if counts_from_the_end else -1

    return Centred.apply


def centred_inputs(seed, dtype):
    return (uniform(seed, dtype, (3, 4), -1, 1),)


def shortcut(*, exact):
    """tanh(x), and where no gradient is requested a rational function that is near it."""

    class Tanh(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.tanh()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            (y,) = ctx.saved_tensors
            return grad * (1 - y * y)

    def apply(x):
        if torch.is_grad_enabled() or exact:
            return Tanh.apply(x)
        return x * (27 + x * x) / (27 + 9 * x * x)

    return apply


def biased(factor):
    """sin(x) computed in float32 and rounded once, as kernels do, with a gradient that has a `factor`."""

    class Sine(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.to(_inside(x)).sin().to(x.dtype)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            slope = x.to(_inside(x)).cos() * (factor if x.dtype != torch.float64 else 1.0)
            return (grad.to(slope.dtype) * slope).to(x.dtype)

    return Sine.apply


def _inside(x):
    return torch.promote_types(x.dtype, torch.float32)


def many_inputs(seed, dtype):
    return (uniform(seed, dtype, (64, 64), -3, 3),)


def saturated(*, rounded):
    """The logistic function far to the right: 1 - p is lost if it is taken of a p that is rounded to half precision."""

    class Logistic(Function):
        @staticmethod
        def forward(ctx, x):
            p = x.sigmoid()
            ctx.save_for_backward(x, p)
            return p

        @staticmethod
        def backward(ctx, grad):
            x, p = ctx.saved_tensors
            return grad * p * ((1 - p) if rounded else (-x.to(_inside(x))).sigmoid().to(x.dtype))

    return Logistic.apply


def saturated_inputs(seed, dtype):
    return (uniform(seed, dtype, (8, 8), 7, 9),)


HALF = (torch.bfloat16, torch.float16)

SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "ours-vmap-rule",
        "wrong vmap rule",
        right=partial(centred, counts_from_the_end=True),
        broken=partial(centred, counts_from_the_end=False),
        inputs=centred_inputs,
        defect=1.0,
        note="the vmap rule takes the mean over the batch",
    ),
    Specimen(
        "ours-shortcut",
        "another value without a gradient",
        right=partial(shortcut, exact=True),
        broken=partial(shortcut, exact=False),
        inputs=sine_inputs,
        defect=0.01,
        note="without a gradient an approximation is computed, so that what is evaluated is not what is trained",
    ),
)

HALF_SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "ours-half-biased",
        "bias in half precision",
        right=partial(biased, 1.0),
        broken=partial(biased, 1 + 2.0**-9),
        inputs=many_inputs,
        defect=2.0**-9,
        dtypes=HALF,
        note="every element is too large by half a unit of rounding of bfloat16",
    ),
    Specimen(
        "ours-half-saturated",
        "saturated in half precision",
        right=partial(saturated, rounded=False),
        broken=partial(saturated, rounded=True),
        inputs=saturated_inputs,
        defect=1.0,
        dtypes=HALF,
        note="1 - p is taken of a p that is rounded to 1, as in linkedin/Liger-Kernel#1329",
    ),
)
