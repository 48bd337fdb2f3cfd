"""entmax15, entmax_bisect and normmax_bisect: second derivatives are NaN as soon as one output is zero. pip install entmax==1.3"""

import torch
from entmax import entmax15, entmax_bisect, normmax_bisect

torch.manual_seed(0)
x = 2 * torch.randn(7, dtype=torch.float64)
v = torch.randn(7, dtype=torch.float64)


def gradient(fn, at, graph=False):
    at = at.clone().requires_grad_()
    (made,) = torch.autograd.grad((fn(at) ** 2).sum(), at, create_graph=graph)
    return made, at


wrong = 0
for name, fn in (("entmax15", entmax15), ("entmax_bisect", entmax_bisect), ("normmax_bisect", lambda at: normmax_bisect(at, 1.7))):
    first, at = gradient(fn, x, graph=True)
    (supplied,) = torch.autograd.grad((first * v).sum(), at)
    h = 1e-5
    true = (gradient(fn, x + h * v)[0] - gradient(fn, x - h * v)[0]) / (2 * h)
    wrong += bool(supplied.isnan().any()) and bool(true.isfinite().all())
    print(
        f"{name}, {int((fn(x) == 0).sum())} of 7 outputs zero: supplied {[round(float(g), 3) for g in supplied]}, true {[round(float(g), 3) for g in true]}"
    )
raise SystemExit(0 if wrong == 3 else 1)
