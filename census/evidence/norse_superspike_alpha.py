"""The gradient of norse's SuperSpike does not depend on alpha: it is 1 / (1 + |x|)^2, where section 3.3.2 of the cited
paper has 1 / (1 + alpha |x|)^2.

pip install norse==1.1.0
"""

import torch
from norse.torch.functional.threshold import threshold

x = torch.tensor([-0.3, -0.01, 0.05, 0.4], dtype=torch.float64, requires_grad=True)
off = []
for alpha in (1.0, 10.0, 100.0):
    (supplied,) = torch.autograd.grad(threshold(x, "super", alpha).sum(), x)
    (true,) = torch.autograd.grad((x / (1 + alpha * x.abs())).sum(), x)
    print(f"alpha {alpha:5}: supplied {[round(g, 6) for g in supplied.tolist()]}, true {[round(g, 6) for g in true.tolist()]}")
    off.append(((supplied - true).norm() / true.norm()).item())
print("off by", [round(o, 3) for o in off], "of the gradient")
raise SystemExit(0 if off[0] < 1e-12 and off[1] > 0.5 and off[2] > 0.5 else 1)
