"""optimum-quanto: tensors with quantised values, differentiated straight through their quantisers."""

from census.package import Package

package = Package(
    "optimum-quanto",
    "0.2.7",
    family="quantised networks",
    group="neurons",
    modules=["optimum.quanto"],
    note="Scales and shifts get no gradient, as the docstring of QuantizedLinearFunction says. It imports transformers, which takes "
    "torchvision where it is installed; the wheel in this environment needs CUDA, so that it is hidden here. Weights of 4 and 2 bits need "
    "an extension that is compiled at first use, and were not reached.",
)


def _hidden():
    import sys

    sys.modules.setdefault("torchvision", None)
    sys.modules.setdefault("torchaudio", None)


def _weight(kind, rows=6, columns=16):
    import torch

    _hidden()
    from optimum.quanto import AbsmaxOptimizer, qtypes, quantize_weight

    w = torch.randn(rows, columns)
    return quantize_weight(w, qtype=qtypes[kind], axis=0, scale=AbsmaxOptimizer()(w, qtype=qtypes[kind], axis=0))


def _declare(kind, shape):
    def make():
        import torch

        weight = _weight(kind)
        return lambda x, b: torch.nn.functional.linear(x, weight, b), (
            torch.randn(*shape).requires_grad_(),
            torch.randn(6).requires_grad_(),
        )

    package.case(f"linear with a {kind} weight: input of {len(shape)} dimensions and bias")(make)


for _kind in ("qint8", "qfloat8_e4m3fn"):
    for _shape in ((3, 16), (2, 3, 16)):
        _declare(_kind, _shape)


DOCUMENTED = "documented as straight-through: optimum/quanto/tensor/function.py"


def _quantised(kind):
    def fn(w):
        _hidden()
        from optimum.quanto import AbsmaxOptimizer, qtypes, quantize_weight

        fixed = w.detach()
        return quantize_weight(w, qtype=qtypes[kind], axis=0, scale=AbsmaxOptimizer()(fixed, qtype=qtypes[kind], axis=0)).dequantize()

    return fn


@package.case("quantize_weight, qint8", intent="straight-through", why_intended=DOCUMENTED)
def quantise_qint8():
    import torch

    return _quantised("qint8"), torch.randn(5, 16)


@package.case("quantize_activation, qint8", intent="straight-through", why_intended=DOCUMENTED)
def quantise_activation():
    import torch

    _hidden()
    from optimum.quanto import qint8, quantize_activation

    scale = torch.tensor(0.05)
    return lambda x: quantize_activation(x, qtype=qint8, scale=scale).dequantize(), torch.randn(3, 5)
