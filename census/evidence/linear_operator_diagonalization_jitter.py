"""Gaps between eigenvalues are taken to be 1e-10 longer, and the diagonalization's gradient is off where they are small. pip install linear-operator==0.6.1"""

import torch
from linear_operator import settings
from linear_operator.operators import DenseLinearOperator

torch.manual_seed(0)
settings.tridiagonal_jitter._set_value(0.0)
basis = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
a = (basis * torch.tensor([1.0, 1.0 + 1e-5, 3.0], dtype=torch.float64)) @ basis.mT
a = ((a + a.mT) / 2).requires_grad_()
weights = torch.randn(3, 3, dtype=torch.float64)
values, vectors = DenseLinearOperator(a).diagonalization(method="lanczos")
plain_values, plain_vectors = torch.linalg.eigh(a)
vectors = vectors.to_dense()[:, values.argsort()]
(supplied,) = torch.autograd.grad((vectors.square() * weights).sum(), a)
(true,) = torch.autograd.grad((plain_vectors.square() * weights).sum(), a)
supplied, true = (supplied + supplied.mT) / 2, (true + true.mT) / 2
off = (torch.linalg.norm(supplied - true) / torch.linalg.norm(true)).item()
print(f"squared eigenvectors agree to {(vectors.square() - plain_vectors.square()).abs().max().item():.1e}")
print(f"gradient with a gap of 1e-5: supplied {supplied[0, 0].item():.10g}, true {true[0, 0].item():.10g}, off by {off:.1e}")
raise SystemExit(0 if off > 1e-6 else 1)
