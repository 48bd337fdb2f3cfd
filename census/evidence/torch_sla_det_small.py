"""torch-sla: the gradient of det is zero where |det| is below 1e-15. pip install torch-sla==0.4.0 scipy"""

import torch
from torch_sla import SparseTensor

row = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 0])
col = torch.tensor([0, 1, 0, 1, 2, 1, 2, 3, 2, 3, 3])
val = torch.tensor([4.0, -1.0, -0.7, 3.5, 0.8, -1.1, 4.5, 0.6, -0.9, 3.8, 0.5], dtype=torch.float64)


def gradients(val):
    leaf = val.clone().requires_grad_()
    matrix = SparseTensor(leaf, row, col, (4, 4))
    return matrix.det(), torch.autograd.grad(matrix.det(), leaf)[0], torch.autograd.grad(torch.linalg.det(matrix.to_dense()), leaf)[0]


borne_out = True
for name, scaled in (("A", val), ("A / 1e5", val / 1e5)):
    value, supplied, true = gradients(scaled)
    print(f"{name}: det {float(value):.3e}, length of the gradient: supplied {float(supplied.norm()):.3e}, true {float(true.norm()):.3e}")
    small = abs(float(value)) < 1e-15
    borne_out &= (float(supplied.norm()) == 0) == small and float(true.norm()) > 0
raise SystemExit(0 if borne_out else 1)
