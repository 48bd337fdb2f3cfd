"""UMNN's gradient of the upper limit is the integrand there; with UMNN's own network, which has kinks, the quadrature's value moves otherwise.

pip install UMNN==1.71
"""

import torch
from UMNN import IntegrandNN, ParallelNeuralIntegral

torch.manual_seed(0)
net, h = IntegrandNN(3, [6]).double(), torch.randn(64, 2, dtype=torch.float64)
x = torch.randn(64, 1, dtype=torch.float64, requires_grad=True)
flat = torch.cat([p.reshape(-1) for p in net.parameters()])


def integral(x):
    """From 0 to x, with 50 steps as MonotonicNN has."""
    return ParallelNeuralIntegral.apply(torch.zeros_like(x), x, net, flat, h, 50)


def difference(step):
    """A central difference of the value."""
    with torch.no_grad():
        return (integral(x + step) - integral(x - step)) / (2 * step)


(supplied,) = torch.autograd.grad(integral(x).sum(), x)
true, coarse = (4 * difference(5e-5) - difference(1e-4)) / 3, difference(1e-4)
off, error = (supplied / true - 1).abs(), (coarse / true - 1).abs()
worst = off.masked_fill(error > 1e-6, 0).argmax()
print(
    f"supplied {supplied[worst].item():.8f}, true {true[worst].item():.8f}; off by {off[worst].item():.1e}, differences agree to {error[worst].item():.0e}"
)
raise SystemExit(0 if off[worst] > 1e-4 else 1)
