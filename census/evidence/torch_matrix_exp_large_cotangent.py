"""The backward of matrix_exp loses digits for large cotangents. pip install torch==2.13.0 scipy."""

import torch
from scipy.linalg import expm_frechet

torch.manual_seed(0)
a = torch.randn(4, 4, dtype=torch.float64) * 0.3
g = torch.randn(4, 4, dtype=torch.float64)
true = torch.from_numpy(expm_frechet(a.mT.numpy(), g.numpy(), compute_expm=False))
off = {}
for dtype in (torch.float64, torch.float32):
    for size in (1.0, 1e3, 2.0**16, 1e6):
        x = a.to(dtype).requires_grad_()
        (supplied,) = torch.autograd.grad(torch.linalg.matrix_exp(x), x, (g * size).to(dtype))
        off[dtype, size] = float((supplied.double() / size - true).norm() / true.norm())
        print(f"{dtype}, grad_output of size {size:g}: the gradient is off by {off[dtype, size]:.1e}")
raise SystemExit(0 if off[torch.float64, 1.0] < 1e-14 and off[torch.float64, 1e6] > 1e-12 else 1)
