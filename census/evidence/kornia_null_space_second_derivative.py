"""pip install kornia==0.9.0

The second derivative of the null space that the essential matrix is solved in, beside differences of the gradient.
"""

import torch
from kornia.geometry.epipolar.essential import _NullSpaceBasis

torch.manual_seed(0)
x, v = torch.randn(2, 1, 7, 9, dtype=torch.float64)
u = torch.randn(9, 9, dtype=torch.float64)


def value(design):
    basis = _NullSpaceBasis.apply(design)[0]
    return ((basis @ basis.mT) * u).sum()  # the projector does not depend on the choice of the basis


def slope(at, graph=False):
    leaf = at if at.requires_grad else at.clone().requires_grad_()
    (made,) = torch.autograd.grad(value(leaf), leaf, create_graph=graph)
    return (made * v).sum()


def central(function, step):
    return float(function(x + step * v) - function(x - step * v)) / (2 * step)


first = central(value, 1e-5)
print(f"first derivative: supplied {float(slope(x)):.8f}, true {first:.8f}")
leaf = x.clone().requires_grad_()
(second,) = torch.autograd.grad(slope(leaf, graph=True), leaf)
supplied, true, control = float((second * v).sum()), central(slope, 1e-4), central(slope, 2e-4)
print(f"second derivative: supplied {supplied:.6f}, true {true:.6f} (with twice the step {control:.6f})")
right = abs(first - float(slope(x))) < 1e-6 * abs(first) and abs(true - control) < 1e-3 * abs(true)
raise SystemExit(0 if right and abs(supplied - true) > 0.05 * abs(true) else 1)
