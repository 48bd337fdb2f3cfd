"""torch-struct's CheckpointSemiring: with create_graph=True its gradient is a constant, so second derivatives lose it. pip install torch-struct==0.5"""

import torch
from torch_struct.semirings import CheckpointSemiring, LogSemiring

torch.manual_seed(0)
w = torch.randn(4, 4, dtype=torch.float64)
a, b, v = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 4, 2, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64)


def second(semiring):
    leaf = w.clone().requires_grad_()
    given = a.clone().requires_grad_()
    out = semiring.matmul(given @ leaf, b @ torch.ones(2, 2, dtype=torch.float64, requires_grad=True))
    (g,) = torch.autograd.grad(out.square().sum(), given, create_graph=True)  # as a gradient penalty does
    (h,) = torch.autograd.grad(g.square().sum(), leaf)
    return float((h * v).sum())


supplied, true = second(CheckpointSemiring(LogSemiring, 1)), second(LogSemiring)
print(
    f"derivative of the squared gradient along a direction in the weights: supplied {supplied:.6f}, true (LogSemiring without checkpoints) {true:.6f}"
)
raise SystemExit(0 if abs(supplied - true) > 0.01 * abs(true) else 1)
