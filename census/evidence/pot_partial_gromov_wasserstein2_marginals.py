"""POT: the gradient of partial_gromov_wasserstein2 takes the marginals p and q where the plan has smaller ones. pip install POT==0.9.7.post1 torch"""

import ot
import torch

torch.manual_seed(0)
x, y = torch.randn(5, 2, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
c1, c2 = torch.cdist(x, x), torch.cdist(y, y)
p, q = torch.full((5,), 1 / 5, dtype=torch.float64), torch.full((6,), 1 / 6, dtype=torch.float64)


def loss(c1, c2, **more):
    return ot.gromov.partial_gromov_wasserstein2(c1, c2, p, q, m=0.6, tol=1e-14, symmetric=False, **more)


leaves = [c1.clone().requires_grad_(), c2.clone().requires_grad_()]
value, log = loss(*leaves, log=True)
supplied = torch.autograd.grad(value, leaves)
plan = log["T"].detach()

borne_out = True
for name, k in (("C1", 0), ("C2", 1)):
    direction = torch.randn_like(leaves[k])

    def along(h, k=k, direction=direction):
        moved = [c1, c2]
        moved[k] = moved[k] + h * direction
        return float(loss(*moved))

    slopes = [(along(h) - along(-h)) / (2 * h) for h in (1e-4, 5e-5)]
    true = (4 * slopes[1] - slopes[0]) / 3
    given = float((supplied[k] * direction).sum())
    mine = [c.clone().requires_grad_() for c in (c1, c2)]  # the loss of the fixed plan, by autograd
    fixed = torch.einsum("ikjl,ij,kl->", (mine[0][:, :, None, None] - mine[1][None, None]) ** 2, plan, plan)
    envelope = float((torch.autograd.grad(fixed, mine)[k] * direction).sum())
    print(f"{name}: supplied {given:.8f}, true {true:.8f} (differences), {envelope:.8f} (autograd through the loss of the plan)")
    borne_out &= abs(true - envelope) < 1e-6 * abs(true) and abs(given - true) > 1e-2 * abs(true)
raise SystemExit(0 if borne_out else 1)
