"""The gradients of NaturalVariationalDistribution are those with respect to the moments, as documented. pip install gpytorch==1.15.2"""

import torch
from gpytorch.variational.natural_variational_distribution import _NaturalToMuVarSqrt

torch.manual_seed(0)
vector = torch.randn(3, dtype=torch.float64, requires_grad=True)
root = torch.randn(3, 3, dtype=torch.float64)
precision = root @ root.mT + torch.eye(3, dtype=torch.float64)
weights = torch.randn(3, dtype=torch.float64)
(supplied,) = torch.autograd.grad((_NaturalToMuVarSqrt.apply(vector, -0.5 * precision)[0] * weights).sum(), vector)
(true,) = torch.autograd.grad((torch.linalg.solve(precision, vector) * weights).sum(), vector)
print(f"by the natural vector: supplied {supplied.tolist()}, true {true.tolist()}, by the mean {weights.tolist()}")
raise SystemExit(0 if torch.allclose(supplied, weights) and not torch.allclose(supplied, true) else 1)
