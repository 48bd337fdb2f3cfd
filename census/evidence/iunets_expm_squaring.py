"""The gradient of iunets' matrix exponential where the matrix is scaled and squared: a norm beyond 5.4 in float64.

pip install iunets==0.1
"""

import torch
from iunets.expm import expm

torch.manual_seed(0)
w, u = torch.randn(3, 3, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)
off = {}
for size in (0.6, 3.0):
    x = (size * (w - w.mT)).requires_grad_()
    value, plain = expm.apply(x), torch.linalg.matrix_exp(x)
    assert torch.allclose(value, plain)
    (supplied,) = torch.autograd.grad((u * value).sum(), x)
    (true,) = torch.autograd.grad((u * plain).sum(), x)
    off[size] = ((supplied - true).norm() / true.norm()).item()
    norm = torch.linalg.matrix_norm(x, 1).item()
    print(
        f"norm {norm:.2f}: element (0, 1) supplied {supplied[0, 1].item():.6f}, true {true[0, 1].item():.6f}; off by {off[size]:.2e} of the gradient"
    )
raise SystemExit(0 if off[3.0] > 1e-2 > 1e-8 > off[0.6] else 1)
