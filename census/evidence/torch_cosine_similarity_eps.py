"""The gradient of cosine_similarity ignores that a short vector's norm is replaced by eps. pip install torch==2.13.0."""

import torch
import torch.nn.functional as F

eps = 0.5
x = torch.tensor([[0.05, -0.1, 0.08]], dtype=torch.float64, requires_grad=True)
y = torch.tensor([[0.3, 1.2, -0.7]], dtype=torch.float64)
plain = (x * y).sum(1) / (x.norm(dim=1).clamp_min(eps) * y.norm(dim=1))
value = F.cosine_similarity(x, y, eps=eps)
(true,) = torch.autograd.grad(plain.sum(), x)
(supplied,) = torch.autograd.grad(value.sum(), x)
print(f"value {float(value):.12f}, by its formula {float(plain):.12f}")
print(f"supplied {supplied.tolist()}")
print(f"true     {true.tolist()}")
tiny = (x.detach() * 1e-8).requires_grad_()
print(f"at the default eps and a norm of 1.4e-9: supplied {torch.autograd.grad(F.cosine_similarity(tiny, y).sum(), tiny)[0].tolist()}")
off = float((supplied - true).norm() / true.norm())
print(f"off by {off:.3f} of the gradient")
raise SystemExit(0 if abs(float(value - plain)) < 1e-14 and off > 0.01 else 1)
