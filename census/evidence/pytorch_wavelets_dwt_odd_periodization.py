"""The gradient of DWTForward and DWT1DForward in the mode periodization for odd sizes.

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


wrong = []
for name, module, shape in (
    ("2D", DWTForward(J=1, wave="db2", mode="periodization"), (1, 1, 7, 5)),
    ("1D", DWT1DForward(J=1, wave="db2", mode="periodization"), (1, 1, 9)),
):
    module = module.double()
    supplied, true = supplied_and_true(lambda x, module=module: (module(x)[0], module(x)[1][0]), torch.randn(shape, dtype=torch.float64))
    off = ((supplied - true).norm() / true.norm()).item()
    print(
        f"{name} {shape[2:]}: last element supplied {supplied.view(-1)[-1].item():.4f}, true {true.view(-1)[-1].item():.4f}; off by {off:.2f} of the gradient"
    )
    wrong.append(off > 0.05)
raise SystemExit(0 if all(wrong) else 1)
