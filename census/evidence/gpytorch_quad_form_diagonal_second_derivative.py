"""The second derivative of QuadFormDiagonal takes the product of matrix and right-hand side for a constant. pip install gpytorch==1.15.2"""

import torch
from gpytorch.variational.large_batch_variational_strategy import QuadFormDiagonal

torch.manual_seed(0)
matrix = torch.randn(3, 3, dtype=torch.float64)
matrix = matrix + matrix.mT
start = torch.randn(3, 4, dtype=torch.float64)


def curvature(fn):
    x = start.clone().requires_grad_()
    (first,) = torch.autograd.grad(fn(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, allow_unused=True, materialize_grads=True)
    return second.flatten()[0].item()


def theirs(x):
    return QuadFormDiagonal.apply(matrix, x).square().sum()


def plain(x):
    return (x * (matrix @ x)).sum(0).square().sum()


supplied, true = curvature(theirs), curvature(plain)
print(f"value: {theirs(start).item():.10g}, of the plain forward {plain(start).item():.10g}")
print(f"second derivative: supplied {supplied:.6g}, true {true:.6g}")
raise SystemExit(0 if abs(supplied - true) > 1e-2 * abs(true) else 1)
