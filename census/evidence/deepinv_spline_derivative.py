"""The gradient of the coefficients through LinearSplineDerivativeFunc ignores the incoming gradient, and has another shape for two activations.

pip install deepinv==0.5.0
"""

import torch

try:
    import torchvision  # noqa: F401
except RuntimeError:  # its operators do not load; deepinv needs no more than their declarations
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from deepinv.models.deal import LinearSplineDerivativeFunc

low, high = torch.tensor([-2.0], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)
x = torch.tensor([-0.3, 0.4], dtype=torch.float64).view(1, 1, 1, 1, 2)


def slope(c, activations=1):
    """The slope of the spline at x; with knots at -2, -1, 0, 1, 2 it is c[2] - c[1] at -0.3 and c[3] - c[2] at 0.4."""
    return LinearSplineDerivativeFunc.apply(x.expand(1, activations, 1, 1, 2), c, low, high, 5, torch.arange(activations) * 5)


c = torch.tensor([0.0, 1.0, 4.0, 9.0, 16.0], dtype=torch.float64, requires_grad=True)
wrong = []
for weight in (1.0, 10.0, -1.0):
    (supplied,) = torch.autograd.grad((weight * slope(c)).sum(), c)
    true = weight * torch.tensor([0.0, -1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    print(f"{weight} times the slopes {slope(c).flatten().tolist()}: supplied {supplied.tolist()}, true {true.tolist()}")
    wrong.append(not torch.allclose(supplied, true))
try:
    torch.autograd.grad(slope(torch.stack([c, c]), 2).sum(), c)
except RuntimeError as error:
    print(f"two activations: {str(error)[:140]}")
raise SystemExit(0 if wrong == [False, True, True] else 1)
