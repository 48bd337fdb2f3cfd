"""The gradient of a functional on a space with an array of weights through odl.contrib.torch lacks the weights.

pip install odl==1.0.0
"""

import odl
import torch
from odl.contrib.torch import OperatorFunction

x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
for weights in (2.0, [1.0, 2.0, 3.0]):
    value = OperatorFunction.apply(odl.functionals.L2NormSquared(odl.rn(3, weighting=weights)), x)
    plain = (torch.as_tensor(weights, dtype=torch.float64) * x**2).sum()
    assert abs(value.item() / plain.item() - 1) < 1e-6
    (supplied,) = torch.autograd.grad(value, x)
    (true,) = torch.autograd.grad(plain, x)
    print(f"weights {weights}: value {value.item()}; supplied {supplied.tolist()}, true {true.tolist()}")
raise SystemExit(0 if (supplied - true).abs().max() > 1e-3 else 1)
