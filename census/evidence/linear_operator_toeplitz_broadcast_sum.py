"""The gradient of the column of batched Toeplitz matrices sums over the wrong batch dimensions. pip install linear-operator==0.6.1"""

import torch
from linear_operator.operators import ToeplitzLinearOperator

torch.manual_seed(0)
c = torch.randn(3, 1, 4, dtype=torch.float64, requires_grad=True)  # broadcast to 2 x 3 x 2
v = torch.randn(2, 3, 2, 4, 2, dtype=torch.float64)
weights = torch.randn(2, 3, 2, 4, 2, dtype=torch.float64)
(supplied,) = torch.autograd.grad((ToeplitzLinearOperator(c).matmul(v) * weights).sum(), c)
offsets = (torch.arange(4)[:, None] - torch.arange(4)).abs()
(true,) = torch.autograd.grad(((c[..., offsets] @ v) * weights).sum(), c)
print(f"column: supplied {supplied.flatten()[:3].tolist()}")
print(f"        true     {true.flatten()[:3].tolist()}")
raise SystemExit(0 if torch.linalg.norm(supplied - true) > 0.1 * torch.linalg.norm(true) else 1)
