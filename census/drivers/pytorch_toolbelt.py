"""pytorch-toolbelt: losses and modules for image models."""

from census.package import Package

package = Package("pytorch-toolbelt", "0.8.0", family="losses and metric learning", group="vision", modules=["pytorch_toolbelt"])


def _losses():
    import torch

    for name in ("nms", "qnms"):  # importing torchvision needs them, and its compiled operators need CUDA
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import pytorch_toolbelt.losses.bitempered_loss as losses

    return losses


def _activations():
    _losses()
    import pytorch_toolbelt.modules.activations as activations

    return activations


@package.case("swish")
def swish():
    import torch

    return _activations().swish, 2.5 * torch.randn(3, 5, dtype=torch.float64)


@package.case("mish")
def mish():
    import torch

    return _activations().mish, 2.5 * torch.randn(3, 5, dtype=torch.float64)


@package.case("normalization, 5 iterations as by default")
def normalization():
    import torch

    losses = _losses()
    return lambda x: losses.compute_normalization(x, 1.5), torch.randn(3, 5, dtype=torch.float64)


@package.case("normalization, 60 iterations")
def normalization_converged():
    import torch

    losses = _losses()
    return lambda x: losses.compute_normalization(x, 1.5, 60), torch.randn(3, 5, dtype=torch.float64)


@package.case("normalization below 1, 60 iterations")
def normalization_below():
    import torch

    losses = _losses()
    return lambda x: losses.compute_normalization(x, 0.7, 60), torch.randn(3, 5, dtype=torch.float64)


@package.case("normalization below 1, 5 iterations as by default")
def normalization_below_default():
    import torch

    losses = _losses()
    return lambda x: losses.compute_normalization(x, 0.7), torch.randn(3, 5, dtype=torch.float64)


@package.case("bi-tempered loss")
def loss():
    import torch

    criterion = _losses().BiTemperedLogisticLoss(t1=0.8, t2=1.2, reduction="none")
    return lambda x: criterion(x, torch.tensor([0, 2, 1])), torch.randn(3, 4, dtype=torch.float64)


@package.case("bi-tempered loss, smoothed, wide logits")
def loss_smoothed():
    import torch

    criterion = _losses().BiTemperedLogisticLoss(t1=0.3, t2=2.0, smoothing=0.1)
    return lambda x: criterion(x, torch.tensor([0, 2, 1])), 4 * torch.randn(3, 4, dtype=torch.float64)


@package.case("binary bi-tempered loss")
def binary_loss():
    import torch

    criterion = _losses().BinaryBiTemperedLogisticLoss(t1=0.8, t2=1.4)
    target = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]], dtype=torch.float64)
    return lambda x: criterion(x, target), torch.randn(2, 1, 2, dtype=torch.float64)


package.finding(
    "pytorch-toolbelt-normalization-unconverged",
    kind="accuracy",
    where="pytorch_toolbelt/losses/bitempered_loss.py:102",
    what="The backward is that of the converged normalization, and by default the forward stops after 5 iterations.",
    size="6e-8 to 1e-3 of the gradient above a temperature of 1, 0.5 of it below",
    cases=[
        "normalization, 5 iterations as by default",
        "normalization below 1, 5 iterations as by default",
        "bi-tempered loss",
        "bi-tempered loss, smoothed, wide logits",
        "binary bi-tempered loss",
    ],
)
