"""ApplyMask of torchao's supermask computes weight * scores, and passes grad_output to both as it is, without the other factor.

pip install torchao==0.18.0
"""

import torch
from torchao.sparsity.supermask import ApplyMask

torch.manual_seed(0)
w = torch.randn(4, dtype=torch.float64, requires_grad=True)
m = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64, requires_grad=True)  # a mask, as SupermaskLinear makes it
supplied = torch.autograd.grad(ApplyMask.apply(w, m).sum(), (w, m))
true = torch.autograd.grad((w * m).sum(), (w, m))
for name, s, t in zip(("weight", "scores"), supplied, true, strict=True):
    print(f"{name}: supplied {[round(g, 4) for g in s.tolist()]}, true {[round(g, 4) for g in t.tolist()]}")
borne_out = all((s == 1).all() for s in supplied) and torch.equal(true[0], m) and torch.equal(true[1], w)
raise SystemExit(0 if borne_out else 1)
