"""torch-struct's CheckpointSemiring: the backward raises if one of the two factors needs no gradient. pip install torch-struct==0.5"""

import torch
from torch_struct.semirings import CheckpointSemiring, LogSemiring

torch.manual_seed(0)
a, b = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True), torch.randn(2, 4, 2, dtype=torch.float64)
LogSemiring.matmul(a, b).sum().backward()
print(f"true, by LogSemiring without checkpoints: a gradient of length {float(a.grad.norm()):.6f}")
try:
    CheckpointSemiring(LogSemiring, 1).matmul(a, b).sum().backward()
except RuntimeError as error:
    print(f"supplied: RuntimeError: {error}")
    raise SystemExit(0) from None
raise SystemExit(1)
