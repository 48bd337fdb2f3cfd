"""The couplings of memcnn in implementation 0 supply a second derivative that leaves the coupling's own curvature out, without an error.

pip install memcnn==1.5.2
"""

import warnings

import torch
from memcnn import AdditiveCoupling
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)
branch = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).double()
coupling = AdditiveCoupling(branch)
x, v = torch.randn(1, 4, dtype=torch.float64), torch.randn(1, 4, dtype=torch.float64)
found = {}
for implementation in (-1, 0):
    coupling.implementation_fwd = implementation
    leaf = x.clone().requires_grad_()
    loss = coupling(leaf).square().sum() + leaf.pow(3).sum()
    (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
    (second,) = torch.autograd.grad((gradient * v).sum(), leaf)
    found[implementation] = gradient.detach(), second
assert torch.allclose(found[0][0], found[-1][0])
print("second derivative along a direction: supplied", found[0][1].tolist())
print("second derivative along a direction: true    ", found[-1][1].tolist(), "(autograd, implementation -1)")
raise SystemExit(0 if (found[0][1] - found[-1][1]).abs().max() > 1e-3 else 1)
