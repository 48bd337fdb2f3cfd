"""The second derivative that deepinv's MMSE denoiser supplies, beside autograd through the same formula.

pip install deepinv==0.5.0
"""

import torch

try:
    import torchvision  # noqa: F401
except RuntimeError:  # its operators do not load; deepinv needs no more than their declarations
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
import deepinv

torch.manual_seed(0)
data, x = torch.randn(4, 1, 2, 2, dtype=torch.float64), torch.randn(1, 1, 2, 2, dtype=torch.float64, requires_grad=True)
sigma, u, v = torch.tensor([0.8], dtype=torch.float64), torch.randn_like(x), torch.randn_like(x)
model = deepinv.models.MMSE(dataloader=data, device=torch.device("cpu"), dtype=torch.float64)


def plain(x):
    """The average of the data, weighted by a softmax of squared distances."""
    squared = (x.view(1, 4) - data.view(4, 4)).square().sum(1)
    return (torch.softmax(-squared / (2 * sigma**2 + 1e-12), 0) @ data.view(4, 4)).view_as(x)


found = []
for function in (lambda x: model(x, sigma), plain):
    (gradient,) = torch.autograd.grad((u * function(x)).sum() + x.pow(3).sum(), x, create_graph=True)
    found.append((gradient.detach(), torch.autograd.grad((gradient * v).sum(), x)[0].flatten()))
assert torch.allclose(found[0][0], found[1][0])
print("second derivative along a direction: supplied", found[0][1].tolist())
print("second derivative along a direction: true    ", found[1][1].tolist())
raise SystemExit(0 if (found[0][1] - found[1][1]).abs().max() > 1e-3 else 1)
