"""Cosine-similarity FlashAttention, scale 16: row sums are clamped at 1e-6, and the gradient knows nothing of it.

pip install memory-efficient-attention-pytorch==0.1.6"""

import torch
from memory_efficient_attention_pytorch.cosine_sim_flash_attention import FlashAttentionFunction
from torch.nn.functional import normalize

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
q = normalize(torch.tensor([[[[1.0, 0.0, 0.1], [0.3, 1.0, 0.0]]]]), dim=-1)
k = normalize(torch.tensor([[[[0.0, 1.0, 0.2], [1.0, 0.1, 0.1]]]]), dim=-1)  # the first query sees the first key alone: cosine 0.02
v, u = torch.randn(1, 1, 2, 3), torch.randn(1, 1, 2, 3)


def attended(q):
    return FlashAttentionFunction.apply(q, k, v, None, 16, True, 8, 8)


leaf = q.clone().requires_grad_()
out = attended(leaf)
(supplied,) = torch.autograd.grad(out, leaf, u)
true = torch.zeros(3)
for i in range(3):
    e = torch.zeros_like(q)
    e[0, 0, 0, i] = 1.0
    coarse, fine = (float(((attended(q + h * e) - attended(q - h * e)) * u).sum()) / (2 * h) for h in (1e-4, 5e-5))
    true[i] = (4 * fine - coarse) / 3
print(f"first row: value {out[0, 0, 0].tolist()}; softmax over its single key would give {v[0, 0, 0].tolist()}")
print(f"gradient of the first query: supplied {supplied[0, 0, 0].tolist()}, true {true.tolist()}")
raise SystemExit(0 if (supplied[0, 0, 0] - true).norm() > 0.1 * true.norm() else 1)
