"""memory-efficient-attention-pytorch: flash attention in plain torch, with two backwards written by hand, and a reversible sequence.

The row sums of both are made in torch's default dtype, so most cases set it to float64 while the function runs.
"""

from census.package import Package

package = Package(
    "memory-efficient-attention-pytorch",
    "0.1.6",
    family="sorting, sparse attention and discrete choice",
    group="attention",
    modules=["memory_efficient_attention_pytorch"],
)


def _x(*shape):
    import torch

    return torch.randn(*shape, dtype=torch.float64)


def _double(fn):
    """With float64 as torch's default."""
    import torch

    def called(*args):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return fn(*args)
        finally:
            torch.set_default_dtype(before)

    return called


def _flash(mask=None, causal=False, q=4, k=4):
    from memory_efficient_attention_pytorch.flash_attention import FlashAttentionFunction

    return _double(lambda *qkv: FlashAttentionFunction.apply(*qkv, mask, causal, q, k))


def _cosine(mask=None, scale=16, causal=False, q=4, k=4):
    import torch
    from memory_efficient_attention_pytorch.cosine_sim_flash_attention import FlashAttentionFunction

    def called(a, b, v):
        a, b = (torch.nn.functional.normalize(t, dim=-1) for t in (a, b))
        return FlashAttentionFunction.apply(a, b, v, mask, scale, causal, q, k)

    return _double(called)


def _qkv(queries, keys):
    return _x(1, 2, queries, 3), _x(1, 2, keys, 3), _x(1, 2, keys, 3)


@package.case("flash attention")
def flash():
    return _flash(), _qkv(6, 7)


@package.case("flash attention, causal", second_order=False, seconds=40)
def flash_causal():
    return _flash(causal=True), _qkv(7, 7)


@package.case("flash attention, causal, more keys than queries", second_order=False, seconds=40)
def flash_causal_keys():
    return _flash(causal=True, q=8, k=8), _qkv(4, 6)


@package.case("flash attention, keys masked", second_order=False, seconds=40)
def flash_mask():
    import torch

    return _flash(torch.tensor([[True, True, False, True, True, False, False]])), _qkv(6, 7)


@package.case("flash attention, a whole bucket of keys masked", second_order=False, seconds=40)
def flash_mask_bucket():
    import torch

    return _flash(torch.tensor([[False, False, True, True, True, False, False]]), q=2, k=2), _qkv(5, 7)


@package.case("flash attention, causal, first key masked", second_order=False, seconds=40)
def flash_causal_padded():
    import torch

    return _flash(torch.tensor([[False, True, True, True, True]]), causal=True, q=8, k=8), _qkv(5, 5)


@package.case("cosine similarity flash attention", second_order=False, seconds=40)
def cosine():
    return _cosine(scale=4), _qkv(6, 7)


@package.case("cosine similarity flash attention, causal, scale 16", second_order=False, seconds=40)
def cosine_causal_default():
    return _cosine(causal=True), _qkv(6, 6)


def _reversible(train):
    import torch
    from memory_efficient_attention_pytorch.reversible import ReversibleSequence

    nets = [
        (torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()), torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()))
        for _ in range(2)
    ]
    return ReversibleSequence(torch.nn.ModuleList([torch.nn.ModuleList(pair) for pair in nets])).to(torch.float64).train(train)


@package.case("ReversibleSequence in training, the input alone", second_order=False, seconds=40)
def reversible():
    module = _reversible(True)
    return lambda x: module(x), _x(1, 2, 3)


@package.case("ReversibleSequence in training")
def reversible_parameters():
    return _reversible(True), _x(1, 2, 3)


@package.case("ReversibleSequence in evaluation")
def reversible_evaluation():
    module = _reversible(False)
    return lambda x: module(x), _x(1, 2, 3)


package.finding(
    "memory-efficient-attention-pytorch-hidden-rows",
    kind="gradient in a configuration",
    where="memory_efficient_attention_pytorch/flash_attention.py:158",
    what="A row that the causal mask hides from every key averages the values in the forward, and the backward gives each of them the weight "
    "1 in place of 1/n.",
    size="a factor of the number of keys in such rows",
    cases=["flash attention, causal, more keys than queries", "flash attention, causal, first key masked"],
)
package.finding(
    "memory-efficient-attention-pytorch-cosine-clamp",
    kind="gradient at special states",
    where="memory_efficient_attention_pytorch/cosine_sim_flash_attention.py:79",
    what="Row sums are clamped at 1e-6, which happens at the default scale where a row sees few keys with a cosine below 0.13; there the "
    "value is too small, and the gradient treats the clamp as if it were not there.",
    size="15% of the gradient of such a row",
    cases=["cosine similarity flash attention, causal, scale 16"],
)
package.finding(
    "memory-efficient-attention-pytorch-epsilon",
    kind="accuracy",
    where="memory_efficient_attention_pytorch/flash_attention.py:91",
    what="Every bucket that a mask hides from a row adds 1e-10 to its row sum; the gradient does not account for it.",
    size="2e-10 of the gradient",
    cases=["flash attention, causal", "flash attention, a whole bucket of keys masked"],
)
package.finding(
    "memory-efficient-attention-pytorch-second-derivative",
    kind="second derivative",
    where="memory_efficient_attention_pytorch/flash_attention.py:115",
    what="The backward runs without a graph and is not marked once_differentiable, so with create_graph=True its result counts as a "
    "constant, and no error is raised where other terms depend on the same arguments.",
    size="all of the second derivative of the attention",
    cases=["flash attention"],
)
package.finding(
    "memory-efficient-attention-pytorch-reversible-second-derivative",
    kind="second derivative",
    where="memory_efficient_attention_pytorch/reversible.py:119",
    what="The backward of the reversible sequence returns tensors without a graph and is not marked once_differentiable, so with "
    "create_graph=True its result counts as a constant.",
    size="all of the second derivative",
    cases=["ReversibleSequence in training"],
)
package.finding(
    "memory-efficient-attention-pytorch-reversible-evaluation",
    kind="missing gradient",
    where="memory_efficient_attention_pytorch/reversible.py:47",
    what="A backward of a sequence that has only been used in evaluation mode raises an error, because the random state that it restores is "
    "recorded in training mode alone.",
    size="an error in place of the gradient",
    cases=["ReversibleSequence in evaluation"],
)
