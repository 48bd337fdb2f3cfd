"""POT: the backward of emd2 raises if b has several columns and requires a gradient. pip install POT==0.9.7.post1 torch"""

import ot
import torch

torch.manual_seed(0)
cost = torch.rand(4, 5, dtype=torch.float64)
a = torch.full((4,), 0.25, dtype=torch.float64)
b = torch.randn(5, 3, dtype=torch.float64).softmax(0).requires_grad_()
costs = ot.emd2(a, b, cost)
print(f"forward: {len(costs)} costs, one for each column of b")
try:
    sum(costs).backward()
except RuntimeError as error:
    print(f"supplied: {error}")
    raised = "invalid gradient" in str(error)
else:
    raised = False
columns = [column.detach().clone().requires_grad_() for column in b.T]
for column in columns:
    ot.emd2(a, column, cost).backward()
print(
    f"true, column by column: gradients of shape {[tuple(c.grad.shape) for c in columns]}, none of them zero: {all(c.grad.abs().sum() > 0 for c in columns)}"
)
raise SystemExit(0 if raised else 1)
