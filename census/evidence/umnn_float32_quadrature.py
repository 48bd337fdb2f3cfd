"""The weights of UMNN's quadrature are in float32: in float64 the gradient is not that of the value.

pip install UMNN==1.71
"""

import torch
from UMNN import ParallelNeuralIntegral


class Integrand(torch.nn.Module):
    """The constant 1 + 0 a."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor([0.0], dtype=torch.float64))

    def forward(self, x, h):
        """Evaluate it."""
        return 1 + 0 * x + 0 * h + 0 * self.a


net, h = Integrand(), torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)


def integral(x):
    """The quadrature of 1 from 0 to x, linear in x."""
    return ParallelNeuralIntegral.apply(torch.zeros_like(x), x, net, net.a.reshape(-1), h, 20)


x = torch.tensor([[1.0]], dtype=torch.float64, requires_grad=True)
(supplied,) = torch.autograd.grad(integral(x).sum(), x)
true = (integral(x + 0.5) - integral(x - 0.5)).item()  # exact but for rounding: the value is linear in x
print(f"supplied {supplied.item():.15f}, true {true:.15f}, relative difference {abs(supplied.item() / true - 1):.1e}")
raise SystemExit(0 if 1e-9 < abs(supplied.item() / true - 1) < 1e-5 else 1)
