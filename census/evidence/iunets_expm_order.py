"""The gradient of iunets' matrix exponential where a Pade approximant of order 3 to 9 is used: small matrices, and all in float32.

pip install iunets==0.1
"""

import torch
from iunets.expm import expm

torch.manual_seed(0)
w, u = torch.randn(3, 3, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)
wrong = []
for size, dtype in ((1e-3, torch.float64), (0.1, torch.float64), (1e-3, torch.float32), (0.5, torch.float32)):
    x = (size * (w - w.mT)).to(dtype).requires_grad_()
    value, plain = expm.apply(x), torch.linalg.matrix_exp(x)
    assert torch.allclose(value, plain, atol=1e-5)
    (supplied,) = torch.autograd.grad((u.to(dtype) * value).sum(), x)
    (true,) = torch.autograd.grad((u.to(dtype) * plain).sum(), x)
    off = ((supplied - true).norm() / true.norm()).item()
    print(
        f"{dtype}, size {size}: element (0, 1) supplied {supplied[0, 1].item():.6f}, true {true[0, 1].item():.6f}; off by {off:.2e} of the gradient"
    )
    wrong.append(off > 1e-2)
raise SystemExit(0 if all(wrong) else 1)
