"""The second derivative of the Matern kernel by its length scale takes the first one for a constant. pip install gpytorch==1.15.2"""

import torch
from gpytorch import settings
from gpytorch.kernels import MaternKernel

torch.manual_seed(0)
points = torch.randn(4, 2, dtype=torch.float64)
kernel = MaternKernel(nu=1.5).double()
start = torch.tensor([[0.3]], dtype=torch.float64)  # raw_lengthscale


def curvature(fn):
    x = start.clone().requires_grad_()
    (first,) = torch.autograd.grad(fn(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, allow_unused=True, materialize_grads=True)
    return second.flatten()[0].item()


def theirs(x):
    with settings.lazily_evaluate_kernels(False):
        return torch.func.functional_call(kernel, {"raw_lengthscale": x}, (points, points)).to_dense().sum()


def plain(x):
    d = 3**0.5 * torch.cdist(points, points) / torch.nn.functional.softplus(x)
    return ((1 + d) * torch.exp(-d)).sum()


supplied, true = curvature(theirs), curvature(plain)
print(f"value: {theirs(start).item():.10g}, of the plain forward {plain(start).item():.10g}")
print(f"second derivative: supplied {supplied:.6g}, true {true:.6g}")
raise SystemExit(0 if abs(supplied - true) > 1e-2 * abs(true) else 1)
