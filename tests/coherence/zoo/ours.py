"""Pairs of right and broken functions of kinds that the independent half has less of, written by those who know how the auditor works.

Some of the right ones are declared with `intended`; the broken ones next to them make the same mistake undeclared, or declare something else than they do.
"""

import functools
import math
from functools import partial

import torch
from torch.autograd import Function
from torch.library import custom_op

from pairgrad.coherence import LogRange, intended
from tests.coherence.zoo.independent_more import DOUBLE, uniform
from tests.coherence.zoo.specimen import Specimen

# Intent.


def rounded(declared):
    """x to the nearest quarter, with the gradient of the identity; broken where nobody says that this is wanted."""

    class Quarters(Function):
        @staticmethod
        def forward(ctx, x):
            return torch.round(4 * x) / 4

        @staticmethod
        def backward(ctx, grad):
            return grad.clone()

    return (intended("straight-through")(Quarters) if declared else Quarters).apply


def rounded_inputs(seed, dtype):
    return (uniform(seed, dtype, (12,), -3, 3),)


def saturating(steps):
    """Declared straight-through: rightly a staircase with the gradient of tanh, wrongly tanh itself with 2 % too much gradient."""

    @intended("straight-through")
    class Saturating(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.floor(torch.tanh(x) * 16 + 0.5) / 16 if steps else torch.tanh(x)

        @staticmethod
        def backward(ctx, grad):
            slope = 1 - torch.tanh(ctx.saved_tensors[0]) ** 2
            return grad * (slope if steps else 1.02 * slope)

    return Saturating.apply


def saturating_inputs(seed, dtype):
    return (uniform(seed, dtype, (10,), -1, 1),)


def capped_cube(largest, smallest):
    """Declared gradient-cap: x³/3 whose slope is cut off at `largest`, as declared, or lifted to `smallest`, which is no cap."""

    @intended("gradient-cap")
    class CappedCube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3 / 3

        @staticmethod
        def backward(ctx, grad):
            return grad * (ctx.saved_tensors[0] ** 2).clamp(smallest, largest)

    return CappedCube.apply


def capped_cube_inputs(seed, dtype):
    return (uniform(seed, dtype, (20,), -2, 2),)


def capped_norm(least):
    """Declared gradient-cap: tanh x, with grad_output shortened to norm 1; the broken one scales it to norm `least` if it is shorter than that."""

    @intended("gradient-cap")
    class CappedNorm(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.tanh(x)

        @staticmethod
        def backward(ctx, grad):
            size = grad.norm().clamp(min=1e-30)
            wanted = size.clamp(max=1) if least == 1 else size.clamp(min=least)
            return grad * (wanted / size) * (1 - torch.tanh(ctx.saved_tensors[0]) ** 2)

    return CappedNorm.apply


def capped_norm_inputs(seed, dtype):
    return (uniform(seed, dtype, (20,), -2, 2),)


def mixture_draw(declared, drawing=True):
    """Draws from two normal laws; the gradient in the means is that of the law (the share each has at the draw), not of the draw."""

    class Mixture(Function):
        @staticmethod
        def forward(ctx, means, weight, noise, which):
            picked = (which >= weight).long()
            x = means[picked] + noise
            ctx.save_for_backward(means, weight, x)
            return x

        @staticmethod
        def backward(ctx, grad):
            means, weight, x = ctx.saved_tensors
            heights = torch.stack([weight * torch.exp(-0.5 * (x - means[0]) ** 2), (1 - weight) * torch.exp(-0.5 * (x - means[1]) ** 2)])
            return (grad * heights / heights.sum(0)).sum(1), None, None, None

    def draw(means, weight):
        if drawing:
            noise, which = torch.randn(9, dtype=means.dtype), torch.rand(9, dtype=means.dtype)
        else:
            noise, which = torch.linspace(-1.5, 1.5, 9, dtype=means.dtype), torch.linspace(0, 1, 9, dtype=means.dtype)
        return Mixture.apply(means, weight, noise, which)

    return intended("implicit-reparameterization")(draw) if declared else draw


def mixture_inputs(seed, dtype):
    return uniform(seed, dtype, (2,), -2, 2), torch.tensor(0.4, dtype=dtype)


# Operators, transforms, compilers.


def to_cartesian(name, slip):
    """(r cos φ, r sin φ); the derivative of the second output in φ is r cos φ, and wrong by `slip` of it."""

    @custom_op(f"zoo_ours::{name}", mutates_args=(), schema="(Tensor radius, Tensor angle) -> (Tensor, Tensor)")
    def op(radius, angle):
        return radius * torch.cos(angle), radius * torch.sin(angle)

    def backward(ctx, grad_x, grad_y):
        radius, angle = ctx.saved_tensors
        c, s = torch.cos(angle), torch.sin(angle)
        return grad_x * c + grad_y * s, radius * ((1 + slip) * grad_y * c - grad_x * s)

    op.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    return op


TO_CARTESIAN, TO_CARTESIAN_BROKEN = to_cartesian("to_cartesian", 0.0), to_cartesian("to_cartesian_broken", 1e-3)


def cartesian_inputs(seed, dtype):
    return uniform(seed, dtype, (6,), 0.5, 2), uniform(seed + 100, dtype, (6,), -3, 3)


@functools.cache
def compiled(backend, factor):
    """Mean of softplus(x w)², compiled: rightly of torch's own operations, wrongly with a Function whose derivative σ is off by `factor`.

    The right one has no Function: torch.compile(backend="eager") makes second derivatives of one zero without a word, which an audit finds.
    """

    class Softplus(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.logaddexp(x, torch.zeros_like(x))

        @staticmethod
        def backward(ctx, grad):
            return grad * factor * torch.sigmoid(ctx.saved_tensors[0])

    def scored(x, weight):
        scores = x @ weight
        return ((torch.logaddexp(scores, torch.zeros_like(scores)) if factor == 1 else Softplus.apply(scores)) ** 2).mean(0)

    return torch.compile(scored, backend=backend)


def compiled_inputs(seed, dtype):
    return uniform(seed, dtype, (5, 4), -1, 1), uniform(seed + 100, dtype, (4, 3), -1, 1)


def slope_penalty(attached):
    """Mean of f² + |∂f/∂x|² over samples by vmap(grad(f)); the broken one takes the slopes at constant samples."""

    def score(weight, x):
        return torch.tanh(weight @ x).sum()

    def penalised(x, weight):
        values = torch.func.vmap(score, in_dims=(None, 0))(weight, x)
        slopes = torch.func.vmap(torch.func.grad(score, argnums=1), in_dims=(None, 0))(weight, x if attached else x.detach())
        return (values**2 + (slopes**2).sum(1)).mean()

    return penalised


def slope_penalty_inputs(seed, dtype):
    return uniform(seed, dtype, (5, 3), -1, 1), uniform(seed + 100, dtype, (4, 3), -1, 1)


def tempered(*, scores, temperature):
    """log-sum-exp at a temperature; both arguments by keyword only."""
    return temperature * torch.logsumexp(scores / temperature, -1)


def tempered_detached(*, scores, temperature):
    """The same, with the temperature a constant inside the sum."""
    return temperature * torch.logsumexp(scores / temperature.detach(), -1)


def tempered_inputs(seed, dtype):
    return {"scores": uniform(seed, dtype, (4, 5), -2, 2), "temperature": uniform(seed + 100, dtype, (4, 1), 0.5, 1.5)}


# Modules.


class Mixing(torch.nn.Module):
    """x Wᵀ by an autograd.Function whose gradient in W is wrong by the factor `weight_factor`, optionally in one row only."""

    def __init__(self, rows, columns, weight_factor=1.0, row=None):
        super().__init__()
        draw = torch.rand(rows, columns, generator=torch.Generator().manual_seed(rows), dtype=torch.float64) - 0.3
        self.weight = torch.nn.Parameter(draw)
        self.factors = [weight_factor if row is None or i == row else 1.0 for i in range(rows)]

    def forward(self, x):
        factors = torch.tensor(self.factors, dtype=x.dtype)[:, None]

        class Product(Function):
            @staticmethod
            def forward(ctx, x, weight):
                ctx.save_for_backward(x, weight)
                return x @ weight.mT

            @staticmethod
            def backward(ctx, grad):
                x, weight = ctx.saved_tensors
                return grad @ weight, factors * (grad.mT @ x)

        return Product.apply(x, self.weight)


def normalised_stack(factor):
    """Two layers around a BatchNorm in train mode; the first layer's weight gradient is off by one millionth."""
    norm = torch.nn.BatchNorm1d(5, dtype=torch.float64)
    return torch.nn.Sequential(Mixing(5, 4, factor), norm, torch.nn.Tanh(), Mixing(2, 5)).train()


def normalised_stack_inputs(seed, dtype):
    return (uniform(seed, dtype, (8, 4), -2, 2),)


def one_row(factor):
    return torch.nn.Sequential(Mixing(6, 4, factor, row=2), torch.nn.Tanh())


def one_row_inputs(seed, dtype):
    return (uniform(seed, dtype, (7, 4), -1, 1),)


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


# Precision and size.


def summed_in_single(factor):
    """Σ tanh(x w) taken in float32 whatever the arguments are, with the derivative in their own dtype: a coarse value, not a wrong gradient."""

    class Summed(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return torch.tanh(x.float() @ weight.float()).sum(0).to(x.dtype)

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            slope = grad * factor * (1 - torch.tanh(x @ weight) ** 2)
            return slope @ weight.mT, x.mT @ slope

    return Summed.apply


def summed_inputs(seed, dtype):
    return uniform(seed, dtype, (6, 4), -1, 1), uniform(seed + 100, dtype, (4, 3), -1, 1)


def length(factor):
    """√(a² + b²) without overflow, with the derivatives a/r and b/r, the latter wrong by `factor`."""

    class Length(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return torch.hypot(a, b)

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            r = torch.hypot(a, b)
            return grad * (a / r), grad * factor * (b / r)

    return Length.apply


def huge_inputs(seed, dtype):
    size = 1e150 if dtype == torch.float64 else 1e20
    return uniform(seed, dtype, (5,), 0.5 * size, 2 * size), uniform(seed + 100, dtype, (5,), 0.5 * size, 2 * size)


def tiny_inputs(seed, dtype):
    size = 1e-150 if dtype == torch.float64 else 1e-20
    return uniform(seed, dtype, (5,), 0.5 * size, 2 * size), uniform(seed + 100, dtype, (5,), 0.5 * size, 2 * size)


# Shapes and layouts.


def appended(factor):
    """exp of a single number, added to rows of which there may be none; the single number's gradient is wrong by `factor`."""

    class Exponential(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.exp(x)

        @staticmethod
        def backward(ctx, grad):
            return grad * factor * torch.exp(ctx.saved_tensors[0])

    def rows(single, nothing, scalar):
        return torch.cat([nothing.sin(), single + scalar**2]).sum(0), Exponential.apply(single)

    return rows


def appended_inputs(seed, dtype):
    return uniform(seed, dtype, (1,), -1, 1), torch.zeros(0, dtype=dtype, requires_grad=True), uniform(seed + 100, dtype, (), 1, 2)


def memory_order(logical):
    """Σ x³/3 over columns; the broken backward reads x in the order of its memory, which is another for a permuted argument."""

    class Cubes(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x**3 / 3).sum(1)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            if not logical:
                x = x.as_strided(x.shape, torch.zeros(x.shape).stride())
            return grad[:, None] * x**2

    return Cubes.apply


def permuted_inputs(seed, dtype):
    return (uniform(seed, dtype, (4, 3), 0.5, 2, grad=False).mT.requires_grad_(),)


def outer_sum(factor):
    """Σ sin(x y) over an expanded, a strided and a permuted argument; the gradient in the expanded one is wrong by `factor`."""

    class Outer(Function):
        @staticmethod
        def forward(ctx, x, y, z):
            ctx.save_for_backward(x, y, z)
            return torch.sin(x * y) + z

        @staticmethod
        def backward(ctx, grad):
            x, y, _ = ctx.saved_tensors
            slope = grad * torch.cos(x * y)
            return factor * slope * y, slope * x, grad

    return Outer.apply


def outer_inputs(seed, dtype):
    x = uniform(seed, dtype, (1, 4), -1, 1, grad=False).expand(3, 4).requires_grad_()
    y = uniform(seed + 100, dtype, (3, 8), -1, 1, grad=False)[:, ::2].requires_grad_()
    z = uniform(seed + 200, dtype, (4, 3), -1, 1, grad=False).permute(1, 0).requires_grad_()
    return x, y, z


# Half precision.


def gated(factor):
    """x σ(x) w summed over columns, computed in float32; the derivative in x is wrong by `factor`."""

    class Gated(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            wide = x.float()
            return (wide * torch.sigmoid(wide) * weight.float()).sum(-1).to(x.dtype)

        @staticmethod
        def backward(ctx, grad):
            x, weight = (tensor.float() for tensor in ctx.saved_tensors)
            gate, grad = torch.sigmoid(x), grad.float()[:, None]
            by_x = grad * factor * weight * gate * (1 + x * (1 - gate))
            return tuple(gradient.to(ctx.saved_tensors[0].dtype) for gradient in (by_x, (grad * x * gate).sum(0)))

    return Gated.apply


def gated_inputs(seed, dtype):
    return uniform(seed, dtype, (6, 4), 0.5, 3), uniform(seed + 100, dtype, (4,), 0.5, 2)


def entropy(factor):
    """-Σ p log p of p = softmax(x), computed in float32; the derivative -p (log p + H) is wrong by `factor`."""

    class Entropy(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            p = x.float().softmax(-1)
            return -(p * p.log()).sum(-1).to(x.dtype)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            p = x.float().softmax(-1)
            return (-grad[:, None].float() * factor * p * (p.log() - (p * p.log()).sum(-1, keepdim=True))).to(x.dtype)

    return Entropy.apply


def entropy_inputs(seed, dtype):
    return (uniform(seed, dtype, (5, 4), -2, 2),)


SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "ours-rounded",
        "straight-through by intent",
        right=partial(rounded, declared=True),
        broken=partial(rounded, declared=False),
        inputs=rounded_inputs,
        defect=1.0,
        note="the gradient of the identity for a rounded value, and nobody says so",
    ),
    Specimen(
        "ours-saturating",
        "straight-through by intent",
        right=partial(saturating, steps=True),
        broken=partial(saturating, steps=False),
        inputs=saturating_inputs,
        defect=2e-2,
        note="declared as straight-through, but the value is smooth and the factor wrong",
    ),
    Specimen(
        "ours-capped-cube",
        "gradient-cap by intent",
        right=partial(capped_cube, largest=1.0, smallest=0.0),
        broken=partial(capped_cube, largest=100.0, smallest=1.0),
        inputs=capped_cube_inputs,
        defect=0.5,
        note="declared as a cap, but small gradients are enlarged: no coordinate is shorter, about half are longer",
    ),
    Specimen(
        "ours-capped-norm",
        "gradient-cap by intent",
        right=partial(capped_norm, 1.0),
        broken=partial(capped_norm, 40.0),
        inputs=capped_norm_inputs,
        defect=0.9,
        note="declared as a cap on the norm of grad_output, but it also enlarges what is shorter",
    ),
    Specimen(
        "ours-mixture-draw",
        "implicit reparameterization by intent",
        right=partial(mixture_draw, declared=True),
        broken=partial(mixture_draw, declared=False),
        inputs=mixture_inputs,
        defect=0.5,
        note="the gradient of the law of a draw, and nobody says so",
    ),
    Specimen(
        "ours-mixture-fixed",
        "implicit reparameterization by intent",
        right=partial(mixture_draw, declared=True),
        broken=partial(mixture_draw, declared=True, drawing=False),
        inputs=mixture_inputs,
        defect=0.5,
        note="declared as the gradient of a law, but nothing is drawn",
    ),
    Specimen(
        "ours-to-cartesian",
        "wrong second output of a custom op",
        right=lambda: TO_CARTESIAN,
        broken=lambda: TO_CARTESIAN_BROKEN,
        inputs=cartesian_inputs,
        defect=5e-4,
        note="the angle's gradient through y is 0.1 % too large",
    ),
    Specimen(
        "ours-compiled-eager",
        "compiled function",
        right=partial(compiled, "eager", 1.0),
        broken=partial(compiled, "eager", 1.001),
        inputs=compiled_inputs,
        defect=1e-3,
        note="a Function inside a compiled function is 0.1 % off",
    ),
    Specimen(
        "ours-compiled-aot",
        "compiled function",
        right=partial(compiled, "aot_eager", 1.0),
        broken=partial(compiled, "aot_eager", 0.99),
        inputs=compiled_inputs,
        defect=1e-2,
        note="the same through AOTAutograd, where the graph of the Function is gone",
    ),
    Specimen(
        "ours-slope-penalty",
        "function transforms inside",
        right=partial(slope_penalty, attached=True),
        broken=partial(slope_penalty, attached=False),
        inputs=slope_penalty_inputs,
        defect=0.5,
        note="the slopes are taken at detached samples",
    ),
    Specimen(
        "ours-tempered",
        "keyword-only arguments",
        right=lambda: tempered,
        broken=lambda: tempered_detached,
        inputs=tempered_inputs,
        defect=0.5,
        note="the temperature inside the sum is a constant",
    ),
    Specimen(
        "ours-normalised-stack",
        "wrong weight gradient in a module",
        right=partial(normalised_stack, 1.0),
        broken=partial(normalised_stack, 1 + 1e-6),
        inputs=normalised_stack_inputs,
        defect=1e-6,
        dtypes=DOUBLE,
        note="one weight's gradient is off by 1e-6, in front of a BatchNorm in train mode",
    ),
    Specimen(
        "ours-one-row",
        "wrong in one row",
        right=partial(one_row, 1.0),
        broken=partial(one_row, 1 + 3e-9),
        inputs=one_row_inputs,
        defect=1e-9,
        dtypes=DOUBLE,
        note="one of six rows of a weight's gradient is off by 3e-9",
    ),
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
    Specimen(
        "ours-summed-in-single",
        "coarse value",
        right=partial(summed_in_single, 1.0),
        broken=partial(summed_in_single, 1.01),
        inputs=summed_inputs,
        defect=1e-2,
        note="the value is made in float32, and the gradient is 1 % too large as well",
    ),
    Specimen(
        "ours-huge",
        "huge arguments",
        right=partial(length, 1.0),
        broken=partial(length, 1.001),
        inputs=huge_inputs,
        defect=5e-4,
        note="one leg's gradient is 0.1 % off at 1e150",
    ),
    Specimen(
        "ours-tiny",
        "tiny arguments",
        right=partial(length, 1.0),
        broken=partial(length, 1.001),
        inputs=tiny_inputs,
        defect=5e-4,
        note="one leg's gradient is 0.1 % off at 1e-150",
    ),
    Specimen(
        "ours-appended",
        "empty and single tensors",
        right=partial(appended, 1.0),
        broken=partial(appended, 1.001),
        inputs=appended_inputs,
        defect=1e-3,
        note="the gradient of a tensor of one element is 0.1 % off, next to an empty one",
    ),
    Specimen(
        "ours-memory-order",
        "layout of an argument",
        right=partial(memory_order, logical=True),
        broken=partial(memory_order, logical=False),
        inputs=permuted_inputs,
        defect=0.7,
        note="a permuted argument is read in the order of its memory",
    ),
    Specimen(
        "ours-outer-sum",
        "layout of an argument",
        right=partial(outer_sum, 1.0),
        broken=partial(outer_sum, 1.002),
        inputs=outer_inputs,
        defect=1e-3,
        note="the gradient of an expanded argument is 0.2 % too large",
    ),
)

HALF_SPECIMENS: tuple[Specimen, ...] = (
    Specimen(
        "ours-half-gated",
        "wrong factor in half precision",
        right=partial(gated, 1.0),
        broken=partial(gated, 2.0),
        inputs=gated_inputs,
        defect=0.5,
        dtypes=(torch.bfloat16, torch.float16),
        note="the derivative in x is twice what it should be",
    ),
    Specimen(
        "ours-half-entropy",
        "wrong factor in half precision",
        right=partial(entropy, 1.0),
        broken=partial(entropy, 2.0),
        inputs=entropy_inputs,
        defect=0.5,
        dtypes=(torch.float16,),
        note="the derivative is twice what it should be; in bfloat16 the value is too flat to tell",
    ),
)
