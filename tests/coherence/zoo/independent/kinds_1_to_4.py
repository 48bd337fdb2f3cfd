"""Kinds 1 to 4: a wrong factor in one branch, a clamp that the other side does not know of, a dropped normaliser, edits in place."""

import math
from functools import partial

import torch
from torch.autograd import Function
from torch.library import custom_op

from tests.coherence.zoo.specimen import DOUBLE, Specimen, save_inputs, uniform

# 1. Wrong factor in one branch.


def leaky_gelu(density):
    """GELU for x > 0, 0.1 x below; GELU' = Φ(x) + x φ(x), where φ has the factor `density`: rightly 1/√(2π), wrongly seven digits of it."""

    class LeakyGelu(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.where(x > 0, 0.5 * x * (1 + torch.erf(x / math.sqrt(2))), 0.1 * x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            slope = 0.5 * (1 + torch.erf(x / math.sqrt(2))) + density * x * torch.exp(-0.5 * x * x)
            return grad * torch.where(x > 0, slope, 0.1)

    return LeakyGelu.apply


def leaky_gelu_inputs(seed, dtype):
    return (uniform(seed, dtype, (40,), -3, 3),)


def expectile_loss(factor):
    """Mean of w r², w = τ for r > 0 and 1 - τ below; the derivative is 2 w r / n, and wrong by `factor` below."""

    class Expectile(Function):
        @staticmethod
        def forward(prediction, target, tau):
            residual = target - prediction
            return (torch.where(residual > 0, tau * residual, (1 - tau) * residual) * residual).mean()

        @staticmethod
        def setup_context(ctx, inputs, output):
            prediction, target, ctx.tau = inputs
            ctx.save_for_backward(prediction, target)

        @staticmethod
        def backward(ctx, grad):
            prediction, target = ctx.saved_tensors
            residual = target - prediction
            weighted = torch.where(residual > 0, ctx.tau * residual, factor * (1 - ctx.tau) * residual)
            slope = grad * 2 * weighted / residual.numel()
            return -slope, slope, None

    return Expectile.apply


def expectile_inputs(seed, dtype):
    return uniform(seed, dtype, (30,), -2, 2), uniform(seed + 100, dtype, (30,), -2, 2, grad=False), 0.7


# 2. A clamp that the other side does not know of.


def clipped_surrogate(gated):
    """Mean of exp(clamp(log p - log q)) a; the derivative in log p and log q is zero where the clamp holds, which the broken one forgets."""

    class Surrogate(Function):
        @staticmethod
        def forward(log_p, log_q, advantage, clip):
            return (torch.exp((log_p - log_q).clamp(-clip, clip)) * advantage).mean()

        @staticmethod
        def setup_context(ctx, inputs, output):
            *tensors, ctx.clip = inputs
            ctx.save_for_backward(*tensors)

        @staticmethod
        def backward(ctx, grad):
            log_p, log_q, advantage = ctx.saved_tensors
            change = log_p - log_q
            ratio = torch.exp(change.clamp(-ctx.clip, ctx.clip)) / change.numel()
            free = change.abs() < ctx.clip if gated else 1
            slope = grad * ratio * advantage * free
            return slope, -slope, grad * ratio, None

    return Surrogate.apply


def clipped_surrogate_inputs(seed, dtype):
    log_p, log_q = uniform(seed, dtype, (24,), -1, 0), uniform(seed + 100, dtype, (24,), -1, 0)
    return log_p, log_q, uniform(seed + 200, dtype, (24,), 0.2, 2), 0.3


def log_with_slope(name, slope):
    """log(x), with the given backward factor `slope(x)`."""

    def forward(x):
        return torch.log(x)

    op = custom_op(f"zoo_independent::{name}", mutates_args=(), schema="(Tensor x) -> Tensor")(forward)
    op.register_fake(forward)

    op.register_autograd(lambda ctx, grad: grad * slope(ctx.saved_tensors[0]), setup_context=save_inputs)
    return op


LOG = log_with_slope("log", lambda x: 1 / x)
LOG_FLOORED = log_with_slope("log_floored", lambda x: 1 / x.clamp(min=1e-3))  # log(x) itself has no floor


def small_inputs(seed, dtype):
    """Values from about 3e-4 to 4e-3."""
    return ((torch.linspace(3e-4, 4e-3, 20, dtype=dtype) * uniform(seed, dtype, (20,), 0.9, 1.1, grad=False)).requires_grad_(),)


# 3. Dropped normaliser.


def rms_norm(name, backward_eps):
    """x w / √(mean x² + ε); the derivative goes through the root, whose ε the broken one leaves out in the backward."""

    def forward(x, weight):
        return x * weight * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)

    op = custom_op(f"zoo_independent::{name}", mutates_args=(), schema="(Tensor x, Tensor weight) -> Tensor")(forward)
    op.register_fake(forward)

    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        scale = torch.rsqrt((x * x).mean(-1, keepdim=True) + backward_eps)
        pulled = grad * weight
        along = (pulled * x).mean(-1, keepdim=True)
        return scale * (pulled - x * scale**2 * along), (grad * x * scale).sum(0)

    op.register_autograd(backward, setup_context=save_inputs)
    return op


RMS_NORM, RMS_NORM_WITHOUT_EPS = rms_norm("rms_norm", 1e-5), rms_norm("rms_norm_without_eps", 0.0)


def rms_norm_inputs(seed, dtype):
    return uniform(seed, dtype, (6, 8), -2, 2), uniform(seed + 100, dtype, (8,), 0.5, 1.5)


def cosine(a, b):
    """Row-wise a·b / (|a| |b|), differentiated in full."""
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))


def cosine_with_fixed_norms(a, b):
    """The same, with the norms taken as constants."""
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1)).detach()


def cosine_inputs(seed, dtype):
    return uniform(seed, dtype, (5, 7), -2, 2), uniform(seed + 100, dtype, (5, 7), -2, 2)


def attention(normalised):
    """softmax(q kᵀ/√d) v; the scores' derivative is p (dp - Σ p dp), and the broken one drops the sum, which is the normaliser's part."""

    def probabilities(q, k, causal):
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
        return scores.softmax(-1)

    class Attention(Function):
        @staticmethod
        def forward(ctx, q, k, v, causal):
            ctx.save_for_backward(q, k, v)
            ctx.causal = causal
            return probabilities(q, k, causal) @ v

        @staticmethod
        def backward(ctx, grad):
            q, k, v = ctx.saved_tensors
            p = probabilities(q, k, ctx.causal)
            grad_p = grad @ v.mT
            centre = (p * grad_p).sum(-1, keepdim=True) if normalised else 0
            grad_scores = p * (grad_p - centre) / math.sqrt(q.shape[-1])
            return grad_scores @ k, grad_scores.mT @ q, p.mT @ grad, None

    return Attention.apply


def attention_inputs(seed, dtype):
    return *(uniform(seed + 100 * i, dtype, (2, 5, 4), -1.5, 1.5) for i in range(3)), True


# 4. In-place edits.


def residual_energy(in_place):
    """Mean of (x + tanh 2x)²; the backward of tanh must not write into grad_output, which the sum also hands to x."""

    class Tanh(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.tanh(2 * x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            slope = 2 - 2 * torch.tanh(2 * x) ** 2
            return grad.mul_(slope) if in_place else grad * slope

    def energy(x):
        return ((x + Tanh.apply(x)) ** 2).mean()

    return energy


def residual_inputs(seed, dtype):
    return (uniform(seed, dtype, (4, 6), -1.5, 1.5),)


def scaled_gate(in_place):
    """1.02 σ(x), whose derivative is 1.02 σ (1 - σ); the broken forward keeps σ and then scales it in place."""

    class Gate(Function):
        @staticmethod
        def forward(ctx, x):
            gate = torch.sigmoid(x)
            ctx.save_for_backward(x)
            ctx.gate = gate if in_place else None
            return gate.mul_(1.02) if in_place else 1.02 * gate

        @staticmethod
        def backward(ctx, grad):
            gate = ctx.gate if in_place else torch.sigmoid(ctx.saved_tensors[0])
            return grad * 1.02 * gate * (1 - gate)

    return Gate.apply


def gate_inputs(seed, dtype):
    return (uniform(seed, dtype, (3, 10), -2, 2),)


def masked_sum(weights, values, mask):
    """Σ w v over the entries that the mask leaves; the others have no derivative in w."""
    return (weights.masked_fill(mask, 0) * values).sum(-1)


def masked_sum_editing(weights, values, mask):
    """The same value, with the mask written into the caller's weights behind autograd's back: masked entries keep the derivative v."""
    weights.data.masked_fill_(mask, 0)
    return (weights * values).sum(-1)


def masked_sum_inputs(seed, dtype):
    mask = torch.zeros(4, 6, dtype=torch.bool)
    mask[torch.arange(4), (torch.arange(4) * 5 + seed) % 6] = True
    return uniform(seed, dtype, (4, 6), 0.5, 2), uniform(seed + 100, dtype, (4, 6), -2, 2), mask


SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "independent-leaky-gelu",
        "wrong factor in one branch",
        right=partial(leaky_gelu, 1 / math.sqrt(2 * math.pi)),
        broken=partial(leaky_gelu, 0.3989423),
        inputs=leaky_gelu_inputs,
        defect=7e-9,
        dtypes=DOUBLE,
        note="1/√(2π) is rounded to seven digits in the backward of the positive branch",
    ),
    Specimen(
        "independent-expectile-loss",
        "wrong factor in one branch",
        right=partial(expectile_loss, 1.0),
        broken=partial(expectile_loss, 1.1),
        inputs=expectile_inputs,
        defect=4e-2,
        note="the branch of negative residuals is 10 % too steep",
    ),
    Specimen(
        "independent-clipped-surrogate",
        "clamp not gated",
        right=partial(clipped_surrogate, gated=True),
        broken=partial(clipped_surrogate, gated=False),
        inputs=clipped_surrogate_inputs,
        defect=1.0,
        note="the backward passes through a clamped log-ratio",
    ),
    Specimen(
        "independent-log-floor",
        "clamp only in the backward",
        right=lambda: LOG,
        broken=lambda: LOG_FLOORED,
        inputs=small_inputs,
        defect=0.5,
        note="the backward divides by max(x, 1e-3), the forward knows of no floor",
    ),
    Specimen(
        "independent-rms-norm",
        "dropped normaliser",
        right=lambda: RMS_NORM,
        broken=lambda: RMS_NORM_WITHOUT_EPS,
        inputs=rms_norm_inputs,
        defect=1e-5,
        dtypes=DOUBLE,
        note="the backward's root leaves out the ε of the forward's",
    ),
    Specimen(
        "independent-cosine",
        "dropped normaliser",
        right=lambda: cosine,
        broken=lambda: cosine_with_fixed_norms,
        inputs=cosine_inputs,
        defect=0.3,
        note="the norms are detached",
    ),
    Specimen(
        "independent-attention",
        "dropped normaliser",
        right=partial(attention, normalised=True),
        broken=partial(attention, normalised=False),
        inputs=attention_inputs,
        defect=1.0,
        note="the softmax is differentiated without its normaliser",
    ),
    Specimen(
        "independent-residual-energy",
        "in-place edit of grad_output",
        right=partial(residual_energy, in_place=False),
        broken=partial(residual_energy, in_place=True),
        inputs=residual_inputs,
        defect=0.5,
        note="the skip connection receives the gradient that the other path has overwritten",
    ),
    Specimen(
        "independent-scaled-gate",
        "in-place edit of a saved tensor",
        right=partial(scaled_gate, in_place=False),
        broken=partial(scaled_gate, in_place=True),
        inputs=gate_inputs,
        defect=2e-2,
        note="the kept sigmoid is multiplied by 1.02 before the backward reads it",
    ),
    Specimen(
        "independent-masked-sum",
        "in-place edit of an input",
        right=lambda: masked_sum,
        broken=lambda: masked_sum_editing,
        inputs=masked_sum_inputs,
        defect=0.4,
        note="the mask is written into the caller's weights, and masked entries keep a gradient",
    ),
)
