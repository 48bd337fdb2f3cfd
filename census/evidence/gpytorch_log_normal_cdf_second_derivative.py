"""The second derivative of log_normal_cdf below -1 is zero. pip install gpytorch==1.15.2"""

import torch
from gpytorch.functions import log_normal_cdf

torch.manual_seed(0)
start = torch.tensor([-1.5, -3.0], dtype=torch.float64)


def curvature(fn):
    x = start.clone().requires_grad_()
    (first,) = torch.autograd.grad(fn(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, allow_unused=True, materialize_grads=True)
    return second.flatten()[0].item()


def theirs(x):
    return log_normal_cdf(x).sum()


def plain(x):
    return torch.special.log_ndtr(x).sum()


supplied, true = curvature(theirs), curvature(plain)
print(f"value: {theirs(start).item():.10g}, of the plain forward {plain(start).item():.10g}")
print(f"second derivative: supplied {supplied:.6g}, true {true:.6g}")
raise SystemExit(0 if abs(supplied - true) > 1e-2 * abs(true) else 1)
