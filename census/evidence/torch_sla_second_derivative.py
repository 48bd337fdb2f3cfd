"""torch-sla: second derivatives through spsolve (SciPy), det and eigsh are wrong, and nothing raises. pip install torch-sla==0.4.0 scipy"""

import torch
from torch_sla import SparseTensor, spsolve

torch.manual_seed(0)
row, col = torch.tensor([0, 1, 2, 3, 0, 1, 1, 2, 2, 3]), torch.tensor([0, 1, 2, 3, 1, 0, 2, 1, 3, 2])
free, where = torch.tensor([4.0, 3.1, 5.2, 2.7, 0.9, -0.8, 0.6], dtype=torch.float64), torch.tensor([0, 1, 2, 3, 4, 4, 5, 5, 6, 6])
b, direction = torch.tensor([1.0, -0.5, 2.0, 0.3], dtype=torch.float64), torch.randn(7, dtype=torch.float64)


def matrix(free):
    return SparseTensor(free[where], row, col, (4, 4))


losses = {
    "spsolve": lambda free: spsolve(free[where], row, col, (4, 4), b, backend="scipy", method="lu").square().sum(),
    "det": lambda free: matrix(free).det(),
    "eigsh": lambda free: matrix(free).eigsh(k=1, which="LA")[0].sum() ** 2,
}


def slope(loss, at):
    leaf = at.clone().requires_grad_()
    return leaf, torch.autograd.grad(loss(leaf), leaf, create_graph=True)[0] @ direction


borne_out = True
for name, loss in losses.items():
    leaf, first = slope(loss, free)
    supplied = float(torch.autograd.grad(first, leaf)[0] @ direction)
    slopes = [float(slope(loss, free + h * direction)[1] - slope(loss, free - h * direction)[1]) / (2 * h) for h in (1e-3, 5e-4)]
    true = (4 * slopes[1] - slopes[0]) / 3
    print(f"{name}: second derivative along a direction: supplied {supplied:.6f}, true {true:.6f} (differences of the first)")
    borne_out &= abs(supplied - true) > 1e-2 * abs(true)
raise SystemExit(0 if borne_out else 1)
