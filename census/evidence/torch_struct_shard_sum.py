"""torch-struct's CheckpointShardSemiring: the backward sums a factor without dimensions of size 1 over everything. pip install torch-struct==0.5"""

import torch
from torch_struct.semirings import CheckpointShardSemiring, LogSemiring

torch.manual_seed(0)
failed = 0
for left, right in (((5, 3, 4), (5, 4, 2)), ((2, 3, 3, 4), (1, 3, 4, 1)), ((7, 1, 3), (7, 3, 2))):
    a, b = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in (left, right))
    (true,) = torch.autograd.grad(LogSemiring.matmul(a, b).sum(), a)
    try:
        (supplied,) = torch.autograd.grad(CheckpointShardSemiring(LogSemiring, 4).matmul(a, b).sum(), a)
        print(f"{left} by {right}: supplied and true differ by {float((supplied - true).norm()):.1e}")
    except RuntimeError as error:
        failed += 1
        print(f"{left} by {right}: true gradient of length {float(true.norm()):.4f}; supplied: RuntimeError: {error}")
raise SystemExit(0 if failed == 3 else 1)
