"""GradientReversalLayer with its third argument raises in the backward. pip install skada[deep]==0.6.0"""

import torch
from skada.deep.modules import GradientReversalLayer

x = torch.randn(3, 4, requires_grad=True)
print("without sample_weight: supplied", torch.autograd.grad(GradientReversalLayer.apply(x, 1.0).sum(), x)[0][0, 0].item())
try:
    torch.autograd.grad(GradientReversalLayer.apply(x, 1.0, torch.ones(3)).sum(), x)
except RuntimeError as error:
    print(f"with sample_weight: supplied RuntimeError ({error}), true (as documented) -1.0")
    raise SystemExit(0) from None
raise SystemExit(1)
