"""pip install pytorch-tabnet==4.1.0

The second derivative of entmax is NaN as soon as one of the outputs is zero, where differences of the gradient are finite.
"""

import torch
from pytorch_tabnet.sparsemax import entmax15

x = torch.tensor([[1.0, 0.6, -3.0]], dtype=torch.float64)  # the last output is exactly zero
u = torch.tensor([[0.7, -0.4, 0.3]], dtype=torch.float64)
v = torch.tensor([[0.2, 0.5, -0.1]], dtype=torch.float64)


def slope(at, graph=False):
    (made,) = torch.autograd.grad((entmax15(at, -1) * u).sum(), at, create_graph=graph)
    return (made * v).sum()


leaf = x.clone().requires_grad_()
print("outputs:", entmax15(x, -1).tolist())
(supplied,) = torch.autograd.grad(slope(leaf, graph=True), leaf)
true = []
for i in range(3):
    moved = torch.eye(3, dtype=torch.float64)[i : i + 1] * 1e-5
    true.append(float((slope((x + moved).requires_grad_()) - slope((x - moved).requires_grad_())) / 2e-5))
print("supplied:", supplied[0].tolist())
print("true, by differences of the gradient:", true)
raise SystemExit(0 if supplied.isnan().any() and all(t == t for t in true) and max(map(abs, true)) > 1e-3 else 1)
