"""torch-struct's SparseMaxSemiring: marginals carry no gradient back to the potentials. pip install torch-struct==0.5"""

import torch
from torch_struct import LinearChain
from torch_struct.semirings import LogSemiring, SparseMaxSemiring

torch.manual_seed(0)
x = torch.randn(1, 3, 2, 2, dtype=torch.float64)
u = torch.randn(1, 3, 2, 2, dtype=torch.float64)
v = torch.randn(1, 3, 2, 2, dtype=torch.float64)


def compared(semiring):
    leaf = x.clone().requires_grad_()
    made = (LinearChain(semiring).marginals(leaf) * u).sum()
    (g,) = torch.autograd.grad(made, leaf, allow_unused=True)
    h = 1e-6
    low, high = ((LinearChain(semiring).marginals((x + s * v).requires_grad_()) * u).sum().detach() for s in (-h, h))
    return 0.0 if g is None else float((g * v).sum()), float(high - low) / (2 * h)


for semiring in (LogSemiring, SparseMaxSemiring):
    supplied, true = compared(semiring)
    print(f"{semiring.__name__}: derivative of the marginals along a direction: supplied {supplied:.6f}, true {true:.6f}")
raise SystemExit(0 if supplied == 0 and abs(true) > 1e-3 else 1)
