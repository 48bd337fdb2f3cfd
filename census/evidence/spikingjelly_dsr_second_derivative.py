"""DSRIFNode computes its backward under torch.no_grad: terms that depend on its gradient are dropped from a second
derivative, and nothing is raised.

pip install spikingjelly==2.0.0
"""

import torch
from spikingjelly.activation_based.neuron import DSRIFNode

x = 2.0 + torch.rand(6, 2)  # every neuron fires at every step: the output is the threshold itself
v = torch.tensor(1.5, requires_grad=True)


def loss(v):
    return DSRIFNode.DSRIFFunction.apply(x, 6, v, 0.5, 1.0).square().sum()  # = 12 v^2


value = loss(v)
(first,) = torch.autograd.grad(value, v, create_graph=True)
(supplied,) = torch.autograd.grad(value + first.square(), v)  # a gradient penalty: 12 v^2 + (24 v)^2
true = 24 * 1.5 + 2 * 24 * 24 * 1.5
print(f"first derivative: supplied {first.item():.4f}, true {24 * 1.5:.4f}")
print(f"derivative of the loss with a gradient penalty: supplied {supplied.item():.4f}, true {true:.4f}")
raise SystemExit(0 if abs(first.item() - 36) < 1e-3 and abs(supplied.item() - 36) < 1e-3 else 1)
