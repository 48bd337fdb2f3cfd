"""pip install pytorchcv==0.0.74

Shake-Shake mixes two branches with one weight in the forward and with another random one in the backward.
"""

import torch
from pytorchcv.models.shakeshakeresnet_cifar import ShakeShake

torch.manual_seed(0)
alpha = torch.full((1, 1, 1, 1), 0.3, dtype=torch.float64)
x, y = (torch.full((1, 1, 1, 1), number, dtype=torch.float64, requires_grad=True) for number in (1.0, 10.0))
value = ShakeShake.apply(x, y, alpha)
slopes = [float(torch.autograd.grad(value, x, retain_graph=True)[0]) for _ in range(3)]
print(f"value: {value.item()} = 0.3 x + 0.7 y, so the true derivative by x is 0.3; supplied, three times: {slopes}")
raise SystemExit(0 if len(set(slopes)) == 3 and abs(value.item() - 7.3) < 1e-12 else 1)
