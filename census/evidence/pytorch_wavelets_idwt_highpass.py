"""The gradient of the highpass coefficients of DWTInverse and DWT1DInverse where the lowpass needs none.

pip install pytorch-wavelets==1.3.0
"""

import torch
from pytorch_wavelets import DWT1DInverse, DWTInverse

torch.manual_seed(0)


def supplied_and_true(transform, *arguments, of=0):
    """The transform is linear: element k of the true gradient of <u, transform(x)> is <u, transform(e_k)>."""
    x = arguments[of].clone().requires_grad_()
    outputs = transform(*arguments[:of], x, *arguments[of + 1 :])
    weights = [torch.randn_like(o) for o in outputs]
    (supplied,) = torch.autograd.grad(sum((o * u).sum() for o, u in zip(outputs, weights, strict=True)), x, allow_unused=True)
    zeros, true = [torch.zeros_like(a) for a in arguments], torch.zeros_like(x)
    for k in range(x.numel()):
        zeros[of].zero_().view(-1)[k] = 1
        true.view(-1)[k] = sum((o * u).sum() for o, u in zip(transform(*zeros), weights, strict=True))
    return torch.zeros_like(true) if supplied is None else supplied, true


wrong = []
for name, module, low, high in (
    ("2D", DWTInverse(wave="db2", mode="zero"), (1, 1, 5, 4), (1, 1, 3, 5, 4)),
    ("1D", DWT1DInverse(wave="db2", mode="zero"), (1, 1, 6), (1, 1, 6)),
):
    module = module.double()
    arguments = torch.randn(low, dtype=torch.float64), torch.randn(high, dtype=torch.float64)
    supplied, true = supplied_and_true(lambda yl, yh, module=module: (module((yl, [yh])),), *arguments, of=1)
    print(f"{name}: norm of the gradient supplied {supplied.norm().item():.4f}, true {true.norm().item():.4f}")
    wrong.append(supplied.norm() == 0 and true.norm() > 0.1)
raise SystemExit(0 if all(wrong) else 1)
