"""FlashAttention, causal: rows that see no key average all values, and their gradient is n times too large.

pip install memory-efficient-attention-pytorch==0.1.6"""

import torch
from memory_efficient_attention_pytorch.flash_attention import FlashAttentionFunction

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


def compared(q, k, v, mask):
    u = torch.randn(q.shape)
    leaf = v.clone().requires_grad_()
    out = FlashAttentionFunction.apply(q, k, leaf, mask, True, 8, 8)
    (supplied,) = torch.autograd.grad(out, leaf, u)
    true = torch.zeros_like(v)
    for i in range(v.numel()):  # the value is linear in v: one difference is exact
        e = torch.zeros_like(v)
        e.view(-1)[i] = 1.0
        true.view(-1)[i] = ((FlashAttentionFunction.apply(q, k, v + e, mask, True, 8, 8) - out.detach()) * u).sum()
    return supplied, true, out.detach()


wrong = 0
q, k, v = torch.randn(1, 1, 4, 3), torch.randn(1, 1, 6, 3), torch.randn(1, 1, 6, 3)
padded = torch.tensor([[False, True, True, True, True, True]])
for name, given in (("4 queries, 6 keys", (q, k, v, None)), ("6 queries, first of 6 keys masked", (torch.randn(1, 1, 6, 3), k, v, padded))):
    supplied, true, out = compared(*given)
    off = float((supplied - true).norm() / true.norm())
    wrong += off > 0.1
    print(
        f"{name}: gradient of v supplied {float(supplied.norm()):.4f} long, true {float(true.norm()):.4f}; they differ by {off:.2f} of it"
    )
    print(f"  first output {out[0, 0, 0].tolist()}, mean of the visible values {v[0, 0, 1 if name[0] == '6' else 0 :].mean(0).tolist()}")
raise SystemExit(0 if wrong == 2 else 1)
