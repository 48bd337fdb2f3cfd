"""gauss_legendre's gradient of the limits is that of the integral, not that of the quadrature that it returns.

pip install zuko==1.6.0
"""

import torch
from zuko.utils import GaussLegendre, gauss_legendre

a, b = torch.tensor([-1.0], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
off = {}
for n in (3, 5, 48):
    value = gauss_legendre(lambda x: torch.exp(-(x**2)), a, b, n=n)
    plain = GaussLegendre.quadrature(lambda x: torch.exp(-(x**2)), a, b, n)  # the same rule without the Function
    (supplied,) = torch.autograd.grad(value.sum(), b)
    (true,) = torch.autograd.grad(plain.sum(), b)
    off[n] = abs(supplied.item() / true.item() - 1)
    print(
        f"n = {n}: value {value.item():.8f}; d/db supplied {supplied.item():.8f}, derivative of the value {true.item():.8f}; relative {off[n]:.1e}"
    )
raise SystemExit(0 if off[5] > 1e-4 and off[48] < 1e-10 else 1)
