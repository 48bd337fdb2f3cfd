"""torchode: BacksolveAdjoint gives no gradient for the times; AutoDiffAdjoint does. pip install torchode==1.0.1 torch"""

import math

import torch
import torchode


class Decay(torch.nn.Module):
    """dy/dt = -0.7 y, so y(t) = y0 exp(-0.7 t)."""

    def forward(self, t, y):
        return -0.7 * y


found = {}
for name in ("BacksolveAdjoint", "AutoDiffAdjoint"):
    term = torchode.ODETerm(Decay())
    control = torchode.IntegralController(atol=1e-9, rtol=1e-9, term=term)
    method = torchode.Dopri5(term=term)
    solver = torchode.AutoDiffAdjoint(method, control) if name == "AutoDiffAdjoint" else torchode.BacksolveAdjoint(term, method, control)
    y0 = torch.tensor([[0.8]], dtype=torch.float64, requires_grad=True)
    times = torch.tensor([[0.0, 0.5, 1.0]], dtype=torch.float64, requires_grad=True)
    start = torch.zeros(1, dtype=torch.float64)
    y = solver.solve(torchode.InitialValueProblem(y0, start, start + 1.0, times)).ys
    found[name] = torch.autograd.grad(y[0, 1, 0], times, allow_unused=True)[0]
    print(f"{name}: gradient of the times {found[name]}")
true = -0.7 * 0.8 * math.exp(-0.35)
print(f"true derivative of y(0.5) by its time: {true:.8f}")
raise SystemExit(0 if found["BacksolveAdjoint"] is None else 1)
