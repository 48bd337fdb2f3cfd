"""The second derivative of the iterated inv_quad_logdet takes the solution for a constant. pip install linear-operator==0.6.1"""

import torch
from linear_operator import operators, settings

torch.manual_seed(0)
a, b = torch.randn(3, 3, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
for setting, value in ((settings.max_cholesky_size, 1), (settings.cg_tolerance, 1e-13)):
    setting._set_value(value)


def curvature(fn):
    x = a.clone().requires_grad_()
    (first,) = torch.autograd.grad(fn(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first[0, 0], x)
    return second[0, 0].item()


def matrix(x):
    return x @ x.mT + torch.eye(len(x), dtype=x.dtype)


def theirs(x):
    return operators.DenseLinearOperator(matrix(x)).inv_quad_logdet(b, logdet=True)[0]


def plain(x):
    return (b * torch.linalg.solve(matrix(x), b)).sum()


supplied, true = curvature(theirs), curvature(plain)
print(f"value: {theirs(a).item():.10g}, of the plain forward {plain(a).item():.10g}")
print(f"second derivative: supplied {supplied:.6g}, true {true:.6g}")
raise SystemExit(0 if abs(supplied - true) > 1e-2 * abs(true) else 1)
