"""The double backward of binary_cross_entropy adds 1e-12 to p and 1 - p, the backward does not. pip install torch==2.13.0 mpmath."""

import mpmath
import torch
import torch.nn.functional as F

mpmath.mp.dps = 30
borne_out = False
for p, t in ((0.9230477, 0.57320683), (0.02, 0.9)):
    x = torch.tensor(p, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(F.binary_cross_entropy(x, torch.tensor(t, dtype=torch.float64)), x, create_graph=True)
    supplied = float(torch.autograd.grad(first, x)[0])
    q, u = mpmath.mpf(p), mpmath.mpf(t)
    slope = float((q - u) / (q * (1 - q)))
    true = float(u / q**2 + (1 - u) / (1 - q) ** 2)
    print(
        f"p = {p}: supplied {supplied:.15f}, true {true:.15f}, off by {supplied / true - 1:.1e}; the gradient by {float(first) / slope - 1:.1e}"
    )
    borne_out |= abs(supplied / true - 1) > 5e-12 and abs(float(first) / slope - 1) < 1e-14
raise SystemExit(0 if borne_out else 1)
