"""The gradient of a MatrixOperator between spaces with constant weights through odl.contrib.torch is scaled by their ratio.

pip install odl==1.0.0
"""

import numpy as np
import odl
import torch
from odl.contrib.torch import OperatorFunction

matrix = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
operator = odl.MatrixOperator(matrix, domain=odl.rn(3, weighting=2.0), range=odl.rn(2, weighting=5.0))
x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
value = OperatorFunction.apply(operator, x)
plain = torch.as_tensor(matrix) @ x
assert torch.allclose(value, plain)
(supplied,) = torch.autograd.grad(value.sum(), x)
(true,) = torch.autograd.grad(plain.sum(), x)
print(f"supplied {supplied.tolist()}, true {true.tolist()}")
u, v = operator.domain.element([1.0, 2.0, 3.0]), operator.range.element([1.0, -1.0])
print(f"<A x, y> = {operator.range.inner(operator(u), v)}, <x, A* y> = {operator.domain.inner(u, operator.adjoint(v))}")
raise SystemExit(0 if (supplied - true).abs().max() > 1e-3 else 1)
