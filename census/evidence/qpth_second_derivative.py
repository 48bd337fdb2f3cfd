"""qpth: second derivatives of the solution are wrong, and nothing raises. pip install qpth==0.0.18 torch"""

import torch
from qpth.qp import QPFunction

q = torch.tensor([[[2.0, 0.3], [0.3, 1.5]]], dtype=torch.float64)
p, b = torch.tensor([[-1.0, 0.4]], dtype=torch.float64), torch.tensor([[0.2]], dtype=torch.float64)
a = torch.tensor([[[1.0, 2.0]]], dtype=torch.float64)
g, h = torch.tensor([[[1.0, 0.0]]], dtype=torch.float64), torch.tensor([[9.0]], dtype=torch.float64)  # never active
direction = torch.tensor([[[0.7, 0.2], [0.2, -0.4]]], dtype=torch.float64)


def by_kkt(q):
    """The solution with the equality alone, from the linear system of the optimum."""
    system = torch.cat([torch.cat([q[0], a[0].mT], 1), torch.cat([a[0], torch.zeros(1, 1, dtype=torch.float64)], 1)])
    return torch.linalg.solve(system, torch.cat([-p[0], b[0]]))[:2]


found = []
for name, solve in (("supplied", lambda q: QPFunction(verbose=-1)(q, p, g, h, a, b)[0]), ("true (linear system)", by_kkt)):
    leaf = q.clone().requires_grad_()
    (first,) = torch.autograd.grad(solve(leaf).square().sum(), leaf, create_graph=True)
    slope = (first * direction).sum()
    (second,) = torch.autograd.grad(slope, leaf)
    found.append((float(slope), float((second * direction).sum())))
    print(f"{name}: along a direction of Q, first derivative {found[-1][0]:.8f}, second {found[-1][1]:.8f}")
right = abs(found[0][0] - found[1][0]) < 1e-8
raise SystemExit(0 if right and abs(found[0][1] - found[1][1]) > 1e-2 * abs(found[1][1]) else 1)
