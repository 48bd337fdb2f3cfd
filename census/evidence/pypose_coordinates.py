"""translation(), scale() and euler() of a group element: supplied gradients beside extrapolated differences. pip install pypose==0.9.5"""

import pypose as pp
import torch

torch.manual_seed(1)
borne_out = True
for called, kind, size in (("translation", "se3", 6), ("scale", "sim3", 7), ("scale", "rxso3", 4), ("euler", "so3", 3)):
    x, v = 0.5 * torch.randn(2, size, dtype=torch.float64)

    def value(x, called=called, kind=kind):
        return getattr(getattr(pp, kind)(x).Exp(), called)().sum()

    leaf = x.clone().requires_grad_()
    value(leaf).backward()
    supplied = float((leaf.grad * v).sum())
    wide, narrow = (float(value(x + h * v) - value(x - h * v)) for h in (2e-3, 1e-3))
    true = (8 * narrow - wide) / 12e-3
    print(f"{kind}(x).Exp().{called}().sum() along a direction: supplied {supplied:.8f}, true {true:.8f}")
    borne_out &= abs(supplied - true) > 0.05 * abs(true)
raise SystemExit(0 if borne_out else 1)
