"""geomloss: the potentials of a kernel loss (potentials=True) have another gradient than their values. pip install geomloss==0.3.1 torch"""

import torch
from geomloss import SamplesLoss

torch.manual_seed(0)
x, y = torch.randn(4, 2, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
a, b = torch.randn(4, dtype=torch.float64).softmax(0), torch.randn(5, dtype=torch.float64).softmax(0)
weights, direction = torch.randn(4, dtype=torch.float64), torch.randn_like(x)
loss = SamplesLoss("gaussian", blur=1.0, backend="tensorized", potentials=True)


def along(h, leaf=None):
    """The first potential, weighted, with the points moved."""
    return (loss(a, x + h * direction if leaf is None else leaf, b, y)[0].reshape(-1) * weights).sum()


leaf = x.clone().requires_grad_()
supplied = float((torch.autograd.grad(along(0, leaf), leaf)[0] * direction).sum())
slopes = [float(along(h) - along(-h)) / (2 * h) for h in (1e-3, 5e-4)]
true = (4 * slopes[1] - slopes[0]) / 3
print(f"derivative of a potential along a direction of the points: supplied {supplied:.8f}, true {true:.8f}")
raise SystemExit(0 if abs(supplied - true) > 1e-2 * abs(true) else 1)
