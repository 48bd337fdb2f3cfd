"""The second derivative of weight_norm by v is wrong on the CPU. pip install torch==2.13.0."""

import torch

torch.manual_seed(0)
v = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
g = torch.rand(4, 1, dtype=torch.float64) + 0.5
u, a, d = (torch.randn(4, 3, dtype=torch.float64) for _ in range(3))


def gradient(fn, v):
    """Of (u * fn(v)).sum(), times a."""
    return (torch.autograd.grad((u * fn(v)).sum(), v, create_graph=True)[0] * a).sum()


def fused(v):
    return torch._weight_norm(v, g, 0)  # what torch.nn.utils.parametrizations.weight_norm calls


def plain(v):
    return v * (g / v.norm(dim=1, keepdim=True))


(supplied,) = torch.autograd.grad(gradient(fused, v), v)
(true,) = torch.autograd.grad(gradient(plain, v), v)
first, half = ((gradient(fused, v + h * d) - gradient(fused, v - h * d)) / (2 * h) for h in (1e-3, 5e-4))
seen = float(half + (half - first) / 3)
print(f"values and gradients agree to {float((gradient(fused, v) - gradient(plain, v)).abs()):.1e}")
print(
    f"along a direction: supplied {float((supplied * d).sum()):.9f}, true {float((true * d).sum()):.9f}, differences of the gradient {seen:.9f}"
)
off = float((supplied - true).norm() / true.norm())
print(f"off by {off:.3f} of the second derivative")
raise SystemExit(0 if off > 0.01 and abs(seen - float((true * d).sum())) < 1e-6 else 1)
