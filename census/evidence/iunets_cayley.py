"""The gradient of iunets' Cayley transform of a skew-symmetric matrix, beside autograd through torch.linalg.solve.

pip install iunets==0.1
"""

import torch
from iunets.cayley import cayley

torch.manual_seed(0)
eye, u = torch.eye(3, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)


def supplied_and_true(w):
    """The gradients of <u, cayley(w - w^T)> by the package and by a plain forward."""
    w = w.clone().requires_grad_()
    value = cayley.apply(w - w.mT)
    (supplied,) = torch.autograd.grad((u * value).sum(), w)
    a = w - w.mT
    plain = torch.linalg.solve(eye + a, eye - a)
    assert torch.allclose(value, plain)
    (true,) = torch.autograd.grad((u * plain).sum(), w)
    return supplied, true


small, small_true = supplied_and_true(torch.zeros(3, 3, dtype=torch.float64))
print("w = 0, element (0, 1): supplied", round(small[0, 1].item(), 6), "true", round(small_true[0, 1].item(), 6))
supplied, true = supplied_and_true(torch.randn(3, 3, dtype=torch.float64))
print("w random, elements (0, 1) and (0, 2): supplied", supplied[0, 1:].tolist(), "true", true[0, 1:].tolist())
off = ((supplied - true).norm() / true.norm()).item()
print(
    f"off by {off:.2f} of the gradient; at w = 0 the supplied gradient is {(small * small_true).sum() / small_true.square().sum():.2f} of the true one"
)
raise SystemExit(0 if off > 0.1 else 1)
