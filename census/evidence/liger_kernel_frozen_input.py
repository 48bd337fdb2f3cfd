"""liger_fused_linear_cross_entropy with an input that needs no gradient. In Triton's interpreter; pip install liger-kernel==0.8.5 triton"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

torch.manual_seed(0)
x, y = torch.randn(4, 4), torch.tensor([3, 1, 4, 0])
w, b = torch.randn(8, 4, requires_grad=True), torch.randn(8, requires_grad=True)
loss = liger_fused_linear_cross_entropy(x, w, y, b)
same = torch.nn.functional.cross_entropy(x @ w.T + b, y)
supplied = torch.autograd.grad(loss, [w, b], allow_unused=True)
true = torch.autograd.grad(same, [w, b])
print(f"values {float(loss.detach()):.6f} and {float(same.detach()):.6f}")
wrong = 0
for name, s, t in zip(("weight", "bias"), supplied, true, strict=True):
    wrong += s is None or bool((s - t).norm() > 0.1 * t.norm())
    print(f"gradient of {name}: supplied {None if s is None else float(s.norm())}, true {float(t.norm()):.6f} (lengths)")
raise SystemExit(0 if wrong else 1)
