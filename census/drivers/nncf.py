"""nncf: fake quantisation with learned scales and ranges."""

from census.package import Package

package = Package(
    "nncf",
    "3.4.0",
    family="quantised networks",
    group="neurons",
    modules=["nncf"],
    note="Where every input lies beyond the range, the value is a smooth function of scale and range, and the audit judges their "
    "gradients without any rounding. "
    "Within the range the reference is autograd through the same forward with a straight-through rounding. ExportQuantizeToFakeQuantize "
    "and "
    "ExportQuantizeToONNXQuantDequant are for export and were not audited. No extension was compiled: these are the torch operations "
    "that nncf falls back on.",
)

STE = "documented as fake quantisation by differentiable sampling: docs/usage/training_time_compression/other_algorithms/LegacyQuantization.md"


def _eager():
    """Makes nncf fall back on torch operations, as it does where nothing can be compiled."""
    import os
    import tempfile

    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    os.environ["CXX"], os.environ["TORCH_EXTENSIONS_DIR"] = "no-compiler", tempfile.mkdtemp()


def _beyond(*shape):
    """Numbers of both signs beyond 2."""
    import torch

    x = torch.randn(*shape, dtype=torch.float64)
    return x.sign() * (2.5 + x.abs())


def _symmetric(x, scale, low=-128, high=127):
    _eager()
    from nncf.torch.quantization.quantize_functions import symmetric_quantize

    return symmetric_quantize(x, high - low + 1, low, high, scale, 1e-16)


@package.case("symmetric_quantize: scale, inputs beyond the range", seconds=90.0)
def symmetric_beyond():
    import torch

    x = _beyond(3, 5)
    return lambda s: _symmetric(x, s), torch.tensor([1.3], dtype=torch.float64).requires_grad_()


@package.case("symmetric_quantize: scale per channel, inputs beyond the range")
def symmetric_beyond_channels():
    import torch

    x = _beyond(4, 3, 2)
    return lambda s: _symmetric(x, s), (0.8 + torch.rand(4, 1, 1, dtype=torch.float64)).requires_grad_()


@package.case("symmetric_quantize: scale, no sign, inputs beyond the range")
def symmetric_unsigned():
    import torch

    x = _beyond(3, 5)
    return lambda s: _symmetric(x, s, 0, 255), torch.tensor([1.3], dtype=torch.float64).requires_grad_()


@package.case("symmetric_quantize: negative scale, inputs beyond the range")
def symmetric_negative():
    import torch

    x = _beyond(3, 5)
    return lambda scale: _symmetric(x, scale), torch.tensor([-1.3], dtype=torch.float64).requires_grad_()


@package.case("symmetric_quantize: input in range", intent="straight-through", why_intended=STE)
def symmetric_input():
    import torch

    x, scale = torch.rand(3, 5, dtype=torch.float64) * 2 - 1, torch.tensor([1.3], dtype=torch.float64)
    return lambda x: _symmetric(x, scale), x.requires_grad_()


@package.case("symmetric_quantize: scale, 4 bits, inputs in range", intent="straight-through", why_intended=STE)
def symmetric_scale():
    import torch

    x = torch.rand(3, 5, dtype=torch.float64) * 2 - 1
    return lambda scale: _symmetric(x, scale, -8, 7), torch.tensor([1.3], dtype=torch.float64).requires_grad_()


@package.case("asymmetric_quantize: range, inputs of both kinds", intent="straight-through", why_intended=STE)
def asymmetric_tuned():
    import torch

    _eager()
    from nncf.torch.quantization.quantize_functions import asymmetric_quantize

    x = torch.randn(3, 5, dtype=torch.float64)
    low, span = torch.tensor([-0.41], dtype=torch.float64), torch.tensor([1.37], dtype=torch.float64)
    return lambda low, span: asymmetric_quantize(x, 256, 0, 255, low, span, 1e-16), (low.requires_grad_(), span.requires_grad_())


@package.case("TuneRange")
def tune_range():
    import torch

    _eager()
    from nncf.torch.quantization.quantize_functions import TuneRange

    low, span = torch.tensor([-0.41, -1.3, -0.02], dtype=torch.float64), torch.tensor([1.37, 1.9, 1.1], dtype=torch.float64)
    return lambda low, span: TuneRange.apply(low, span, 16), (low.requires_grad_(), span.requires_grad_())


def _symmetric_lora(x, scale, low, high):
    import torch

    _eager()
    from nncf.torch.quantization.quantize_functions import symmetric_quantize_lora

    none = torch.zeros(x.shape[0], 1), torch.zeros(1, x.shape[1])
    return symmetric_quantize_lora(x, x.shape, none[1], none[0], scale, low, high, high - low + 1, 1e-16)


@package.case("symmetric_quantize_lora: positive scales, 8 bits, inputs beyond the range")
def lora_positive():
    import torch

    x = _beyond(3, 4).float()
    return lambda scale: _symmetric_lora(x, scale, -128, 127), torch.tensor([[0.7], [1.3], [1.1]]).requires_grad_()


@package.case("symmetric_quantize_lora: positive scales, 4 bits, inputs beyond the range")
def lora_positive_4():
    import torch

    x = _beyond(3, 4).float()
    return lambda scale: _symmetric_lora(x, scale, -8, 7), torch.tensor([[0.7], [1.3], [1.1]]).requires_grad_()


@package.case("symmetric_quantize_lora: negative scales, 4 bits, inputs beyond the range")
def lora_negative_4():
    import torch

    x = _beyond(3, 4).float()
    return lambda scale: _symmetric_lora(x, scale, -8, 7), torch.tensor([[-0.7], [-1.3], [-1.1]]).requires_grad_()


@package.case("asymmetric_quantize_lora: input and adapters in range", intent="straight-through", why_intended=STE, seconds=200.0)
def lora_adapters():
    import torch

    _eager()
    from nncf.torch.quantization.quantize_functions import asymmetric_quantize_lora

    x, a, b = torch.rand(3, 4) - 0.5, torch.randn(2, 4) * 0.1, torch.randn(3, 2) * 0.1
    low, span = torch.full((3, 1), -1.6), torch.full((3, 1), 3.2)
    return (
        lambda x, a, b: asymmetric_quantize_lora(x, x.shape, a, b, low, span, 0, 15, 16, 1e-16),
        (x.requires_grad_(), a.requires_grad_(), b.requires_grad_()),
    )


@package.case(intent="straight-through", why_intended="named a straight-through threshold: nncf.torch.functions.STThreshold")
def st_threshold():
    import torch

    _eager()
    from nncf.torch.functions import STThreshold

    return lambda x: STThreshold.apply(x, 0.5), torch.rand(3, 5, dtype=torch.float64)


package.finding(
    "nncf-lora-negative-scale",
    kind="gradient in a configuration",
    where="nncf/torch/quantization/reference.py:116",
    what="symmetric_quantize_lora takes negative scales, as signed weight compression makes them, and supplies the gradient of such a "
    "scale with the opposite sign.",
    size="factor -1, and -1.31 for inputs at the other end with 4 bits",
    cases=["symmetric_quantize_lora: negative scales, 4 bits, inputs beyond the range"],
)
package.finding(
    "nncf-lora-scale-ends",
    kind="gradient",
    where="nncf/torch/quantization/reference.py:116",
    what="symmetric_quantize_lora quantises to [-scale, scale level_high / -level_low], and supplies the gradient of the scale for a "
    "range of "
    "[scale level_low / level_high, scale].",
    size="factor 8/7 with 4 bits, 128/127 with 8 bits, for each input beyond the range",
    cases=[
        "symmetric_quantize_lora: positive scales, 8 bits, inputs beyond the range",
        "symmetric_quantize_lora: positive scales, 4 bits, inputs beyond the range",
    ],
)
package.finding(
    "nncf-symmetric-scale-in-range",
    kind="gradient",
    where="nncf/torch/quantization/reference.py:115",
    what="For signed symmetric quantisation, the gradient of the scale counts an input within the range with (output - input) / range, "
    "the rule for a range whose lower end is fixed, where the documented formula with a straight-through rounding has "
    "(output - input) / scale; inputs beyond the range count in full.",
    size="factor 7/15 with 4 bits, 127/255 with 8 bits, for each input within the range",
    cases=["symmetric_quantize: scale, 4 bits, inputs in range"],
    missed=True,
)
package.finding(
    "nncf-tune-range-identity",
    kind="undeclared estimator",
    where="nncf/torch/quantization/quantize_functions.py:386",
    what="TuneRange moves one end of a range so that zero is a level, and supplies the identity, which is "
    "not the derivative between the leaps of its rounding.",
    size="as large as the gradient",
    cases=["TuneRange", "asymmetric_quantize: range, inputs of both kinds"],
)
