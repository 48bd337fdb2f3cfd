"""Kinds 5 to 8: a detached iteration, a truncated adjoint, a rescaling coupled by the batch, mistakes of reduction."""

from functools import partial

import torch
from torch.autograd import Function
from torch.library import custom_op

from tests.coherence.zoo.specimen import DOUBLE, Specimen, save_inputs, uniform

# 5. Detached iteration.


def spectral_normalise(weight, detached=False):
    """W / (uᵀ W v) after two power iterations for u and v, which are functions of W: constants only if they had converged."""
    u = torch.linspace(1, 2, weight.shape[0], dtype=weight.dtype)
    source = weight.detach() if detached else weight
    for _ in range(2):
        v = torch.nn.functional.normalize(source.mT @ u, dim=0)
        u = torch.nn.functional.normalize(source @ v, dim=0)
    return weight / (u @ weight @ v)


def spectral_inputs(seed, dtype):
    return (uniform(seed, dtype, (6, 5), -1, 1.5),)


def equilibrium(bias, matrix, attached=40):
    """Forty steps of z ← tanh(W z + b); only the last `attached` of them are differentiated (all forty are right)."""
    z = torch.zeros_like(bias)
    for step in range(40):
        z = torch.tanh(z @ matrix.mT + bias)
        if step < 40 - attached:
            z = z.detach()
    return z


def equilibrium_inputs(seed, dtype):
    return uniform(seed, dtype, (3, 5), -0.5, 0.5), uniform(seed + 100, dtype, (5, 5), 0, 0.14)


# 6. Truncated adjoint.


def linear_scan(window):
    """h_t = a h_{t-1} + x_t; the adjoint is Σ_j a^j g_{t+j} over all later steps, and the broken one stops after `window` of them."""

    class Scan(Function):
        @staticmethod
        def forward(x, decay):
            states = [x[0]]
            for row in x[1:]:
                states.append(decay * states[-1] + row)
            return torch.stack(states)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[1], output)

        @staticmethod
        def backward(ctx, grad):
            decay, states = ctx.saved_tensors
            adjoint = grad
            for j in range(1, min(window, len(grad))):
                adjoint = adjoint + decay**j * torch.cat((grad[j:], torch.zeros_like(grad[:j])))
            return adjoint, (adjoint[1:] * states[:-1]).sum()

    return Scan.apply


def scan_inputs(seed, dtype):
    return uniform(seed, dtype, (24, 3), -1, 2), uniform(seed + 100, dtype, (), 0.45, 0.55)


def implicit_solve(name, terms):
    """x = (I - W)⁻¹ b; the adjoint solves with the transpose, or sums the first `terms` of its Neumann series (broken)."""

    def forward(matrix, b):
        return torch.linalg.solve(torch.eye(len(b), dtype=b.dtype) - matrix, b)

    op = custom_op(f"zoo_independent::{name}", mutates_args=(), schema="(Tensor matrix, Tensor b) -> Tensor")(forward)
    op.register_fake(forward)

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    def backward(ctx, grad):
        matrix, x = ctx.saved_tensors
        if terms is None:
            adjoint = torch.linalg.solve(torch.eye(len(x), dtype=x.dtype) - matrix.mT, grad)
        else:
            adjoint = grad
            for _ in range(terms - 1):
                adjoint = grad + matrix.mT @ adjoint
        return torch.outer(adjoint, x), adjoint

    op.register_autograd(backward, setup_context=setup_context)
    return op


IMPLICIT_SOLVE, IMPLICIT_SOLVE_TRUNCATED = implicit_solve("implicit_solve", None), implicit_solve("implicit_solve_truncated", 16)


def implicit_inputs(seed, dtype):
    matrix = uniform(seed, dtype, (6, 6), 0.1, 1, grad=False)
    matrix = 0.36 * matrix / matrix.sum(1, keepdim=True)  # of spectral radius 0.36
    return matrix.requires_grad_(), uniform(seed + 100, dtype, (6,), 0.5, 2)


# 7. Batch-coupled rescale.


def squared_hinge(rescaled):
    """max(0, 1 - y s)² for each sample, with the derivative -2 y max(0, 1 - y s), which the broken one divides by the share of active samples."""

    class SquaredHinge(Function):
        @staticmethod
        def forward(ctx, scores, labels):
            ctx.save_for_backward(scores, labels)
            return (1 - labels * scores).relu() ** 2

        @staticmethod
        def backward(ctx, grad):
            scores, labels = ctx.saved_tensors
            margin = (1 - labels * scores).relu()
            share = (margin > 0).to(margin.dtype).mean() if rescaled else 1
            return -2 * grad * labels * margin / share, None

    return SquaredHinge.apply


def squared_hinge_inputs(seed, dtype):
    labels = 1 - 2 * torch.randint(2, (20,), generator=torch.Generator().manual_seed(seed))
    return uniform(seed, dtype, (20,), -3, 3), labels


def softsign(capped):
    """x / (1 + |x|), with the derivative 1 / (1 + |x|)²; the broken one caps the norm of grad_output over the batch at 1."""

    class Softsign(Function):
        @staticmethod
        def forward(x):
            return x / (1 + x.abs())

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            scale = (1 / grad.norm()).clamp(max=1) if capped else 1
            return grad * scale / (1 + x.abs()) ** 2

    return Softsign.apply


def softsign_inputs(seed, dtype):
    return (uniform(seed, dtype, (16, 8), -4, 4),)


# 8. Reduction mistakes.


def cross_entropy(over_all):
    """Mean of -log p over the rows not ignored, and (p - onehot) over their number; the broken one divides by the number of all rows."""

    class CrossEntropy(Function):
        @staticmethod
        def forward(logits, targets, ignore):
            kept = targets != ignore
            return -logits.log_softmax(-1)[kept, targets[kept]].mean()

        @staticmethod
        def setup_context(ctx, inputs, output):
            logits, targets, ctx.ignore = inputs
            ctx.save_for_backward(logits, targets)

        @staticmethod
        def backward(ctx, grad):
            logits, targets = ctx.saved_tensors
            kept = targets != ctx.ignore
            hot = torch.nn.functional.one_hot(targets.where(kept, 0), logits.shape[-1])
            count = len(targets) if over_all else kept.sum()
            return grad * (logits.softmax(-1) - hot) * kept[:, None] / count, None, None

    return CrossEntropy.apply


def cross_entropy_inputs(seed, dtype):
    targets = torch.randint(7, (11,), generator=torch.Generator().manual_seed(seed))
    targets[[2, 5, 9]] = -100
    return uniform(seed, dtype, (11, 7), -3, 3), targets, -100


def affine(name, bias_dim):
    """x w + b over the last axis; the derivative in b is summed over the rows (dim 0), wrongly over the columns: the shapes agree."""

    def forward(x, weight, bias):
        return x * weight + bias

    op = custom_op(f"zoo_independent::{name}", mutates_args=(), schema="(Tensor x, Tensor weight, Tensor bias) -> Tensor")(forward)
    op.register_fake(forward)

    def backward(ctx, grad):
        x, weight, _ = ctx.saved_tensors
        return grad * weight, (grad * x).sum(0), grad.sum(bias_dim)

    op.register_autograd(backward, setup_context=save_inputs)
    return op


AFFINE, AFFINE_ACROSS = affine("affine", 0), affine("affine_across", 1)


def affine_inputs(seed, dtype):
    return tuple(uniform(seed + 100 * i, dtype, shape, -2, 2) for i, shape in enumerate([(5, 5), (5,), (5,)]))


SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "independent-spectral-norm",
        "detached iteration",
        right=lambda: spectral_normalise,
        broken=lambda: partial(spectral_normalise, detached=True),
        inputs=spectral_inputs,
        defect=0.1,
        note="u and v, not converged after two iterations, are taken as constants",
    ),
    Specimen(
        "independent-equilibrium",
        "detached iteration",
        right=lambda: equilibrium,
        broken=lambda: partial(equilibrium, attached=10),
        inputs=equilibrium_inputs,
        defect=1e-5,
        dtypes=DOUBLE,
        note="the first thirty of forty iterates are detached",
    ),
    Specimen(
        "independent-linear-scan",
        "truncated adjoint",
        right=partial(linear_scan, 10**6),
        broken=partial(linear_scan, 8),
        inputs=scan_inputs,
        defect=5e-3,
        note="the adjoint looks eight steps ahead instead of to the end",
    ),
    Specimen(
        "independent-implicit-solve",
        "truncated adjoint",
        right=lambda: IMPLICIT_SOLVE,
        broken=lambda: IMPLICIT_SOLVE_TRUNCATED,
        inputs=implicit_inputs,
        defect=3e-8,
        dtypes=DOUBLE,
        note="the adjoint solve is a Neumann series that stops after 16 terms",
    ),
    Specimen(
        "independent-squared-hinge",
        "batch-coupled rescale",
        right=partial(squared_hinge, rescaled=False),
        broken=partial(squared_hinge, rescaled=True),
        inputs=squared_hinge_inputs,
        defect=0.5,
        note="each sample's gradient is divided by the share of active samples in the batch",
    ),
    Specimen(
        "independent-softsign",
        "batch-coupled rescale",
        right=partial(softsign, capped=False),
        broken=partial(softsign, capped=True),
        inputs=softsign_inputs,
        defect=0.9,
        note="grad_output is scaled to norm 1 over the batch if it is larger",
    ),
    Specimen(
        "independent-cross-entropy",
        "reduction: divided by another count",
        right=partial(cross_entropy, over_all=False),
        broken=partial(cross_entropy, over_all=True),
        inputs=cross_entropy_inputs,
        defect=0.27,
        note="the backward counts the ignored rows too",
    ),
    Specimen(
        "independent-affine",
        "reduction: broadcasting summed over the wrong axis",
        right=lambda: AFFINE,
        broken=lambda: AFFINE_ACROSS,
        inputs=affine_inputs,
        defect=1.0,
        note="the bias's gradient is summed over columns instead of rows, of a square input",
    ),
)
