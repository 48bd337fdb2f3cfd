"""SE3.exp at angles below 0.005: value and gradient beside a matrix exponential. pip install torchlie==0.1.0"""

import torch
from torchlie.functional import SE3

t = torch.tensor([1.0, -0.5, 0.8], dtype=torch.float64)
axis = torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64)
u = torch.tensor([0.3, -0.7, 0.5], dtype=torch.float64)  # only the translation of the result is asked for


def plain(w):
    a, b, c = w
    zero = torch.zeros_like(a)
    rows = [torch.stack([zero, -c, b, t[0]]), torch.stack([c, zero, -a, t[1]]), torch.stack([-b, a, zero, t[2]]), torch.stack([zero] * 4)]
    return (torch.linalg.matrix_exp(torch.stack(rows))[:3, 3] * u).sum()


def theirs(w):
    return (SE3.exp(torch.cat([t, w]))[:, 3] * u).sum()


borne_out = False
for angle in (0.002, 0.004, 0.0049, 0.006):
    w = angle * axis
    leaf, reference = w.clone().requires_grad_(), w.clone().requires_grad_()
    value, exact = theirs(leaf), plain(reference)
    value.backward()
    exact.backward()
    h = 1e-5
    along = float(theirs(w + h * axis) - theirs(w - h * axis)) / (2 * h)
    supplied, true = float(leaf.grad @ axis), float(reference.grad @ axis)
    print(f"angle {angle}: value off by {abs(float(value - exact)):.1e}; derivative along the axis: supplied {supplied:.8f},")
    print(f"    of the value {along:.8f}, of the exact exponential {true:.8f}")
    borne_out |= angle < 0.005 and abs(supplied - along) > 1e-4 * float(reference.grad.norm()) and abs(float(value - exact)) > 1e-7
raise SystemExit(0 if borne_out else 1)
