"""Layouts of cotangents and of arguments; precision lost inside a backward."""

from functools import partial

import torch
from torch.autograd import Function

from tests.coherence.zoo.specimen import DOUBLE, Specimen, as_stored, uniform

# Layouts.


def swish(strided):
    """x σ(x), whose backward reads grad_output in the order of its memory unless it is `strided`."""

    class Swish(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            gate = torch.sigmoid(x)
            return (grad if strided else as_stored(grad)) * gate * (1 + x * (1 - gate))

    return Swish.apply


def swish_inputs(seed, dtype):
    return (uniform(seed, dtype, (3, 4), -2, 2),)


def mean_of_squares(strided):
    """The mean of x² over the last dimension of three; the broken backward takes grad_output for contiguous."""

    class Mean(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x * x).mean(-1)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            grad = grad if strided else as_stored(grad)
            return grad[..., None] * x * (2 / x.shape[-1])

    return Mean.apply


def mean_inputs(seed, dtype):
    return (uniform(seed, dtype, (2, 3, 2), 0.5, 2),)


def attention(strided):
    """softmax(q kᵀ/√d) v for two heads; the broken backward takes the gradient of the output for contiguous."""

    def weights(q, k):
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)

    class Attention(Function):
        @staticmethod
        def forward(ctx, q, k, v):
            ctx.save_for_backward(q, k, v)
            return weights(q, k) @ v

        @staticmethod
        def backward(ctx, grad):
            q, k, v = ctx.saved_tensors
            grad = grad if strided else as_stored(grad)
            p = weights(q, k)
            by_p = grad @ v.mT
            by_score = p * (by_p - (p * by_p).sum(-1, keepdim=True)) / q.shape[-1] ** 0.5
            return by_score @ k, by_score.mT @ q, p.mT @ grad

    return Attention.apply


def attention_inputs(seed, dtype):
    return tuple(uniform(seed + 100 * i, dtype, (2, 3, 2), -1, 1) for i in range(3))


def pooled(strided):
    """The mean of x³/3 over squares of 2 by 2 pixels; the broken backward takes grad_output for contiguous."""

    class Pooled(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.nn.functional.avg_pool2d(x**3 / 3, 2)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            grad = grad if strided else as_stored(grad)
            return grad.repeat_interleave(2, -1).repeat_interleave(2, -2) * x**2 / 4

    return Pooled.apply


def pooled_inputs(seed, dtype):
    return (uniform(seed, dtype, (1, 2, 4, 4), 0.5, 1.5),)


def pairwise_distances(strided):
    """|x - y| of all pairs of rows; the broken backward reads the rows of its arguments as if they followed each other in memory."""

    class Distances(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return (x[:, None] - y).norm(dim=-1)

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors if strided else map(as_stored, ctx.saved_tensors)
            apart = x[:, None] - y
            pull = grad[..., None] * apart / apart.norm(dim=-1, keepdim=True)
            return pull.sum(1), -pull.sum(0)

    return Distances.apply


def rows_of_a_larger_tensor(seed, dtype):
    x = uniform(seed, dtype, (3, 2, 2), -2, -1, grad=False)[:, 0]
    return x.requires_grad_(), uniform(seed + 100, dtype, (4, 2, 2), 1, 2, grad=False)[:, 0].requires_grad_()


def expanded(strided):
    """exp(x), whose broken backward reads past a grad_output that is one number for all of a dimension, which is what `sum` sends."""

    class Exponential(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.exp(x)

        @staticmethod
        def backward(ctx, grad):
            if not strided and 0 in grad.stride():
                grad = as_stored(grad)
            return grad * torch.exp(ctx.saved_tensors[0])

    return Exponential.apply


def expanded_inputs(seed, dtype):
    return (uniform(seed, dtype, (6,), -1, 1),)


# Precision.


def rms_norm(wide):
    """x w/√(mean x² + ε); the broken backward adds up the weight's gradient row by row in bfloat16."""

    def scale_of(x):
        return torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-3)

    class RMSNorm(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x * scale_of(x) * weight

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            scale, inner = scale_of(x), grad * weight
            hat = x * scale
            by_x = scale * (inner - hat * (inner * hat).mean(-1, keepdim=True))
            if wide:
                return by_x, (grad * hat).sum(0)
            total = torch.zeros_like(weight, dtype=torch.bfloat16)
            for row in (grad * hat).bfloat16():
                total = total + row
            return by_x, total.to(weight.dtype)

    return RMSNorm.apply


def rms_norm_inputs(seed, dtype):
    return uniform(seed, dtype, (12, 3), 0.3, 2), uniform(seed + 100, dtype, (3,), 0.5, 1.5)


def chunked_linear(accumulator):
    """tanh(x Wᵀ), chunk by chunk; the gradient of W is kept in the dtype `accumulator` between the chunks, or in its own."""

    class Chunked(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return torch.tanh(x @ weight.mT)

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            slope = grad * (1 - torch.tanh(x @ weight.mT) ** 2)
            total = torch.zeros_like(weight, dtype=accumulator or weight.dtype)
            for rows in range(0, len(x), 2):
                total = (total.to(weight.dtype) + slope[rows : rows + 2].mT @ x[rows : rows + 2]).to(total.dtype)
            return slope @ weight, total.to(weight.dtype)

    return Chunked.apply


def chunked_inputs(seed, dtype):
    return uniform(seed, dtype, (12, 2), -1, 1), uniform(seed + 100, dtype, (3, 2), -1, 1)


def autocast(half):
    """sin(x W); the broken backward multiplies matrices in float16, as under an autocast that forgot its dtype."""

    class Product(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return torch.sin(x @ weight)

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            slope = grad * torch.cos(x @ weight)
            if half:
                return (slope.half() @ weight.half().mT).to(x.dtype), (x.half().mT @ slope.half()).to(x.dtype)
            return slope @ weight.mT, x.mT @ slope

    return Product.apply


def autocast_inputs(seed, dtype):
    return uniform(seed, dtype, (3, 4), -1, 1), uniform(seed + 100, dtype, (4, 2), -1, 1)


def shifted_groups(rounded):
    """softplus(x + b) for channels b; the gradient of b is summed over rows, in the broken one after rounding each term to bfloat16."""

    class Shifted(Function):
        @staticmethod
        def forward(ctx, x, bias):
            ctx.save_for_backward(x, bias)
            return torch.nn.functional.softplus(x + bias)

        @staticmethod
        def backward(ctx, grad):
            x, bias = ctx.saved_tensors
            slope = grad * torch.sigmoid(x + bias)
            return slope, (slope.bfloat16().to(x.dtype) if rounded else slope).sum(0)

    return Shifted.apply


def shifted_inputs(seed, dtype):
    return uniform(seed, dtype, (5, 3), -1, 1), uniform(seed + 100, dtype, (3,), -1, 1)


def float8_scale(rounded):
    """s sin(x); the broken backward sends grad_output through an 8-bit float with two bits after the point."""

    class Scaled(Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.save_for_backward(x, scale)
            return scale * torch.sin(x)

        @staticmethod
        def backward(ctx, grad):
            x, scale = ctx.saved_tensors
            if rounded:
                grad = grad.to(torch.float8_e5m2).to(grad.dtype)
            return grad * scale * torch.cos(x), (grad * torch.sin(x)).sum()

    return Scaled.apply


def float8_inputs(seed, dtype):
    return uniform(seed, dtype, (6,), 0.2, 1.3), uniform(seed + 100, dtype, (), 0.5, 2)


SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "reported-narrowed-cotangent",
        "layout of grad_output",
        right=partial(swish, strided=True),
        broken=partial(swish, strided=False),
        inputs=swish_inputs,
        defect=1.0,
        note="a slice of a larger gradient is read as if it were contiguous: pytorch/pytorch#195210",
    ),
    Specimen(
        "reported-chained-means",
        "layout of grad_output",
        right=partial(mean_of_squares, strided=True),
        broken=partial(mean_of_squares, strided=False),
        inputs=mean_inputs,
        defect=1.0,
        note="a mean after a mean gets an expanded gradient and reads it as contiguous: torch/nn#345",
    ),
    Specimen(
        "reported-attention-dout",
        "layout of grad_output",
        right=partial(attention, strided=True),
        broken=partial(attention, strided=False),
        inputs=attention_inputs,
        defect=1.0,
        note="attention reads a transposed gradient of its output as contiguous: Dao-AILab/flash-attention#355",
    ),
    Specimen(
        "reported-pooled-boxes",
        "layout of grad_output",
        right=partial(pooled, strided=True),
        broken=partial(pooled, strided=False),
        inputs=pooled_inputs,
        defect=1.0,
        note="a pooling operator over images reads its gradient as contiguous: open-mmlab/mmcv#737",
    ),
    Specimen(
        "reported-pairwise-distances",
        "layout of an argument",
        right=partial(pairwise_distances, strided=True),
        broken=partial(pairwise_distances, strided=False),
        inputs=rows_of_a_larger_tensor,
        defect=0.3,
        note="the backward takes saved slices for contiguous: pytorch/pytorch#69997",
    ),
    Specimen(
        "reported-expanded-ones",
        "layout of grad_output",
        right=partial(expanded, strided=True),
        broken=partial(expanded, strided=False),
        inputs=expanded_inputs,
        defect=1.0,
        note="the gradient that sum sends has stride 0, and the backward reads past its one number: pytorch/pytorch#64529",
    ),
    Specimen(
        "reported-rms-norm-weight",
        "weight gradient reduced in bfloat16",
        right=partial(rms_norm, wide=True),
        broken=partial(rms_norm, wide=False),
        inputs=rms_norm_inputs,
        defect=3e-3,
        dtypes=DOUBLE,
        note="the gradient of the weight is summed over rows in bfloat16: linkedin/Liger-Kernel#950, karpathy/llm.c#476",
    ),
    Specimen(
        "reported-chunked-weight",
        "weight gradient reduced in bfloat16",
        right=partial(chunked_linear, None),
        broken=partial(chunked_linear, torch.bfloat16),
        inputs=chunked_inputs,
        defect=2e-3,
        dtypes=DOUBLE,
        note="the gradient of the weight is rounded to bfloat16 after every chunk: linkedin/Liger-Kernel#1391, axolotl-ai-cloud/axolotl#1601",
    ),
    Specimen(
        "reported-autocast-backward",
        "rounded grad_output",
        right=partial(autocast, half=False),
        broken=partial(autocast, half=True),
        inputs=autocast_inputs,
        defect=3e-4,
        dtypes=DOUBLE,
        note="the backward multiplies in float16 although the forward did not: pytorch/pytorch#87979",
    ),
    Specimen(
        "reported-group-bias",
        "rounded grad_output",
        right=partial(shifted_groups, rounded=False),
        broken=partial(shifted_groups, rounded=True),
        inputs=shifted_inputs,
        defect=1e-3,
        dtypes=DOUBLE,
        note="each term of a bias gradient is rounded to bfloat16 before it is added: linkedin/Liger-Kernel#1253",
    ),
    Specimen(
        "reported-float8-cast",
        "rounded grad_output",
        right=partial(float8_scale, rounded=False),
        broken=partial(float8_scale, rounded=True),
        inputs=float8_inputs,
        defect=5e-2,
        note="the backward of a cast sends gradients through 8 bits: meta-pytorch/float8_experimental#255",
    ),
)
