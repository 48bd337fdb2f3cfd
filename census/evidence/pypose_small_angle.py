"""se3(x).Exp().Act(p) at small angles in float32: the supplied gradient beside the same in float64 by matrix exponential. pip install pypose==0.9.5"""

import pypose as pp
import torch

tau, point = torch.tensor([[1.0, -0.5, 0.8], [0.3, -0.7, 0.5]], dtype=torch.float64)
axis = torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64)


def plain(phi):
    """The same value by torch's operations, in float64."""
    a, b, c = phi
    zero = torch.zeros_like(a)
    rows = [
        torch.stack([zero, -c, b, tau[0]]),
        torch.stack([c, zero, -a, tau[1]]),
        torch.stack([-b, a, zero, tau[2]]),
        torch.stack([zero] * 4),
    ]
    return (torch.linalg.matrix_exp(torch.stack(rows)) @ torch.cat([point, torch.ones(1, dtype=torch.float64)]))[:3]


worst = 0.0
for angle in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 3e-7):
    true, single = (angle * axis).clone().requires_grad_(), (angle * axis).float().requires_grad_()
    plain(true).sum().backward()
    pp.se3(torch.cat([tau.float(), single])).Exp().Act(point.float()).sum().backward()
    off = float((single.grad.double() - true.grad).norm() / true.grad.norm())
    worst = max(worst, off)
    print(
        f"angle {angle:.0e}: supplied {[round(g, 5) for g in single.grad.tolist()]}, true {[round(g, 5) for g in true.grad.tolist()]}, off by {off:.1e}"
    )
raise SystemExit(0 if worst > 1e-3 else 1)
