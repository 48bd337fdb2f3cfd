"""peft: adapters for large models, among them Functions of LoHa, C3A, RandLora and VeLoRA."""

from census.package import Package

package = Package(
    "peft",
    "0.21.2",
    family="quantised networks",
    group="neurons",
    modules=["peft"],
    note="peft imports transformers, which takes torchvision where it is installed; the wheel in this environment needs CUDA, so that "
    "it is hidden here. "
    "FastBlockDiag of BOFT needs CUDA.",
)


def _hidden():
    import sys

    sys.modules.setdefault("torchvision", None)
    sys.modules.setdefault("torchaudio", None)


def _randn(*shapes):
    import torch

    return tuple(torch.randn(*shape, dtype=torch.float64).requires_grad_() for shape in shapes)


@package.case()
def loha_make_weight():
    import torch

    _hidden()
    from peft.tuners.loha.layer import make_weight

    scale = torch.tensor(0.7, dtype=torch.float64)
    return lambda *w: make_weight(*w, scale), _randn((5, 2), (2, 4), (5, 2), (2, 4))


@package.case()
def loha_make_weight_cp():
    import torch

    _hidden()
    from peft.tuners.loha.layer import make_weight_cp

    scale = torch.tensor(0.7, dtype=torch.float64)
    return lambda *w: make_weight_cp(*w, scale), _randn((2, 2, 3, 3), (2, 5), (2, 4), (2, 2, 3, 3), (2, 5), (2, 4))


@package.case("LoHa on a convolution, use_effective_conv2d=True", seconds=90.0)
def loha_conv():
    import torch

    _hidden()
    from peft import LoHaConfig, get_peft_model
    from torch.func import functional_call

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3))
    model = get_peft_model(net, LoHaConfig(r=2, target_modules=["0"], use_effective_conv2d=True, init_weights=False)).double()
    adapters = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters() if "hada" in name}
    x = torch.randn(1, 3, 4, 4, dtype=torch.float64)
    return lambda **p: functional_call(model, p, (x,)), adapters


@package.case()
def c3a_block_circular():
    _hidden()
    from peft.tuners.c3a.utils import BlockCircularConvolution

    return BlockCircularConvolution.apply, _randn((2, 3, 8), (3, 2, 4))


@package.case("BlockCircularConvolution of a block of odd size, no batch")
def c3a_odd():
    _hidden()
    from peft.tuners.c3a.utils import BlockCircularConvolution

    return BlockCircularConvolution.apply, _randn((6,), (1, 2, 3))


@package.case()
def randlora_unique_base():
    import torch

    _hidden()
    from peft.tuners.randlora.layer import UniqueBaseGrad

    base = torch.randn(3, 1, 5, dtype=torch.float64)
    return lambda a, b: UniqueBaseGrad.apply(base, a, b), _randn((3, 2), (2, 5))


@package.case("VeloraFunction: input and bias")
def velora_input():
    import torch

    _hidden()
    from peft.tuners.lora.velora import VeloraFunction

    weight, embed = torch.randn(4, 6, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    return lambda x, b: VeloraFunction.apply(x, weight, b, embed / embed.norm(), 2, 1.0), _randn((2, 3, 6), (4,))


@package.case(
    "VeloraFunction: weight",
    intent="preconditioned",
    why_intended="documented as an approximation by a projection: peft/tuners/lora/velora.py, VeloraConfig",
)
def velora_weight():
    import torch

    _hidden()
    from peft.tuners.lora.velora import VeloraFunction

    x, embed = torch.randn(7, 6, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    return lambda w: VeloraFunction.apply(x, w, None, embed / embed.norm(), 2, 1.0), _randn((4, 6))


package.finding(
    "peft-loha-cp-wrong-factor",
    kind="gradient",
    where="peft/tuners/loha/layer.py:410",
    what="The backward of LoHa for convolutions with use_effective_conv2d contracts the gradients of w1a and w2a with the factor of the "
    "other half of the product: "
    "t2 w2b in the place of t1 w1b, and the reverse.",
    size="as large as the gradient of w1a and w2a",
    cases=["loha make weight cp", "LoHa on a convolution, use_effective_conv2d=True"],
)
package.finding(
    "peft-c3a-input-gradient",
    kind="gradient",
    where="peft/tuners/c3a/utils.py:45",
    what="The gradient of the input of C3A is the circular correlation of grad_output and the weight, where it is their circular "
    "convolution: what is supplied "
    "belongs to a grad_output that is reversed within each block.",
    size="as large as the gradient of the input, for blocks of 3 elements and more",
    cases=["c3a block circular", "BlockCircularConvolution of a block of odd size, no batch"],
)
