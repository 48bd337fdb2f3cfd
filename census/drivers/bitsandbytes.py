"""bitsandbytes: products with 8-bit and 4-bit weights; the parts that run on the CPU."""

from census.package import Package

package = Package(
    "bitsandbytes",
    "0.50.2",
    family="quantised networks",
    group="neurons",
    modules=["bitsandbytes"],
    note="Run on the CPU, where matmul uses MatMul8bitFp in training, and MatMul8bitLt otherwise.",
)


def _eight_bits(weight, training=True):
    import bitsandbytes as bnb

    state = bnb.MatmulLtState()
    state.has_fp16_weights, state.is_training = True, training
    return lambda x, b: bnb.matmul(x, weight, state=state, bias=b)


@package.case("matmul, 8 bits: input and bias")
def eight_bits():
    import torch

    weight = torch.randn(5, 8)
    return _eight_bits(weight), (torch.randn(3, 8).requires_grad_(), torch.randn(5).requires_grad_())


@package.case("matmul, 8 bits: input of three dimensions and bias")
def eight_bits_3d():
    import torch

    weight = torch.randn(5, 8)
    return _eight_bits(weight), (torch.randn(2, 3, 8).requires_grad_(), torch.randn(5).requires_grad_())


def _weight(x):
    import bitsandbytes as bnb

    def fn(w):
        state = bnb.MatmulLtState()
        state.has_fp16_weights, state.is_training = True, True
        return bnb.matmul(x, w, state=state)

    return fn


WHY = "the weight is trained through its quantisation: Linear8bitLt with has_fp16_weights=True"


@package.case("matmul, 8 bits: weight", intent="straight-through", why_intended=WHY)
def eight_bits_weight():
    import torch

    return _weight(torch.randn(3, 8)), torch.randn(5, 8)


@package.case("matmul, 8 bits: weight, input of three dimensions", intent="straight-through", why_intended=WHY)
def eight_bits_weight_3d():
    import torch

    return _weight(torch.randn(2, 3, 8)), torch.randn(5, 8)


def _four_bits(kind, nested, *shape):
    import bitsandbytes as bnb
    import bitsandbytes.functional as F
    import torch

    packed, state = F.quantize_4bit(torch.randn(6, 64), quant_type=kind, compress_statistics=nested)
    return (
        lambda x, b: bnb.matmul_4bit(x, packed, state, bias=b),
        (torch.randn(*shape, 64).requires_grad_(), torch.randn(6).requires_grad_()),
    )


@package.case("matmul_4bit, nf4: input and bias")
def nf4():
    return _four_bits("nf4", False, 3)


@package.case("matmul_4bit, fp4, nested statistics: input of three dimensions and bias")
def fp4_nested():
    return _four_bits("fp4", True, 2, 3)


@package.case("matmul_4bit, nf4, one row")
def nf4_row():
    return _four_bits("nf4", False, 1)


package.finding(
    "bitsandbytes-fp-weight-3d",
    kind="missing gradient",
    where="bitsandbytes/autograd/_functions.py:288",
    what="On the CPU, the backward of matmul with 8-bit weights in training raises if the weight requires a gradient and the input has "
    "three dimensions.",
    size="an error for every such input",
    cases=["matmul, 8 bits: weight, input of three dimensions"],
)
