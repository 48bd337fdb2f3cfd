"""The gradients of the thresholds tanh, circ and heavi_erfc are those of the functions that their docstrings name
times 2 / k, 2 alpha and 2 / k.

pip install norse==1.1.0
"""

import torch
from norse.torch.functional.threshold import threshold

named = {
    "tanh": lambda x, k: 0.5 + (k * x).tanh() / 2,
    "circ": lambda x, k: 0.5 + x / (x.square() + k**2).sqrt() / 2,
    "heavi_erfc": lambda x, k: 0.5 + (k * x).erf() / 2,
}
factors = {"tanh": lambda k: 2 / k, "circ": lambda k: 2 * k, "heavi_erfc": lambda k: 2 / k}
x = torch.tensor([-0.3, -0.01, 0.05, 0.4], dtype=torch.float64, requires_grad=True)
worst = 0.0
for method, function in named.items():
    for k in (2.0, 10.0):
        (supplied,) = torch.autograd.grad(threshold(x, method, k).sum(), x)
        (true,) = torch.autograd.grad(function(x, k).sum(), x)
        print(f"{method}, {k}: supplied {supplied[2].item():.6f}, true {true[2].item():.6f}, ratio {(supplied / true)[2].item():.6f}")
        worst = max(worst, (supplied / true / factors[method](k) - 1).abs().max().item())
raise SystemExit(0 if worst < 1e-6 else 1)
