"""What a backward does with grad_output and with the memory of its arguments: precision, layout and size."""

from functools import partial

import torch
from torch.autograd import Function

from tests.coherence.zoo.specimen import DOUBLE, Specimen, as_stored, uniform


def altered(change):
    """sin x + x²/4, whose backward takes `change`(grad_output) for grad_output."""

    class Altered(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.sin(x) + x * x / 4

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return change(grad) * (torch.cos(x) + x / 2)

    return Altered.apply


def same(grad):
    return grad


def altered_inputs(seed, dtype):
    return (uniform(seed, dtype, (3, 4), 0.2, 1.4),)


def image_inputs(seed, dtype):
    return (uniform(seed, dtype, (2, 3, 2, 2), 0.2, 1.4),)


# Precision: grad_output rounded on its way.


def to_bfloat16(grad):
    return grad.bfloat16().to(grad.dtype)


def to_float16(grad):
    return grad.half().to(grad.dtype)


def to_float32(grad):
    return grad.float().to(grad.dtype)


# Layout: grad_output read with assumptions about its memory.


def from_the_start(grad):
    """Reads from the start of the storage, wherever in it grad_output begins."""
    return grad.as_strided(grad.shape, grad.stride(), 0)


def unit_steps(grad):
    """Takes the numbers of a row for neighbours in memory, and honours the other strides."""
    if grad.stride(-1) == 1:
        return grad
    return torch.stack([as_stored(row) for row in grad])


def channels_first(grad):
    """Reads an image that is stored with its channels last as if they came first."""
    last = grad.dim() == 4 and not grad.is_contiguous() and grad.is_contiguous(memory_format=torch.channels_last)
    return as_stored(grad) if last else grad


def transposed_back(grad):
    """Undoes a transposition that it concludes from the strides."""
    turned = grad.dim() == 2 and grad.stride(0) == 1 and grad.stride(1) == grad.shape[0]
    return grad.mT.contiguous().reshape(grad.shape) if turned else grad


# Size: grad_output changed where it is large or small.


def saturated(grad):
    return grad.clamp(-65504, 65504)


def flushed(grad):
    return torch.where(grad.abs() < 1e-7, 0.0, grad)


def with_epsilon(grad):
    return grad + 1e-5


def of_unit_length(grad):
    return grad / grad.norm().clamp(min=1e-30)


# Layout of arguments.


def product(strided):
    """x³ w for a matrix x and a row w; the broken backward reads x in the order of its memory, as it is right for the arguments of the audit."""

    class Product(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x**3 * weight

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            x = x if strided else as_stored(x)
            return 3 * grad * x * x * weight, (grad * x**3).sum(0)

    return Product.apply


def product_inputs(seed, dtype):
    return uniform(seed, dtype, (3, 4), 0.5, 1.5), uniform(seed + 100, dtype, (4,), 0.5, 1.5)


def _altered(name, kind, change, defect, note, dtypes=(torch.float64, torch.float32), inputs=altered_inputs):
    return Specimen(
        name, kind, right=partial(altered, same), broken=partial(altered, change), inputs=inputs, defect=defect, dtypes=dtypes, note=note
    )


SPECIMENS: tuple[Specimen, ...] = (
    _altered("ours-cotangent-bfloat16", "rounded grad_output", to_bfloat16, 2e-3, "grad_output is rounded to bfloat16"),
    _altered("ours-cotangent-float16", "rounded grad_output", to_float16, 2e-4, "grad_output is rounded to float16", DOUBLE),
    _altered("ours-cotangent-float32", "rounded grad_output", to_float32, 3e-8, "grad_output is rounded to float32 inside float64", DOUBLE),
    _altered("ours-offset-cotangent", "layout of grad_output", from_the_start, 1.0, "the offset of grad_output in its storage is ignored"),
    _altered("ours-strided-rows", "layout of grad_output", unit_steps, 1.0, "the last stride of grad_output is taken for 1"),
    _altered(
        "ours-channels-last",
        "layout of grad_output",
        channels_first,
        1.0,
        "grad_output with its channels last is read as if they came first",
        inputs=image_inputs,
    ),
    _altered("ours-turned-back", "layout of grad_output", transposed_back, 1.0, "a transposed grad_output is transposed once more"),
    _altered("ours-saturated", "size of grad_output", saturated, 1.0, "grad_output is cut off at 65504, the largest number of float16"),
    _altered("ours-flushed", "size of grad_output", flushed, 1.0, "what is below 1e-7 in grad_output is set to zero"),
    _altered(
        "ours-epsilon-added", "size of grad_output", with_epsilon, 1e-5, "1e-5 is added to grad_output, which matters where it is small"
    ),
    _altered("ours-unit-cotangent", "size of grad_output", of_unit_length, 1.0, "grad_output is brought to length 1"),
    Specimen(
        "ours-argument-in-memory",
        "layout of an argument",
        right=partial(product, strided=True),
        broken=partial(product, strided=False),
        inputs=product_inputs,
        defect=0.5,
        note="the backward takes x for contiguous, as it is here but not in other layouts",
    ),
)
