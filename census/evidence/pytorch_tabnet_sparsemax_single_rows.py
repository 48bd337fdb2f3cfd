"""pip install pytorch-tabnet==4.1.0

The gradient of sparsemax for a batch of single rows, (3, 1, 6), beside the one for the same rows as (3, 6) and beside differences.
"""

import torch
from pytorch_tabnet.sparsemax import sparsemax

torch.manual_seed(0)
x, u = torch.randn(2, 3, 6, dtype=torch.float64)


def gradient(shape):
    leaf = x.clone().requires_grad_()
    (sparsemax(leaf.reshape(shape) * 1.0, -1).reshape(3, 6) * u).sum().backward()
    return leaf.grad


supplied, as_rows, step = gradient((3, 1, 6)), gradient((3, 6)), 1e-6
differences = torch.zeros_like(x)
for i in range(x.numel()):
    moved = torch.zeros(x.numel(), dtype=torch.float64)
    moved[i] = step
    high, low = (sparsemax((x + sign * moved.view(3, 6)).view(3, 1, 6), -1).view(3, 6) for sign in (1, -1))
    differences.view(-1)[i] = ((high - low) * u).sum() / (2 * step)
print("supplied for (3, 1, 6):", supplied[0].tolist())
print("supplied for (3, 6):   ", as_rows[0].tolist())
print("true, by differences:  ", differences[0].tolist())
off, right = (supplied - differences).norm() / differences.norm(), (as_rows - differences).norm() / differences.norm()
print(f"off by {off:.3g} of the gradient for (3, 1, 6), by {right:.1g} for (3, 6)")
raise SystemExit(0 if off > 0.1 and right < 1e-6 else 1)
