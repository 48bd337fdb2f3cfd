"""The second derivative of tensor_norm3 has constants of single precision in double precision. pip install torchmd-net==3.1.0"""

import torch
from torchmdnet.extensions.warp_ops import fn_tensor_norm3

torch.manual_seed(0)
x, v = torch.randn(2, 2, 3, 3, 2, dtype=torch.float64)
weights = torch.randn(2, 6, dtype=torch.float64)


def gradient(at):
    y = at.clone().requires_grad_()
    return torch.autograd.grad((fn_tensor_norm3(y) * weights).sum(), y)[0]


y = x.clone().requires_grad_()
(first,) = torch.autograd.grad((fn_tensor_norm3(y) * weights).sum(), y, create_graph=True)
(supplied,) = torch.autograd.grad((first * v).sum(), y)
true = (gradient(x + v) - gradient(x - v)) / 2  # exact, as the gradient is linear
off = (torch.linalg.norm(supplied - true) / torch.linalg.norm(true)).item()
worst = (supplied - true).abs().argmax()
print(
    f"Hessian times a vector: supplied {supplied.flatten()[worst].item():.15g}, true {true.flatten()[worst].item():.15g}, off by {off:.1e}"
)
raise SystemExit(0 if off > 1e-12 else 1)
