"""The memory-efficient log-determinant of residual flows supplies a second derivative without its own curvature, and no error.

pip install normflows==1.7.3
"""

import torch
from normflows.flows.residual import iResBlock
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
x, v, found = torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64), {}
for in_forward in (True, False):  # with the Function, and with plain autograd
    block = iResBlock(net, n_power_series=3, neumann_grad=False, grad_in_forward=in_forward).double().train()
    torch.manual_seed(1)
    leaf = x.clone().requires_grad_()
    loss = block(leaf, 0)[1].sum() + leaf.square().sum()
    (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
    (second,) = torch.autograd.grad((gradient * v).sum(), leaf)
    found[in_forward] = gradient.detach(), second
assert torch.allclose(found[True][0], found[False][0])
print("second derivative along a direction: supplied", found[True][1][0].tolist())
print("second derivative along a direction: true    ", found[False][1][0].tolist(), "(autograd)")
raise SystemExit(0 if (found[True][1] - found[False][1]).abs().max() > 1e-3 else 1)
