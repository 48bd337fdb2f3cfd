"""pip install pytorch-toolbelt==0.8.0

With the default of 5 iterations the normalization has not converged, and its gradient is that of the converged one.
"""

import torch

for name in ("nms", "qnms"):  # torchvision cannot be imported beside a torch for the CPU without them
    if not hasattr(torch.ops.torchvision, name):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from pytorch_toolbelt.losses.bitempered_loss import compute_normalization  # noqa: E402

torch.manual_seed(0)
x = torch.randn(3, 5, dtype=torch.float64)


def off(t, iterations):
    leaf, step, slopes = x.clone().requires_grad_(), 1e-6, torch.zeros_like(x)
    compute_normalization(leaf, t, iterations).sum().backward()
    for i in range(x.numel()):
        moved = torch.zeros(x.numel(), dtype=torch.float64)
        moved[i] = step
        high, low = (compute_normalization(x + sign * moved.view_as(x), t, iterations).sum() for sign in (1, -1))
        slopes.view(-1)[i] = (high - low) / (2 * step)
    print(f"t = {t}, {iterations} iterations: supplied {leaf.grad[0].tolist()}")
    print(f"                         true {slopes[0].tolist()}")
    return float((leaf.grad - slopes).norm() / slopes.norm())


default, more, below, below_more = off(1.5, 5), off(1.5, 60), off(0.7, 5), off(0.7, 60)
print(f"off by {default:.2g} of the gradient above 1 ({more:.1g} with 60 iterations), by {below:.2g} below 1 ({below_more:.1g} with 60)")
raise SystemExit(0 if default > 1e-5 and more < 1e-7 and below > 0.1 and below_more < 1e-7 else 1)
