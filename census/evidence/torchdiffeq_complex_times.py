"""torchdiffeq: the adjoint gradient of the times of a complex state lacks a conjugate. pip install torchdiffeq==0.2.5 torch"""

import torch
from torchdiffeq import odeint, odeint_adjoint

t = torch.tensor([0.1, 0.5, 1.2], dtype=torch.float64)
y0 = torch.tensor([0.8 + 0.3j, -0.4 + 0.5j], dtype=torch.complex128)
w = torch.tensor([-0.1 + 1.0j, 0.2 - 0.7j], dtype=torch.complex128)
weights = torch.randn(3, 2, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))


def field(t, y):
    return w * y * (1 + 0.2 * t)


def loss(t, interface, **more):
    y = interface(field, y0, t, rtol=1e-10, atol=1e-12, method="dopri8", **more)
    return (weights * y).real.sum()


leaf = t.clone().requires_grad_()
(supplied,) = torch.autograd.grad(loss(leaf, odeint_adjoint, adjoint_params=()), leaf)
(autograd,) = torch.autograd.grad(loss(leaf, odeint), leaf)
closed = t.clone().requires_grad_()  # y = y0 exp(w (t - t0 + 0.1 (t^2 - t0^2)))
exact = y0 * torch.exp(w * ((closed - closed[0]) + 0.1 * (closed**2 - closed[0] ** 2))[:, None])
(true,) = torch.autograd.grad((weights * exact).real.sum(), closed)
for name, value in (("supplied (odeint_adjoint)", supplied), ("true (closed form)", true), ("odeint", autograd)):
    print(f"{name}: {[round(v, 8) for v in value.tolist()]}")
raise SystemExit(0 if torch.allclose(autograd, true, atol=1e-5) and float((supplied - true).norm() / true.norm()) > 1e-2 else 1)
