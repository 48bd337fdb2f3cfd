"""qpth: gradients of parameters that a batch shares are the mean over the batch, where the sum is the derivative. pip install qpth==0.0.18 torch"""

import torch
from qpth.qp import QPFunction

q = torch.tensor([[2.0, 0.3], [0.3, 1.5]], dtype=torch.float64)
p = torch.tensor([[-1.0, 0.4], [0.5, -0.7], [0.3, 0.2]], dtype=torch.float64)  # three programs
a = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
b = torch.tensor([0.2], dtype=torch.float64)
g, h = torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.tensor([9.0], dtype=torch.float64)  # never active


def solve(q, p, a, b):
    return QPFunction(verbose=-1)(q, p, g, h, a, b)


def by_kkt(q, p, a, b):
    """The solutions with the equality alone, from the linear system of the optimum."""
    system = torch.cat([torch.cat([q, a.mT], 1), torch.cat([a, torch.zeros(1, 1, dtype=torch.float64)], 1)])
    return torch.linalg.solve(system, torch.cat([-p, b.expand(3, 1)], 1).mT)[:2].mT


weights = torch.tensor([[1.0, -0.5], [0.3, 0.8], [-0.2, 0.6]], dtype=torch.float64)
leaves = [t.clone().requires_grad_() for t in (q, p, a, b)]
supplied = torch.autograd.grad((weights * solve(*leaves)).sum(), leaves)
true = torch.autograd.grad((weights * by_kkt(*leaves)).sum(), leaves)
print(f"solutions agree to {float((solve(*leaves) - by_kkt(*leaves)).detach().abs().max()):.1e}")
ratios = []
for name, given, right in zip("Qpab", supplied, true, strict=True):
    right = (right + right.mT) / 2 if name == "Q" else right
    ratios.append(float((given * right).sum() / (right * right).sum()))
    print(f"{name}: supplied = {ratios[-1]:.6f} * true{'' if name == 'p' else ', shared by three programs'}")
raise SystemExit(0 if abs(ratios[1] - 1) < 1e-4 and all(abs(r - 1 / 3) < 1e-4 for r in (ratios[0], ratios[2], ratios[3])) else 1)
