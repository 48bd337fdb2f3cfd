"""The gradient of parameters through ParallelNeuralIntegral and NeuralIntegral is that of another interval where x0 is not 0.

pip install UMNN==1.71
"""

import torch
from UMNN import NeuralIntegral, ParallelNeuralIntegral


class Integrand(torch.nn.Module):
    """The constant a, whose integral from x0 to x is a (x - x0)."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor([2.0], dtype=torch.float64))

    def forward(self, x, h):
        """Broadcast the constant; h counts zero times."""
        return self.a + 0 * x + 0 * h


x0, x = torch.tensor([[1.0]], dtype=torch.float64), torch.tensor([[3.0]], dtype=torch.float64)
h = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
wrong = []
for function in (ParallelNeuralIntegral, NeuralIntegral):
    net = Integrand()
    value = function.apply(x0, x, net, net.a.reshape(-1), h, 20)
    (supplied,) = torch.autograd.grad(value.sum(), net.a)
    true = float(x - x0)
    print(f"{function.__name__}: value {value.item():.6f} = 2 (3 - 1); d/da supplied {supplied.item():.6f}, true {true:.6f}")
    wrong.append(abs(supplied.item() - true) > 1e-3)
raise SystemExit(0 if all(wrong) else 1)
