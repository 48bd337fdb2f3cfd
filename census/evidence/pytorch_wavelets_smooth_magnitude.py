"""SmoothMagFn has no gradient for the imaginary part where the real part needs none: its backward raises.

pip install pytorch-wavelets==1.3.0
"""

import torch
from pytorch_wavelets.scatternet.lowlevel import SmoothMagFn

x, y = torch.tensor([3.0]), torch.tensor([4.0], requires_grad=True)
value = SmoothMagFn.apply(x, y, 0.0)
print(f"value {value.item()}, true derivative to y {y.item() / 5}")
try:
    (supplied,) = torch.autograd.grad(value.sum(), y)
    print(f"supplied {supplied.item()}")
    raise SystemExit(0 if abs(supplied.item() - 0.8) > 1e-3 else 1)
except UnboundLocalError as error:
    print(f"supplied: {error}")
    raise SystemExit(0) from None
