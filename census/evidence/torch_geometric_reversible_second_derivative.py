"""GroupAddRev: second derivatives leave the block out, silently where another term keeps a graph. pip install torch-geometric==2.8.1 torch"""

import torch
from torch_geometric.nn import GroupAddRev

torch.manual_seed(0)


class Layer(torch.nn.Linear):
    def forward(self, x, edge_index):
        return torch.tanh(super().forward(x))


block, edges = GroupAddRev(Layer(2, 2, dtype=torch.float64), num_groups=2), torch.tensor([[0, 1], [1, 2]])
x, u = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)


def plain(x):
    first, second = x.chunk(2, dim=-1)
    above = first + block.convs[0](second, edges)
    return torch.cat([above, second + block.convs[1](above, edges)], dim=-1)


def penalty(fn):
    leaf = x.clone().requires_grad_()
    value = (fn(leaf * 1.0) * u).sum() + (leaf**3).sum()  # the cube keeps a graph of the gradient
    (gradient,) = torch.autograd.grad(value, leaf, create_graph=True)
    return gradient.detach(), torch.autograd.grad(gradient.square().sum(), leaf)[0]


(first, supplied), (same, true) = penalty(lambda x: block(x, edges)), penalty(plain)
off = ((supplied - true).norm() / true.norm()).item()
print(f"gradients within {(first - same).abs().max().item():.1e} of each other")
print(f"gradient of the penalty: supplied {supplied[0, 0]:.6f}, true {true[0, 0]:.6f}; off by {off:.2f} of it")
raise SystemExit(0 if torch.allclose(first, same) and off > 0.01 else 1)
