"""The second derivative of ComputePredictiveUpdates takes the interpolation term for a constant. pip install gpytorch==1.15.2"""

import torch
from gpytorch.variational.variational_strategy import ComputePredictiveUpdates

torch.manual_seed(0)
chol, middle = torch.eye(3, dtype=torch.float64) + torch.ones(3, 3, dtype=torch.float64).tril(), torch.eye(3, dtype=torch.float64) * 2
values, start = torch.randn(3, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)


def curvature(fn):
    x = start.clone().requires_grad_()
    (first,) = torch.autograd.grad(fn(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, allow_unused=True, materialize_grads=True)
    return second.flatten()[0].item()


def theirs(x):
    return sum(part.square().sum() for part in ComputePredictiveUpdates.apply(chol, x, middle, values))


def plain(x):
    k = torch.linalg.solve_triangular(chol, x, upper=False)
    return (k.mT @ values).square().sum() + (k * (middle @ k)).sum(0).square().sum()


supplied, true = curvature(theirs), curvature(plain)
print(f"value: {theirs(start).item():.10g}, of the plain forward {plain(start).item():.10g}")
print(f"second derivative: supplied {supplied:.6g}, true {true:.6g}")
raise SystemExit(0 if abs(supplied - true) > 1e-2 * abs(true) else 1)
