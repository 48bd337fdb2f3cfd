"""torch-struct's SparseMaxSemiring: the value has |w| where the sparsemax operator has |w|^2 / 2. pip install torch-struct==0.5"""

import torch
from torch_struct.semirings import SparseMaxSemiring

torch.manual_seed(0)
x = torch.randn(6, dtype=torch.float64)
v = torch.randn(6, dtype=torch.float64)


def value(at):
    return float(SparseMaxSemiring.sum(at[None])[0])


leaf = x.clone().requires_grad_()
(w,) = torch.autograd.grad(SparseMaxSemiring.sum(leaf[None]).sum(), leaf)
supplied = float(w @ v)
coarse, fine = ((value(x + h * v) - value(x - h * v)) / (2 * h) for h in (1e-4, 5e-5))
true = (4 * fine - coarse) / 3
grid = torch.distributions.Dirichlet(torch.full((6,), 0.5, dtype=torch.float64)).sample((100_000,))
operator = float(w @ x - (w @ w) / 2)
print(f"gradient along a direction: supplied {supplied:.6f}, true {true:.6f} (± {abs(fine - coarse):.0e})")
print(f"value {value(x):.6f}; w.x - |w| = {float(w @ x - w.norm()):.6f}; w.x - |w|^2 / 2 = {operator:.6f}")
print(f"largest p.x - |p|^2 / 2 among 100,000 random p in the simplex: {float((grid @ x - (grid * grid).sum(-1) / 2).max()):.6f}")


def half_square(at):
    leaf = at.clone().requires_grad_()
    (p,) = torch.autograd.grad(SparseMaxSemiring.sum(leaf[None]).sum(), leaf)
    return float(p @ at - (p @ p) / 2)


meant = (half_square(x + 1e-5 * v) - half_square(x - 1e-5 * v)) / 2e-5
print(f"the derivative of w.x - |w|^2 / 2 is {meant:.6f}: the supplied gradient belongs to that value")
raise SystemExit(0 if abs(supplied - true) > 0.01 * abs(true) and abs(supplied - meant) < 1e-6 else 1)
