"""Mistakes in a narrow neighbourhood of the input, near-degenerate matrices, and backwards that are rough."""

from functools import partial

import torch
from torch.autograd import Function

from tests.coherence.zoo.specimen import DOUBLE, Specimen, uniform


def one_leap(leap, factor):
    """exp x, with a `leap` upwards at 0.01, and a gradient that is wrong by `factor`."""

    class Leap(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.exp(x) + leap * (x > 0.01)

        @staticmethod
        def backward(ctx, grad):
            return factor * grad * torch.exp(ctx.saved_tensors[0])

    return Leap.apply


def at_zero(seed, dtype):
    return (torch.zeros(1, dtype=dtype, requires_grad=True),)


def beside_the_leap(seed, dtype):
    x = uniform(seed, dtype, (4,), -0.8, -0.2, grad=False)
    x[2] = uniform(seed + 100, dtype, (), -1e-3, 1e-3, grad=False)
    return (x.requires_grad_(),)


def dead_spot(width):
    """Σ cos x, whose gradient is zero within `width` of 1."""

    class Spot(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.cos(x).sum()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return -grad * torch.where((x - 1).abs() < width, 0.0, torch.sin(x))

    return Spot.apply


def in_the_spot(seed, dtype):
    x = uniform(seed, dtype, (3,), 0.2, 0.8, grad=False)
    x[1] = 1 + uniform(seed + 100, dtype, (), -4e-7, 4e-7, grad=False)
    return (x.requires_grad_(),)


def width_of(dtype, double, single):
    """How far a narrow region reaches: wider in float32, where differences of the value resolve less."""
    return double if dtype == torch.float64 else single


def bend(seen):
    """x + w tanh((x - 1)/w), which rises twice as fast within w of 1; the broken gradient does not know."""

    class Bend(Function):
        @staticmethod
        def forward(ctx, x, width):
            ctx.save_for_backward(x)
            ctx.width = width
            return x + width * torch.tanh((x - 1) / width)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * (2 - torch.tanh((x - 1) / ctx.width) ** 2) if seen else grad.clone(), None

    return Bend.apply


def in_the_bend(seed, dtype):
    width = width_of(dtype, 1e-3, 2e-2)
    return uniform(seed, dtype, (2,), 1 - 0.5 * width, 1 + 0.5 * width), width


def ripple(seen):
    """exp x + w u exp(-u²/2), u = (x - 1)/w: a ripple that is nowhere to be seen a few w away from 1; the broken gradient is that of exp x."""

    class Ripple(Function):
        @staticmethod
        def forward(ctx, x, width):
            ctx.save_for_backward(x)
            ctx.width = width
            u = (x - 1) / width
            return torch.exp(x) + (x - 1) * torch.exp(-u * u / 2)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            u = (x - 1) / ctx.width
            return grad * (torch.exp(x) + (1 - u * u) * torch.exp(-u * u / 2) if seen else torch.exp(x)), None

    return Ripple.apply


def in_the_ripple(seed, dtype):
    width = width_of(dtype, 5e-5, 2e-2)
    x = uniform(seed, dtype, (3,), 0.2, 0.8, grad=False)
    x[1] = uniform(seed + 100, dtype, (), 1 - 0.5 * width, 1 + 0.5 * width, grad=False)
    return x.requires_grad_(), width


def guarded_length(guarded):
    """√(|x|² + w²) of each row; the broken gradient is zero for rows shorter than 10 w, as a guard against 0/0."""

    class Length(Function):
        @staticmethod
        def forward(ctx, x, width):
            ctx.save_for_backward(x)
            ctx.width = width
            return torch.sqrt((x * x).sum(-1) + width**2)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            length = torch.sqrt((x * x).sum(-1) + ctx.width**2)
            scale = torch.where(length < 10 * ctx.width, 0.0, grad / length) if guarded else grad / length
            return scale[:, None] * x, None

    return Length.apply


def guarded_length_inputs(seed, dtype):
    width = width_of(dtype, 1e-3, 3e-2)
    x = uniform(seed, dtype, (3, 2), 0.5, 1.5, grad=False)
    x[1] = uniform(seed + 100, dtype, (2,), width, 3 * width, grad=False)
    return x.requires_grad_(), width


def matrix_logarithm(within):
    """log A of a symmetric matrix; the broken gradient takes 1/λ of the larger one for divided differences of eigenvalues `within` of each other."""

    class Logarithm(Function):
        @staticmethod
        def forward(ctx, matrix):
            values, axes = torch.linalg.eigh(matrix)
            ctx.save_for_backward(matrix)
            return (axes * values.log()) @ axes.mT

        @staticmethod
        def backward(ctx, grad):
            values, axes = torch.linalg.eigh(ctx.saved_tensors[0])
            gap = values[:, None] - values
            ratio = gap / values
            slopes = torch.where(ratio.abs() < 1e-6, 1 - ratio / 2, torch.log1p(ratio) / torch.where(ratio == 0, 1.0, ratio)) / values
            if within:
                slopes = torch.where(gap.abs() < within, 1 / torch.maximum(values[:, None], values), slopes)
            return axes @ (slopes * (axes.mT @ ((grad + grad.mT) / 2) @ axes)) @ axes.mT

    return lambda matrix: Logarithm.apply((matrix + matrix.mT) / 2)


def close_pair_inputs(seed, dtype):
    axes = torch.linalg.qr(uniform(seed, torch.float64, (3, 3), -1, 1, grad=False))[0]
    return (((axes * torch.tensor([1.0, 1.05, 1.1], dtype=torch.float64)) @ axes.mT).to(dtype).requires_grad_(),)


# Rough backwards.


def rough_sine(step):
    """sin x, differentiated by a `step` of a few units in the last place of 1, or by its cosine."""

    class Sine(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.sin(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            if step is None:
                return grad * torch.cos(x)
            h = step * torch.finfo(x.dtype).eps
            return grad * (torch.sin(x + h) - torch.sin(x)) / h

    return Sine.apply


def rough_single(exact):
    """log(1 + x²), differentiated by a step of 1e-4 in float32 whatever the argument is, or by its derivative."""

    class Logarithm(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.log1p(x * x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            if exact:
                return grad * 2 * x / (1 + x * x)
            up, down = x.float() + 1e-4, x.float() - 1e-4
            return grad * ((torch.log1p(up * up) - torch.log1p(down * down)) / 2e-4).to(x.dtype)

    return Logarithm.apply


def rough_inputs(seed, dtype):
    return (uniform(seed, dtype, (6,), 0.3, 1.3),)


SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "ours-one-leap",
        "one leap beside a wrong gradient",
        right=partial(one_leap, 0.0, 1.0),
        broken=partial(one_leap, 0.01, 1.05),
        inputs=at_zero,
        defect=5e-2,
        note="the value leaps near the input, and the gradient is 5 % too large besides",
    ),
    Specimen(
        "ours-leap-of-one-element",
        "one leap beside a wrong gradient",
        right=partial(one_leap, 0.0, 1.0),
        broken=partial(one_leap, 0.01, 1.05),
        inputs=beside_the_leap,
        defect=5e-2,
        note="the same with further elements, which do not leap",
    ),
    Specimen(
        "ours-dead-spot",
        "wrong only at the input",
        right=partial(dead_spot, 0.0),
        broken=partial(dead_spot, 1e-6),
        inputs=in_the_spot,
        defect=0.7,
        note="one element's gradient is zero within a millionth of the input",
    ),
    Specimen(
        "ours-bend",
        "wrong only at the input",
        right=partial(bend, seen=True),
        broken=partial(bend, seen=False),
        inputs=in_the_bend,
        defect=0.5,
        note="the value bends within 1e-3 of the input, and the gradient is that of the long run",
    ),
    Specimen(
        "ours-ripple",
        "wrong only at the input",
        right=partial(ripple, seen=True),
        broken=partial(ripple, seen=False),
        inputs=in_the_ripple,
        defect=0.2,
        note="the value has a ripple within 5e-5 of the input, which the gradient leaves out",
    ),
    Specimen(
        "ours-guarded-length",
        "wrong only at the input",
        right=partial(guarded_length, guarded=False),
        broken=partial(guarded_length, guarded=True),
        inputs=guarded_length_inputs,
        defect=0.5,
        note="a guard against 0/0 makes the gradient of short rows zero",
    ),
    Specimen(
        "ours-matrix-logarithm",
        "near-degenerate spectrum",
        right=partial(matrix_logarithm, 0.0),
        broken=partial(matrix_logarithm, 0.2),
        inputs=close_pair_inputs,
        defect=1e-2,
        note="divided differences of close eigenvalues are replaced by the derivative at one of them",
    ),
    Specimen(
        "ours-rough-step",
        "rough backward",
        right=partial(rough_sine, None),
        broken=partial(rough_sine, 4.5),
        inputs=rough_inputs,
        defect=0.1,
        note="differences with a step of a few rounding errors",
    ),
    Specimen(
        "ours-rough-single",
        "rough backward",
        right=partial(rough_single, exact=True),
        broken=partial(rough_single, exact=False),
        inputs=rough_inputs,
        defect=3e-4,
        dtypes=DOUBLE,
        note="differences in float32 inside float64",
    ),
)
