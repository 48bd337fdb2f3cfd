"""torchdiffeq: second derivatives of the time of an event are wrong, and nothing raises. pip install torchdiffeq==0.2.5 torch"""

import torch
from torchdiffeq import odeint_event

t0 = torch.tensor([0.0], dtype=torch.float64)
y0 = torch.tensor([1.3, 0.4], dtype=torch.float64, requires_grad=True)


def fall(t, y):
    return torch.stack([y[1], torch.full_like(y[0], -9.0)])


def closed(y0):
    return (y0[1] + (y0[1] ** 2 + 2 * 9.0 * (y0[0] - 0.2)).sqrt()) / 9.0


def hit(y0):
    return odeint_event(fall, y0, t0, event_fn=lambda t, y: y[0] - 0.2, rtol=1e-8, atol=1e-10, method="dopri8")[0]


found = []
for name, fn in (("supplied", hit), ("true (closed form)", closed)):
    (first,) = torch.autograd.grad(fn(y0) ** 2, y0, create_graph=True)
    second = torch.stack([torch.autograd.grad(g, y0, retain_graph=True)[0] for g in first])
    found.append((first.detach(), second))
    print(f"{name}: first derivatives of the squared time {[round(v, 6) for v in first.tolist()]}, second {second.tolist()}")
right = torch.allclose(found[0][0], found[1][0], atol=1e-6)
raise SystemExit(0 if right and float((found[0][1] - found[1][1]).norm() / found[1][1].norm()) > 1e-2 else 1)
