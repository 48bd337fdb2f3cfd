"""FlashAttention: with create_graph=True its gradient is a constant, so a gradient penalty loses it. pip install memory-efficient-attention-pytorch==0.1.6"""

import torch
from memory_efficient_attention_pytorch.flash_attention import FlashAttentionFunction

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
x, w = torch.randn(1, 2, 5, 3), torch.randn(3, 3)
v = torch.randn(3, 3)


def plain(q, k, v):
    return torch.einsum("bhij,bhjd->bhid", (torch.einsum("bhid,bhjd->bhij", q, k) / 3**0.5).softmax(-1), v)


def second(attention):
    leaf, given = w.clone().requires_grad_(), x.clone().requires_grad_()
    (g,) = torch.autograd.grad(attention(given @ leaf, given, given).square().sum(), given, create_graph=True)
    (h,) = torch.autograd.grad(g.square().sum(), leaf)  # no error is raised
    return float((h * v).sum())


supplied, true = second(lambda *qkv: FlashAttentionFunction.apply(*qkv, None, False, 8, 8)), second(plain)
print(f"derivative of the squared gradient along a direction in the weights: supplied {supplied:.6f}, true {true:.6f}")
raise SystemExit(0 if abs(supplied - true) > 0.01 * abs(true) else 1)
