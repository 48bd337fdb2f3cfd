"""Constant factors, two mistakes at once, second derivatives, symmetric matrices, and estimators that must be declared."""

from functools import partial

import torch
from torch.autograd import Function

from pairgrad.coherence import intended
from tests.coherence.zoo.specimen import Specimen, uniform

# Constant factors.


def scale_shift(average):
    """x w + b; the broken gradients of w and b are means over the batch, where sums belong."""

    class ScaleShift(Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            ctx.save_for_backward(x, weight)
            return torch.tanh(x) * weight + bias

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            add = torch.mean if average else torch.sum
            return grad * weight * (1 - torch.tanh(x) ** 2), add(grad * torch.tanh(x), 0), add(grad, 0)

    return ScaleShift.apply


def scale_shift_inputs(seed, dtype):
    return uniform(seed, dtype, (5, 2), 0.3, 1.5), uniform(seed + 100, dtype, (2,), 0.5, 1.5), uniform(seed + 200, dtype, (2,), -1, 1)


def difference(sign):
    """(x - y)²/2, whose gradient in y has the other sign; `sign` is 1 in the broken one."""

    class Difference(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return (x - y) ** 2 / 2

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            return grad * (x - y), sign * grad * (x - y)

    return Difference.apply


def difference_inputs(seed, dtype):
    return uniform(seed, dtype, (4,), 1, 2), uniform(seed + 100, dtype, (4,), -1, 0)


def quadratic(both):
    """xᵀ A x for each row x; the gradient in x is (A + Aᵀ) x, or 2 A x in the broken one, which is right for a symmetric A alone."""

    class Quadratic(Function):
        @staticmethod
        def forward(ctx, x, matrix):
            ctx.save_for_backward(x, matrix)
            return ((x @ matrix) * x).sum(-1)

        @staticmethod
        def backward(ctx, grad):
            x, matrix = ctx.saved_tensors
            weighted = grad[:, None] * x
            return weighted @ (matrix + matrix.mT if both else 2 * matrix), weighted.mT @ x

    return Quadratic.apply


def quadratic_inputs(seed, dtype):
    matrix = uniform(seed + 100, dtype, (3, 3), -0.5, 0.5, grad=False)
    return uniform(seed, dtype, (2, 3), 0.5, 1.5), (matrix + torch.triu(torch.ones(3, 3, dtype=dtype), 1)).requires_grad_()


def squared_length(factor):
    """|x|² of each row with the gradient 2 x, or with the one of |x|²/2."""

    class Length(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x * x).sum(-1)

        @staticmethod
        def backward(ctx, grad):
            return factor * grad[..., None] * ctx.saved_tensors[0]

    return Length.apply


def four_dimensions(seed, dtype):
    return (uniform(seed, dtype, (2, 1, 2, 3), 0.5, 1.5),)


def channel_shift(over):
    """(x + b)² for channels b of an image; its gradient in b is summed over all but the channels, or over `over` of them, as for a matrix."""

    class Shift(Function):
        @staticmethod
        def forward(ctx, x, bias):
            ctx.save_for_backward(x, bias)
            return (x + bias[:, None, None]) ** 2

        @staticmethod
        def backward(ctx, grad):
            x, bias = ctx.saved_tensors
            slope = 2 * grad * (x + bias[:, None, None])
            by_bias = slope.sum((0, 2, 3)) if over is None else slope.sum(over)[:, 0, 0]
            return slope, by_bias

    return Shift.apply


def channel_shift_inputs(seed, dtype):
    return uniform(seed, dtype, (2, 2, 2, 2), 0.5, 1.5), uniform(seed + 100, dtype, (2,), 0.5, 1.5)


# Two mistakes at once; second derivatives.


def worn(factor, wears):
    """sinh x with a gradient that is wrong by `factor`, and smaller from call to call of one backward where it `wears`."""

    class Worn(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.left = 1.0
            return torch.sinh(x)

        @staticmethod
        def backward(ctx, grad):
            left = ctx.left
            if wears:
                ctx.left = 0.5 * left
            return factor * left * grad * torch.cosh(ctx.saved_tensors[0])

    return Worn.apply


def small_vector(seed, dtype):
    return (uniform(seed, dtype, (5,), 0.2, 1.2),)


def frozen_slope(detached):
    """x² exp x; the broken backward detaches the slope, so that the second derivative is zero."""

    class Frozen(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * torch.exp(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            slope = (2 * x + x * x) * torch.exp(x)
            return grad * (slope.detach() if detached else slope)

    return Frozen.apply


def frozen_mixed(detached):
    """sin(x y), whose second derivative in x and y is wrong where the backward `detached` y."""

    class Mixed(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return torch.sin(x * y)

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            slope = grad * torch.cos(x * y)
            return slope * (y.detach() if detached else y), slope * x

    return Mixed.apply


def two_vectors(seed, dtype):
    return uniform(seed, dtype, (4,), 0.3, 1.2), uniform(seed + 100, dtype, (4,), 0.3, 1.2)


# Symmetric matrices.


def symmetric_matrix(seed, dtype):
    root = uniform(seed, torch.float64, (3, 3), -1, 1, grad=False)
    matrix = (root @ root.mT + torch.eye(3, dtype=torch.float64)).to(dtype)
    return ((matrix + matrix.mT) / 2).requires_grad_()


def solved(lower):
    """A⁻¹ b by the Cholesky factor of A; the gradient in A is made symmetric, or halved below the diagonal in the broken one."""

    class Solved(Function):
        @staticmethod
        def forward(ctx, matrix, right):
            solution = torch.cholesky_solve(right[:, None], torch.linalg.cholesky(matrix))[:, 0]
            ctx.save_for_backward(matrix, solution)
            return solution

        @staticmethod
        def backward(ctx, grad):
            matrix, solution = ctx.saved_tensors
            by_right = torch.linalg.solve((matrix + matrix.mT) / 2, grad)
            by_matrix = -(by_right[:, None] * solution + solution[:, None] * by_right) / 2
            return by_matrix - (1 - lower) * by_matrix.tril(-1), by_right

    return Solved.apply


def solved_inputs(seed, dtype):
    return symmetric_matrix(seed, dtype), uniform(seed + 100, dtype, (3,), 0.5, 1.5)


def log_determinant(factor):
    """log |A| by the Cholesky factor, with the gradient A⁻¹, its upper triangle times `factor`."""

    class LogDeterminant(Function):
        @staticmethod
        def forward(ctx, matrix):
            ctx.save_for_backward(matrix)
            return 2 * torch.linalg.cholesky(matrix).diagonal().log().sum()

        @staticmethod
        def backward(ctx, grad):
            (matrix,) = ctx.saved_tensors
            inverse = torch.linalg.inv((matrix + matrix.mT) / 2)
            return grad * (inverse + (factor - 1) * inverse.triu(1))

    return LogDeterminant.apply


def log_determinant_inputs(seed, dtype):
    return (symmetric_matrix(seed, dtype),)


# Estimators that must be declared. A declaration is made where the function is, so that this file can be read without it.


def estimator(forward, backward, intent):
    """A function with this forward and a backward of another function, declared as `intent` or not at all."""

    class Estimator(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, grad):
            return backward(ctx.saved_tensors[0], grad)

    return (Estimator if intent is None else intended(intent)(Estimator)).apply


def square(x):
    return x * x


def reversed_square(x, grad):
    return -2 * x * grad


def scaled_square(x, grad):
    return 0.2 * x * grad


def within_one(x):
    return x.clamp(-1, 1)


def all_through(x, grad):
    return grad.clone()


def preconditioned_square(x, grad):
    metric = torch.diag(torch.linspace(0.5, 2, len(x), dtype=x.dtype)) + 0.1
    return metric @ (2 * x * grad)


def estimator_inputs(seed, dtype):
    return (uniform(seed, dtype, (6,), 0.3, 1.5),)


def around_one(seed, dtype):
    x = uniform(seed, dtype, (8,), -0.9, 0.9, grad=False)
    x[::2] = uniform(seed + 100, dtype, (4,), 1.2, 2, grad=False)
    return (x.requires_grad_(),)


def _declared(name, intent, forward, backward, inputs, defect, note):
    return Specimen(
        name,
        f"{intent} by intent",
        right=partial(estimator, forward, backward, intent),
        broken=partial(estimator, forward, backward, None),
        inputs=inputs,
        defect=defect,
        note=note,
    )


SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "ours-batch-mean",
        "constant factor",
        right=partial(scale_shift, average=False),
        broken=partial(scale_shift, average=True),
        inputs=scale_shift_inputs,
        defect=0.8,
        note="the gradients of weight and bias are divided by the batch size",
    ),
    Specimen(
        "ours-other-sign",
        "constant factor",
        right=partial(difference, -1),
        broken=partial(difference, 1),
        inputs=difference_inputs,
        defect=2.0,
        note="the gradient in y has the sign of the one in x",
    ),
    Specimen(
        "ours-not-transposed",
        "transpose left out",
        right=partial(quadratic, both=True),
        broken=partial(quadratic, both=False),
        inputs=quadratic_inputs,
        defect=0.5,
        note="A + Aᵀ is replaced by 2 A",
    ),
    Specimen(
        "ours-half-length",
        "constant factor",
        right=partial(squared_length, 2),
        broken=partial(squared_length, 1),
        inputs=four_dimensions,
        defect=0.5,
        note="the gradient of |x|²/2 for the value |x|²",
    ),
    Specimen(
        "ours-four-dimensions",
        "shape that was not thought of",
        right=partial(channel_shift, None),
        broken=partial(channel_shift, 0),
        inputs=channel_shift_inputs,
        defect=0.5,
        note="the gradient of a channel is summed over the batch only, and one pixel of it kept",
    ),
    Specimen(
        "ours-worn-and-wrong",
        "not re-entrant and wrong",
        right=partial(worn, 1.0, wears=False),
        broken=partial(worn, 1.3, wears=True),
        inputs=small_vector,
        defect=0.3,
        note="the gradient is 30 % too large, and halves with every further backward",
    ),
    Specimen(
        "ours-frozen-slope",
        "wrong only in double backward",
        right=partial(frozen_slope, detached=False),
        broken=partial(frozen_slope, detached=True),
        inputs=small_vector,
        defect=1.0,
        note="the slope is detached",
    ),
    Specimen(
        "ours-frozen-mixed",
        "wrong only in double backward",
        right=partial(frozen_mixed, detached=False),
        broken=partial(frozen_mixed, detached=True),
        inputs=two_vectors,
        defect=0.5,
        note="one of two factors is detached, in the gradient of one argument",
    ),
    Specimen(
        "ours-symmetric-solve",
        "function of a symmetric matrix",
        right=partial(solved, 1.0),
        broken=partial(solved, 0.5),
        inputs=solved_inputs,
        defect=0.2,
        constraints=("symmetric", None),
        note="the lower triangle of the matrix's gradient is halved",
    ),
    Specimen(
        "ours-log-determinant",
        "function of a symmetric matrix",
        right=partial(log_determinant, 1.0),
        broken=partial(log_determinant, 1.2),
        inputs=log_determinant_inputs,
        defect=5e-2,
        constraints=("positive_definite",),
        note="the upper triangle of the gradient is 20 % too large",
    ),
    _declared("ours-reversal", "reversal", square, reversed_square, estimator_inputs, 2.0, "the gradient is reversed, and not declared"),
    _declared("ours-scaling", "scaling", square, scaled_square, estimator_inputs, 0.9, "the gradient is a tenth, and not declared"),
    _declared(
        "ours-clamped",
        "clamped-straight-through",
        within_one,
        all_through,
        around_one,
        1.0,
        "gradients pass a clamp that is closed, and nothing says that this is wanted",
    ),
    _declared(
        "ours-preconditioned",
        "preconditioned",
        square,
        preconditioned_square,
        estimator_inputs,
        0.5,
        "the gradient is multiplied by a positive definite matrix, and nothing says that this is wanted",
    ),
)
