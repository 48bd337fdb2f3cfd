"""apply_tiled_mlp: with create_graph=True the gradient of the input is zero. pip install liger-kernel==0.8.5"""

import torch
from liger_kernel.ops.tiled_mlp import apply_tiled_mlp

torch.manual_seed(0)
mlp = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
x, u = torch.randn(2, 4, 3, requires_grad=True), torch.randn(2, 4, 3)
tiled = apply_tiled_mlp(lambda net, part: net(part), mlp, x, 2)
(true,) = torch.autograd.grad(mlp(x), x, u)
off = []
for graph in (False, True):
    (supplied,) = torch.autograd.grad(tiled, x, u, create_graph=graph, retain_graph=True)
    off.append(float((supplied - true).norm() / true.norm()))
    print(f"create_graph={graph}: supplied {supplied.flatten()[:3].tolist()}, true {true.flatten()[:3].tolist()}; off by {off[-1]:.1e}")
raise SystemExit(0 if off[0] < 1e-5 and off[1] > 0.1 else 1)
