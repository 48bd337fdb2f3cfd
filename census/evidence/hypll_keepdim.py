"""The backward of frechet_mean with keepdim=True raises. pip install hypll==0.1.1"""

import torch
from hypll.manifolds.poincare_ball.math.stats import frechet_mean

torch.manual_seed(0)
x = (0.2 * torch.randn(2, 4, 3, dtype=torch.float64)).requires_grad_()
c = torch.tensor(1.0, dtype=torch.float64)
reduced = frechet_mean(x, c, batch_dim=1)
true = torch.autograd.grad(reduced.sum(), x)[0]
kept = frechet_mean(x, c, batch_dim=1, keepdim=True)
print(f"values: shapes {tuple(reduced.shape)} and {tuple(kept.shape)}, equal: {torch.equal(reduced, kept.squeeze(1))}")
try:
    supplied = torch.autograd.grad(kept.sum(), x)[0]
except RuntimeError as error:
    print(f"supplied: RuntimeError ({error}), true: a gradient of length {float(true.norm()):.6f}")
    raise SystemExit(0) from None
print(f"supplied {float(supplied.norm()):.6f}, true {float(true.norm()):.6f}")
raise SystemExit(0 if not torch.allclose(supplied, true) else 1)
