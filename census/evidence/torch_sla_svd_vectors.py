"""torch-sla: svd gives no gradient through the singular vectors, as its docstring says. pip install torch-sla==0.4.0 scipy"""

import torch
from torch_sla import SparseTensor

torch.manual_seed(0)
row = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 0])
col = torch.tensor([0, 1, 0, 1, 2, 1, 2, 3, 2, 3, 3])
val = torch.tensor([4.0, -1.0, -0.7, 3.5, 0.8, -1.1, 4.5, 0.6, -0.9, 3.8, 0.5], dtype=torch.float64)
weights, direction = torch.randn(4, 4, dtype=torch.float64), torch.randn(11, dtype=torch.float64)


def loss(val):
    vectors = SparseTensor(val, row, col, (4, 4)).svd(k=1)[0]
    return (weights * (vectors @ vectors.mT)).sum()


leaf = val.clone().requires_grad_()
supplied = float(torch.autograd.grad(loss(leaf), leaf)[0] @ direction)
slopes = [float(loss(val + h * direction) - loss(val - h * direction)) / (2 * h) for h in (1e-3, 5e-4)]
true = (4 * slopes[1] - slopes[0]) / 3
print(f"supplied {supplied:.8f}, true {true:.8f}")
raise SystemExit(0 if supplied == 0 and abs(true) > 1e-3 else 1)
