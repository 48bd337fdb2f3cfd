"""pip install tslearn==0.10.0

Value and gradient in float64 are rounded to float32 on the way, beside a soft-DTW in plain float64 operations.
"""

import torch
from tslearn.metrics import SoftDTWLossPyTorch

torch.manual_seed(0)
x, y = 3 * torch.randn(2, 1, 8, 2, dtype=torch.float64)


def plain(x, y, gamma=0.1):
    distance = (x.unsqueeze(2) - y.unsqueeze(1)).square().sum(3)[0]
    infinite = torch.tensor(float("inf"), dtype=torch.float64)
    cells = {(0, 0): torch.zeros((), dtype=torch.float64)}
    for i in range(1, 9):
        for j in range(1, 9):
            before = torch.stack([cells.get(at, infinite) for at in ((i - 1, j), (i, j - 1), (i - 1, j - 1))])
            cells[i, j] = distance[i - 1, j - 1] - gamma * torch.logsumexp(-before / gamma, 0)
    return cells[8, 8]


first, second = x.clone().requires_grad_(), x.clone().requires_grad_()
value = SoftDTWLossPyTorch(gamma=0.1)(first, y)[0]
value.backward()
true = plain(second, y)
true.backward()
error = float((first.grad - second.grad).norm() / second.grad.norm())
print(f"value: supplied {value.item():.12f}, true {true.item():.12f}, off by {abs(value.item() / true.item() - 1):.1g}")
print(f"gradient: supplied {first.grad[0, 0, 0].item():.12f}, true {second.grad[0, 0, 0].item():.12f}")
print(f"the gradient is off by {error:.2g} of its size; float64 keeps about 1e-15")
print("the value is a float32 number:", value.item() == value.float().item())
raise SystemExit(0 if 1e-9 < error < 1e-3 and value.item() == value.float().item() and true.item() != true.float().item() else 1)
