"""Kinds 9 to 15: from an ignored grad_output to what is wrong only in the second backward."""

import math
from functools import partial

import numpy as np
import scipy.special
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.library import custom_op

from tests.coherence.zoo.specimen import DOUBLE, SINGLE, Specimen, uniform

# 9. Ignored grad_output.


def focal_loss(scaled):
    """Mean of -(1 - p)^γ log p, whose gradient the forward already computes; the backward must still multiply it by grad_output."""

    class Focal(Function):
        @staticmethod
        def forward(ctx, logits, targets, gamma):
            with torch.enable_grad():
                leaf = logits.detach().requires_grad_()
                log_p = leaf.log_softmax(-1).gather(1, targets[:, None])
                loss = -((1 - log_p.exp()) ** gamma * log_p).mean()
                (slope,) = torch.autograd.grad(loss, leaf)
            ctx.save_for_backward(slope)
            return loss.detach()

        @staticmethod
        @once_differentiable
        def backward(ctx, grad):
            (slope,) = ctx.saved_tensors
            return (grad * slope if scaled else slope.clone()), None, None

    return Focal.apply


def focal_inputs(seed, dtype):
    return uniform(seed, dtype, (9, 5), -2, 2), torch.randint(5, (9,), generator=torch.Generator().manual_seed(seed)), 2.0


def layer_norm(both):
    """Returns (x̂, r), r = 1/√(var + ε); dr/dx = -r² x̂/n, which the broken one leaves out: it uses the gradient of x̂ alone."""

    def normalise(x):
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt((centred**2).mean(-1, keepdim=True) + 1e-3)
        return centred * scale, scale

    class LayerNorm(Function):
        @staticmethod
        def forward(x):
            return normalise(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad, grad_scale):
            (x,) = ctx.saved_tensors
            hat, scale = normalise(x)
            result = scale * (grad - grad.mean(-1, keepdim=True) - hat * (grad * hat).mean(-1, keepdim=True))
            return result - grad_scale * scale**2 * hat / x.shape[-1] if both else result

    return LayerNorm.apply


def layer_norm_inputs(seed, dtype):
    return (uniform(seed, dtype, (4, 8), -2, 3),)


# 10. Stateful buffers.


class RunningNorm(torch.nn.Module):
    """x w / √s, s = 0.8 s₀ + 0.2 mean x² of this batch, kept for the next; the broken one reads s from the buffer, without its gradient."""

    def __init__(self, through_buffer):
        super().__init__()
        self.through_buffer = through_buffer
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, 4, dtype=torch.float64))
        self.register_buffer("square", torch.ones(4, dtype=torch.float64))

    def forward(self, x):
        square = 0.8 * self.square.to(x.dtype) + 0.2 * (x * x).mean(0)
        with torch.no_grad():
            self.square.copy_(square)
        return x * self.weight.to(x.dtype) / (self.square.to(x.dtype) if self.through_buffer else square).sqrt()


def running_inputs(seed, dtype):
    return (uniform(seed, dtype, (8, 4), -2, 3),)


class DelayedScale(torch.nn.Module):
    """tanh(x/s) with a buffer s that afterwards follows max |x|; the backward needs the s of the forward, the broken one reads the buffer anew."""

    def __init__(self, late):
        super().__init__()
        self.late = late
        self.register_buffer("scale", torch.full((3,), 1.5, dtype=torch.float64))

    def forward(self, x):
        y = ScaledTanh.apply(x, self.scale if self.late else self.scale.clone())
        with torch.no_grad():
            self.scale.mul_(0.99).add_(0.01 * x.abs().amax(0))
        return y


class ScaledTanh(Function):
    """tanh(x/s), with the derivative (1 - tanh²)/s in x; s is a constant, read again in the backward."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return torch.tanh(x / scale.to(x.dtype))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        scale = ctx.scale.to(x.dtype)
        return grad * (1 - torch.tanh(x / scale) ** 2) / scale, None


def delayed_scale_inputs(seed, dtype):
    return (uniform(seed, dtype, (6, 3), -4, 4),)


# 11. Opaque forward.


def log_determinant(transposed):
    """log |det A| by NumPy; its derivative is A⁻ᵀ, and the broken one forgets to transpose a matrix that is nearly symmetric."""

    class LogDeterminant(Function):
        @staticmethod
        def forward(ctx, matrix):
            ctx.save_for_backward(matrix)
            return torch.as_tensor(np.linalg.slogdet(matrix.detach().numpy())[1], dtype=matrix.dtype)

        @staticmethod
        def backward(ctx, grad):
            inverse = torch.linalg.inv(ctx.saved_tensors[0])
            return grad * (inverse.mT if transposed else inverse)

    return LogDeterminant.apply


def matrix_inputs(seed, dtype):
    draw = uniform(seed, dtype, (5, 5), -0.3, 0.3, grad=False)
    return ((torch.eye(5, dtype=dtype) + draw + draw.mT + 4e-3 * draw.triu(1)).requires_grad_(),)


def bessel_j0(slope):
    """J₀(x) by SciPy; the derivative is -J₁(x), or a central difference of step 1e-3 (broken, by h²/6 J₀''')."""

    def from_scipy(function, x):
        return torch.from_numpy(function(x.detach().double().numpy())).to(x.dtype)

    class BesselJ0(Function):
        @staticmethod
        def forward(x):
            return from_scipy(scipy.special.j0, x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        @once_differentiable
        def backward(ctx, grad):
            return grad * from_scipy(slope, ctx.saved_tensors[0])

    return BesselJ0.apply


def j0_slope(x):
    return -scipy.special.j1(x)


def j0_difference(x):
    return (scipy.special.j0(x + 1e-3) - scipy.special.j0(x - 1e-3)) / 2e-3


def bessel_inputs(seed, dtype):
    return (uniform(seed, dtype, (12,), 0.5, 10),)


# 12. Piecewise value with another derivative.


def decay_ratio(terms):
    """(1 - e⁻ˣ)/x, by a series of 18 terms for |x| < 1/2; there the derivative is the sum of the terms' own, of which the broken one has few."""

    def series(x, coefficients):
        total = torch.zeros_like(x)
        for c in reversed(coefficients):
            total = total * x + c
        return total

    coefficients = [(-1) ** n / math.factorial(n + 1) for n in range(18)]
    slopes = [n * c for n, c in enumerate(coefficients)][1:terms]

    class DecayRatio(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.where(x.abs() < 0.5, series(x, coefficients), -torch.expm1(-x) / x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            near = x.abs() < 0.5
            far = torch.where(near, 1.0, x)
            closed = (torch.exp(-far) + torch.expm1(-far) / far) / far
            return grad * torch.where(near, series(x, slopes), closed)

    return DecayRatio.apply


def decay_ratio_inputs(seed, dtype):
    return (uniform(seed, dtype, (25,), -1.5, 1.5),)


def gelu_by_tanh(slope):
    """x (1 + tanh u)/2, u = c (x + 0.044715 x³), with the backward factor `slope(x)`."""

    class Gelu(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

        @staticmethod
        def backward(ctx, grad):
            return grad * slope(ctx.saved_tensors[0])

    return Gelu.apply


def gelu_tanh_slope(x):
    """(1 + t)/2 + x (1 - t²) u'/2: the derivative of the value that is computed."""
    c = math.sqrt(2 / math.pi)
    t = torch.tanh(c * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x)


def gelu_erf_slope(x):
    """Φ(x) + x φ(x): the derivative of the function that the value approximates."""
    return 0.5 * (1 + torch.erf(x / math.sqrt(2))) + x * torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def gelu_inputs(seed, dtype):
    return (uniform(seed, dtype, (5, 6), -3, 3),)


# 13. Wrong only in a narrow region.

KNOTS = torch.linspace(0, 8, 101, dtype=torch.float64)
VALUES = torch.sin(KNOTS) * torch.exp(-KNOTS / 4)
SLOPES = (torch.cos(KNOTS) - torch.sin(KNOTS) / 4) * torch.exp(-KNOTS / 4)


def table_lookup(faulty_cell=-1):
    """Cubic Hermite interpolation in a hundred cells of 0 < x < 8, with its derivative; the broken one is 5 % off in one cell."""
    width = 0.08

    def cell_of(x):
        cell = (x.detach() / width).floor().clamp(0, 99).long()
        ends = (VALUES[cell], VALUES[cell + 1], width * SLOPES[cell], width * SLOPES[cell + 1])
        return cell, x / width - cell, *(end.to(x.dtype) for end in ends)

    class Lookup(Function):
        @staticmethod
        def forward(x):
            _, t, a, b, da, db = cell_of(x)
            return a + t * (da + t * (3 * (b - a) - 2 * da - db + t * (2 * (a - b) + da + db)))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            cell, t, a, b, da, db = cell_of(ctx.saved_tensors[0])
            slope = da + t * (2 * (3 * (b - a) - 2 * da - db) + 3 * t * (2 * (a - b) + da + db))
            return grad * torch.where(cell == faulty_cell, 1.05 * slope, slope) / width

    return Lookup.apply


def table_inputs(seed, dtype):
    return (uniform(seed, dtype, (), 0.01, 7.99),)


def log_count(shortcut):
    """log(1 + x) for 1000 < x < 6000, with the derivative 1/(1 + x), for which the broken one takes 1/2000 between 2000 and 2050."""

    class LogCount(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.log1p(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            faulty = (x > 2000) & (x < 2050) if shortcut else torch.zeros_like(x, dtype=torch.bool)
            return grad / torch.where(faulty, 2000.0, 1 + x)

    return LogCount.apply


def log_count_inputs(seed, dtype):
    return (uniform(seed, dtype, (3,), 1000, 6000),)


# 14. Wrong only in FP32.


def swiglu(compressed):
    """a σ(a) b, with the derivatives b σ (1 + a (1 - σ)) and a σ; the broken one keeps float32 arguments as bfloat16."""

    def pack(x):
        return x.bfloat16().to(x.dtype) if compressed and x.dtype == torch.float32 else x

    class SwiGlu(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(pack(a), pack(b))
            return a * torch.sigmoid(a) * b

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            gate = torch.sigmoid(a)
            return grad * b * gate * (1 + a * (1 - gate)), grad * a * gate

    return SwiGlu.apply


def swiglu_inputs(seed, dtype):
    return uniform(seed, dtype, (4, 5), -3, 3), uniform(seed + 100, dtype, (4, 5), -3, 3)


def reciprocal_root(fast):
    """x^(-1/2), with the derivative -x^(-3/2)/2; the broken one takes, for float32, a root from the bits and one Newton step."""

    def root(x):
        if not fast or x.dtype != torch.float32:
            return x.rsqrt()
        guess = (0x5F3759DF - (x.detach().contiguous().view(torch.int32) >> 1)).view(torch.float32)
        return guess * (1.5 - 0.5 * x * guess * guess)

    class ReciprocalRoot(Function):
        @staticmethod
        def forward(x):
            return x.rsqrt()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            return -0.5 * grad * root(ctx.saved_tensors[0]) ** 3

    return ReciprocalRoot.apply


def reciprocal_root_inputs(seed, dtype):
    return (uniform(seed, dtype, (15,), 0.3, 9),)


# 15. Wrong only in double backward.


def silu(recomputed):
    """x σ(x), with the derivative σ (1 + x (1 - σ)); the broken one keeps σ as a constant, so that the second derivative misses σ'."""

    class Silu(Function):
        @staticmethod
        def forward(ctx, x):
            gate = torch.sigmoid(x)
            ctx.save_for_backward(x)
            ctx.gate = None if recomputed else gate
            return x * gate

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            gate = torch.sigmoid(x) if ctx.gate is None else ctx.gate
            return grad * gate * (1 + x * (1 - gate))

    return Silu.apply


def silu_inputs(seed, dtype):
    return (uniform(seed, dtype, (10,), -3, 3),)


def log_cosh_loss(name, factor):
    """Mean of log cosh(x - y), whose derivative is tanh, and whose second is `factor` (1 - tanh²): rightly 1."""

    class Tanh(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.tanh(x)

        @staticmethod
        def backward(ctx, grad):
            return grad * factor * (1 - torch.tanh(ctx.saved_tensors[0]) ** 2)

    def forward(x, y):
        size = (x - y).abs()
        return (size + torch.log1p(torch.exp(-2 * size)) - math.log(2)).mean()

    op = custom_op(f"zoo_independent::{name}", mutates_args=(), schema="(Tensor x, Tensor y) -> Tensor")(forward)
    op.register_fake(forward)

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        slope = grad * Tanh.apply(x - y) / x.numel()
        return slope, -slope

    op.register_autograd(backward, setup_context=setup_context)
    return op


LOG_COSH, LOG_COSH_BROKEN = log_cosh_loss("log_cosh", 1.0), log_cosh_loss("log_cosh_broken", 1.001)


def log_cosh_inputs(seed, dtype):
    return uniform(seed, dtype, (8,), -2, 2), uniform(seed + 100, dtype, (8,), -2, 2)


SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "independent-focal-loss",
        "ignored grad_output",
        right=partial(focal_loss, scaled=True),
        broken=partial(focal_loss, scaled=False),
        inputs=focal_inputs,
        defect=1.0,
        note="the gradient that the forward computed is returned whatever grad_output is: right only where that is 1",
    ),
    Specimen(
        "independent-layer-norm",
        "ignored grad_output of the second output",
        right=partial(layer_norm, both=True),
        broken=partial(layer_norm, both=False),
        inputs=layer_norm_inputs,
        defect=0.1,
        note="the gradient that arrives at the reciprocal deviation is dropped",
    ),
    Specimen(
        "independent-running-norm",
        "stateful buffer",
        right=partial(RunningNorm, through_buffer=False),
        broken=partial(RunningNorm, through_buffer=True),
        inputs=running_inputs,
        defect=0.2,
        note="the batch enters the running statistics that divide it, and the gradient does not know",
    ),
    Specimen(
        "independent-delayed-scale",
        "stateful buffer",
        right=partial(DelayedScale, late=False),
        broken=partial(DelayedScale, late=True),
        inputs=delayed_scale_inputs,
        defect=1e-2,
        note="the backward reads a scale that the forward has updated after using it",
    ),
    Specimen(
        "independent-log-determinant",
        "opaque NumPy forward",
        right=partial(log_determinant, transposed=True),
        broken=partial(log_determinant, transposed=False),
        inputs=matrix_inputs,
        defect=2e-3,
        note="the inverse is not transposed",
    ),
    Specimen(
        "independent-bessel-j0",
        "opaque SciPy forward",
        right=partial(bessel_j0, j0_slope),
        broken=partial(bessel_j0, j0_difference),
        inputs=bessel_inputs,
        defect=1e-7,
        dtypes=DOUBLE,
        note="the derivative is a central difference of step 1e-3",
    ),
    Specimen(
        "independent-decay-ratio",
        "piecewise value with another derivative",
        right=partial(decay_ratio, 18),
        broken=partial(decay_ratio, 6),
        inputs=decay_ratio_inputs,
        defect=1e-5,
        dtypes=DOUBLE,
        note="near 0 the derivative comes from a shorter series than the value",
    ),
    Specimen(
        "independent-gelu-by-tanh",
        "derivative of another function than the value",
        right=partial(gelu_by_tanh, gelu_tanh_slope),
        broken=partial(gelu_by_tanh, gelu_erf_slope),
        inputs=gelu_inputs,
        defect=5e-4,
        note="the value is the tanh approximation, the derivative that of the exact GELU",
    ),
    Specimen(
        "independent-table-lookup",
        "wrong only in a narrow region",
        right=table_lookup,
        broken=partial(table_lookup, 63),
        inputs=table_inputs,
        defect=5e-2,
        domain=((0.0, 8.0),),
        note="the derivative is 5 % too steep for 5.04 < x < 5.12",
    ),
    Specimen(
        "independent-log-count",
        "wrong only in a narrow region",
        right=partial(log_count, shortcut=False),
        broken=partial(log_count, shortcut=True),
        inputs=log_count_inputs,
        defect=2e-2,
        domain=((1000.0, 6000.0),),
        note="1/2000 instead of 1/(1 + x) for 2000 < x < 2050",
    ),
    Specimen(
        "independent-swiglu",
        "wrong only in FP32",
        right=partial(swiglu, compressed=False),
        broken=partial(swiglu, compressed=True),
        inputs=swiglu_inputs,
        defect=2e-3,
        dtypes=SINGLE,
        note="float32 arguments are kept as bfloat16 for the backward",
    ),
    Specimen(
        "independent-reciprocal-root",
        "wrong only in FP32",
        right=partial(reciprocal_root, fast=False),
        broken=partial(reciprocal_root, fast=True),
        inputs=reciprocal_root_inputs,
        defect=3e-3,
        dtypes=SINGLE,
        note="float32 has a fast path in the backward, good to three digits",
    ),
    Specimen(
        "independent-silu",
        "wrong only in double backward",
        right=partial(silu, recomputed=True),
        broken=partial(silu, recomputed=False),
        inputs=silu_inputs,
        defect=0.5,
        note="the saved sigmoid is a constant to the second derivative",
    ),
    Specimen(
        "independent-log-cosh",
        "wrong only in double backward",
        right=lambda: LOG_COSH,
        broken=lambda: LOG_COSH_BROKEN,
        inputs=log_cosh_inputs,
        defect=1e-3,
        note="the second derivative is 0.1 % too large",
    ),
)
