"""The backward of hardsigmoid in float64 multiplies with one sixth rounded to float32. pip install torch==2.13.0."""

import torch
import torch.nn.functional as F

x = torch.tensor([-2.5, 0.1, 1.5], dtype=torch.float64, requires_grad=True)
(supplied,) = torch.autograd.grad(F.hardsigmoid(x).sum(), x)
h = 2.0**-6  # the function is linear here, so that differences are exact but for rounding
with torch.no_grad():
    seen = (F.hardsigmoid(x + h) - F.hardsigmoid(x - h)) / (2 * h)
for s, t in zip(supplied.tolist(), seen.tolist(), strict=True):
    print(f"supplied {s:.16f}, true {1 / 6:.16f}, differences of the value {t:.16f}")
print(f"off by {float(supplied[0]) * 6 - 1:.2e}; one sixth in float32 is {float(torch.tensor(1 / 6)):.16f}")
raise SystemExit(0 if abs(float(supplied[0]) * 6 - 1) > 1e-9 and abs(float(seen[0]) * 6 - 1) < 1e-12 else 1)
