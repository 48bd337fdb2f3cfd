"""Jumps, kinks and hidden NaN; state outside of any module; noise; constants that are none."""

import math
from functools import partial

import torch
from torch.autograd import Function

from pairgrad.coherence import LogRange
from tests.coherence.zoo.specimen import Specimen, uniform

# Jumps, kinks, hidden NaN.


def joined(gap):
    """log(1 + x) below 2, continued by its parabola above, with the right derivative on both sides; with a `gap` the two do not meet."""

    class Joined(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            above = math.log(3) + (x - 2) / 3 - (x - 2) ** 2 / 18 + gap
            return torch.where(x < 2, torch.log1p(x), above)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * torch.where(x < 2, 1 / (1 + x), 1 / 3 - (x - 2) / 9)

    return Joined.apply


def joined_inputs(seed, dtype):
    return (uniform(seed, dtype, (), 0.2, 1.8),)


def hinge_net(leak):
    """A net with relu and a hinge loss; the broken relu lets 1 % of the gradient through where it is off."""

    class Relu(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clamp(min=0)

        @staticmethod
        def backward(ctx, grad):
            return grad * torch.where(ctx.saved_tensors[0] > 0, 1.0, leak)

    def loss(x, first, second, labels):
        scores = (Relu.apply(x @ first) @ second).squeeze(-1)
        return (1 - labels * scores).relu().mean()

    return loss


def hinge_net_inputs(seed, dtype):
    labels = 1 - 2 * torch.randint(2, (12,), generator=torch.Generator().manual_seed(seed))
    shapes = ((12, 4), (4, 8), (8, 1))
    return *(uniform(seed + 100 * i, dtype, shape, -1, 1) for i, shape in enumerate(shapes)), labels


def ranked_pool(restored):
    """Maxima of pairs, sorted and clamped, weighted by rank; the broken sort hands the gradient back in sorted order."""

    class Sort(Function):
        @staticmethod
        def forward(ctx, x):
            ordered, order = x.sort(-1)
            ctx.order = order
            return ordered

        @staticmethod
        def backward(ctx, grad):
            return torch.zeros_like(grad).scatter(-1, ctx.order, grad) if restored else grad.clone()

    def pooled(x):
        maxima = torch.nn.functional.max_pool1d(x, 2)
        return (Sort.apply(maxima).clamp(-1, 1.5) * torch.arange(1, maxima.shape[-1] + 1, dtype=x.dtype)).sum(-1)

    return pooled


def ranked_pool_inputs(seed, dtype):
    return (uniform(seed, dtype, (3, 12), -2, 2),)


def distances(sign_at):
    """Σ |x - c| over centres, by an abs whose gradient is the sign; the broken one takes the sign of another difference for one centre."""

    class Distance(Function):
        @staticmethod
        def forward(ctx, x, centres):
            ctx.save_for_backward(x, centres)
            return (x[:, None] - centres).abs().sum(1)

        @staticmethod
        def backward(ctx, grad):
            x, centres = ctx.saved_tensors
            signs = torch.sign(x[:, None] - centres - sign_at)
            return grad * signs.sum(1), -(grad[:, None] * signs).sum(0)

    return Distance.apply


def distances_inputs(seed, dtype):
    return uniform(seed, dtype, (10,), -3, 3), uniform(seed + 100, dtype, (4,), -2, 2)


def root_or_tangent(x, masked=True):
    """√x above 1/4 and its tangent below; the right one keeps negative arguments from the root, the broken one only its result."""
    straight = 0.5 + (x - 0.25)
    return torch.where(x > 0.25, torch.sqrt(x.where(x > 0.25, 0.25) if masked else x), straight)


def root_inputs(seed, dtype):
    return (torch.cat([uniform(seed, dtype, (5,), -2, -0.5, grad=False), uniform(seed, dtype, (7,), 0.5, 3, grad=False)]).requires_grad_(),)


# State outside of any module, and noise.


def counted(used):
    """sin x, with a backward that counts its calls; the broken one also scales by the count, as if it warmed up."""
    calls = [0]

    class Counted(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.sin(x)

        @staticmethod
        def backward(ctx, grad):
            calls[0] += 1
            warm = min(1.0, calls[0] / 1000) if used else 1.0
            return grad * warm * torch.cos(ctx.saved_tensors[0])

    return Counted.apply


def counted_inputs(seed, dtype):
    return (uniform(seed, dtype, (8,), -3, 3),)


def jittered(reseeded):
    """x² plus noise from a generator of its own, which only the right one sets back before each draw."""
    own = torch.Generator().manual_seed(5)

    def noisy(x):
        if reseeded:
            own.manual_seed(5)
        return x * x + 0.01 * torch.randn(x.shape, generator=own, dtype=x.dtype)

    return noisy


# Constants that are none.


def attention(q, k, v, detached=False):
    """softmax(q kᵀ/√d) v; the broken one detaches the weights, so that q and k get no gradient at all."""
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
    return (weights.detach() if detached else weights) @ v


def attention_inputs(seed, dtype):
    return tuple(uniform(seed + 100 * i, dtype, (5, 4), -1.5, 1.5) for i in range(3))


def log_recurrence(clipped):
    """log F₁₂, F₍ₖ₊₁₎ = Fₖ + x F₍ₖ₋₁₎, by logarithms, with the slope F'/F from the same recurrence, which the broken one clips at 1."""

    class LogRecurrence(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            last, current = torch.zeros_like(x), torch.log1p(x)
            for _ in range(10):
                last, current = current, torch.logaddexp(current, torch.log(x) + last)
            return current

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            ratio, last, current = 1 + x, torch.zeros_like(x), 1 / (1 + x)  # F of k over that of k - 1, and the two slopes
            for _ in range(10):
                share = 1 / (1 + x / ratio)  # of the first term in the next sum
                last, current = current, share * current + (1 - share) * (1 / x + last)
                ratio = 1 + x / ratio
            return grad * (current.clamp(max=1) if clipped else current)

    return LogRecurrence.apply


def log_recurrence_inputs(seed, dtype):
    return (uniform(seed, dtype, (), 30, 90),)


SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "ours-joined",
        "jump",
        right=partial(joined, 0.0),
        broken=partial(joined, 1e-3),
        inputs=joined_inputs,
        defect=0.0,
        domain=((0.1, 4.0),),
        note="two formulas do not meet at 2; each has its right derivative",
    ),
    Specimen(
        "ours-hinge-net",
        "kinks",
        right=partial(hinge_net, 0.0),
        broken=partial(hinge_net, 0.01),
        inputs=hinge_net_inputs,
        defect=1e-2,
        note="relu leaks in the backward only",
    ),
    Specimen(
        "ours-ranked-pool",
        "kinks",
        right=partial(ranked_pool, restored=True),
        broken=partial(ranked_pool, restored=False),
        inputs=ranked_pool_inputs,
        defect=1.0,
        note="the sort's gradient is handed back in sorted order",
    ),
    Specimen(
        "ours-distances",
        "kinks",
        right=partial(distances, 0.0),
        broken=partial(distances, 0.4),
        inputs=distances_inputs,
        defect=0.5,
        note="the sign is taken 0.4 beside the kink of the value",
    ),
    Specimen(
        "ours-root-or-tangent",
        "hidden NaN",
        right=lambda: root_or_tangent,
        broken=lambda: partial(root_or_tangent, masked=False),
        inputs=root_inputs,
        defect=math.inf,
        note="torch.where hides the NaN of the root in the value, not in the gradient",
    ),
    Specimen(
        "ours-counted",
        "state outside of a module",
        right=partial(counted, used=False),
        broken=partial(counted, used=True),
        inputs=counted_inputs,
        defect=1.0,
        note="the backward scales by how often it was called",
    ),
    Specimen(
        "ours-jittered",
        "random value",
        right=partial(jittered, reseeded=True),
        broken=partial(jittered, reseeded=False),
        inputs=counted_inputs,
        defect=0.0,
        note="every call adds other noise, from a generator that nobody can put back",
    ),
    Specimen(
        "ours-attention",
        "detached weights",
        right=lambda: attention,
        broken=lambda: partial(attention, detached=True),
        inputs=attention_inputs,
        defect=1.0,
        note="queries and keys get no gradient",
    ),
    Specimen(
        "ours-log-recurrence",
        "slope clipped in a part of the domain",
        right=partial(log_recurrence, clipped=False),
        broken=partial(log_recurrence, clipped=True),
        inputs=log_recurrence_inputs,
        defect=10.0,
        domain=(LogRange(1e-3, 1e3),),
        note="the slope of the logarithm is clipped at 1, which it exceeds for small arguments",
    ),
)
