"""Of a Lanczos root of low rank, the gradient is not that of R R^T; the subspace is taken for a constant. pip install linear-operator==0.6.1"""

import torch
from linear_operator import settings
from linear_operator.operators import DenseLinearOperator

settings.tridiagonal_jitter._set_value(0.0)
settings.max_root_decomposition_size._set_value(2)
torch.manual_seed(0)
a, direction, weights = torch.randn(3, 4, 4, dtype=torch.float64)


def value(x):
    torch.manual_seed(0)  # Lanczos starts from a random vector
    root = DenseLinearOperator(x @ x.mT + torch.eye(4, dtype=x.dtype)).root_decomposition(method="lanczos").root.to_dense()
    return (root @ root.mT * weights).sum()


x = a.clone().requires_grad_()
supplied = (torch.autograd.grad(value(x), x)[0] * direction).sum().item()
rows = []
for k in range(5):  # extrapolated central differences
    h = 0.01 / 2**k
    rows.append([((value(a + h * direction) - value(a - h * direction)) / (2 * h)).item()])
    for j in range(k):
        rows[k].append(rows[k][j] + (rows[k][j] - rows[k - 1][j]) / (4 ** (j + 1) - 1))
true, error = rows[-1][-1], abs(rows[-1][-1] - rows[-1][-2])
print(f"derivative along a direction: supplied {supplied:.8g}, true {true:.8g} +- {error:.1e}")
raise SystemExit(0 if abs(supplied - true) > 0.01 * abs(true) + 10 * error else 1)
