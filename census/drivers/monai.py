"""MONAI: medical image analysis in PyTorch."""

from census.package import Package

package = Package(
    "monai",
    "1.6.1",
    family="segmentation, detection and vision",
    group="vision",
    modules=["monai"],
    note="The wheel comes without the compiled extension monai._C, so the filters and resampling functions that call it are not reached.",
)


@package.case("swish")
def swish():
    import torch
    from monai.networks.blocks.activation import SwishImplementation

    return SwishImplementation.apply, 2.5 * torch.randn(3, 5, dtype=torch.float64)


@package.case("swish of volumes in single precision")
def swish_volumes():
    import torch
    from monai.networks.blocks.activation import SwishImplementation

    return SwishImplementation.apply, torch.randn(1, 2, 3, 2, 2)


@package.case(
    "rectifier of guided backpropagation",
    intent="gradient-cap",
    why_intended="monai.visualize.gradient_based: a ReLU with the backward pass imputed for guided backpropagation (arXiv 1412.6806)",
)
def guided():
    import torch
    from monai.visualize.gradient_based import _GradReLU

    return _GradReLU(), torch.randn(3, 5, dtype=torch.float64)
