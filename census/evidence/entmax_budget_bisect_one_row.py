"""entmax.budget_bisect on scores of shape (batch, 1, n): the gradient beside extrapolated differences. pip install entmax==1.3"""

import torch
from entmax import budget_bisect

torch.manual_seed(0)
x = torch.randn(3, 1, 7, dtype=torch.float64)
u = torch.randn(3, 1, 7, dtype=torch.float64)
leaf = x.clone().requires_grad_()
(supplied,) = torch.autograd.grad(budget_bisect(leaf, budget=2), leaf, u)


def value(at):
    return float((budget_bisect(at, budget=2) * u).sum())


true = torch.zeros_like(x)
for i in range(x.numel()):
    e = torch.zeros_like(x)
    e.view(-1)[i] = 1.0
    first, half = ((value(x + h * e) - value(x - h * e)) / (2 * h) for h in (1e-4, 5e-5))
    true.view(-1)[i] = (4 * half - first) / 3

alone = []
for row, weights in zip(x[:, 0], u[:, 0], strict=True):
    leaf = row.clone().requires_grad_()
    alone += torch.autograd.grad(budget_bisect(leaf, budget=2), leaf, weights)
alone = torch.stack(alone)[:, None]
for i in range(3):
    print(f"row {i}: supplied {[round(float(g), 4) for g in supplied[i, 0]]}")
    print(f"row {i}: true     {[round(float(g), 4) for g in true[i, 0]]}")
off = float((supplied - true).norm() / true.norm())
print(
    f"supplied and true differ by {off:.2f} of the gradient; row by row the package differs from the true one by {float((alone - true).norm()):.1e}"
)
raise SystemExit(0 if off > 0.1 and (alone - true).norm() < 1e-6 else 1)
