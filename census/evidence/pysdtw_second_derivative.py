"""pip install pysdtw==0.0.5

The second derivative leaves out that of the soft minimum: a curvature along a direction, beside differences of the gradient.
"""

import pysdtw
import torch

torch.manual_seed(0)
x, y, v = torch.randn(3, 1, 4, 2, dtype=torch.float64)
loss = pysdtw.SoftDTW(use_cuda=False)


def slope(at, graph=False):
    leaf = at if at.requires_grad else at.clone().requires_grad_()
    (made,) = torch.autograd.grad(loss(leaf, y).sum(), leaf, create_graph=graph)
    return (made * v).sum()


leaf = x.clone().requires_grad_()
(second,) = torch.autograd.grad(slope(leaf, graph=True), leaf)
supplied = float((second * v).sum())
step = 2e-2
near = float(slope(x + step * v) - slope(x - step * v)) / (2 * step)
far = float(slope(x + 2 * step * v) - slope(x - 2 * step * v)) / (4 * step)
true = (4 * near - far) / 3
print(f"curvature: supplied {supplied:.6f}, true {true:.4f} by differences of the gradient")
print(f"off by {abs(supplied - true) / abs(true):.3g} of the true one")
raise SystemExit(0 if abs(supplied - true) > 0.02 * abs(true) and abs(near - far) < 0.01 * abs(true) else 1)
