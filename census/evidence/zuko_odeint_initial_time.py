"""The gradient of zuko.utils.odeint with respect to the initial time has the wrong sign.

pip install zuko==1.6.0
"""

import torch
from zuko.utils import odeint

x0, t1 = torch.tensor([1.0], dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64)
wrong = []
for start in (0.0, 0.5, 1.5):
    t0 = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    # dx/dt = -x / 2 has the solution x0 exp(-(t1 - t0) / 2), which grows with t0
    x1 = odeint(lambda t, x: -0.5 * x, x0, t0, t1, atol=1e-12, rtol=1e-12)
    exact = x0 * torch.exp(-0.5 * (t1 - t0))
    (supplied,) = torch.autograd.grad(x1.sum(), t0)
    (true,) = torch.autograd.grad(exact.sum(), t0)
    print(f"t0 = {start}: x(t1) = {x1.item():.8f}, exact {exact.item():.8f}; d/dt0 supplied {supplied.item():.8f}, true {true.item():.8f}")
    wrong.append(abs(supplied.item() + true.item()) < 1e-6)
raise SystemExit(0 if all(wrong) else 1)
