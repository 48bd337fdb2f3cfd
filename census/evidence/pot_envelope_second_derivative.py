"""POT: a second derivative through a value whose gradients are set (ValFunction) misses the change of the plan. pip install POT==0.9.7.post1 torch"""

import ot
import torch

torch.manual_seed(0)
cost = torch.rand(4, 5, dtype=torch.float64)
a, b = torch.full((4,), 1 / 4, dtype=torch.float64), torch.full((5,), 1 / 5, dtype=torch.float64)
direction = torch.randn_like(cost)


def slope(cost):
    """The derivative of the squared value along a direction."""
    leaf = cost.clone().requires_grad_()
    value = ot.solve(leaf, a, b, reg=0.5, reg_type="entropy", grad="envelope", max_iter=2000, tol=1e-15).value
    (first,) = torch.autograd.grad(value**2, leaf, create_graph=True)
    return leaf, (first * direction).sum()


leaf, first = slope(cost)
(second,) = torch.autograd.grad(first, leaf)
supplied = float((second * direction).sum())
central = [float(slope(cost + h * direction)[1] - slope(cost - h * direction)[1]) / (2 * h) for h in (1e-3, 5e-4)]
true = (4 * central[1] - central[0]) / 3
print(f"second derivative of value**2 along a direction: supplied {supplied:.8f}, true {true:.8f} (differences of the first)")
raise SystemExit(0 if abs(supplied - true) > 1e-2 * abs(true) else 1)
