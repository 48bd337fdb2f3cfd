"""Losses and normalisations: per-row cotangents, the size of grad_output, constant factors, arguments that are overwritten."""

from functools import partial

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.coherence.zoo.specimen import Specimen, uniform


def _misfit(logits, targets):
    """softmax(logits) - one-hot(targets), the gradient of each row's cross-entropy."""
    return logits.softmax(-1) - torch.nn.functional.one_hot(targets, logits.shape[-1]).to(logits.dtype)


def _targets(seed, rows, classes):
    return torch.randint(classes, (rows,), generator=torch.Generator().manual_seed(seed))


# reduction="none": one cotangent for each row.


def linear_cross_entropy(by_row):
    """The cross-entropy of x Wᵀ + b, row by row; the broken one weighs the gradients of W and b with the first row's cotangent."""

    class LinearCrossEntropy(Function):
        @staticmethod
        def forward(ctx, x, weight, bias, targets):
            ctx.save_for_backward(x, weight, bias, targets)
            return torch.nn.functional.cross_entropy(x @ weight.mT + bias, targets, reduction="none")

        @staticmethod
        def backward(ctx, grad):
            x, weight, bias, targets = ctx.saved_tensors
            misfit = _misfit(x @ weight.mT + bias, targets)
            by_logits = grad[:, None] * misfit
            shared = by_logits if by_row else grad[0] * misfit
            return by_logits @ weight, shared.mT @ x, shared.sum(0), None

    return LinearCrossEntropy.apply


def linear_cross_entropy_inputs(seed, dtype):
    return (
        uniform(seed, dtype, (4, 2), -1, 1),
        uniform(seed + 100, dtype, (3, 2), -1, 1),
        uniform(seed + 200, dtype, (3,), -1, 1),
        _targets(seed, 4, 3),
    )


def cross_entropy(weigh):
    """The cross-entropy of each row; `weigh` makes the rows' weights from grad_output."""

    class CrossEntropy(Function):
        @staticmethod
        def forward(ctx, logits, targets):
            ctx.save_for_backward(logits, targets)
            return torch.nn.functional.cross_entropy(logits, targets, reduction="none")

        @staticmethod
        def backward(ctx, grad):
            return weigh(grad)[:, None] * _misfit(*ctx.saved_tensors), None

    return CrossEntropy.apply


def each(grad):
    return grad


def their_mean(grad):
    return grad.mean().expand_as(grad)


def over_their_number(grad):
    return grad / len(grad)


def cross_entropy_inputs(seed, dtype):
    return uniform(seed, dtype, (4, 3), -2, 2), _targets(seed, 4, 3)


# The size of grad_output; constant factors.


def soft_cost(scaled):
    """-Σ log Σ exp(-C), a soft assignment cost, whose gradient the forward keeps; the broken backward hands it out whatever grad_output is."""

    class SoftCost(Function):
        @staticmethod
        def forward(ctx, cost):
            ctx.save_for_backward((-cost).softmax(-1))
            return -torch.logsumexp(-cost, -1).sum()

        @staticmethod
        @once_differentiable
        def backward(ctx, grad):
            (plan,) = ctx.saved_tensors
            return grad * plan if scaled else plan.clone()

    return SoftCost.apply


def soft_cost_inputs(seed, dtype):
    return (uniform(seed, dtype, (3, 4), 0, 2),)


def guided(limit):
    """x² w; the broken backward replaces what is above 1000 in grad_output, which a loss scale makes of ordinary gradients."""

    class Guided(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x * x * weight

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            grad = grad if limit is None else grad.clamp(-limit, limit)
            return 2 * grad * x * weight, grad * x * x

    return Guided.apply


def guided_inputs(seed, dtype):
    return uniform(seed, dtype, (5,), 0.5, 2), uniform(seed + 100, dtype, (5,), 0.5, 2)


def group_mean(divided):
    """The mean of sin x over three groups; its backward divides by their number, the broken one twice."""

    class GroupMean(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.sin(x).mean(0)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * torch.cos(x) / len(x) ** divided

    return GroupMean.apply


def group_mean_inputs(seed, dtype):
    return (uniform(seed, dtype, (3, 4), -1, 1),)


def implicit_root(step):
    """The y with y + y³ = x, by Newton's method; the broken gradient is shortened by the `step` of the last update."""

    class Root(Function):
        @staticmethod
        def forward(ctx, x):
            y = x / 2
            for _ in range(8):
                y = (x + 2 * y**3) / (1 + 3 * y * y)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            (y,) = ctx.saved_tensors
            return step * grad / (1 + 3 * y * y)

    return Root.apply


def implicit_root_inputs(seed, dtype):
    return (uniform(seed, dtype, (5,), 0.3, 2),)


def layer_norm(times):
    """(x - mean)/√(var + ε) times γ; its backward subtracts the mean of γ grad, the broken one `times` two."""

    def normalised(x):
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt((centred**2).mean(-1, keepdim=True) + 1e-3)
        return centred * scale, scale

    class LayerNorm(Function):
        @staticmethod
        def forward(ctx, x, gamma):
            ctx.save_for_backward(x, gamma)
            return normalised(x)[0] * gamma

        @staticmethod
        def backward(ctx, grad):
            x, gamma = ctx.saved_tensors
            hat, scale = normalised(x)
            inner = grad * gamma
            by_x = scale * (inner - times * inner.mean(-1, keepdim=True) - hat * (inner * hat).mean(-1, keepdim=True))
            return by_x, (grad * hat).sum(0)

    return LayerNorm.apply


def layer_norm_inputs(seed, dtype):
    return uniform(seed, dtype, (3, 4), -2, 2), uniform(seed + 100, dtype, (4,), 0.5, 1.5)


# Overwritten arguments.


def kept_logits(kept):
    """The cross-entropy of each row; the broken backward writes the gradient over the logits that it has saved."""

    class CrossEntropy(Function):
        @staticmethod
        def forward(ctx, logits, targets):
            ctx.save_for_backward(logits, targets)
            return torch.nn.functional.cross_entropy(logits, targets, reduction="none")

        @staticmethod
        @once_differentiable
        def backward(ctx, grad):
            logits, targets = ctx.saved_tensors
            result = grad[:, None] * _misfit(logits, targets)
            return (result, None) if kept else (logits.data.copy_(result), None)

    return CrossEntropy.apply


def shared_logits(kept):
    """Two losses of the same logits: their squares, and a cross-entropy that subtracts the largest, in the broken one in the place of the logits."""

    class Stable(Function):
        @staticmethod
        def forward(ctx, logits, targets):
            ctx.save_for_backward(logits.clone(), targets)
            largest = logits.amax(-1, keepdim=True)
            shifted = logits - largest if kept else logits.data.sub_(largest)
            return torch.logsumexp(shifted, -1) - shifted.gather(1, targets[:, None]).squeeze(1)

        @staticmethod
        @once_differentiable
        def backward(ctx, grad):
            return grad[:, None] * _misfit(*ctx.saved_tensors), None

    def losses(x, targets):
        logits = torch.tanh(x) * 3
        squares = (logits * logits).sum(-1)
        return squares + Stable.apply(logits, targets)

    return losses


SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "reported-token-weights",
        "uneven cotangents of a loss without reduction",
        right=partial(linear_cross_entropy, by_row=True),
        broken=partial(linear_cross_entropy, by_row=False),
        inputs=linear_cross_entropy_inputs,
        defect=1.0,
        note="weight and bias are scaled by the first row's cotangent: linkedin/Liger-Kernel#1298, linkedin/Liger-Kernel#968",
    ),
    Specimen(
        "reported-mean-cotangent",
        "uneven cotangents of a loss without reduction",
        right=partial(cross_entropy, each),
        broken=partial(cross_entropy, their_mean),
        inputs=cross_entropy_inputs,
        defect=1.0,
        note="the rows' cotangents are replaced by their mean: unslothai/unsloth-zoo#434, linkedin/Liger-Kernel#680",
    ),
    Specimen(
        "reported-divided-by-rows",
        "constant factor",
        right=partial(cross_entropy, each),
        broken=partial(cross_entropy, over_their_number),
        inputs=cross_entropy_inputs,
        defect=0.75,
        note="a loss that is not reduced divides its gradient by the number of rows: ROCm/TransformerEngine#336",
    ),
    Specimen(
        "reported-transport-cost",
        "size of grad_output",
        right=partial(soft_cost, scaled=True),
        broken=partial(soft_cost, scaled=False),
        inputs=soft_cost_inputs,
        defect=1.0,
        note="factors behind the cost do not reach the gradient: PythonOT/POT#309",
    ),
    Specimen(
        "reported-specified-gradient",
        "size of grad_output",
        right=partial(guided, None),
        broken=partial(guided, 1000.0),
        inputs=guided_inputs,
        defect=1.0,
        note="what is above 1000 is cut off, without regard to the loss scale: ashawkey/stable-dreamfusion#158",
    ),
    Specimen(
        "reported-group-count",
        "constant factor",
        right=partial(group_mean, 1),
        broken=partial(group_mean, 2),
        inputs=group_mean_inputs,
        defect=0.67,
        note="the gradient is divided by the number of groups once more: facebookresearch/fairchem#1067",
    ),
    Specimen(
        "reported-implicit-step",
        "constant factor",
        right=partial(implicit_root, 1.0),
        broken=partial(implicit_root, 0.75),
        inputs=implicit_root_inputs,
        defect=0.25,
        note="an implicit gradient is scaled by the solver's step size: facebookresearch/theseus#39",
    ),
    Specimen(
        "reported-mean-subtracted-twice",
        "constant factor",
        right=partial(layer_norm, 1),
        broken=partial(layer_norm, 2),
        inputs=layer_norm_inputs,
        defect=0.5,
        note="the mean of the gradient is subtracted twice: tenstorrent/tt-metal#53204",
    ),
    Specimen(
        "reported-overwritten-logits",
        "in-place edit of an argument",
        right=partial(kept_logits, kept=True),
        broken=partial(kept_logits, kept=False),
        inputs=cross_entropy_inputs,
        defect=1.0,
        note="the gradient is written over the logits: unslothai/unsloth#5002, modelscope/ms-swift#10129",
    ),
    Specimen(
        "reported-shared-logits",
        "in-place edit of an argument",
        right=partial(shared_logits, kept=True),
        broken=partial(shared_logits, kept=False),
        inputs=cross_entropy_inputs,
        defect=0.5,
        note="the forward shifts logits in place that another loss has saved: NVIDIA/Megatron-LM#1594",
    ),
)
