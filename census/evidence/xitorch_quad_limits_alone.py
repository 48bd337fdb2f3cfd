"""xitorch: the backward of quad raises if the limits alone require a gradient. pip install xitorch==0.5.1 torch"""

import math

import torch
from xitorch.integrate import quad

low, high = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (-0.4, 1.1))
value = quad(lambda x: torch.exp(-(x**2)), low, high, n=40)
exact = math.sqrt(math.pi) / 2 * (math.erf(1.1) - math.erf(-0.4))
print(f"value {float(value.detach()):.10f}, exact {exact:.10f}")
try:
    print("supplied:", torch.autograd.grad(value, (low, high)))
    raised = False
except ValueError as error:
    print(f"supplied: ValueError: {error}")
    raised = True
print(f"true: {-math.exp(-0.16):.8f}, {math.exp(-1.21):.8f}")
one = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
value = quad(lambda x, one: torch.exp(-one * x**2), low, high, (one,), n=40)
print("with a parameter that requires a gradient:", [round(float(g), 8) for g in torch.autograd.grad(value, (low, high))])
raise SystemExit(0 if raised else 1)
