"""torch-sla: nonlinear_solve without a jacobian_fn solves the adjoint system by conjugate gradients also if the Jacobian is not symmetric.
pip install torch-sla==0.4.0"""

import torch
from torch_sla import nonlinear_solve

torch.manual_seed(0)
a = torch.tensor([[0.0, 0.4, 0.0], [-0.4, 0.0, 0.3], [0.2, -0.1, 0.0]], dtype=torch.float64)
b, weights = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64), torch.randn(3, dtype=torch.float64)


def residual(u, b):
    return u - torch.tanh(a @ u) - b


leaf = b.clone().requires_grad_()
u = nonlinear_solve(residual, torch.zeros_like(b), leaf, method="picard", tol=1e-15, atol=1e-15, max_iter=200)
(supplied,) = torch.autograd.grad((weights * u).sum(), leaf)
solution = u.detach()
jacobian = torch.autograd.functional.jacobian(lambda u: residual(u, b), solution)
true = torch.linalg.solve(jacobian.mT, weights)  # the implicit function theorem; dF/db is minus the identity
direction = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
moved = [
    nonlinear_solve(residual, solution, b + h * direction, method="picard", tol=1e-15, atol=1e-15, max_iter=200) for h in (1e-5, -1e-5)
]
print(f"length of the residual at the solution: {float(residual(solution, b).norm()):.1e}")
print(f"gradient of b: supplied {supplied.tolist()}")
print(f"true {true.tolist()} (differences of the first: {float(weights @ (moved[0] - moved[1])) / 2e-5:.6f})")
borne_out = float(residual(solution, b).norm()) < 1e-12 and float((supplied - true).norm() / true.norm()) > 1e-2
raise SystemExit(0 if borne_out and abs(float(weights @ (moved[0] - moved[1])) / 2e-5 - float(true[0])) < 1e-6 else 1)
