"""Rules for forward mode that are wrong where the backward is right, and a gradient that is another one in compiled code, after public bug reports."""

from functools import partial

import torch
from torch.autograd import Function

from tests.coherence.zoo.specimen import Specimen, uniform


def product(*, in_order):
    """A B, whose `jvp` has the factors of one term in the wrong order unless `in_order`."""

    class Product(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            ctx.save_for_forward(a, b)
            return a @ b

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            return grad @ b.mT, a.mT @ grad

        @staticmethod
        def jvp(ctx, along_a, along_b):
            a, b = ctx.saved_tensors
            return (along_a @ b if in_order else b @ along_a) + a @ along_b

    return Product.apply


def product_inputs(seed, dtype):
    return uniform(seed, dtype, (3, 3), -1, 1), uniform(seed + 100, dtype, (3, 3), -1, 1)


def cubic(*, second):
    """x³ y with a `jvp` that leaves out the part of y unless `second`."""

    class Cubic(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x, y):
            return x**3 * y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            return grad * 3 * x**2 * y, grad * x**3

        @staticmethod
        def jvp(ctx, along_x, along_y):
            x, y = ctx.saved_tensors
            return 3 * x**2 * y * along_x + (x**3 * along_y if second else 0)

    return Cubic.apply


def cubic_inputs(seed, dtype):
    return uniform(seed, dtype, (5,), 0.5, 2), uniform(seed + 100, dtype, (5,), 0.5, 2)


def detached_jvp(*, detached):
    """sin(x), whose `jvp` is right, but constant to autograd where it is `detached`: second derivatives by way of it are zero."""

    class Sine(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0].cos()

        @staticmethod
        def jvp(ctx, along):
            (x,) = ctx.saved_tensors
            return (x.detach() if detached else x).cos() * along

    return Sine.apply


def sine_inputs(seed, dtype):
    return (uniform(seed, dtype, (6,), 0.2, 1.4),)


def compiled_otherwise(factor):
    """exp(x), whose gradient has a `factor` in compiled code."""

    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            (y,) = ctx.saved_tensors
            return grad * y * (factor if torch.compiler.is_compiling() else 1.0)

    return Exp.apply


SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "reported-jvp-order",
        "wrong forward mode",
        right=partial(product, in_order=True),
        broken=partial(product, in_order=False),
        inputs=product_inputs,
        defect=1.0,
        note="the jvp has the factors of a product of matrices in the wrong order: pytorch/pytorch#198017",
    ),
    Specimen(
        "reported-jvp-term",
        "wrong forward mode",
        right=partial(cubic, second=True),
        broken=partial(cubic, second=False),
        inputs=cubic_inputs,
        defect=0.3,
        note="the jvp leaves out a term, that of the second argument: pytorch/pytorch#196701",
    ),
    Specimen(
        "reported-jvp-detached",
        "wrong forward mode in a second derivative",
        right=partial(detached_jvp, detached=False),
        broken=partial(detached_jvp, detached=True),
        inputs=sine_inputs,
        defect=1.0,
        note="the jvp is right, but its own derivative lacks a term: pytorch/pytorch#196696",
    ),
    Specimen(
        "reported-compiled-half",
        "compiled function differs from eager",
        right=partial(compiled_otherwise, 1.0),
        broken=partial(compiled_otherwise, 0.5),
        inputs=sine_inputs,
        defect=0.5,
        options={"compiled": "aot_eager"},
        note="the compiled gradient is half of the eager one: pytorch/pytorch#183604",
    ),
)
