"""torchao: training with quantised and sparse weights."""

from census.package import Package

package = Package(
    "torchao",
    "0.18.0",
    family="quantised networks",
    group="neurons",
    modules=["torchao"],
    note="Most Functions of torchao are for float8, MX and NVFP4 on CUDA and were not reached. The gradients of step sizes are scaled "
    "by LSQ's factor, as "
    "documented; the cases divide it out.",
)

LSQ = "LSQ (arXiv 1902.08153), as the docstring says: straight-through within the clipping range"


def _unscaled(alpha, count, levels):
    """The same step size, whose gradient is multiplied by sqrt(count levels): what LSQ divides by."""
    factor = (count * levels) ** 0.5
    return factor * alpha + (alpha - factor * alpha).detach()


def _lsq(name, bits, x, levels):
    import torch
    from torchao.prototype.paretoq.models import utils_quant

    function = getattr(utils_quant, name)
    alpha = torch.tensor([[0.7], [1.1]], dtype=torch.float64).requires_grad_()
    return lambda alpha: function.apply(x, _unscaled(alpha, x.numel(), levels), bits, False), alpha


def _beyond():
    import torch

    x = torch.randn(2, 5, dtype=torch.float64)
    return x.sign() * (9.0 + x.abs())


@package.case("LsqBinaryTernaryExtension: step size, 4 bits, inputs beyond the range")
def lsq_4():
    return _lsq("LsqBinaryTernaryExtension", 4, _beyond(), 7)


@package.case("LsqBinaryTernaryExtension: step size, 3 bits, inputs beyond the range")
def lsq_3():
    return _lsq("LsqBinaryTernaryExtension", 3, _beyond(), 3)


@package.case("LsqBinaryTernaryExtension: step size, 1 bit")
def lsq_1():
    import torch

    return _lsq("LsqBinaryTernaryExtension", 1, torch.randn(2, 5, dtype=torch.float64), 1)


@package.case("LsqBinaryTernaryExtension: input", intent="straight-through", why_intended=LSQ)
def lsq_input():
    import torch
    from torchao.prototype.paretoq.models.utils_quant import LsqBinaryTernaryExtension

    alpha = torch.tensor([[0.3], [0.2]], dtype=torch.float64)
    return lambda x: LsqBinaryTernaryExtension.apply(x, alpha, 4, False), torch.randn(2, 5, dtype=torch.float64)


@package.case("StretchedElasticQuant: step size, 2 bits, inputs beyond the range")
def stretched_2():
    return _lsq("StretchedElasticQuant", 2, _beyond(), 1)


@package.case("StretchedElasticQuant: step size, 3 levels (w_bits=0), inputs beyond the range")
def stretched_0():
    return _lsq("StretchedElasticQuant", 0, _beyond(), 1)


@package.case("StretchedElasticQuant: step size, 1 bit")
def stretched_1():
    import torch

    return _lsq("StretchedElasticQuant", 1, torch.randn(2, 5, dtype=torch.float64), 1)


@package.case("StretchedElasticQuant: input", intent="straight-through", why_intended=LSQ)
def stretched_input():
    import torch
    from torchao.prototype.paretoq.models.utils_quant import StretchedElasticQuant

    alpha = torch.tensor([[1.3], [0.9]], dtype=torch.float64)
    return lambda x: StretchedElasticQuant.apply(x, alpha, 2, False), torch.randn(2, 5, dtype=torch.float64)


@package.case("module_swap.RoundStraightThrough", intent="straight-through", why_intended="its name and docstring")
def round_straight_through():
    import torch
    from torchao.prototype.quantization.module_swap.quantizers import RoundStraightThrough

    return RoundStraightThrough.apply, torch.randn(3, 5, dtype=torch.float64) * 2


@package.case()
def supermask_apply_mask():
    import torch
    from torchao.sparsity.supermask import ApplyMask

    return ApplyMask.apply, (torch.randn(3, 4, dtype=torch.float64), torch.rand(3, 4, dtype=torch.float64))


@package.case("SupermaskLinear: weight", seconds=60.0)
def supermask_linear():
    import torch
    from torch.func import functional_call
    from torchao.sparsity.supermask import SupermaskLinear

    torch.manual_seed(0)
    layer = SupermaskLinear(0.5, 1, False, False, 6, 4, bias=False).double()
    x = torch.randn(3, 6, dtype=torch.float64)
    return lambda w: functional_call(layer, {"weight": w}, (x,)), layer.weight.detach().clone().requires_grad_()


@package.case(intent="straight-through", why_intended="docstring: Supermask STE function")
def supermask_get_subnet():
    import torch
    from torchao.sparsity.supermask import GetSubnet

    zeros, ones = torch.zeros(3, 4, dtype=torch.float64), torch.ones(3, 4, dtype=torch.float64)
    return lambda s: GetSubnet.apply(s, zeros, ones, 0.5), torch.rand(3, 4, dtype=torch.float64)


def _int8(**options):
    from torchao.prototype.quantized_training.int8_mixed_precision import (
        Int8MixedPrecisionTrainingConfig,
        _Int8MixedPrecisionTrainingLinearFunction,
    )

    config = Int8MixedPrecisionTrainingConfig(**options)
    return lambda x, w, b=None: _Int8MixedPrecisionTrainingLinearFunction.apply(x, w, b, config)


@package.case("int8 mixed precision linear: nothing quantised")
def int8_plain():
    import torch

    return _int8(output=False, grad_input=False, grad_weight=False), (
        torch.randn(3, 6).double(),
        torch.randn(4, 6).double(),
        torch.randn(4).double(),
    )


@package.case("int8 mixed precision linear: nothing quantised, 3-D input with bias")
def int8_bias():
    import torch

    return _int8(output=False, grad_input=False, grad_weight=False), (
        torch.randn(2, 3, 6).double(),
        torch.randn(4, 6).double(),
        torch.randn(4).double(),
    )


package.finding(
    "torchao-apply-mask-product",
    kind="gradient",
    where="torchao/sparsity/supermask.py:46",
    what="ApplyMask computes weight * scores and supplies grad_output for both, without the other factor: weights that the mask removes "
    "get a gradient, and scores get "
    "one that does not depend on the weight. The docstring says Supermask STE function.",
    size="as large as the gradient",
    cases=["supermask apply mask", "SupermaskLinear: weight"],
)
package.finding(
    "torchao-stretched-ternary-step",
    kind="gradient in a configuration",
    where="torchao/prototype/paretoq/models/utils_quant.py:148",
    what="With w_bits=0, three levels, the output of StretchedElasticQuant beyond the clipping range is 2/3 of the step size, and the "
    "gradient of the step size is "
    "that of the whole.",
    size="factor 1.5 for each weight beyond the range",
    cases=["StretchedElasticQuant: step size, 3 levels (w_bits=0), inputs beyond the range"],
)
