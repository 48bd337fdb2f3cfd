"""The value of a functional through odl.contrib.torch is rounded to float32 for float64 arguments.

pip install odl==1.0.0
"""

import odl
import torch
from odl.contrib.torch import OperatorFunction

x = torch.tensor([1.0 + 1e-9, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
value = OperatorFunction.apply(odl.functionals.L2NormSquared(odl.rn(3)), x)
true = (x**2).sum()
print(f"supplied {value.item():.12f} ({value.dtype}), true {true.item():.12f} ({true.dtype})")
step = torch.tensor([1e-7, 0.0, 0.0], dtype=torch.float64)
moved = OperatorFunction.apply(odl.functionals.L2NormSquared(odl.rn(3)), x + step) - value
print(f"change of the value over 1e-7: {moved.item():.3e}, true {((x + step) ** 2).sum().item() - true.item():.3e}")
raise SystemExit(0 if value.dtype == torch.float32 and abs(value.item() - true.item()) > 1e-10 else 1)
