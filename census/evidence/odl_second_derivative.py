"""A second derivative through odl.contrib.torch lacks that of the operator, without an error.

pip install odl==1.0.0
"""

import odl
import torch
from odl.contrib.torch import OperatorFunction

squared = odl.functionals.L2NormSquared(odl.rn(3))
x, found = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True), {}
for name, function in (("odl", lambda x: OperatorFunction.apply(squared, x)), ("torch", lambda x: x.square().sum())):
    (gradient,) = torch.autograd.grad(function(x) + x.pow(3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), x)
    found[name] = gradient.detach(), second
    print(f"{name}: gradient {gradient.tolist()}, second derivative {second.tolist()}")
assert torch.allclose(found["odl"][0], found["torch"][0])
print(f"supplied {found['odl'][1].tolist()}, true {found['torch'][1].tolist()}")
raise SystemExit(0 if (found["odl"][1] - found["torch"][1]).abs().max() > 0.1 else 1)
