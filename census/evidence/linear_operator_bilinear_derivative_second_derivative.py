"""The second derivative of a product with a Kronecker matrix lacks what the matrix contributes. pip install linear-operator==0.6.1"""

import torch
from linear_operator import operators

torch.manual_seed(0)
a, b = torch.randn(2, 2, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
c = torch.randn(3, 3, dtype=torch.float64)


def curvature(fn):
    x = a.clone().requires_grad_()
    (first,) = torch.autograd.grad(fn(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first[0, 0], x)
    return second[0, 0].item()


def matrix(x):
    return x @ x.mT + torch.eye(len(x), dtype=x.dtype)


def theirs(x):
    dense = [operators.DenseLinearOperator(m) for m in (matrix(x), c)]
    return operators.KroneckerProductLinearOperator(*dense).matmul(b).square().sum()


def plain(x):
    return (torch.kron(matrix(x), c) @ b).square().sum()


supplied, true = curvature(theirs), curvature(plain)
print(f"value: {theirs(a).item():.10g}, of the plain forward {plain(a).item():.10g}")
print(f"second derivative: supplied {supplied:.6g}, true {true:.6g}")
raise SystemExit(0 if abs(supplied - true) > 1e-2 * abs(true) else 1)
