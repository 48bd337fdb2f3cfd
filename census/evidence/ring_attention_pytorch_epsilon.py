"""ring_flash_attn, causal: hidden buckets add 1e-10 to the row sums, in the value but not in the gradient. pip install ring-attention-pytorch==0.5.20"""

import torch
from ring_attention_pytorch.ring_flash_attention import ring_flash_attn

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
q, k, v, u = (torch.randn(1, 6, 2, 3) for _ in range(4))


def plain(q, k, v, epsilon):
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / 3**0.5
    scores = scores.masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -torch.inf)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    hidden = torch.tensor([1.0] * 3 + [0.0] * 3)[:, None]  # buckets of 3: the first three rows have one hidden bucket
    weights = weights / (weights.sum(-1, keepdim=True) + epsilon * hidden)
    return torch.einsum("bhij,bjhd->bihd", weights, v)


def made(fn):
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    out = fn(*leaves)
    return out.detach(), torch.cat([g.flatten() for g in torch.autograd.grad(out, leaves, u)])


value, supplied = made(lambda *qkv: ring_flash_attn(*qkv, causal=True, bucket_size=3))
with_epsilon, true = made(lambda *qkv: plain(*qkv, 1e-10))
without, _ = made(lambda *qkv: plain(*qkv, 0.0))
print(
    f"value: off from attention with 1e-10 added by {float((value - with_epsilon).abs().max()):.1e}, without it by {float((value - without).abs().max()):.1e}"
)
off = float((supplied - true).norm() / true.norm())
print(f"gradient: supplied and true differ by {off:.1e} of it")
raise SystemExit(0 if off > 1e-11 and (value - with_epsilon).abs().max() < 1e-14 else 1)
