"""gamgm: the supplied gradients of a loss and of its negative are the same. pip install pygmtools==0.6.0"""

import pygmtools
import torch

torch.manual_seed(0)
adjacency = torch.rand(3, 4, 4)
adjacency = adjacency + adjacency.mT
start = torch.full((12, 4), 0.25) + torch.randn(12, 4) / 1000
w = torch.rand(3, 3, 4, 4, requires_grad=True)
u = torch.randn(4, 4)
supplied = []
for sign in (1, -1):
    matched = pygmtools.gamgm(adjacency, w, n_univ=4, U0=start, backend="pytorch")[0, 1]
    supplied.append(torch.autograd.grad(sign * (matched * u).sum(), w)[0])
apart, size = float((supplied[0] - supplied[1]).abs().max()), float(supplied[0].abs().max())
print(
    f"largest element of the gradient of L: supplied {size}; of the gradient of L minus that of -L: supplied {apart}, true (twice the gradient) {2 * size}"
)
raise SystemExit(0 if size > 0 and apart == 0 else 1)
