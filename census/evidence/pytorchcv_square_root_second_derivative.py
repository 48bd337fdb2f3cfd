"""pip install pytorchcv==0.0.74

The second derivative of the Newton-Schulz square root, beside autograd through the same iteration in plain operations, and differences.
"""

import torch
from pytorchcv.models.isqrtcovresnet import NewtonSchulzSqrt

torch.manual_seed(0)
a, u, v = torch.randn(3, 1, 3, 3, dtype=torch.float64)
eye = torch.eye(3, dtype=torch.float64)


def plain(x, n):
    trace = x.diagonal(dim1=1, dim2=2).sum(1).view(-1, 1, 1)
    y, z = x / trace, eye.expand_as(x)
    for _ in range(n):
        factor = 0.5 * (3 * eye - z @ y)
        y, z = y @ factor, factor @ z
    return y * trace.sqrt()


def slope(root, at, graph=False):
    leaf = at if at.requires_grad else at.clone().requires_grad_()
    (made,) = torch.autograd.grad((root(leaf @ leaf.mT + 0.5 * eye, 5) * u).sum(), leaf, create_graph=graph)
    return (made * v).sum()


leaf = a.clone().requires_grad_()
(supplied,) = torch.autograd.grad(slope(NewtonSchulzSqrt.apply, leaf, True), leaf)
(true,) = torch.autograd.grad(slope(plain, leaf, True), leaf)
first = float(abs(slope(NewtonSchulzSqrt.apply, a) - slope(plain, a)))
differences = float((slope(NewtonSchulzSqrt.apply, a + 1e-5 * v) - slope(NewtonSchulzSqrt.apply, a - 1e-5 * v)) / 2e-5)
print(
    f"second derivative along v: supplied {float((supplied * v).sum()):.6g}, true {float((true * v).sum()):.6g}, differences {differences:.6g}"
)
off = float((supplied - true).norm() / true.norm())
print(f"off by {off:.3g} of its size")
close = abs(differences - float((true * v).sum())) < 1e-6 * abs(differences)
raise SystemExit(0 if off > 0.1 and close and first < 1e-10 else 1)
