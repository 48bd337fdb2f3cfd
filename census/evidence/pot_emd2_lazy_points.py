"""POT: emd2_lazy, and ot.solve_sample(lazy=True), give no gradient for the points. pip install POT==0.9.7.post1 torch"""

import ot
import torch

torch.manual_seed(0)
x, y = torch.randn(4, 2, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
weights = torch.full((4,), 0.25, dtype=torch.float64).requires_grad_()
leaf = x.clone().requires_grad_()
lazy = ot.emd2_lazy(leaf, y, weights, weights.detach(), return_matrix=False)
(supplied,) = torch.autograd.grad(lazy, leaf, allow_unused=True, retain_graph=True)
(true,) = torch.autograd.grad(ot.emd2(weights, weights, ot.dist(leaf, y)), leaf)
sample = ot.solve_sample(leaf, y, lazy=True).value
step = 1e-6 * torch.eye(8, dtype=torch.float64)[0].reshape(4, 2)
change = float(ot.emd2_lazy(x + step, y, return_matrix=False) - ot.emd2_lazy(x - step, y, return_matrix=False)) / 2e-6
print(f"emd2_lazy: value {float(lazy):.6f}, supplied gradient of the points: {supplied}")
print(f"emd2 with the cost matrix: true gradient of the first coordinate {float(true[0, 0]):.6f} (differences of emd2_lazy: {change:.6f})")
print(f"solve_sample(lazy=True).value requires a gradient: {sample.requires_grad}")
raise SystemExit(
    0 if supplied is None and abs(change - float(true[0, 0])) < 1e-6 and abs(change) > 1e-3 and not sample.requires_grad else 1
)
