"""timm: image models, with activations that keep their input only."""

from census.package import Package

package = Package(
    "timm",
    "1.0.31",
    family="segmentation, detection and vision",
    group="vision",
    modules=["timm"],
    note="Its activations are reached without the compiled operators of torchvision, which need CUDA.",
)


def _activations():
    import torch

    for name in ("nms", "qnms"):  # importing torchvision needs them, and its compiled operators need CUDA
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import timm.layers.activations_me as activations

    return activations


@package.case("swish")
def swish():
    import torch

    return _activations().swish_me, 2.5 * torch.randn(3, 5, dtype=torch.float64)


@package.case("mish")
def mish():
    import torch

    return _activations().mish_me, 2.5 * torch.randn(3, 5, dtype=torch.float64)


@package.case("hard sigmoid")
def hard_sigmoid():
    import torch

    return _activations().hard_sigmoid_me, 2.5 * torch.randn(3, 5, dtype=torch.float64)


@package.case("hard swish")
def hard_swish():
    import torch

    return _activations().hard_swish_me, 2.5 * torch.randn(3, 5, dtype=torch.float64)


@package.case("hard mish")
def hard_mish():
    import torch

    return _activations().hard_mish_me, 2.5 * torch.randn(3, 5, dtype=torch.float64)


@package.case("mish far from zero")
def mish_far():
    import torch

    return _activations().mish_me, torch.tensor([-40.0, -21.0, -8.0, 8.0, 19.5, 20.5, 60.0], dtype=torch.float64)


@package.case("swish far from zero")
def swish_far():
    import torch

    return _activations().swish_me, torch.tensor([-60.0, -36.0, -8.0, 8.0, 36.0, 60.0], dtype=torch.float64)


@package.case("swish in single precision, channels")
def swish_single():
    import torch

    return _activations().swish_me, torch.randn(2, 3, 2, 2)


@package.case("hard swish at its borders")
def hard_swish_borders():
    import torch

    return _activations().hard_swish_me, torch.tensor([-3.0, -1.0, 0.0, 1.5, 3.0], dtype=torch.float64)


@package.case("hard sigmoid at its borders")
def hard_sigmoid_borders():
    import torch

    return _activations().hard_sigmoid_me, torch.tensor([-3.0, -1.0, 0.0, 1.5, 3.0], dtype=torch.float64)


@package.case("hard mish at its borders")
def hard_mish_borders():
    import torch

    return _activations().hard_mish_me, torch.tensor([-2.0, -1.0, 0.0, 1.5, 3.0], dtype=torch.float64)
