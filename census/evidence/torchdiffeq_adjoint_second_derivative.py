"""torchdiffeq: odeint_adjoint drops second derivatives, silently if the loss has another term. pip install torchdiffeq==0.2.5 torch"""

import torch
from torchdiffeq import odeint, odeint_adjoint

t = torch.tensor([0.0, 0.6], dtype=torch.float64)
y0 = torch.tensor([0.8], dtype=torch.float64, requires_grad=True)


def loss(interface, **more):
    y = interface(lambda t, y: -(y**2), y0, t, rtol=1e-8, atol=1e-10, method="dopri8", **more)
    return (y[-1] + y0**2).sum()


found = {}
for name, interface, more in (("odeint_adjoint", odeint_adjoint, {"adjoint_params": ()}), ("odeint", odeint, {})):
    (first,) = torch.autograd.grad(loss(interface, **more), y0, create_graph=True)
    (second,) = torch.autograd.grad(first, y0)
    found[name] = float(second)
true = 2 - 2 * 0.6 / (1 + 0.6 * 0.8) ** 3  # y(0.6) = y0 / (1 + 0.6 y0)
print(f"second derivative of y + y0**2: supplied {found['odeint_adjoint']:.8f}, true {true:.8f}, by odeint {found['odeint']:.8f}")
raise SystemExit(0 if abs(found["odeint"] - true) < 1e-4 and abs(found["odeint_adjoint"] - true) > 1e-2 else 1)
