"""pip install pytorchcv==0.0.74

The gradient of a reversible block has no graph: a second derivative leaves the block out, where another term keeps it from raising.
"""

import torch
from pytorchcv.models.revnet import ReversibleBlock

torch.manual_seed(0)
f = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), torch.nn.Tanh()).double()
g = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), torch.nn.Tanh()).double()
block = ReversibleBlock(f, g)
x, v = torch.randn(2, 1, 2, 2, 2, dtype=torch.float64)


def plain(x):
    first, second = x.chunk(2, dim=1)
    first = first + f(second)
    return torch.cat((first, second + g(first)), dim=1)


def curvature(function):
    leaf = x.clone().requires_grad_()
    loss = function(leaf * 1.0).square().sum() + leaf.pow(3).sum()
    (slope,) = torch.autograd.grad(loss, leaf, create_graph=True)
    (second,) = torch.autograd.grad((slope * v).sum(), leaf)
    return second


supplied, true = curvature(block), curvature(plain)
rest = 6 * x * v  # of the sum of cubes alone
print("values agree:", torch.allclose(block(x * 1.0), plain(x)))
print(
    f"v H v: supplied {float((supplied * v).sum()):.6g}, true {float((true * v).sum()):.6g}, of the other term alone {float((rest * v).sum()):.6g}"
)
left_out = torch.allclose(supplied, rest) and not torch.allclose(true, rest, rtol=0.1)
print("the block is left out:", left_out)
raise SystemExit(0 if left_out else 1)
