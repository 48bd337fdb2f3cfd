"""diffsort.NormalCDF: the backward rounds the width to float32, so gradients in float64 have 8 digits. pip install diffsort==0.2.0"""

import math

import torch
from diffsort.functional import NormalCDF

x = torch.linspace(-0.2, 0.2, 5, dtype=torch.float64, requires_grad=True)
(supplied,) = torch.autograd.grad(NormalCDF.apply(x, 0.1).sum(), x)
worst = 0.0
for at, s in zip(x.tolist(), supplied.tolist(), strict=True):
    true = math.exp(-0.5 * (at / 0.1) ** 2) / (0.1 * math.sqrt(2 * math.pi))
    worst = max(worst, abs(s - true) / true)
    print(f"x = {at:+.2f}: supplied {s:.15f}, true {true:.15f}")
print(f"largest relative error {worst:.1e}; float64 allows about {torch.finfo(torch.float64).eps:.0e}")
raise SystemExit(0 if worst > 1e-9 else 1)
