"""The gradient of DWTForward and DWT1DForward beside the transform itself, for paddings other than zero.

pip install pytorch-wavelets==1.3.0
"""

import torch
from pytorch_wavelets import DWT1DForward, DWTForward

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
for mode in ("zero", "periodization", "symmetric", "reflect", "periodic"):
    two, one = DWTForward(J=1, wave="db2", mode=mode).double(), DWT1DForward(J=1, wave="db2", mode=mode).double()
    for name, transform, shape in (
        ("2D", lambda x, two=two: (two(x)[0], two(x)[1][0]), (1, 1, 6, 8)),
        ("1D", lambda x, one=one: (one(x)[0], one(x)[1][0]), (1, 1, 10)),
    ):
        supplied, true = supplied_and_true(transform, torch.randn(shape, dtype=torch.float64))
        off[mode, name] = ((supplied - true).norm() / true.norm()).item()
        corner = f"corner: supplied {supplied.view(-1)[0].item():.4f}, true {true.view(-1)[0].item():.4f}"
        print(f"{name} {mode}: {corner}; off by {off[mode, name]:.1e} of the gradient")
right = all(value < 1e-7 for (mode, _), value in off.items() if mode in ("zero", "periodization"))
raise SystemExit(0 if right and all(value > 0.1 for (mode, _), value in off.items() if mode not in ("zero", "periodization")) else 1)
