"""Close to zero and below -1, log_normal_cdf is an approximation in float64, and its gradient is not the derivative of it. pip install gpytorch==1.15.2"""

import mpmath
import torch
from gpytorch.functions import log_normal_cdf

mpmath.mp.dps = 30
off = []
for z in (0.02, 0.1, -0.15, 0.19, -1.5, -3.0, -8.0):
    x = torch.tensor([z], dtype=torch.float64, requires_grad=True)
    (supplied,) = torch.autograd.grad(log_normal_cdf(x).sum(), x)
    rows = []
    for k in range(5):  # extrapolated central differences of the value
        h = 2.0**-k * 0.008
        values = log_normal_cdf(torch.tensor([z + h, z - h], dtype=torch.float64))
        rows.append([((values[0] - values[1]) / (2 * h)).item()])
        for j in range(k):
            rows[k].append(rows[k][j] + (rows[k][j] - rows[k - 1][j]) / (4 ** (j + 1) - 1))
    true = rows[-1][-1]
    off.append(abs(supplied.item() - true) / abs(true))
    exact = mpmath.log(mpmath.ncdf(z)), mpmath.npdf(z) / mpmath.ncdf(z)
    error = abs(float((mpmath.mpf(log_normal_cdf(x).item()) - exact[0]) / exact[0])), abs(float((supplied.item() - exact[1]) / exact[1]))
    print(f"z = {z}: supplied {supplied.item():.12f}, true derivative of the value {true:.12f}, off by {off[-1]:.1e}")
    print(f"    of log Phi itself: value off by {error[0]:.1e}, gradient off by {error[1]:.1e}")
raise SystemExit(0 if max(off) > 1e-10 else 1)
