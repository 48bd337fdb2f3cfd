"""The gradient of Tomography with adjoint_via_backprop=False beside the transform itself, which is linear.

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
options = {"angles": 4, "img_width": 6, "dtype": torch.float64, "normalize": False}
off = {}
for exact in (True, False):
    physics = deepinv.physics.Tomography(adjoint_via_backprop=exact, **options)
    x = torch.randn(1, 1, 6, 6, dtype=torch.float64, requires_grad=True)
    u = torch.randn_like(physics.A(x))
    (supplied,) = torch.autograd.grad((u * physics.A(x)).sum(), x)
    basis = torch.eye(36, dtype=torch.float64).view(36, 1, 1, 6, 6)
    true = torch.stack([(u * physics.A(e)).sum() for e in basis]).view_as(x)
    off[exact] = ((supplied - true).norm() / true.norm()).item()
    first = f"pixel (2, 2): supplied {supplied[0, 0, 2, 2].item():.6f}, true {true[0, 0, 2, 2].item():.6f}"
    print(f"adjoint_via_backprop={exact}: {first}; off by {off[exact]:.1e} of the gradient")
raise SystemExit(0 if off[True] < 1e-7 and off[False] > 1e-2 else 1)
