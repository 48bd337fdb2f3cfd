"""geomloss: second derivatives of kernel losses (energy, gaussian, laplacian) are wrong, and nothing raises. pip install geomloss==0.3.1 torch"""

import torch
from geomloss import SamplesLoss

torch.manual_seed(0)
x, y = torch.randn(4, 2, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
direction = torch.randn_like(x)


def gaussian(x, y):
    """The same loss in plain operations."""

    def mean(a, b):
        return torch.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / 2).mean()

    return 0.5 * mean(x, x) + 0.5 * mean(y, y) - mean(x, y)


supplied_loss = SamplesLoss("gaussian", blur=1.0, backend="tensorized")
found = []
for name, loss in (("supplied", supplied_loss), ("true (plain operations)", gaussian)):
    leaf = x.clone().requires_grad_()
    value = loss(leaf, y)
    (first,) = torch.autograd.grad(value, leaf, create_graph=True)
    (second,) = torch.autograd.grad((first * direction).sum(), leaf)
    found.append((float(value), float((first * direction).sum()), float((second * direction).sum())))
    print(f"{name}: value {found[-1][0]:.8f}, first derivative {found[-1][1]:.8f}, second {found[-1][2]:.8f}")
right = abs(found[0][0] - found[1][0]) < 1e-10 and abs(found[0][1] - found[1][1]) < 1e-10
raise SystemExit(0 if right and abs(found[0][2] - found[1][2]) > 1e-2 * abs(found[1][2]) else 1)
