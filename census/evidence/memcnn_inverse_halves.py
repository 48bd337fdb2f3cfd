"""The inverses of couplings in implementation 0 return the two halves of the gradient in the wrong order.

pip install memcnn==1.5.2
"""

import warnings

import torch
from memcnn import AdditiveCoupling
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
additive = AdditiveCoupling(branch(), branch())
value, supplied = gradient(additive, 0, x, u, "inverse")
plain, true = gradient(additive, -1, x, u, "inverse")
assert torch.allclose(value, plain)
off = ((supplied - true).norm() / true.norm()).item()
print("inverse of the additive coupling: supplied", supplied[0].tolist())
print("inverse of the additive coupling: true    ", true[0].tolist(), f"off by {off:.2f} of the gradient")
swapped = torch.cat([supplied[:, 2:], supplied[:, :2]], dim=1)
raise SystemExit(0 if off > 0.1 and torch.allclose(swapped, true) else 1)
