"""The gradient of DWTInverse beside the transform itself, for the modes symmetric, reflect and periodic.

pip install pytorch-wavelets==1.3.0
"""

import torch
from pytorch_wavelets import DWTInverse

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


off = {}
for mode in ("zero", "symmetric", "reflect", "periodic"):
    module = DWTInverse(wave="db2", mode=mode).double()
    arguments = torch.randn(1, 1, 5, 4, dtype=torch.float64), torch.randn(1, 1, 3, 5, 4, dtype=torch.float64)
    supplied, true = supplied_and_true(lambda yl, yh, module=module: (module((yl, [yh])),), *arguments)
    off[mode] = ((supplied - true).norm() / true.norm()).item()
    print(
        f"{mode}: first element supplied {supplied.view(-1)[0].item():.4f}, true {true.view(-1)[0].item():.4f}; off by {off[mode]:.1e} of the gradient"
    )
raise SystemExit(0 if off.pop("zero") < 1e-7 and all(value > 0.1 for value in off.values()) else 1)
