"""Attention, convolutions and recurrences over a sequence: states, gates, widths and chunks."""

from functools import partial

import torch
from torch.autograd import Function

from tests.coherence.zoo.specimen import Specimen, uniform


def short_convolution(clamped):
    """A causal convolution of width 4 that also returns its last 3 inputs, for a sequence of 2; the broken one assumes at least 3."""

    class Convolution(Function):
        @staticmethod
        def forward(ctx, x, kernel, state):
            ctx.save_for_backward(x, kernel, state)
            padded = torch.cat([state, x])
            return (padded.unfold(0, 4, 1) * kernel.mT).sum(-1), padded[-3:].clone()

        @staticmethod
        def backward(ctx, grad, grad_state):
            x, kernel, state = ctx.saved_tensors
            short = 3 - len(x)
            windows = torch.cat([state, x]).unfold(0, 4, 1)
            by_kernel = (grad[..., None] * windows).sum(0).mT
            by_padded = sum(torch.nn.functional.pad(grad * kernel[i], (0, 0, i, 3 - i)) for i in range(4))
            by_state, by_x = by_padded[:3], by_padded[3:]
            if clamped:
                return by_x + grad_state[: len(x)], by_kernel, by_state
            passed = torch.nn.functional.pad(grad_state[:short], (0, 0, 3 - short, 0))
            return by_x + grad_state[short:], by_kernel, by_state + passed

    return Convolution.apply


def short_convolution_inputs(seed, dtype):
    return uniform(seed, dtype, (2, 2), -1, 1), uniform(seed + 100, dtype, (4, 2), -1, 1), uniform(seed + 200, dtype, (3, 2), -1, 1)


def normalised_attention(detached):
    """Causal linear attention over its normaliser q Σ k; the broken one takes the running sum of the keys for a constant."""

    def attend(q, k, v):
        scores = (q @ k.mT).tril()
        running = k.cumsum(0)
        return (scores @ v) / (q * (running.detach() if detached else running)).sum(-1, keepdim=True)

    return attend


def positive_attention_inputs(seed, dtype):
    return uniform(seed, dtype, (4, 2), 0.2, 1), uniform(seed + 100, dtype, (4, 2), 0.2, 1), uniform(seed + 200, dtype, (4, 3), -1, 1)


def chunked_decay(chunk):
    """The last state of h ← exp(g) h + x; the broken backward adds a chunk's gate gradient to its last place, which an incomplete `chunk` lacks."""

    class Decay(Function):
        @staticmethod
        def forward(ctx, x, gate):
            ctx.save_for_backward(x, gate)
            h = torch.zeros_like(x[0])
            for step, decay in zip(x, torch.exp(gate), strict=True):
                h = decay * h + step
            return h

        @staticmethod
        def backward(ctx, grad):
            x, gate = ctx.saved_tensors
            left = torch.exp(gate.sum() - gate.cumsum(0))
            before = torch.cat([torch.zeros_like(gate[:1]), (left * (x @ grad)).cumsum(0)[:-1]])
            if chunk is not None and len(x) % chunk:
                before = torch.cat([before[:-1], torch.zeros_like(before[:1])])
            return left[:, None] * grad, before

    return Decay.apply


def chunked_decay_inputs(seed, dtype):
    return uniform(seed, dtype, (5, 2), 0.5, 1.5), uniform(seed + 100, dtype, (5,), -0.5, -0.1)


def wide_values(width):
    """q (kᵀ v) with more channels in v than in k; the broken gradient of q and k sees as many channels of v as k has."""

    class Linear(Function):
        @staticmethod
        def forward(ctx, q, k, v):
            ctx.save_for_backward(q, k, v)
            return q @ (k.mT @ v)

        @staticmethod
        def backward(ctx, grad):
            q, k, v = ctx.saved_tensors
            by_score = grad[:, :width] @ v[:, :width].mT
            return by_score @ k, by_score.mT @ q, k @ (q.mT @ grad)

    return Linear.apply


def wide_values_inputs(seed, dtype):
    return uniform(seed, dtype, (3, 2), -1, 1), uniform(seed + 100, dtype, (3, 2), -1, 1), uniform(seed + 200, dtype, (3, 5), 0.5, 1.5)


def gated_heads(own):
    """h ← exp(g) h + x over three steps with a gate for each head; the broken backward decays every head by the first one's gate."""

    class Heads(Function):
        @staticmethod
        def forward(ctx, x, gate):
            ctx.save_for_backward(x, gate)
            decay = torch.exp(gate)
            return x[2] + decay * (x[1] + decay * x[0])

        @staticmethod
        def backward(ctx, grad):
            x, gate = ctx.saved_tensors
            decay = torch.exp(gate)
            by_gate = grad * decay * (x[1] + 2 * decay * x[0])
            used = decay if own else decay[:1].expand_as(decay)
            return torch.stack([grad * used * used, grad * used, grad]), by_gate

    return Heads.apply


def gated_heads_inputs(seed, dtype):
    gate = torch.linspace(-1, 0.5, 6, dtype=torch.float64).reshape(3, 2).to(dtype) + uniform(
        seed + 100, dtype, (3, 2), -0.1, 0.1, grad=False
    )
    return uniform(seed, dtype, (3, 3, 2), -1, 1), gate.requires_grad_()


def scan_with_state(through_state):
    """c h of h ← a h + x at each step, and the last h; the broken backward leaves out the gradient of the last h."""

    class Scan(Function):
        @staticmethod
        def forward(ctx, x, a, c):
            ctx.save_for_backward(x, a, c)
            states = [x[0]]
            for step in x[1:]:
                states.append(a * states[-1] + step)
            return torch.stack(states) * c, states[-1].clone()

        @staticmethod
        def backward(ctx, grad, grad_state):
            x, a, c = ctx.saved_tensors
            states = [x[0]]
            for step in x[1:]:
                states.append(a * states[-1] + step)
            by_state = grad_state if through_state else torch.zeros_like(grad_state)
            by_x, by_a = [], torch.zeros_like(a)
            for t in reversed(range(len(x))):
                by_state = by_state + grad[t] * c
                by_x.append(by_state)
                if t:
                    by_a = by_a + by_state * states[t - 1]
                    by_state = by_state * a
            return torch.stack(by_x[::-1]), by_a, (grad * torch.stack(states)).sum(0)

    return Scan.apply


def scan_inputs(seed, dtype):
    return uniform(seed, dtype, (3, 2), -1, 1), uniform(seed + 100, dtype, (2,), 0.3, 0.9), uniform(seed + 200, dtype, (2,), 0.5, 1.5)


def padded_scan(padded):
    """The last h of h ← exp(-softplus(d + b)) h + x; the broken backward starts at a padded step, whose d is 0 but whose decay is not 1."""

    class PaddedScan(Function):
        @staticmethod
        def forward(ctx, x, d, bias):
            ctx.save_for_backward(x, d, bias)
            rate = torch.nn.functional.softplus(d + bias)
            return (torch.exp(rate.cumsum(0) - rate.sum(0)) * x).sum(0)

        @staticmethod
        def backward(ctx, grad):
            x, d, bias = ctx.saved_tensors
            rate = torch.nn.functional.softplus(d + bias)
            left = torch.exp(rate.cumsum(0) - rate.sum(0))
            if padded:
                grad = grad * torch.exp(-torch.nn.functional.softplus(bias))
            terms = grad * left * x
            by_d = (terms - terms.cumsum(0)) * torch.sigmoid(d + bias)
            return grad * left, by_d, by_d.sum(0)

    return PaddedScan.apply


def padded_scan_inputs(seed, dtype):
    return uniform(seed, dtype, (3, 2), 0.5, 1.5), uniform(seed + 100, dtype, (3, 2), -1, 1), uniform(seed + 200, dtype, (2,), -1, 1)


def cast_weight(by_argument):
    """tanh(x W) with a copy of W; the broken one looks at the copy to see whether W needs a gradient, which a copy made in a forward never does."""

    class CastWeight(Function):
        @staticmethod
        def forward(ctx, x, weight):
            copy = weight.clone()
            ctx.needed = weight.requires_grad if by_argument else copy.requires_grad
            ctx.save_for_backward(x, weight)
            return torch.tanh(x @ copy)

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            slope = grad * (1 - torch.tanh(x @ weight) ** 2)
            return slope @ weight.mT, x.mT @ slope if ctx.needed else None

    return CastWeight.apply


def cast_weight_inputs(seed, dtype):
    return uniform(seed, dtype, (3, 2), -1, 1), uniform(seed + 100, dtype, (2, 2), -1, 1)


def optional_gate(complete):
    """u² times z σ(z), z being optional; the broken backward computes no gradient of z."""

    class Gate(Function):
        @staticmethod
        def forward(ctx, u, z):
            ctx.save_for_backward(u, z)
            return u * u * z * torch.sigmoid(z)

        @staticmethod
        def backward(ctx, grad):
            u, z = ctx.saved_tensors
            open_ = torch.sigmoid(z)
            by_z = grad * u * u * open_ * (1 + z * (1 - open_)) if complete else None
            return 2 * grad * u * z * open_, by_z

    def gated(u, z=None):
        return u * u if z is None else Gate.apply(u, z)

    return gated


def optional_gate_inputs(seed, dtype):
    return uniform(seed, dtype, (5,), 0.5, 1.5), uniform(seed + 100, dtype, (5,), -1, 1)


SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "reported-short-convolution",
        "sequence shorter than the window",
        right=partial(short_convolution, clamped=False),
        broken=partial(short_convolution, clamped=True),
        inputs=short_convolution_inputs,
        defect=0.5,
        note="a sequence shorter than the window gets its last state's gradient in the wrong places: fla-org/flash-linear-attention#1140",
    ),
    Specimen(
        "reported-normalised-attention",
        "detached normaliser",
        right=partial(normalised_attention, detached=False),
        broken=partial(normalised_attention, detached=True),
        inputs=positive_attention_inputs,
        defect=1.0,
        note="the keys get no gradient through the normaliser: fla-org/flash-linear-attention#875",
    ),
    Specimen(
        "reported-incomplete-chunk",
        "state of the last chunk",
        right=partial(chunked_decay, None),
        broken=partial(chunked_decay, 2),
        inputs=chunked_decay_inputs,
        defect=0.5,
        note="the gate's gradient at the end of an incomplete chunk is dropped: fla-org/flash-linear-attention#577",
    ),
    Specimen(
        "reported-value-width",
        "keys and values of different widths",
        right=partial(wide_values, None),
        broken=partial(wide_values, 2),
        inputs=wide_values_inputs,
        defect=0.5,
        note="channels of v beyond the width of k are left out: XunhaoLai/native-sparse-attention-triton#27, fla-org/flash-linear-attention#632",
    ),
    Specimen(
        "reported-gate-of-another-head",
        "gate of another branch",
        right=partial(gated_heads, own=True),
        broken=partial(gated_heads, own=False),
        inputs=gated_heads_inputs,
        defect=0.5,
        note="the backward loads the gate without the head's offset: fla-org/flash-linear-attention#1115",
    ),
    Specimen(
        "reported-last-state",
        "state of the last chunk",
        right=partial(scan_with_state, through_state=True),
        broken=partial(scan_with_state, through_state=False),
        inputs=scan_inputs,
        defect=0.5,
        note="the gradient of the last state is left out: state-spaces/mamba#258",
    ),
    Specimen(
        "reported-optional-gate",
        "optional argument without a gradient",
        right=partial(optional_gate, complete=True),
        broken=partial(optional_gate, complete=False),
        inputs=optional_gate_inputs,
        defect=1.0,
        note="the gate gets no gradient, as suspected in state-spaces/mamba#342",
    ),
    Specimen(
        "reported-cast-weight",
        "optional argument without a gradient",
        right=partial(cast_weight, by_argument=True),
        broken=partial(cast_weight, by_argument=False),
        inputs=cast_weight_inputs,
        defect=1.0,
        note="a weight that is cast in the forward gets no gradient: NVIDIA/TransformerEngine#70",
    ),
    Specimen(
        "reported-padded-scan",
        "state of the last chunk",
        right=partial(padded_scan, padded=False),
        broken=partial(padded_scan, padded=True),
        inputs=padded_scan_inputs,
        defect=0.5,
        note="steps past the end of the sequence decay the gradient, since their bias is not masked: state-spaces/mamba#368",
    ),
)
