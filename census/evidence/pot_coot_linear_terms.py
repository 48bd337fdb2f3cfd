"""POT: co_optimal_transport2 gives no gradient for M_samp and M_feat. pip install POT==0.9.7.post1 torch"""

import torch
from ot.coot import co_optimal_transport2

torch.manual_seed(0)
x, y = torch.randn(4, 3, dtype=torch.float64).requires_grad_(), torch.randn(5, 4, dtype=torch.float64)
m, n = torch.rand(4, 5, dtype=torch.float64).requires_grad_(), torch.rand(3, 4, dtype=torch.float64).requires_grad_()
value = co_optimal_transport2(x, y, alpha=(0.7, 0.3), M_samp=m, M_feat=n, tol_bcd=1e-14)
supplied = torch.autograd.grad(value, (m, n), allow_unused=True)
direction = torch.randn(4, 5, dtype=torch.float64)


def moved(h):
    return float(
        co_optimal_transport2(x.detach(), y, alpha=(0.7, 0.3), M_samp=m.detach() + h * direction, M_feat=n.detach(), tol_bcd=1e-14)
    )


true = (moved(1e-5) - moved(-1e-5)) / 2e-5
print(f"supplied gradients of M_samp and M_feat: {supplied}")
print(f"derivative along a direction of M_samp: supplied 0, true {true:.8f}")
raise SystemExit(0 if supplied == (None, None) and abs(true) > 1e-3 else 1)
