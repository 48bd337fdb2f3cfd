"""ring-attention-pytorch: ring flash attention in plain torch, here in one process.

The row sums are made in torch's default dtype, so most cases set it to float64 while the function runs.
"""

from census.package import Package

package = Package(
    "ring-attention-pytorch",
    "0.5.20",
    family="sorting, sparse attention and discrete choice",
    group="attention",
    modules=["ring_attention_pytorch"],
    note="The Triton path needs CUDA, and gathering over processes a process group: both were not reached.",
)


def _x(*shape):
    import torch

    return torch.randn(*shape, dtype=torch.float64)


def _ring(**options):
    import torch
    from ring_attention_pytorch.ring_flash_attention import ring_flash_attn

    def called(q, k, v):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return ring_flash_attn(q, k, v, **options)
        finally:
            torch.set_default_dtype(before)

    return called


def _qkv(queries, keys, heads=2, groups=1):
    return _x(1, queries, heads * groups, 3), _x(1, keys, heads, 3), _x(1, keys, heads, 3)


@package.case("attention")
def plain():
    return _ring(bucket_size=3), _qkv(5, 7)


@package.case("causal")
def causal():
    return _ring(causal=True, bucket_size=3), _qkv(6, 6)


@package.case("causal, ragged buckets")
def causal_ragged():
    return _ring(causal=True, bucket_size=4), _qkv(6, 6)


@package.case("causal, more keys than queries in one bucket")
def causal_keys():
    return _ring(causal=True, bucket_size=8), _qkv(3, 6)


@package.case("causal, grouped queries, soft clamp")
def grouped():
    return _ring(causal=True, bucket_size=3, softclamp_qk_sim=True, softclamp_value=2.0), _qkv(6, 6, 2, 2)


@package.case("soft clamp, keys masked")
def clamped_mask():
    import torch

    mask = torch.tensor([[True, False, True, True, False, True]])
    return _ring(mask=mask, bucket_size=3, softclamp_qk_sim=True, softclamp_value=1.0), _qkv(6, 6)


@package.case("a whole bucket of keys masked")
def masked_bucket():
    import torch

    return _ring(mask=torch.tensor([[False, False, True, True, True, False]]), bucket_size=2), _qkv(6, 6)


@package.case("causal, striped")
def striped():
    return _ring(causal=True, bucket_size=3, striped_ring_attn=True), _qkv(6, 6)


@package.case("causal, looking back two positions")
def lookback():
    return _ring(causal=True, bucket_size=2, max_lookback_seq_len=2), _qkv(8, 8)


package.finding(
    "ring-attention-pytorch-causal-lengths",
    kind="gradient in a configuration",
    where="ring_attention_pytorch/ring_flash_attention.py:341",
    what="With causal=True and more keys than queries, the forward shifts the causal mask by the difference of the lengths, and the backward does not.",
    size="83% of the gradient",
    cases=["causal, more keys than queries in one bucket"],
)
package.finding(
    "ring-attention-pytorch-second-derivative",
    kind="second derivative",
    where="ring_attention_pytorch/ring_flash_attention.py:247",
    what="The backward runs without a graph and is not marked once_differentiable, so with create_graph=True its result counts as a "
    "constant, and no error is raised where other terms depend on the same arguments.",
    size="all of the second derivative of the attention",
    cases=["attention", "soft clamp, keys masked", "a whole bucket of keys masked"],
)
package.finding(
    "ring-attention-pytorch-epsilon",
    kind="accuracy",
    where="ring_attention_pytorch/ring_flash_attention.py:202",
    what="Every bucket that the causal mask hides from a row adds 1e-10 to its row sum; the gradient does not account for it.",
    size="1e-10 to 8e-10 of the gradient",
    cases=[
        "causal",
        "causal, ragged buckets",
        "causal, grouped queries, soft clamp",
        "causal, striped",
        "causal, looking back two positions",
    ],
)
