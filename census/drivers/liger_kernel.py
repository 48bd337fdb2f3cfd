"""liger-kernel: fused Triton kernels for training language models, in Triton's interpreter, and chunked losses in plain torch."""

from census.package import Package

package = Package(
    "liger-kernel",
    "0.8.5",
    family="Triton kernels",
    group="triton",
    modules=["liger_kernel"],
    note="Triton kernels run in Triton's interpreter and in float32. Kernels for other backends (CUDA tile, CuTe, NPU), the mixture of experts and "
    "what needs a process group were not reached.",
)

FAST = {"triton": True, "second_order": False, "seconds": 25}


def _x(*shape):
    import torch

    return torch.randn(*shape)


def _ask(*shape):
    return _x(*shape).requires_grad_()


def _labels():
    import torch

    return torch.tensor([3, 1, 4, 0])


@package.case("tiled MLP, the input alone", seconds=40)
def tiled_mlp():
    import torch
    from liger_kernel.ops.tiled_mlp import apply_tiled_mlp

    mlp = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)).to(torch.float64)
    return lambda x: apply_tiled_mlp(lambda net, part: net(part), mlp, x, 2), torch.randn(2, 4, 3, dtype=torch.float64)


@package.case("cosine similarity distillation, soft and hard loss returned", second_order=False, seconds=40)
def distillation():
    import torch
    from liger_kernel.chunked_loss import LigerFusedLinearCosineSimilarityLoss

    loss = LigerFusedLinearCosineSimilarityLoss(compiled=False, return_soft_hard_loss=True, chunk_size=4)
    return loss, (_ask(6, 4), _ask(5, 4), _x(6, 3), _x(5, 3), torch.tensor([1, 2, 0, 3, 4, 1]))


@package.case("SimPO", second_order=False, seconds=40)
def simpo():
    import torch
    from liger_kernel.chunked_loss import LigerFusedLinearSimPOLoss

    loss = LigerFusedLinearSimPOLoss(compiled=False)
    return lambda w, x, y, b: loss(w, x, y, b)[0], (
        _ask(5, 4),
        _ask(4, 3, 4),
        torch.tensor([[1, 2, 0], [3, 4, -100], [0, 1, 2], [2, 2, 1]]),
        _ask(5),
    )


@package.case("ORPO, uneven cotangent", second_order=False, seconds=40)
def orpo():
    import torch
    from liger_kernel.chunked_loss import LigerFusedLinearORPOLoss

    loss = LigerFusedLinearORPOLoss(compiled=False)
    return lambda w, x, y: loss(w, x, y)[0], (_ask(5, 4), _ask(4, 3, 4), torch.tensor([[1, 2, 0], [3, 4, -100], [0, 1, 2], [2, 2, 1]]))


@package.case("cross entropy, reduction none", **FAST)
def cross_entropy():
    from liger_kernel.transformers.functional import liger_cross_entropy

    return lambda x, y: liger_cross_entropy(x, y, reduction="none"), (_ask(4, 8), _labels())


@package.case("cross entropy, every second column of the logits", triton=True, second_order=False, seconds=90)
def cross_entropy_strided():
    from liger_kernel.transformers.functional import liger_cross_entropy

    return lambda x, y: liger_cross_entropy(x[:, ::2], y), (_ask(4, 12), _labels())


@package.case("fused linear cross entropy, frozen input", **FAST)
def fused_linear_frozen():
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    return liger_fused_linear_cross_entropy, (_x(4, 4), _ask(8, 4), _labels(), _ask(8))


@package.case("kl_div, both arguments", triton=True, second_order=False, seconds=150)
def kl_div():
    from liger_kernel.transformers.functional import liger_kl_div

    return lambda a, b: liger_kl_div(a.log_softmax(-1), b.softmax(-1), reduction="none"), (_x(4, 8), _x(4, 8))


@package.case("swiglu", triton=True, seconds=40)
def swiglu():
    from liger_kernel.transformers.functional import liger_swiglu

    return liger_swiglu, (_x(2, 8), _x(2, 8))


@package.case("geglu", **FAST)
def geglu():
    from liger_kernel.transformers.functional import liger_geglu

    return liger_geglu, (_x(2, 8), _x(2, 8))


@package.case("rms_norm, in place", triton=True, second_order=False, seconds=150)
def rms_norm_in_place():
    from liger_kernel.transformers.functional import liger_rms_norm

    return lambda x, w: liger_rms_norm(x, w, 1e-6), (_x(3, 8), _x(8))


@package.case("poly_norm", triton=True, second_order=False, seconds=150)
def poly_norm():
    import torch
    from liger_kernel.transformers.functional import liger_poly_norm

    return lambda x, w, b: liger_poly_norm(x, w, b, 1e-6, False), (_x(3, 8), _x(3), torch.randn(()))


@package.case("sparsemax, first dimension", **FAST)
def sparsemax():
    from liger_kernel.transformers.functional import liger_sparsemax

    return lambda x: liger_sparsemax(x, 0), _x(7, 2)


package.finding(
    "liger-kernel-strided-logits",
    kind="layout",
    where="liger_kernel/ops/cross_entropy.py:565",
    what="For logits whose last dimension is strided, the kernel writes the gradient into a contiguous copy, and the logits themselves are "
    "supplied as their gradient.",
    size="8 to 11 times the gradient",
    cases=["cross entropy, every second column of the logits"],
)
package.finding(
    "liger-kernel-frozen-input",
    kind="missing gradient",
    where="liger_kernel/ops/fused_linear_cross_entropy.py:89",
    what="fused_linear_cross_entropy computes gradients only if the input needs one: with a frozen input, weight and bias get None.",
    size="all of the gradient of weight and bias",
    cases=["fused linear cross entropy, frozen input"],
)
package.finding(
    "liger-kernel-target-gradient",
    kind="missing gradient",
    where="liger_kernel/ops/kl_div.py:238",
    what="kl_div, jsd and tvd supply no gradient for their second argument, which their torch counterparts differentiate.",
    size="all of the gradient of the target",
    cases=["kl_div, both arguments"],
)
package.finding(
    "liger-kernel-second-backward",
    kind="edits or keeps state",
    where="liger_kernel/ops/swiglu.py:278",
    what="The backwards of swiglu and geglu overwrite the saved arguments with the gradients, so a second backward through the same graph is "
    "wrong and no error is raised.",
    size="all of the second gradient",
    cases=["swiglu", "geglu"],
)
package.finding(
    "liger-kernel-rms-norm-in-place",
    kind="edits or keeps state",
    where="liger_kernel/ops/rms_norm.py:555",
    what="With in_place=True, the default, the backward of rms_norm writes its result into grad_output.",
    size="all of grad_output",
    cases=["rms_norm, in place"],
    documented="docstring of LigerRMSNormFunction: modifies dY in place to save memory; under certain cases it can produce incorrect inputs",
)
package.finding(
    "liger-kernel-soft-hard-loss",
    kind="missing gradient",
    where="liger_kernel/chunked_loss/fused_linear_distillation.py:297",
    what="With return_soft_hard_loss=True the soft and the hard loss are outputs that require a gradient, and the backward leaves their cotangents out.",
    size="all of the gradient of the two losses",
    cases=["cosine similarity distillation, soft and hard loss returned"],
)
package.finding(
    "liger-kernel-tiled-mlp-graph",
    kind="gradient in a configuration",
    where="liger_kernel/ops/tiled_mlp.py:75",
    what="With create_graph=True the shards of the input are not leaves, so their gradients are not collected, and the gradient of the input is zero.",
    size="all of the gradient",
    cases=["tiled MLP, the input alone"],
)
