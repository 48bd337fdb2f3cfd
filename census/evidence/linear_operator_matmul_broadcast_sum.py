"""The gradient of the right-hand side sums over the wrong batch dimensions where a size of 1 is broadcast. pip install linear-operator==0.6.1"""

import torch
from linear_operator.operators import DenseLinearOperator

torch.manual_seed(0)
a = torch.randn(2, 3, 4, 3, 3, dtype=torch.float64)
v = torch.randn(3, 1, 3, 2, dtype=torch.float64, requires_grad=True)  # broadcast to 2 x 3 x 4
weights = torch.randn(2, 3, 4, 3, 2, dtype=torch.float64)
(supplied,) = torch.autograd.grad((DenseLinearOperator(a).matmul(v) * weights).sum(), v)
(true,) = torch.autograd.grad(((a @ v) * weights).sum(), v)
print(f"right-hand side: supplied {supplied.flatten()[:3].tolist()}")
print(f"                 true     {true.flatten()[:3].tolist()}")
raise SystemExit(0 if torch.linalg.norm(supplied - true) > 0.1 * torch.linalg.norm(true) else 1)
