"""Precision and size; shapes and layouts; half precision."""

from functools import partial

import torch
from torch.autograd import Function

from tests.coherence.zoo.specimen import Specimen, uniform

# Precision and size.


def summed_in_single(factor):
    """Σ tanh(x w) taken in float32 whatever the arguments are, with the derivative in their own dtype: a coarse value, not a wrong gradient."""

    class Summed(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return torch.tanh(x.float() @ weight.float()).sum(0).to(x.dtype)

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            slope = grad * factor * (1 - torch.tanh(x @ weight) ** 2)
            return slope @ weight.mT, x.mT @ slope

    return Summed.apply


def summed_inputs(seed, dtype):
    return uniform(seed, dtype, (6, 4), -1, 1), uniform(seed + 100, dtype, (4, 3), -1, 1)


def length(factor):
    """√(a² + b²) without overflow, with the derivatives a/r and b/r, the latter wrong by `factor`."""

    class Length(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return torch.hypot(a, b)

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            r = torch.hypot(a, b)
            return grad * (a / r), grad * factor * (b / r)

    return Length.apply


def huge_inputs(seed, dtype):
    size = 1e150 if dtype == torch.float64 else 1e20
    return uniform(seed, dtype, (5,), 0.5 * size, 2 * size), uniform(seed + 100, dtype, (5,), 0.5 * size, 2 * size)


def tiny_inputs(seed, dtype):
    size = 1e-150 if dtype == torch.float64 else 1e-20
    return uniform(seed, dtype, (5,), 0.5 * size, 2 * size), uniform(seed + 100, dtype, (5,), 0.5 * size, 2 * size)


# Shapes and layouts.


def appended(factor):
    """exp of a single number, added to rows of which there may be none; the single number's gradient is wrong by `factor`."""

    class Exponential(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.exp(x)

        @staticmethod
        def backward(ctx, grad):
            return grad * factor * torch.exp(ctx.saved_tensors[0])

    def rows(single, nothing, scalar):
        return torch.cat([nothing.sin(), single + scalar**2]).sum(0), Exponential.apply(single)

    return rows


def appended_inputs(seed, dtype):
    return uniform(seed, dtype, (1,), -1, 1), torch.zeros(0, dtype=dtype, requires_grad=True), uniform(seed + 100, dtype, (), 1, 2)


def memory_order(logical):
    """Σ x³/3 over columns; the broken backward reads x in the order of its memory, which is another for a permuted argument."""

    class Cubes(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x**3 / 3).sum(1)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            if not logical:
                x = x.as_strided(x.shape, torch.zeros(x.shape).stride())
            return grad[:, None] * x**2

    return Cubes.apply


def permuted_inputs(seed, dtype):
    return (uniform(seed, dtype, (4, 3), 0.5, 2, grad=False).mT.requires_grad_(),)


def outer_sum(factor):
    """Σ sin(x y) over an expanded, a strided and a permuted argument; the gradient in the expanded one is wrong by `factor`."""

    class Outer(Function):
        @staticmethod
        def forward(ctx, x, y, z):
            ctx.save_for_backward(x, y, z)
            return torch.sin(x * y) + z

        @staticmethod
        def backward(ctx, grad):
            x, y, _ = ctx.saved_tensors
            slope = grad * torch.cos(x * y)
            return factor * slope * y, slope * x, grad

    return Outer.apply


def outer_inputs(seed, dtype):
    x = uniform(seed, dtype, (1, 4), -1, 1, grad=False).expand(3, 4).requires_grad_()
    y = uniform(seed + 100, dtype, (3, 8), -1, 1, grad=False)[:, ::2].requires_grad_()
    z = uniform(seed + 200, dtype, (4, 3), -1, 1, grad=False).permute(1, 0).requires_grad_()
    return x, y, z


# Half precision.


def gated(factor):
    """x σ(x) w summed over columns, computed in float32; the derivative in x is wrong by `factor`."""

    class Gated(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            wide = x.float()
            return (wide * torch.sigmoid(wide) * weight.float()).sum(-1).to(x.dtype)

        @staticmethod
        def backward(ctx, grad):
            x, weight = (tensor.float() for tensor in ctx.saved_tensors)
            gate, grad = torch.sigmoid(x), grad.float()[:, None]
            by_x = grad * factor * weight * gate * (1 + x * (1 - gate))
            return tuple(gradient.to(ctx.saved_tensors[0].dtype) for gradient in (by_x, (grad * x * gate).sum(0)))

    return Gated.apply


def gated_inputs(seed, dtype):
    return uniform(seed, dtype, (6, 4), 0.5, 3), uniform(seed + 100, dtype, (4,), 0.5, 2)


def entropy(factor):
    """-Σ p log p of p = softmax(x), computed in float32; the derivative -p (log p + H) is wrong by `factor`."""

    class Entropy(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            p = x.float().softmax(-1)
            return -(p * p.log()).sum(-1).to(x.dtype)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            p = x.float().softmax(-1)
            return (-grad[:, None].float() * factor * p * (p.log() - (p * p.log()).sum(-1, keepdim=True))).to(x.dtype)

    return Entropy.apply


def entropy_inputs(seed, dtype):
    return (uniform(seed, dtype, (5, 4), -2, 2),)


SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "ours-summed-in-single",
        "coarse value",
        right=partial(summed_in_single, 1.0),
        broken=partial(summed_in_single, 1.01),
        inputs=summed_inputs,
        defect=1e-2,
        note="the value is made in float32, and the gradient is 1 % too large as well",
    ),
    Specimen(
        "ours-huge",
        "huge arguments",
        right=partial(length, 1.0),
        broken=partial(length, 1.001),
        inputs=huge_inputs,
        defect=5e-4,
        note="one leg's gradient is 0.1 % off at 1e150",
    ),
    Specimen(
        "ours-tiny",
        "tiny arguments",
        right=partial(length, 1.0),
        broken=partial(length, 1.001),
        inputs=tiny_inputs,
        defect=5e-4,
        note="one leg's gradient is 0.1 % off at 1e-150",
    ),
    Specimen(
        "ours-appended",
        "empty and single tensors",
        right=partial(appended, 1.0),
        broken=partial(appended, 1.001),
        inputs=appended_inputs,
        defect=1e-3,
        note="the gradient of a tensor of one element is 0.1 % off, next to an empty one",
    ),
    Specimen(
        "ours-memory-order",
        "layout of an argument",
        right=partial(memory_order, logical=True),
        broken=partial(memory_order, logical=False),
        inputs=permuted_inputs,
        defect=0.7,
        note="a permuted argument is read in the order of its memory",
    ),
    Specimen(
        "ours-outer-sum",
        "layout of an argument",
        right=partial(outer_sum, 1.0),
        broken=partial(outer_sum, 1.002),
        inputs=outer_inputs,
        defect=1e-3,
        note="the gradient of an expanded argument is 0.2 % too large",
    ),
)

HALF_SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "ours-half-gated",
        "wrong factor in half precision",
        right=partial(gated, 1.0),
        broken=partial(gated, 2.0),
        inputs=gated_inputs,
        defect=0.5,
        dtypes=(torch.bfloat16, torch.float16),
        note="the derivative in x is twice what it should be",
    ),
    Specimen(
        "ours-half-entropy",
        "wrong factor in half precision",
        right=partial(entropy, 1.0),
        broken=partial(entropy, 2.0),
        inputs=entropy_inputs,
        defect=0.5,
        dtypes=(torch.float16,),
        note="the derivative is twice what it should be; in bfloat16 the value is too flat to tell",
    ),
)
