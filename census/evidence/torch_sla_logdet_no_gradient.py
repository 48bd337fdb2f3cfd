"""torch-sla: logdet of a small matrix is detached. pip install torch-sla==0.4.0 scipy"""

import torch
from torch_sla import SparseTensor

row = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 0])
col = torch.tensor([0, 1, 0, 1, 2, 1, 2, 3, 2, 3, 3])
val = torch.tensor([4.0, -1.0, -0.7, 3.5, 0.8, -1.1, 4.5, 0.6, -0.9, 3.8, 0.5], dtype=torch.float64)
leaf = val.clone().requires_grad_()
matrix = SparseTensor(leaf, row, col, (4, 4))
value = matrix.logdet()
dense = torch.linalg.slogdet(matrix.to_dense())[1]
(true,) = torch.autograd.grad(dense, leaf)
print(f"value {float(value.detach()):.8f}, by torch.linalg.slogdet {float(dense.detach()):.8f}")
print(f"supplied: requires_grad is {value.requires_grad}; true: a gradient of length {float(true.norm()):.6f}")
borne_out = not value.requires_grad and abs(float(value) - float(dense)) < 1e-10 and float(true.norm()) > 1e-2
raise SystemExit(0 if borne_out else 1)
