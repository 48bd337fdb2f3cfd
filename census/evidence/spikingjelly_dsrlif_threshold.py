"""The gradient that DSRLIFNode supplies for its threshold is multiplied by delta_t where the output is divided by it:
delta_t^2 times the true one.

pip install spikingjelly==2.0.0
"""

import torch
from spikingjelly.activation_based.neuron import DSRLIFNode

worst = 0.0
for delta_t in (0.05, 0.25, 1.0):
    x = torch.full((6, 4), 500.0)  # every neuron fires at every step, and the output is v / delta_t
    v = torch.tensor(1.0, requires_grad=True)
    out = DSRLIFNode.DSRLIFFunction.apply(x, 6, v, 2.0, delta_t, 0.3, 1.0)
    assert torch.allclose(out, v / delta_t)
    out.sum().backward()
    true = out.numel() / delta_t
    print(f"delta_t {delta_t}: supplied {v.grad.item():.6f}, true {true:.6f}, ratio {v.grad.item() / true:.6f}")
    worst = max(worst, abs(v.grad.item() / true / delta_t**2 - 1))
print("the ratio is delta_t^2")
raise SystemExit(0 if worst < 1e-4 else 1)
