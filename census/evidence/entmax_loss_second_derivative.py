"""entmax's losses: their second derivatives are silently zero in the scores; differences of the first ones are not. pip install entmax==1.3"""

import torch
from entmax import entmax15_loss, entmax_bisect_loss, normmax_bisect_loss, sparsemax_bisect_loss, sparsemax_loss

torch.manual_seed(0)
x = torch.randn(4, 7, dtype=torch.float64)
y = torch.tensor([1, 2, 3, 0])
v = torch.randn(4, 7, dtype=torch.float64)


def gradient(loss, at, graph=False):
    at = at.clone().requires_grad_()
    (made,) = torch.autograd.grad((0.5 * loss(at, y) ** 2).sum(), at, create_graph=graph)
    return made, at


wrong = 0
for loss in (sparsemax_loss, sparsemax_bisect_loss, entmax15_loss, entmax_bisect_loss, normmax_bisect_loss):
    first, at = gradient(loss, x, graph=True)
    (supplied,) = torch.autograd.grad((first * v).sum(), at)
    h = 1e-5
    true = (gradient(loss, x + h * v)[0] - gradient(loss, x - h * v)[0]) / (2 * h)
    off = float((supplied - true).norm() / true.norm())
    wrong += off > 0.1
    print(
        f"{loss.__name__}: supplied {float((supplied * v).sum()):.4f}, true {float((true * v).sum()):.4f}; they differ by {off:.2f} of the second derivative"
    )
raise SystemExit(0 if wrong == 5 else 1)
