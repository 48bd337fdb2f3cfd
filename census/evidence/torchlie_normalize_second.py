"""Second derivatives of SO3.normalize are left out without an error. pip install torchlie==0.1.0"""

import torch
from torchlie.functional import SO3

torch.manual_seed(0)
x, v = torch.randn(2, 3, 3, dtype=torch.float64)
if torch.det(x) < 0:
    x = x.flip(0)


def plain(x):
    """The same value by torch's svd, for a positive determinant."""
    u, _, vh = torch.linalg.svd(x)
    return u @ vh


def gradient(f, x):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad((f(leaf).sin() * leaf).sum(), leaf, create_graph=True)[0], leaf


def second(f):
    g, leaf = gradient(f, x)
    return float((torch.autograd.grad((g * v).sum(), leaf)[0] * v).sum())


first = float((gradient(SO3.normalize, x)[0] - gradient(plain, x)[0]).abs().max())
h = 1e-4
differences = float(((gradient(SO3.normalize, x + h * v)[0] - gradient(SO3.normalize, x - h * v)[0]) * v).sum()) / (2 * h)
print(
    f"gradients agree to {first:.0e}; second derivative along v: supplied {second(SO3.normalize):.6f}, true {second(plain):.6f}, differences {differences:.6f}"
)
borne_out = (
    first < 1e-9
    and abs(differences - second(plain)) < 1e-3 * abs(differences)
    and abs(second(SO3.normalize) - second(plain)) > 0.05 * abs(differences)
)
raise SystemExit(0 if borne_out else 1)
