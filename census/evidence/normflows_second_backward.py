"""The backward of the memory-efficient log-determinant edits what it saved: a second backward through the retained graph raises.

pip install normflows==1.7.3
"""

import torch
from normflows.flows.residual import iResBlock
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
raised = {}
for in_forward in (True, False):  # with the Function, and with plain autograd
    block = iResBlock(net, n_power_series=3, neumann_grad=False, grad_in_forward=in_forward).double().train()
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    loss = 2 * block(x, 0)[1].sum()
    first = torch.autograd.grad(loss, x, retain_graph=True)[0].clone()
    try:
        second = torch.autograd.grad(loss, x, retain_graph=True)[0]
        raised[in_forward] = ""
        print(f"grad_in_forward={in_forward}: first and second backward differ by {(first - second).norm().item():.1e}")
    except RuntimeError as error:
        raised[in_forward] = str(error)
        print(f"grad_in_forward={in_forward}: the second backward raises: {str(error)[:120]}")
raise SystemExit(0 if raised[True] and not raised[False] else 1)
