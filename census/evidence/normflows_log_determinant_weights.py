"""The memory-efficient log-determinant of residual flows takes the first sample's weight for the whole batch.

pip install normflows==1.7.3
"""

import torch
from normflows.flows.residual import iResBlock
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
x = torch.randn(4, 3, dtype=torch.float64)
off = {}
for name, weights in (("equal weights", [1.0, 1.0, 1.0, 1.0]), ("weights 1, 2, -1, 0", [1.0, 2.0, -1.0, 0.0])):
    weights, found = torch.tensor(weights, dtype=torch.float64)[:, None], {}
    for in_forward in (True, False):  # with the Function, and with plain autograd
        block = iResBlock(net, n_power_series=3, neumann_grad=False, grad_in_forward=in_forward).double().train()
        torch.manual_seed(1)
        leaf = x.clone().requires_grad_()
        log_det = block(leaf, 0)[1]
        found[in_forward] = log_det.detach(), torch.autograd.grad((weights * log_det).sum(), leaf)[0]
    assert torch.allclose(found[True][0], found[False][0])
    supplied, true = found[True][1], found[False][1]
    off[name] = ((supplied - true).norm() / true.norm()).item()
    for row in range(4):
        print(f"{name}, sample {row}: supplied {supplied[row, 0].item():.6f}, true {true[row, 0].item():.6f}")
raise SystemExit(0 if off["equal weights"] < 1e-8 and off["weights 1, 2, -1, 0"] > 0.1 else 1)
