"""torchode: BacksolveAdjoint does not integrate from the first time of t_eval back to t_start. pip install torchode==1.0.1 torch"""

import torch
import torchode


class Decay(torch.nn.Module):
    """dy/dt = -a y, so y(t) = y0 exp(-a t)."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

    def forward(self, t, y):
        return -self.a * y


def gradients(first):
    field = Decay()
    term = torchode.ODETerm(field)
    control = torchode.IntegralController(atol=1e-9, rtol=1e-9, term=term)
    solver = torchode.BacksolveAdjoint(term, torchode.Dopri5(term=term), control)
    y0 = torch.tensor([[0.8]], dtype=torch.float64, requires_grad=True)
    start = torch.zeros(1, dtype=torch.float64)
    problem = torchode.InitialValueProblem(y0, start, start + 1.0, torch.tensor([[first, 1.0]], dtype=torch.float64))
    y = solver.solve(problem).ys
    supplied = torch.autograd.grad(y.sum(), (y0, field.a))
    t = torch.tensor([first, 1.0], dtype=torch.float64)
    decay = torch.exp(-0.7 * t)
    return [float(g) for g in supplied], [float(decay.sum()), float((-0.8 * t * decay).sum())]


results = {first: gradients(first) for first in (0.0, 0.5)}
for first, (supplied, true) in results.items():
    print(f"t_eval from {first}: gradients of y0 and a supplied {[round(v, 8) for v in supplied]}, true {[round(v, 8) for v in true]}")
off = {first: max(abs(g - r) for g, r in zip(*pair, strict=True)) for first, pair in results.items()}
raise SystemExit(0 if off[0.0] < 1e-6 and off[0.5] > 1e-2 else 1)
