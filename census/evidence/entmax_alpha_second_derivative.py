"""entmax_bisect: the second derivative in alpha leaves out that the first one depends on alpha. pip install entmax==1.3"""

import torch
from entmax import entmax_bisect

torch.manual_seed(0)
x = 0.2 * torch.randn(2, 5, dtype=torch.float64)
u = torch.arange(5, dtype=torch.float64)


def gradient(at, graph=False):
    at = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    (made,) = torch.autograd.grad((entmax_bisect(x, at) * u).sum(), at, create_graph=graph)
    return made, at


first, alpha = gradient(1.4, graph=True)
(supplied,) = torch.autograd.grad(first, alpha)
coarse, fine = (float(gradient(1.4 + h)[0] - gradient(1.4 - h)[0]) / (2 * h) for h in (1e-2, 5e-3))
true = (4 * fine - coarse) / 3
print(f"all outputs positive: {bool((entmax_bisect(x, 1.4) > 0).all())}; first derivative {float(first):.6f}")
print(f"second derivative in alpha: supplied {float(supplied):.6f}, true {true:.6f} (± {abs(fine - coarse):.1e})")
raise SystemExit(0 if abs(float(supplied) - true) > max(100 * abs(fine - coarse), 0.01 * abs(true)) else 1)
