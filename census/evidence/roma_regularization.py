"""With regularization the gradient has a term that grad_output does not scale, as documented. pip install roma==1.8.0"""

import roma
import torch

torch.manual_seed(0)
m, u = torch.randn(2, 3, 3, dtype=torch.float64)
supplied = {}
for scale in (0.0, 1.0):
    leaf = m.clone().requires_grad_()
    (roma.special_procrustes(leaf, regularization=0.1) * u * scale).sum().backward()
    supplied[scale] = leaf.grad
expected = 0.1 * (m - roma.special_procrustes(m))
print(
    f"of the loss 0 * R: supplied gradient of length {float(supplied[0.0].norm()):.6f}, true 0; 0.1 * (M - R) has length {float(expected.norm()):.6f}"
)
raise SystemExit(0 if torch.allclose(supplied[0.0], expected) else 1)
