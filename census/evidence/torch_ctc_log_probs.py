"""The gradient of ctc_loss is not the one by its argument, log_probs. pip install torch==2.13.0."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
target, steps = torch.tensor([[1, 2]]), torch.tensor([4])
log_probs = torch.randn(4, 1, 3, dtype=torch.float64).log_softmax(-1).requires_grad_()


def loss(x):
    return F.ctc_loss(x, target, steps, torch.tensor([2]), reduction="sum")


(supplied,) = torch.autograd.grad(loss(log_probs), log_probs)
worst = 0.0
for t in range(4):
    step = torch.zeros_like(log_probs)
    step[t, 0, 1] = 1e-4
    with torch.no_grad():
        first, half = ((loss(log_probs + s * step) - loss(log_probs - s * step)) / (2e-4 * s) for s in (1.0, 0.5))
    true, given = float(half + (half - first) / 3), float(supplied[t, 0, 1])
    worst = max(worst, abs(given - true))
    print(f"by log_probs[{t}, 0, 1]: supplied {given:.9f}, true {true:.9f}, log_probs' softmax {float(log_probs[t, 0, 1].exp()):.9f}")
raise SystemExit(0 if worst > 0.05 else 1)
