"""What is declared with `intended`, rightly or not; operators, transforms and compilers; modules."""

import functools
from functools import partial

import torch
from torch.autograd import Function
from torch.library import custom_op

from pairgrad.coherence import intended
from tests.coherence.zoo.specimen import DOUBLE, Specimen, uniform

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

    def forward(radius, angle):
        return radius * torch.cos(angle), radius * torch.sin(angle)

    op = custom_op(f"zoo_ours::{name}", mutates_args=(), schema="(Tensor radius, Tensor angle) -> (Tensor, Tensor)")(forward)
    op.register_fake(forward)

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
)
