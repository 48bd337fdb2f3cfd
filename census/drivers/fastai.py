"""fastai: layers and training loops."""

from census.package import Package

package = Package(
    "fastai",
    "2.8.12",
    family="segmentation, detection and vision",
    group="vision",
    modules=["fastai"],
    note="Its activations are reached without the compiled operators of torchvision, which need CUDA.",
)


def _activations():
    import torch

    for name in ("nms", "qnms"):  # importing torchvision needs them, and its compiled operators need CUDA
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import fastai.layers as activations

    return activations


@package.case("swish")
def swish():
    import torch

    return _activations().SwishJit(), 2.5 * torch.randn(3, 5, dtype=torch.float64)


@package.case("mish")
def mish():
    import torch

    return _activations().MishJit(), 2.5 * torch.randn(3, 5, dtype=torch.float64)


@package.case("mish of images")
def mish_images():
    import torch

    return _activations().MishJitAutoFn.apply, torch.randn(2, 2, 3, 2, dtype=torch.float64)
