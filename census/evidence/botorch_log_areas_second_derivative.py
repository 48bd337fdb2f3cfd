"""The fused kernel of qLogEHVI returns a gradient without a graph: its second derivative is zero, without an error. pip install botorch==0.18.1 ninja"""

import torch
from botorch.acquisition.multi_objective import logei

torch.manual_seed(0)
logei._try_load_fused_kernel()  # compiles at its first use
lower = torch.zeros(2, 2, dtype=torch.float64)
x = torch.tensor([[[[0.4, 0.7]]]], dtype=torch.float64)


def value(o):
    return logei._FusedLogAreas.apply(o, lower, lower + 1, 0.5, 0.5).sum()


def slope(at):
    o = at.clone().requires_grad_()
    return torch.autograd.grad(value(o), o)[0].flatten()[0].item()


o = x.clone().requires_grad_()
(first,) = torch.autograd.grad(value(o) + o.square().sum(), o, create_graph=True)  # a term whose second derivative is 2
supplied = torch.autograd.grad(first.flatten()[0], o)[0].flatten()[0].item()
step, moved = 1e-3, torch.tensor([[[[1e-3, 0.0]]]], dtype=torch.float64)
coarse = (slope(x + 2 * moved) - slope(x - 2 * moved)) / (4 * step)
true = 2 + (4 * (slope(x + moved) - slope(x - moved)) / (2 * step) - coarse) / 3
print(f"second derivative: supplied {supplied:.8g}, true {true:.8g}")
raise SystemExit(0 if abs(supplied - true) > 1e-2 * abs(true) else 1)
