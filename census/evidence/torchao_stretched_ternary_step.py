"""With w_bits=0 (three levels) StretchedElasticQuant outputs 2/3 alpha beyond the clipping range, and supplies the gradient of alpha.

pip install torchao==0.18.0
"""

import math

import torch
from torchao.prototype.paretoq.models.utils_quant import StretchedElasticQuant

x = torch.tensor([[5.0, -4.0, 3.0, 6.0]], dtype=torch.float64)  # every weight beyond the range
worst = 0.0
for bits, count in ((0, 1), (2, 1)):
    alpha = torch.tensor([[0.8]], dtype=torch.float64, requires_grad=True)
    out = StretchedElasticQuant.apply(x, alpha, bits, False)
    (supplied,) = torch.autograd.grad(out.sum(), alpha)
    supplied = supplied.item() * math.sqrt(x.numel() * count)  # without the factor of LSQ, 1 / sqrt(numel Qp)
    h = 1e-3
    high, low = (StretchedElasticQuant.apply(x, alpha.detach() + s * h, bits, False).sum() for s in (1, -1))
    true = ((high - low) / (2 * h)).item()
    print(
        f"w_bits={bits}: supplied {supplied:.6f}, true {true:.6f}, ratio {supplied / true:.6f}; output / alpha {(out / alpha).flatten().tolist()}"
    )
    worst = max(worst, abs(supplied / true - (1.5 if bits == 0 else 1.0)))
raise SystemExit(0 if worst < 1e-6 else 1)
