"""pip install pytorchcv==0.0.74

ShakeDrop multiplies by one factor in the forward and by another random one in the backward.
"""

import torch
from pytorchcv.models.shakedropresnet_cifar import ShakeDrop

torch.manual_seed(0)
alpha = torch.full((1, 1, 1, 1), 0.3, dtype=torch.float64)
x = torch.ones(1, 1, 1, 1, dtype=torch.float64, requires_grad=True)
value = ShakeDrop.apply(x, torch.zeros(1, dtype=torch.float64), alpha)
slopes = [float(torch.autograd.grad(value, x, retain_graph=True)[0]) for _ in range(3)]
print(f"value at 1: {value.item()}, so the true derivative is 0.3; supplied, three times: {slopes}")
raise SystemExit(0 if len(set(slopes)) == 3 and abs(value.item() - 0.3) < 1e-12 else 1)
