"""trigamma in float64, and with it the derivative of digamma, is right to 9 digits. pip install torch==2.13.0 mpmath."""

import mpmath
import torch

mpmath.mp.dps = 30
x = torch.tensor([1.07461, 1.22275, 2.3], dtype=torch.float64, requires_grad=True)
(supplied,) = torch.autograd.grad(torch.special.digamma(x).sum(), x)
(first,) = torch.autograd.grad(torch.lgamma(x).sum(), x, create_graph=True)
(second,) = torch.autograd.grad(first.sum(), x)
worst = 0.0
for at, s, l2 in zip(x.tolist(), supplied.tolist(), second.tolist(), strict=True):
    true = float(mpmath.psi(1, mpmath.mpf(at)))
    worst = max(worst, abs(s / true - 1))
    print(f"x = {at}: supplied {s:.16f} (digamma), {l2:.16f} (lgamma twice), true {true:.16f}, off by {s / true - 1:.1e}")
raise SystemExit(0 if worst > 1e-11 else 1)
