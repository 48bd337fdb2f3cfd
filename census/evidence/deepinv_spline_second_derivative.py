"""The second derivatives that deepinv's spline Functions supply, beside autograd through the same splines.

pip install deepinv==0.5.0
"""

import torch

try:
    import torchvision  # noqa: F401
except RuntimeError:  # its operators do not load; deepinv needs no more than their declarations
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from deepinv.models.deal import LinearSplineFunc, QuadraticSplineFunc

low, high, zero = torch.tensor([-2.0], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64), torch.zeros(1)
c = torch.tensor([0.5, 1.0, 4.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
x = torch.tensor([-0.3, 0.4], dtype=torch.float64, requires_grad=True)


def plain(x, quadratic):
    """The splines with knots at -2, -1, 0, 1, 2."""
    at = (x.detach() + 2).floor().long()
    t = x + 2 - at
    if quadratic:
        return c[at + 2] * t**2 / 2 + c[at + 1] * (1 + 2 * t - 2 * t**2) / 2 + c[at] * (1 - t) ** 2 / 2
    return c[at + 1] * t + c[at] * (1 - t)


wrong = []
for quadratic, function in ((False, LinearSplineFunc), (True, QuadraticSplineFunc)):
    found = []
    for value in (function.apply(x.view(1, 1, 1, 1, 2), c, low, high, 5, zero).flatten(), plain(x, quadratic)):
        gx, gc = torch.autograd.grad((value + x**3 + (c**3).sum()).sum(), (x, c), create_graph=True)
        found.append((value.detach(), torch.autograd.grad(gx.sum() + (gc * c.detach()).sum(), x)[0]))
    assert torch.allclose(found[0][0], found[1][0])
    print(f"{function.__name__}: second derivatives to x supplied {found[0][1].tolist()}, true {found[1][1].tolist()}")
    wrong.append(not torch.allclose(found[0][1], found[1][1]))
raise SystemExit(0 if all(wrong) else 1)
