"""ParallelNeuralIntegral with inv_f=True cannot be differentiated: the backward returns too few gradients.

pip install UMNN==1.71
"""

import torch
from UMNN import ParallelNeuralIntegral


class Integrand(torch.nn.Module):
    """The integrand 2 + a x."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor([0.5], dtype=torch.float64))

    def forward(self, x, h):
        """Evaluate it; h counts zero times."""
        return 2 + self.a * x + 0 * h


net, h = Integrand(), torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
x0, x = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[1.0]], dtype=torch.float64, requires_grad=True)
value = ParallelNeuralIntegral.apply(x0, x, net, net.a.reshape(-1), h, 20, True)
print(f"value {value.item():.6f}, integral of 1 / (2 + 0.5 x) from 0 to 1 is 0.446287; true derivative at 1 is {1 / 2.5:.6f}")
try:
    (supplied,) = torch.autograd.grad(value.sum(), x)
    print(f"supplied {supplied.item():.6f}")
    raise SystemExit(0 if abs(supplied.item() - 1 / 2.5) > 1e-3 else 1)
except RuntimeError as error:
    print(f"supplied: {error}")
    raise SystemExit(0) from None
