"""sim3.Exp and Act: the supplied gradient beside autograd through a matrix exponential. pip install pypose==0.9.5"""

import pypose as pp
import torch


def generator(x):
    """The 4x4 matrix of an element of sim3, as (tau, phi, sigma)."""
    tau, (a, b, c), sigma = x[:3], x[3:6], x[6]
    zero = torch.zeros_like(a)
    rows = [torch.stack([sigma, -c, b, tau[0]]), torch.stack([c, sigma, -a, tau[1]]), torch.stack([-b, a, sigma, tau[2]])]
    return torch.stack([*rows, torch.stack([zero] * 4)])


point = torch.tensor([0.3, -0.7, 0.5], dtype=torch.float64)
unit = torch.tensor([0.4, -0.2, 0.3, 0.6, 0.0, 0.8, 0.3], dtype=torch.float64)
borne_out = True
for angle in (0.5, 1.0, 2.0, 3.0):
    x = unit.clone()
    x[3:6] *= angle
    first, second = x.clone().requires_grad_(), x.clone().requires_grad_()
    supplied_value = pp.sim3(first).Exp().Act(point)
    true_value = (torch.linalg.matrix_exp(generator(second)) @ torch.cat([point, torch.ones(1, dtype=torch.float64)]))[:3]
    same = float((supplied_value - true_value).detach().abs().max())
    supplied_value.sum().backward()
    true_value.sum().backward()
    off = float((first.grad - second.grad).norm() / second.grad.norm())
    print(
        f"angle {angle}: values agree to {same:.0e}; d/dx[3]: supplied {first.grad[3]:.8f}, true {second.grad[3]:.8f}; gradient off by {off:.1e}"
    )
    borne_out &= same < 1e-12 and off > (1e-6 if angle < 1 else 1e-5)
raise SystemExit(0 if borne_out else 1)
