"""torch-sla: eigsh returns eigenvectors that require a gradient, and its backward gives them none. pip install torch-sla==0.4.0 scipy"""

import torch
from torch_sla import SparseTensor

torch.manual_seed(0)
row, col = torch.tensor([0, 1, 2, 3, 0, 1, 1, 2, 2, 3]), torch.tensor([0, 1, 2, 3, 1, 0, 2, 1, 3, 2])
free = torch.tensor([4.0, 3.1, 5.2, 2.7, 0.9, -0.8, 0.6], dtype=torch.float64)
where = torch.tensor([0, 1, 2, 3, 4, 4, 5, 5, 6, 6])
weights, direction = torch.randn(4, 4, dtype=torch.float64), torch.randn(7, dtype=torch.float64)


def loss(free, dense=False):
    """A function of the projector on the highest eigenvector, which has no sign."""
    if dense:
        vectors = torch.linalg.eigh(SparseTensor(free[where], row, col, (4, 4)).to_dense())[1][:, -1:]
    else:
        vectors = SparseTensor(free[where], row, col, (4, 4)).eigsh(k=1, which="LA")[1]
    return (weights * (vectors @ vectors.mT)).sum()


leaf = free.clone().requires_grad_()
supplied = float(torch.autograd.grad(loss(leaf), leaf)[0] @ direction)
dense = float(torch.autograd.grad(loss(leaf, dense=True), leaf)[0] @ direction)
slopes = [float(loss(free + h * direction) - loss(free - h * direction)) / (2 * h) for h in (1e-3, 5e-4)]
true = (4 * slopes[1] - slopes[0]) / 3
print(f"supplied {supplied:.8f}, true {true:.8f} (differences), {dense:.8f} (torch.linalg.eigh)")
raise SystemExit(0 if supplied == 0 and abs(true - dense) < 1e-6 and abs(true) > 1e-2 else 1)
