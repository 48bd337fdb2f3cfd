"""The gradient of the values of a sparse tensor has no second derivative, and no error says so. pip install torch==2.13.0."""

import torch

torch.manual_seed(0)
index = torch.tensor([[0, 0, 1, 2], [0, 2, 1, 0]])
values = torch.randn(4, dtype=torch.float64, requires_grad=True)
dense = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
u, a = torch.randn(3, 2, dtype=torch.float64), torch.randn(4, dtype=torch.float64)


def sparse(v, d):
    return torch.sparse.mm(torch.sparse_coo_tensor(index, v, (3, 3)), d)


def plain(v, d):
    return torch.zeros(3, 3, dtype=torch.float64).index_put((index[0], index[1]), v) @ d


found = {}
for fn in (sparse, plain):
    first = torch.autograd.grad((u * fn(values, dense)).sum(), (values, dense), create_graph=True)
    penalty = (a * first[0]).sum() + first[1].square().sum()
    (second,) = torch.autograd.grad(penalty, dense, allow_unused=True)
    found[fn.__name__] = 0.0 if second is None else float(second.norm())
    print(f"{fn.__name__}: gradient of the values {[round(x, 6) for x in first[0].tolist()]}, differentiable {first[0].requires_grad}")
print(f"second derivative by the dense matrix: supplied norm {found['sparse']:.6f}, true {found['plain']:.6f}")
raise SystemExit(0 if found["sparse"] == 0 and found["plain"] > 0.1 else 1)
