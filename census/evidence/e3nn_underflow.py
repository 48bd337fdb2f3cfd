"""The gradient of soft_unit_step at small positive numbers is nan. pip install e3nn==0.6.0 mpmath"""

import mpmath
import torch
from e3nn.math import soft_unit_step

borne_out = True
for number, dtype in ((1e-23, torch.float32), (1e-170, torch.float64)):
    x = torch.tensor([number], dtype=dtype, requires_grad=True)
    soft_unit_step(x).sum().backward()
    true = float(mpmath.exp(-1 / mpmath.mpf(number)) / mpmath.mpf(number) ** 2)
    print(f"x = {number} in {dtype}: supplied {float(x.grad)}, true {true}")
    borne_out &= bool(x.grad.isnan()) and true == 0.0
raise SystemExit(0 if borne_out else 1)
