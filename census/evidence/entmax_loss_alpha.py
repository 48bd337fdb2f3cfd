"""entmax_bisect_loss takes a tensor alpha, and silently gives it no gradient; the value depends on it. pip install entmax==1.3"""

import torch
from entmax import entmax_bisect_loss, normmax_bisect_loss

torch.manual_seed(0)
x = torch.randn(4, 7, dtype=torch.float64, requires_grad=True)
y = torch.tensor([1, 2, 3, 0])
wrong = 0
for loss in (entmax_bisect_loss, normmax_bisect_loss):
    alpha = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    loss(x, y, alpha).sum().backward()
    h = 1e-5
    true = float((loss(x, y, alpha.detach() + h).sum() - loss(x, y, alpha.detach() - h).sum()) / (2 * h))
    wrong += alpha.grad is None and abs(true) > 0.01
    print(f"{loss.__name__}: supplied {alpha.grad}, true {true:.6f}")
raise SystemExit(0 if wrong == 2 else 1)
