"""Second derivatives of logcumsumexp lose digits next to a large element. pip install torch==2.13.0."""

import torch

torch.manual_seed(1)
x = torch.tensor([-0.5, 2.0, 700.0, -3.0], dtype=torch.float64, requires_grad=True)


def plain(x):
    return torch.stack([x[: i + 1].logsumexp(0) for i in range(4)])


worst = [0.0, 0.0]
for _ in range(200):
    u, a = torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    found = []
    for fn in (lambda x: x.logcumsumexp(0), plain):
        (first,) = torch.autograd.grad((u * fn(x)).sum(), x, create_graph=True)
        found.append((first.detach(), torch.autograd.grad((first * a).sum(), x)[0]))
    for k, (supplied, true) in enumerate(zip(*found, strict=True)):
        worst[k] = max(worst[k], float((supplied - true).norm() / true.norm()))
print(
    f"supplied by logcumsumexp, true by logsumexp of each beginning: gradient off by up to {worst[0]:.1e}, second derivative by up to {worst[1]:.1e}"
)
raise SystemExit(0 if worst[1] > 1e-12 else 1)
