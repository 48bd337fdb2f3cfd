"""Functions of symmetric matrices, near-degenerate spectra, and second derivatives."""

from functools import partial

import torch
from torch.autograd import Function

from tests.coherence.zoo.specimen import Specimen, uniform


def positive_definite(seed, dtype, size=3):
    """A symmetric matrix with eigenvalues of at least 1."""
    root = uniform(seed, torch.float64, (size, size), -1, 1, grad=False)
    matrix = (root @ root.mT + torch.eye(size, dtype=torch.float64)).to(dtype)
    return ((matrix + matrix.mT) / 2).requires_grad_()


def positive_definite_inputs(seed, dtype):
    return (positive_definite(seed, dtype),)


def with_spectrum(seed, values):
    """A symmetric matrix with these eigenvalues."""
    axes = torch.linalg.qr(uniform(seed, torch.float64, (len(values),) * 2, -1, 1, grad=False))[0]
    return (axes * torch.tensor(values, dtype=torch.float64)) @ axes.mT


def spread_spectrum_inputs(seed, dtype):
    matrix = with_spectrum(seed, (1.0, 2.0, 3.5)).to(dtype)
    return (((matrix + matrix.mT) / 2).requires_grad_(),)


# Symmetric matrices.


class DoubledCholesky(Function):
    """The Cholesky factor, with S + Sᵀ - diag S as the gradient, where (S + Sᵀ)/2 is right for a symmetric argument."""

    @staticmethod
    def forward(ctx, matrix):
        factor = torch.linalg.cholesky(matrix)
        ctx.save_for_backward(factor)
        return factor

    @staticmethod
    def backward(ctx, grad):
        (factor,) = ctx.saved_tensors
        inner = (factor.mT @ grad).tril()
        inner = inner - 0.5 * torch.diag(inner.diagonal())
        inverse = torch.linalg.inv(factor)
        half = inverse.mT @ inner @ inverse
        return half + half.mT - torch.diag(half.diagonal())


class LowerEigenvalues(Function):
    """The eigenvalues of a symmetric matrix, with the lower triangle of the gradient, not doubled."""

    @staticmethod
    def forward(ctx, matrix):
        values, axes = torch.linalg.eigh(matrix)
        ctx.save_for_backward(axes)
        return values

    @staticmethod
    def backward(ctx, grad):
        (axes,) = ctx.saved_tensors
        return ((axes * grad) @ axes.mT).tril()


# Near-degenerate spectra.


def projector(inverse, kept):
    """The projector on the eigenvectors from number `kept` up, by torch or with `inverse` for 1/x of the eigenvalues' differences."""

    def upper(matrix):
        axes = torch.linalg.eigh(matrix)[1][:, kept:]
        return axes @ axes.mT

    class Projector(Function):
        @staticmethod
        def forward(ctx, matrix):
            ctx.save_for_backward(matrix)
            return upper(matrix)

        @staticmethod
        def backward(ctx, grad):
            values, axes = torch.linalg.eigh(ctx.saved_tensors[0])
            size = len(values)
            chosen = (torch.arange(size) >= kept).to(values.dtype)
            inner = axes.mT @ ((grad + grad.mT) / 2) @ axes
            weights = (chosen[:, None] - chosen) * inverse(values[:, None] - values)
            return axes @ (inner * weights) @ axes.mT

    return upper if inverse is None else Projector.apply


def broadened(gap):
    return gap / (gap * gap + 2.5e-5)


def cut_off(gap):
    return torch.where(gap.abs() < 0.1, 0.0, 1 / gap)


def upper_space(inverse):
    project = projector(inverse, kept=2)
    return lambda matrix: project((matrix + matrix.mT) / 2)


def upper_space_inputs(seed, dtype):
    return (with_spectrum(seed, (-1.0, 0.5, 0.55)).to(dtype).requires_grad_(),)


def rank_one(inverse):
    """The best approximation of rank one, P(M Mᵀ) M."""
    project = projector(inverse, kept=2)
    return lambda matrix: project(matrix @ matrix.mT) @ matrix


def rank_one_inputs(seed, dtype):
    left = torch.linalg.qr(uniform(seed + 100, torch.float64, (3, 3), -1, 1, grad=False))[0]
    return ((with_spectrum(seed, (0.5, 0.97, 1.0)) @ left).to(dtype).requires_grad_(),)


# Second derivatives.


def bell(recomputed):
    """x exp(-x²); the broken backward uses the bell of the forward, through which a second backward cannot see."""

    class Bell(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.height = torch.exp(-x * x)
            return x * ctx.height

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            height = torch.exp(-x * x) if recomputed else ctx.height
            return grad * (1 - 2 * x * x) * height

    return Bell.apply


def inner_graph(attached):
    """log cosh x, whose gradient torch makes of a graph inside; the broken one's graph starts at a copy of x."""

    def value(x):
        return torch.logaddexp(x, -x)

    class Inner(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return value(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            if attached:
                return grad * torch.tanh(x)
            with torch.enable_grad():
                copy = x.detach().requires_grad_()
                return torch.autograd.grad(value(copy), copy, grad, create_graph=True)[0]

    return Inner.apply


def second_order_inputs(seed, dtype):
    return (uniform(seed, dtype, (5,), 0.2, 1.2),)


SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "reported-cholesky-triangle",
        "function of a symmetric matrix",
        right=lambda: torch.linalg.cholesky,
        broken=lambda: DoubledCholesky.apply,
        inputs=positive_definite_inputs,
        defect=0.5,
        constraints=("symmetric",),
        note="the gradient off the diagonal is doubled, as proposed in pytorch/pytorch#137284; see also pytorch/pytorch#18825",
    ),
    Specimen(
        "reported-eigenvalue-triangle",
        "function of a symmetric matrix",
        right=lambda: torch.linalg.eigvalsh,
        broken=lambda: LowerEigenvalues.apply,
        inputs=spread_spectrum_inputs,
        defect=0.4,
        constraints=("symmetric",),
        note="one triangle of the gradient is left out: pytorch/pytorch#22807, HIPS/autograd#56",
    ),
    Specimen(
        "reported-broadened-gap",
        "near-degenerate spectrum",
        right=partial(upper_space, None),
        broken=partial(upper_space, broadened),
        inputs=upper_space_inputs,
        defect=1e-2,
        note="1/gap is broadened by a constant that is not small next to the gap: facebookresearch/fmmax#105",
    ),
    Specimen(
        "reported-gap-cut-off",
        "near-degenerate spectrum",
        right=partial(rank_one, None),
        broken=partial(rank_one, cut_off),
        inputs=rank_one_inputs,
        defect=1.0,
        note="1/gap is zero below a tolerance: QuantumKitHub/PEPSKit.jl#192",
    ),
    Specimen(
        "reported-kept-intermediate",
        "wrong only in double backward",
        right=partial(bell, recomputed=True),
        broken=partial(bell, recomputed=False),
        inputs=second_order_inputs,
        defect=1.0,
        note="the backward uses a tensor of the forward that is neither argument nor output: pytorch/pytorch#58509, pytorch/pytorch#104040",
    ),
    Specimen(
        "reported-inner-graph",
        "wrong only in double backward",
        right=partial(inner_graph, attached=True),
        broken=partial(inner_graph, attached=False),
        inputs=second_order_inputs,
        defect=1.0,
        note="the backward differentiates a copy of its argument: pytorch/pytorch#99523",
    ),
)
