"""ring_flash_attn, causal, more keys than queries: the backward masks other keys than the forward. pip install ring-attention-pytorch==0.5.20"""

import torch
from ring_attention_pytorch.ring_flash_attention import ring_flash_attn

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
q, k, v, u = torch.randn(1, 3, 2, 3), torch.randn(1, 6, 2, 3), torch.randn(1, 6, 2, 3), torch.randn(1, 3, 2, 3)


def plain(q, k, v):
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / 3**0.5
    hidden = torch.ones(3, 6, dtype=torch.bool).triu(1 + 3)  # query i sees keys up to i + 3
    return torch.einsum("bhij,bjhd->bihd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)


def gradients(fn):
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    out = fn(*leaves)
    return out.detach(), torch.autograd.grad(out, leaves, u)


value, supplied = gradients(lambda *qkv: ring_flash_attn(*qkv, causal=True, bucket_size=8))
same, true = gradients(plain)
print(f"the values agree to {float((value - same).abs().max()):.1e}")
for name, s, t in zip("qkv", supplied, true, strict=True):
    print(f"gradient of {name}: supplied and true differ by {float((s - t).norm() / t.norm()):.3f} of it")
print(f"first elements for q: supplied {supplied[0].flatten()[:3].tolist()}, true {true[0].flatten()[:3].tolist()}")
raise SystemExit(0 if (value - same).abs().max() < 1e-8 and (supplied[0] - true[0]).norm() > 0.05 * true[0].norm() else 1)
