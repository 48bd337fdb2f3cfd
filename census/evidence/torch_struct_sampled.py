"""torch-struct's SampledSemiring: each backward draws a structure; only the mean of many is the gradient. pip install torch-struct==0.5"""

import torch
from torch_struct import LinearChain
from torch_struct.semirings import LogSemiring, SampledSemiring

torch.manual_seed(0)
x = torch.randn(1, 3, 2, 2, dtype=torch.float64, requires_grad=True)
(true,) = torch.autograd.grad(LinearChain(LogSemiring).sum(x).sum(), x)
draws = torch.stack([torch.autograd.grad(LinearChain(SampledSemiring).sum(x).sum(), x)[0] for _ in range(3000)])
one = float((draws[0] - true).norm() / true.norm())
mean = float((draws.mean(0) - true).norm() / true.norm())
print(f"one backward: supplied differs from true by {one:.2f} of the gradient; the mean of 3000 by {mean:.3f}")
print(f"the first two backwards differ: {not torch.equal(draws[0], draws[1]) or not torch.equal(draws[0], draws[2])}")
raise SystemExit(0 if one > 0.1 and mean < 0.1 else 1)
