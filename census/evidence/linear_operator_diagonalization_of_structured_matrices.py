"""diagonalization(method="lanczos") gives the gradient of the dense matrix to the tensor that represents it. pip install linear-operator==0.6.1"""

import torch
from linear_operator import settings
from linear_operator.operators import RootLinearOperator, ToeplitzLinearOperator

torch.manual_seed(0)
settings.tridiagonal_jitter._set_value(0.0)
offsets = (torch.arange(4)[:, None] - torch.arange(4)).abs()
weights = torch.arange(1.0, 5.0, dtype=torch.float64)
column = torch.tensor([7.0, 1.0, -0.5, 0.3], dtype=torch.float64, requires_grad=True)
root = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
wrong = 0
for name, x, operator, dense in (
    ("Toeplitz", column, ToeplitzLinearOperator(column), column[offsets]),
    ("root", root, RootLinearOperator(root), root @ root.mT),
):
    values = operator.diagonalization(method="lanczos")[0]
    plain = torch.linalg.eigvalsh(dense)
    (supplied,) = torch.autograd.grad((values.sort().values * weights).sum(), x)
    (true,) = torch.autograd.grad((plain * weights).sum(), x)
    print(f"{name}: eigenvalues agree to {(values.sort().values - plain).abs().max().item():.1e}")
    print(f"    supplied {supplied.flatten()[:4].tolist()}\n    true     {true.flatten()[:4].tolist()}")
    wrong += bool(torch.linalg.norm(supplied - true) > 0.1 * torch.linalg.norm(true))
raise SystemExit(0 if wrong == 2 else 1)
