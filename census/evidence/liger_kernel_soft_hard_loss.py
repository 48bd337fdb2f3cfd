"""Distillation losses with return_soft_hard_loss=True: the gradients of the soft and the hard loss are zero. pip install liger-kernel==0.8.5"""

import torch
from liger_kernel.chunked_loss import LigerFusedLinearCosineSimilarityLoss

torch.manual_seed(0)
student, teacher = torch.randn(6, 4), torch.randn(6, 3)
w, t, y = torch.randn(5, 4), torch.randn(5, 3), torch.tensor([1, 2, 0, 3, 4, 1])
v = torch.randn(5, 4)
loss = LigerFusedLinearCosineSimilarityLoss(compiled=False, return_soft_hard_loss=True)
wrong = 0
for i, name in enumerate(("loss", "soft loss", "hard loss")):
    leaf = w.clone().requires_grad_()
    made = loss(student, leaf, teacher, t, y)[i]
    (supplied,) = torch.autograd.grad(made, leaf)
    h = 1e-2
    true = float(loss(student, w + h * v, teacher, t, y)[i] - loss(student, w - h * v, teacher, t, y)[i]) / (2 * h)
    wrong += bool((supplied == 0).all()) and abs(true) > 1e-2
    print(
        f"{name} (requires a gradient: {made.requires_grad}): supplied {float((supplied * v).sum()):.4f}, true {true:.4f} along a direction"
    )
raise SystemExit(0 if wrong == 2 else 1)
