"""The affine coupling in implementation 1 leaves the scale out of the gradient of the second half.

pip install memcnn==1.5.2
"""

import warnings

import torch
from memcnn import AffineAdapterNaive, AffineCoupling
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)


def branch():
    """A small network."""
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).double()


def gradient(coupling, implementation, x, u, direction):
    """That of <u, coupling(x)> by an implementation; -1 leaves it to autograd."""
    coupling.implementation_fwd = coupling.implementation_bwd = implementation
    x = x.clone().requires_grad_()
    value = getattr(coupling, direction)(x)
    return value.detach(), torch.autograd.grad((u * value).sum(), x)[0]


x, u = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
affine = AffineCoupling(branch(), branch(), adapter=AffineAdapterNaive)
value, supplied = gradient(affine, 1, x, u, "forward")
plain, true = gradient(affine, -1, x, u, "forward")
assert torch.allclose(value, plain)
off = ((supplied - true).norm() / true.norm()).item()
print("affine coupling: supplied", supplied[0].tolist())
print("affine coupling: true    ", true[0].tolist(), f"off by {off:.2f} of the gradient")
first_half_right = torch.allclose(supplied[:, :2], true[:, :2])
raise SystemExit(0 if off > 0.01 and first_half_right else 1)
