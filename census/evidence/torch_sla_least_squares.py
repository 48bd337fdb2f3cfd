"""torch-sla: the gradient of a least-squares solution (lsqr, rectangular A) misses the term of the residual. pip install torch-sla==0.4.0 scipy"""

import torch
from torch_sla import spsolve

torch.manual_seed(0)
row = torch.tensor([0, 0, 1, 1, 2, 2, 3])
col = torch.tensor([0, 1, 0, 1, 0, 1, 1])
val = torch.tensor([2.0, -1.0, 0.5, 1.5, -0.7, 1.1, 0.9], dtype=torch.float64)
weights, direction = torch.randn(2, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
fitting = torch.zeros(4, 2, dtype=torch.float64).index_put((row, col), val) @ torch.tensor([1.0, -2.0], dtype=torch.float64)

borne_out = True
for name, b in (("residual zero", fitting), ("residual not zero", fitting + torch.tensor([0.0, 1.0, -1.0, 0.5], dtype=torch.float64))):

    def loss(val, b=b):
        return (weights * spsolve(val, row, col, (4, 2), b, backend="pytorch", method="lsqr", atol=1e-15)).sum()

    leaf = val.clone().requires_grad_()
    dense = torch.linalg.lstsq(torch.zeros(4, 2, dtype=torch.float64).index_put((row, col), leaf), b[:, None]).solution[:, 0]
    supplied = float(torch.autograd.grad(loss(leaf), leaf)[0] @ direction)
    autograd = float(torch.autograd.grad((weights * dense).sum(), leaf)[0] @ direction)
    slopes = [float(loss(val + h * direction) - loss(val - h * direction)) / (2 * h) for h in (1e-3, 5e-4)]
    true = (4 * slopes[1] - slopes[0]) / 3
    print(f"{name}: supplied {supplied:.8f}, true {true:.8f} (differences), {autograd:.8f} (torch.linalg.lstsq)")
    wrong = abs(supplied - true) > 1e-2 * abs(true)
    borne_out &= abs(true - autograd) < 1e-6 * abs(true) and wrong == (name == "residual not zero")
raise SystemExit(0 if borne_out else 1)
