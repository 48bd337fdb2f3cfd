"""torch: its own derivatives on the CPU, at the options, borders and degenerate states that ordinary tests leave out."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from census.package import Package

package = Package(
    "torch",
    "2.13.0",
    family="torch",
    group="torch",
    modules=["torch.distributions", "torch.nn", "torch.utils", "torch.autograd"],
    note="The CPU build. Most of its backwards are written in C++ and are reached as they are. flex_attention has no backward on the CPU.",
)
case = package.case
D = torch.float64


def randn(*shape):
    """Random numbers of the case's own seed."""
    return torch.randn(*shape, dtype=D)


def rand(*shape):
    """The same, between 0.1 and 0.9."""
    return torch.rand(*shape, dtype=D) * 0.8 + 0.1


def asked(*tensors):
    """Tensors to differentiate by; the others stay fixed."""
    return tuple(t.requires_grad_() for t in tensors)


# Special functions
case("digamma")(lambda: (torch.special.digamma, torch.tensor([1.07461, 1.22275, 2.3, 5.1], dtype=D)))
case("lgamma, second derivative")(lambda: (torch.lgamma, torch.tensor([9.0124481, 1.4, 3.2], dtype=D)))
case("multigammaln")(lambda: (lambda x: torch.special.multigammaln(x, 3), torch.tensor([10.162399, 4.2], dtype=D)))
case("polygamma of order 1")(lambda: (lambda x: torch.special.polygamma(1, x), torch.tensor([1.92422, 2.00775, 0.7], dtype=D)))
case("beta's log density")(
    lambda: (lambda a, b, x: torch.distributions.Beta(a, b, validate_args=False).log_prob(x), (rand(4) + 1, rand(4) + 1, rand(4)))
)
case("log ndtr in the tail")(lambda: (torch.special.log_ndtr, torch.tensor([-30.0, -8.0, -1.0, -0.999, 0.0, 3.0], dtype=D)))
case("ndtri near its ends")(lambda: (torch.special.ndtri, torch.tensor([1e-6, 0.02, 0.5, 0.97], dtype=D)))
case("erfcx")(lambda: (torch.special.erfcx, torch.tensor([-2.0, 0.0, 3.0, 60.0], dtype=D)))
case("sinc at and near zero")(lambda: (torch.sinc, torch.tensor([0.0, 1e-3, 1e-5, 0.5, 2.0], dtype=D)))
case("i1e near zero")(lambda: (torch.special.i1e, torch.tensor([1e-4, 1e-9, 0.5, 9.0], dtype=D)))
case("i1 near zero")(lambda: (torch.special.i1, torch.tensor([1e-9, 1e-4, 0.5, 9.0], dtype=D)))
case("zeta")(lambda: (lambda q: torch.special.zeta(3.0, q), torch.tensor([0.3, 1.0, 4.5], dtype=D)))
case("xlogy at zero")(lambda: (torch.xlogy, (torch.tensor([0.0, 0.4, 2.0], dtype=D), torch.tensor([0.5, 0.2, 3.0], dtype=D))))
case("logcumsumexp after minus infinity")(
    lambda: (
        lambda x: torch.cat((torch.full((1,), -math.inf, dtype=D), x)).logcumsumexp(0)[1:],
        torch.tensor([-0.5, 2.0, 700.0, -3.0], dtype=D),
    )
)
case("logsumexp of a masked row")(
    lambda: (lambda x: x.masked_fill(torch.tensor([[True, False, True], [False, False, True]]), -math.inf).logsumexp(1), randn(2, 3))
)
case("atan2 and hypot at an axis")(lambda: (lambda x, y: (torch.atan2(x, y), torch.hypot(x, y)), (torch.zeros(3, dtype=D), rand(3))))
case("float power of zero")(lambda: (lambda x: torch.float_power(x, 2.0), torch.tensor([0.0, 0.5, -1.5], dtype=D)))
case("logit with eps")(lambda: (lambda p: torch.logit(p, eps=0.1), torch.tensor([0.05, 0.3, 0.8, 0.95], dtype=D)))

# Losses
case("binary cross entropy")(
    lambda: (
        lambda p, t: F.binary_cross_entropy(p, t, reduction="none"),
        (torch.tensor([0.9230477, 0.3, 0.02], dtype=D).requires_grad_(), torch.tensor([0.57320683, 0.2, 0.9], dtype=D)),
    )
)
case("binary cross entropy, gradient of the target")(lambda: (lambda p, t: F.binary_cross_entropy(p, t), (rand(5), rand(5))))
case("bce with logits, positive weights")(
    lambda: (
        lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, pos_weight=w, reduction="none"),
        (*asked(torch.tensor([[-40.0, 0.0, 2.0], [50.0, 1e-5, -1.0]], dtype=D), rand(2, 3)), rand(3)),
    )
)
case("cross entropy, smoothing, weight and ignored rows")(
    lambda: (
        lambda x, t, w: F.cross_entropy(x, t, weight=w, ignore_index=1, label_smoothing=0.2),
        (*asked(randn(2, 4, 3)), torch.tensor([[0, 1, 3], [2, 2, 1]]), rand(4)),
    )
)
case("cross entropy, smoothing, weight, ignored rows, unreduced")(
    lambda: (
        lambda x, t, w: F.cross_entropy(x, t, weight=w, ignore_index=-100, label_smoothing=0.2, reduction="none"),
        (*asked(randn(5, 4)), torch.tensor([0, -100, 3, 2, 2]), rand(4)),
    )
)
case("cross entropy of probabilities, weight")(
    lambda: (lambda x, t, w: F.cross_entropy(x, t, weight=w, reduction="none"), (*asked(randn(5, 4), rand(5, 4)), rand(4)))
)
case("nll loss of images, weight, unreduced")(
    lambda: (
        lambda x, t, w: F.nll_loss(x, t, weight=w, ignore_index=0, reduction="none"),
        (*asked(randn(2, 3, 2, 2)), torch.tensor([[[0, 1], [2, 2]], [[1, 1], [0, 2]]]), rand(3)),
    )
)
case("ctc loss of log softmax, unreduced")(
    lambda: (
        lambda x: F.ctc_loss(
            x.log_softmax(-1), torch.tensor([[1, 2, 2], [3, 1, 0]]), torch.tensor([6, 5]), torch.tensor([3, 2]), reduction="none"
        ),
        randn(6, 2, 4),
    )
)
case("ctc loss of log softmax, an impossible target, zero infinity")(
    lambda: (
        lambda x: F.ctc_loss(
            x.log_softmax(-1), torch.tensor([[1, 2, 2], [3, 1, 0]]), torch.tensor([3, 5]), torch.tensor([3, 2]), zero_infinity=True
        ),
        randn(6, 2, 4),
    )
)
case("ctc loss of log softmax, an empty target")(
    lambda: (
        lambda x: F.ctc_loss(x.log_softmax(-1), torch.tensor([1, 2]), torch.tensor([4, 5]), torch.tensor([0, 2]), reduction="sum"),
        randn(5, 2, 4),
    )
)
case("ctc loss of its own argument")(
    lambda: (
        lambda x: F.ctc_loss(x, torch.tensor([[1, 2, 2], [3, 1, 0]]), torch.tensor([6, 5]), torch.tensor([3, 2]), reduction="none"),
        randn(6, 2, 4).log_softmax(-1),
    )
)
case(
    "gaussian nll below eps",
    intent="clamped-straight-through",
    why_intended="torch.nn.GaussianNLLLoss: the clamping of var is ignored with respect to autograd, and so the gradients are unaffected by it",
)(
    lambda: (
        lambda x, y, v: F.gaussian_nll_loss(x, y, v, full=True, eps=0.1, reduction="none"),
        (randn(4), randn(4), torch.tensor([0.02, 0.5, 1.0, 0.05], dtype=D)),
    )
)
case("gaussian nll, one variance")(
    lambda: (lambda x, y, v: F.gaussian_nll_loss(x, y, v, reduction="none"), (randn(4, 3), randn(4, 3), rand(4)))
)
case("poisson nll, full")(
    lambda: (
        lambda x, y: F.poisson_nll_loss(x, y, full=True, reduction="none"),
        (*asked(randn(4)), torch.tensor([0.0, 0.5, 2.0, 7.0], dtype=D)),
    )
)
case("poisson nll of rates, gradient of the target")(
    lambda: (
        lambda x, y: F.poisson_nll_loss(x, y, full=True, log_input=False, reduction="none"),
        (rand(4), torch.tensor([0.2, 0.5, 2.0, 7.0], dtype=D)),
    )
)
case("kl div, target with zeros")(
    lambda: (
        lambda x, t: F.kl_div(x, t, reduction="none"),
        (*asked(randn(3, 3)), torch.tensor([[0.0, 1, 0], [0.2, 0.3, 0.5], [0, 0, 1]], dtype=D)),
    )
)
case("kl div, both arguments")(lambda: (lambda x, t: F.kl_div(x, t, reduction="batchmean"), (randn(3, 4), rand(3, 4))))
case("kl div, log target, both arguments")(
    lambda: (lambda x, t: F.kl_div(x, t, log_target=True, reduction="none"), (randn(3, 4), randn(3, 4)))
)
case("huber, weighted, both sides of delta")(
    lambda: (
        lambda x, y: F.huber_loss(x, y, delta=0.3, reduction="none"),
        (torch.tensor([0.1, -0.2, 2.0, -1.5], dtype=D), torch.zeros(4, dtype=D)),
    )
)
case("smooth l1 with beta 0")(lambda: (lambda x, y: F.smooth_l1_loss(x, y, beta=0.0, reduction="none"), (randn(4), randn(4))))
case("cosine embedding")(
    lambda: (
        lambda x, y: F.cosine_embedding_loss(x, y, torch.tensor([1, -1, -1]), margin=0.1, reduction="none"),
        (randn(3, 4), randn(3, 4)),
    )
)
case("cosine similarity of a short vector")(lambda: (lambda x, y: F.cosine_similarity(x, y, eps=0.5), (randn(3, 4) * 0.1, randn(3, 4))))
case("cosine similarity of a zero vector")(
    lambda: (lambda x, y: F.cosine_similarity(x, y), (torch.cat((torch.zeros(1, 3, dtype=D), randn(1, 3))), randn(2, 3)))
)
case("multi margin, weight, p = 2")(
    lambda: (
        lambda x, w: F.multi_margin_loss(x, torch.tensor([0, 2, 1]), p=2, margin=0.7, weight=w, reduction="none"),
        (*asked(randn(3, 4)), rand(4)),
    )
)
case("multilabel margin")(
    lambda: (lambda x: F.multilabel_margin_loss(x, torch.tensor([[3, 0, -1, 1], [1, -1, 0, 2]]), reduction="none"), randn(2, 4))
)
case("triplet margin, swapped, p = 1")(
    lambda: (lambda a, p, n: F.triplet_margin_loss(a, p, n, p=1.0, swap=True, reduction="none"), (randn(3, 4), randn(3, 4), randn(3, 4)))
)
case("soft margin, large arguments")(
    lambda: (
        lambda x: F.soft_margin_loss(x, torch.tensor([1.0, -1, 1, -1], dtype=D), reduction="none"),
        torch.tensor([-60.0, 60.0, 0.2, 0.1], dtype=D),
    )
)
case("adaptive log softmax")(
    lambda: (
        (lambda m: lambda x: m(x, torch.tensor([0, 7, 3, 9])).output)(nn.AdaptiveLogSoftmaxWithLoss(6, 10, [3, 6]).double()),
        randn(4, 6),
    )
)

# Embeddings
case("embedding, padding row")(lambda: (lambda w: F.embedding(torch.tensor([0, 2, 1, 2]), w, padding_idx=2), randn(4, 3)))
case("embedding, scaled by frequency")(
    lambda: (lambda w: F.embedding(torch.tensor([0, 2, 1, 2, 2]), w, scale_grad_by_freq=True), randn(4, 3))
)
case("embedding, norm capped")(lambda: (lambda w: F.embedding(torch.tensor([0, 2, 1]), w.clone(), max_norm=0.5), randn(4, 3)))
case("embedding bag, weights of samples")(
    lambda: (
        lambda w, s: F.embedding_bag(torch.tensor([0, 2, 1, 2, 3]), w, torch.tensor([0, 2, 2]), mode="sum", per_sample_weights=s),
        (randn(4, 3), rand(5)),
    )
)
case("embedding bag, weights of samples, padding row")(
    lambda: (
        lambda w, s: F.embedding_bag(torch.tensor([0, 2, 1, 3]), w, torch.tensor([0, 2]), mode="sum", per_sample_weights=s, padding_idx=2),
        (randn(4, 3), rand(4)),
    )
)
case("embedding bag, largest, an empty bag")(
    lambda: (lambda w: F.embedding_bag(torch.tensor([0, 2, 1, 2]), w, torch.tensor([0, 2, 2]), mode="max"), randn(4, 3))
)
case("embedding bag, mean, last offset")(
    lambda: (
        lambda w: F.embedding_bag(torch.tensor([0, 2, 1, 2]), w, torch.tensor([0, 1, 4]), mode="mean", include_last_offset=True),
        randn(4, 3),
    )
)

# Images
case("grid sample on borders, zeros")(
    lambda: (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        (randn(1, 2, 3, 4), torch.tensor([[[[-0.97, 0.1], [0.3, 0.95], [1.4, -1.2]]]], dtype=D)),
    )
)
case("grid sample beyond the border, reflected, aligned")(
    lambda: (
        lambda x, g: F.grid_sample(x, g, padding_mode="reflection", align_corners=True),
        (randn(1, 2, 3, 4), torch.tensor([[[[-1.37, 0.1], [0.3, 2.75], [4.4, -1.2]]]], dtype=D)),
    )
)
case("grid sample beyond the border, bicubic, border")(
    lambda: (
        lambda x, g: F.grid_sample(x, g, mode="bicubic", padding_mode="border", align_corners=False),
        (randn(1, 2, 5, 4), torch.tensor([[[[-1.37, 0.1], [0.31, 0.75], [0.97, -1.2]]]], dtype=D)),
    )
)
case("grid sample of volumes, reflected off their ends")(
    lambda: (
        lambda x, g: F.grid_sample(x, g, padding_mode="reflection", align_corners=False),
        (randn(1, 1, 3, 4, 2), torch.tensor([[[[[-1.37, 0.1, 0.3], [0.3, 2.65, -1.9]]]]], dtype=D)),
    )
)
case("interpolate, bicubic, antialiased, smaller")(
    lambda: (lambda x: F.interpolate(x, (3, 4), mode="bicubic", antialias=True, align_corners=False), randn(1, 2, 7, 5))
)
case("interpolate, bicubic, aligned, larger")(
    lambda: (lambda x: F.interpolate(x, (7, 9), mode="bicubic", align_corners=True), randn(1, 2, 3, 4))
)
case("interpolate, by a given factor")(
    lambda: (lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=False), randn(1, 2, 3, 4))
)
case("interpolate, nearest exact, channels last")(
    lambda: (lambda x: F.interpolate(x, scale_factor=0.6, mode="nearest-exact"), randn(1, 4, 5, 7).to(memory_format=torch.channels_last))
)
case("max pool with overlaps")(lambda: (lambda x: F.max_pool2d(x, 3, 1, padding=1, dilation=1, ceil_mode=True), randn(1, 2, 4, 5)))
case("average pool, padding not counted")(
    lambda: (lambda x: F.avg_pool2d(x, 3, 2, padding=1, ceil_mode=True, count_include_pad=False), randn(1, 2, 6, 5))
)
case("lp pool with zeros")(lambda: (lambda x: F.lp_pool1d(x, 3.0, 2), torch.tensor([[[0.0, 0.0, 1.0, -2.0, 0.5, 0.0]]], dtype=D)))
case("max unpool")(lambda: (lambda x: F.max_unpool2d(x, torch.tensor([[[[0, 3], [10, 15]]]]), 2), randn(1, 1, 2, 2)))
case("convolution, same padding, even kernel")(
    lambda: (lambda x, w, b: F.conv2d(x, w, b, padding="same", dilation=2), (randn(2, 3, 5, 4), randn(2, 3, 2, 4), randn(2)))
)
case("transposed convolution, groups, output padding")(
    lambda: (
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=3, padding=1, output_padding=2, groups=2, dilation=2),
        (randn(2, 4, 3, 2), randn(4, 1, 2, 3), randn(2)),
    )
)
case("affine grid and grid sample")(
    lambda: (
        lambda x, t: F.grid_sample(x, F.affine_grid(t, [1, 1, 3, 3], align_corners=False), align_corners=False),
        (randn(1, 1, 4, 4), randn(1, 2, 3) * 0.4),
    )
)
case("reflection pad of volumes")(lambda: (lambda x: F.pad(x, (1, 2, 1, 1, 0, 1), mode="reflect"), randn(1, 1, 3, 3, 4)))

# Normalisation
case("batch norm in evaluation, contiguous weight")(
    lambda: (
        lambda x, w, b: F.batch_norm(x, torch.arange(3.0, dtype=D), torch.arange(1.0, 4.0, dtype=D), w, b),
        (randn(4, 3, 5), rand(3), randn(3)),
    )
)
case("batch norm in training, weight a column of a matrix")(
    lambda: (lambda x, w, b: F.batch_norm(x, None, None, w[:, 0], b[:, 1], training=True), (randn(4, 3, 5), rand(3, 2), randn(3, 2)))
)
case("batch norm in training, images, weight a column of a matrix")(
    lambda: (lambda x, w, b: F.batch_norm(x, None, None, w[:, 0], b[:, 1], training=True), (randn(4, 3, 2, 2), rand(3, 2), randn(3, 2)))
)
case("batch norm in evaluation, weight a column of a matrix")(
    lambda: (
        lambda x, w, b: F.batch_norm(x, torch.arange(3.0, dtype=D), torch.arange(1.0, 4.0, dtype=D), w[:, 0], b[:, 1]),
        (randn(4, 3, 5), rand(3, 2), randn(3, 2)),
    )
)
case("batch norm in evaluation, weight expanded")(
    lambda: (
        lambda x, w: F.batch_norm(x, torch.arange(3.0, dtype=D), torch.arange(1.0, 4.0, dtype=D), w.expand(3)),
        (randn(4, 3, 5), rand(1)),
    )
)
case("batch norm of two dimensions, weight a column of a matrix")(
    lambda: (lambda x, w, b: F.batch_norm(x, None, None, w[:, 0], b[:, 1], training=True), (randn(5, 3), rand(3, 2), randn(3, 2)))
)
case("batch norm of channels last, weight a column of a matrix")(
    lambda: (
        lambda x, w, b: F.batch_norm(x.contiguous(memory_format=torch.channels_last), None, None, w[:, 0], b[:, 1], training=True),
        (randn(4, 3, 2, 2), rand(3, 2), randn(3, 2)),
    )
)
case("matrix exponential in float32")(lambda: (torch.linalg.matrix_exp, torch.randn(4, 4) * 0.3))
case("group norm, weight a column of a matrix")(
    lambda: (lambda x, w, b: F.group_norm(x, 2, w[:, 0], b[:, 1]), (randn(3, 4, 5), rand(4, 2), randn(4, 2)))
)
case("layer norm, weight a column of a matrix")(
    lambda: (lambda x, w, b: F.layer_norm(x, (5,), w[:, 0], b[:, 1]), (randn(3, 5), rand(5, 2), randn(5, 2)))
)
case("rms norm, weight a column of a matrix, no eps")(lambda: (lambda x, w: F.rms_norm(x, (5,), w[:, 0]), (randn(3, 5), rand(5, 2))))
case("instance norm with running statistics")(
    lambda: (
        lambda x, w: F.instance_norm(x, torch.zeros(3, dtype=D), torch.ones(3, dtype=D), w, use_input_stats=False),
        (randn(2, 3, 4), rand(3)),
    )
)
case("normalize, a row shorter than eps")(lambda: (lambda x: F.normalize(x, eps=0.5), torch.cat((randn(2, 3) * 0.05, randn(2, 3)))))
case("weight norm")(lambda: (nn.utils.parametrizations.weight_norm(nn.Linear(3, 4).double()), randn(2, 3)))
case("orthogonal, by Cayley's map")(
    lambda: (nn.utils.parametrizations.orthogonal(nn.Linear(3, 3).double(), orthogonal_map="cayley"), randn(2, 3))
)
case("orthogonal, by the exponential")(
    lambda: (nn.utils.parametrizations.orthogonal(nn.Linear(4, 3).double(), orthogonal_map="matrix_exp"), randn(2, 4))
)
case("orthogonal, by reflections")(
    lambda: (nn.utils.parametrizations.orthogonal(nn.Linear(4, 3).double(), orthogonal_map="householder"), randn(2, 4))
)

# Linear algebra
case("eigenvectors of a symmetric matrix, as a projector")(
    lambda: (lambda a: (lambda v: v[..., :2] @ v[..., :2].mT)(torch.linalg.eigh(a + a.mT).eigenvectors), randn(4, 4))
)
case("eigenvalues that repeat, summed")(
    lambda: (
        lambda a: torch.linalg.eigvalsh(a @ a.mT + torch.eye(4, dtype=D)).log().sum(),
        torch.diag(torch.tensor([1.0, 1, 2, 2], dtype=D)),
    )
)
case("svd, low rank part")(
    lambda: (lambda a: (lambda u, s, v: u[:, :2] * s[:2] @ v[:2])(*torch.linalg.svd(a, full_matrices=False)), randn(4, 3))
)
case("svd of a wide matrix, full")(lambda: (lambda a: (lambda u, s, v: (u * s) @ v[:3])(*torch.linalg.svd(a)), randn(3, 5)))
case("nuclear norm of a matrix of low rank")(lambda: (lambda a, b: torch.linalg.matrix_norm(a @ b, "nuc"), (randn(4, 1), randn(1, 4))))
case("nuclear norm of a matrix")(lambda: (lambda a: torch.linalg.matrix_norm(a, "nuc"), randn(3, 4)))
case("spectral norm, smallest")(lambda: (lambda a: torch.linalg.matrix_norm(a, -2), randn(3, 4)))
case("qr of a tall matrix, reduced")(lambda: (lambda a: tuple(torch.linalg.qr(a)), randn(4, 3)))
case("qr of a wide matrix, reduced")(lambda: (lambda a: tuple(torch.linalg.qr(a)), randn(3, 5)))
case("qr of a square matrix, complete")(lambda: (lambda a: tuple(torch.linalg.qr(a, mode="complete")), randn(3, 3)))
case("lstsq of a tall system")(lambda: (lambda a, b: torch.linalg.lstsq(a, b).solution, (randn(5, 3), randn(5, 2))))
case("lstsq of a wide system")(lambda: (lambda a, b: torch.linalg.lstsq(a, b).solution, (randn(3, 5), randn(3, 2))))
case("pinv of low rank, given as a product")(lambda: (lambda a, b: torch.linalg.pinv(a @ b, rtol=1e-8), (randn(4, 2), randn(2, 3))))
case("pinv near rank deficiency")(
    lambda: (lambda a: torch.linalg.pinv(a), torch.diag(torch.tensor([1.0, 0.5, 1e-3], dtype=D)) + randn(3, 3) * 1e-4)
)
case("pinv, hermitian")(lambda: (lambda a: torch.linalg.pinv(a + a.mT, hermitian=True), randn(3, 3)))
case("householder product")(lambda: (torch.linalg.householder_product, (randn(5, 3), rand(3))))
case("ormqr")(lambda: (lambda a, t, c: torch.ormqr(a, t, c, left=False, transpose=True), (randn(4, 3), rand(3), randn(2, 4))))
case("matrix exponential, defective")(lambda: (torch.linalg.matrix_exp, torch.tensor([[1.0, 1, 0], [0, 1, 1], [0, 0, 1]], dtype=D)))
case("matrix exponential, large")(lambda: (torch.linalg.matrix_exp, randn(3, 3) * 6))
case("determinant of a singular matrix")(lambda: (torch.linalg.det, torch.tensor([[1.0, 2, 3], [2, 4, 6], [0.5, -1, 2]], dtype=D)))
case("determinants of a batch, one of them singular")(
    lambda: (torch.linalg.det, torch.stack((torch.tensor([[1.0, 2, 3], [2, 4, 6], [0.5, -1, 2]], dtype=D), randn(3, 3))))
)
case("determinant of a matrix of zeros")(lambda: (torch.linalg.det, torch.zeros(2, 2, dtype=D)))
case("slogdet")(lambda: (lambda a: torch.linalg.slogdet(a).logabsdet, randn(2, 3, 3)))
case("lu of a wide matrix")(lambda: (lambda a: torch.linalg.lu(a)[1:], randn(3, 5)))
case("lu solve, adjoint, from the right")(
    lambda: (lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b, left=False, adjoint=True), (randn(3, 3), randn(2, 3)))
)
case("cholesky, upper")(lambda: (lambda a: torch.linalg.cholesky(a @ a.mT + torch.eye(3, dtype=D), upper=True), randn(3, 3)))
case("cholesky inverse, upper")(lambda: (lambda a: torch.cholesky_inverse(a.triu(), upper=True), randn(3, 3) + 2 * torch.eye(3, dtype=D)))
case("triangular solve, unit diagonal, from the right")(
    lambda: (
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=True, left=False, unitriangular=True),
        (randn(3, 3).triu(), randn(2, 3)),
    )
)
case("lobpcg, eigenvalues")(
    lambda: (
        lambda a: torch.lobpcg(
            a @ a.mT + torch.diag(torch.arange(9.0, dtype=D)), k=2, X=torch.eye(9, dtype=D)[:, :2], niter=200, tol=1e-13
        )[0],
        randn(9, 9) * 0.2,
    )
)
case("eig of a real matrix, moduli")(lambda: (lambda a: torch.linalg.eigvals(a).abs(), randn(4, 4)))
case("tensorsolve")(lambda: (lambda a, b: torch.linalg.tensorsolve(a, b), (randn(2, 3, 6), randn(2, 3))))
case("renorm, p = 1")(lambda: (lambda x: torch.renorm(x, 1, 0, 0.7), randn(3, 4)))
case("renorm, p infinite, a short row")(
    lambda: (lambda x: torch.renorm(x, math.inf, 0, 1.0), torch.cat((randn(2, 4) * 5, randn(1, 4) * 0.1)))
)

# Distances and norms
case("cdist with a distance of zero")(
    lambda: (lambda x, y: torch.cdist(x, y), (torch.tensor([[0.0, 0], [1, 2]], dtype=D), torch.tensor([[0.0, 0], [3, 1]], dtype=D)))
)
case("cdist, p = 1")(lambda: (lambda x, y: torch.cdist(x, y, p=1.0), (randn(2, 3, 4), randn(2, 2, 4))))
case("cdist, p = 0.5")(lambda: (lambda x, y: torch.cdist(x, y, p=0.5), (randn(3, 4), randn(2, 4))))
case("cdist, p = 1.5, equal coordinates")(
    lambda: (lambda x, y: torch.cdist(x, y, p=1.5), (torch.tensor([[1.0, 2.0]], dtype=D), torch.tensor([[1.0, 0.5], [0.2, 2.0]], dtype=D)))
)
case("cdist, p infinite")(lambda: (lambda x, y: torch.cdist(x, y, p=math.inf), (randn(3, 4), randn(2, 4))))
case("cdist, p infinite, a tie")(
    lambda: (
        lambda x, y: torch.cdist(x, y, p=math.inf),
        (torch.tensor([[1.0, -1.0, 0.2]], dtype=D), torch.zeros(1, 3, dtype=D)),
    )
)
case("cdist by a product, near points")(
    lambda: (lambda x, y: torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist"), (randn(3, 4) + 100, randn(2, 4) + 100))
)
case("pdist, p = 1.5")(lambda: (lambda x: F.pdist(x, p=1.5), randn(4, 3)))
case("pdist, p infinite")(lambda: (lambda x: F.pdist(x, p=math.inf), randn(4, 3)))
case("vector norm, p = 0.5")(lambda: (lambda x: torch.linalg.vector_norm(x, 0.5, dim=1), randn(3, 4)))
case("vector norm of a zero row, squared")(
    lambda: (lambda x: torch.linalg.vector_norm(x, dim=1).square(), torch.cat((torch.zeros(1, 3, dtype=D), randn(1, 3))))
)
case("pairwise distance, eps")(lambda: (lambda x, y: F.pairwise_distance(x, y, p=3.0, eps=0.1), (randn(3, 4), randn(3, 4))))

# Reductions, scatters and scans
case("product with one zero")(lambda: (lambda x: x.prod(1), torch.tensor([[0.0, 2, 3], [1, 0, 0], [1, 2, 3]], dtype=D)))
case("cumulative product with zeros")(lambda: (lambda x: x.cumprod(1), torch.tensor([[0.5, 0, 3, 2], [1, 0, 0, 4]], dtype=D)))
case("cummax")(lambda: (lambda x: x.cummax(1).values, randn(3, 5)))
case("scatter reduce, product with zeros")(
    lambda: (
        lambda x, s: x.scatter_reduce(0, torch.tensor([0, 0, 1, 2, 2, 2]), s, "prod"),
        (torch.tensor([0.0, 2, 3], dtype=D), torch.tensor([2.0, 0, 4, 0, 0, 5], dtype=D)),
    )
)
case("scatter reduce, product without self")(
    lambda: (
        lambda x, s: x.scatter_reduce(0, torch.tensor([0, 0, 1, 1]), s, "prod", include_self=False),
        (torch.tensor([0.0, 2, 3], dtype=D), torch.tensor([2.0, 0.5, 4, 0], dtype=D)),
    )
)
case("scatter reduce, largest, ties with self")(
    lambda: (
        lambda x, s: x.scatter_reduce(0, torch.tensor([0, 0, 1, 1]), s, "amax"),
        (torch.tensor([1.0, 2, 3], dtype=D), torch.tensor([2.0, 0.5, 4, 0], dtype=D)),
    )
)
case("scatter reduce, mean, without self")(
    lambda: (
        lambda x, s: x.scatter_reduce(1, torch.tensor([[0, 0, 1], [2, 2, 2]]), s, "mean", include_self=False),
        (randn(2, 4), randn(2, 3)),
    )
)
case("index reduce, product with zeros")(
    lambda: (
        lambda x, s: x.index_reduce(0, torch.tensor([0, 0, 1]), s, "prod"),
        (torch.tensor([[0.0, 2], [3, 4]], dtype=D), torch.tensor([[2.0, 0.5], [4, 0], [0, 3]], dtype=D)),
    )
)
case("index reduce, mean, without self")(
    lambda: (lambda x, s: x.index_reduce(0, torch.tensor([0, 0, 1]), s, "mean", include_self=False), (randn(3, 2), randn(3, 2)))
)
case("segment reduce, product with a zero")(
    lambda: (
        lambda x: torch.segment_reduce(x, "prod", lengths=torch.tensor([2, 1, 3])),
        torch.tensor([0.0, 2, 3, 4, 0.5, 1.5], dtype=D),
    )
)
case("segment reduce, mean, initial value, an empty segment")(
    lambda: (lambda x: torch.segment_reduce(x, "mean", lengths=torch.tensor([2, 0, 3]), initial=0.5), randn(5, 2))
)
case("segment reduce, largest, initial value")(
    lambda: (lambda x: torch.segment_reduce(x, "max", lengths=torch.tensor([2, 1, 3]), initial=0.1), randn(6))
)
case("index put, repeated indices, accumulated")(
    lambda: (lambda x, v: x.index_put((torch.tensor([0, 0, 2]),), v, accumulate=True), (randn(4, 2), randn(3, 2)))
)
case("median and quantile")(lambda: (lambda x: (x.median(1).values, torch.quantile(x, 0.3, 1)), randn(3, 5)))
case("median of ties")(lambda: (lambda x: x.median(), torch.tensor([1.0, 2, 2, 2, 5], dtype=D)))
case("aminmax and amax")(lambda: (lambda x: (*torch.aminmax(x, dim=1), x.amax((0, 1))), randn(3, 5)))
case("masked softmax and mean")(
    lambda: (lambda x: torch._masked_softmax(x, torch.tensor([[True, False, False], [False, False, True]]), 1, 0), randn(2, 3))
)
case("gradient on an uneven grid")(
    lambda: (lambda x: torch.gradient(x, spacing=(torch.tensor([0.0, 0.5, 2.0, 2.5], dtype=D),), dim=0, edge_order=2)[0], randn(4, 2))
)

# Sparse and nested
INDICES = [[0, 0, 1, 2], [0, 2, 1, 0]]
case("sparse times dense")(lambda: (lambda v, d: torch.sparse.mm(torch.sparse_coo_tensor(INDICES, v, (3, 3)), d), (randn(4), randn(3, 2))))
case("sparse times dense, repeated indices")(
    lambda: (lambda v, d: torch.sparse.mm(torch.sparse_coo_tensor([[0, 0, 0, 2], [1, 1, 2, 0]], v, (3, 3)), d), (randn(4), randn(3, 2)))
)
case("sparse rows times dense")(
    lambda: (lambda v, d: torch.sparse.mm(torch.sparse_csr_tensor([0, 2, 3, 4], [0, 2, 1, 0], v, (3, 3)), d), (randn(4), randn(3, 2)))
)
case("sparse rows times dense, mean")(
    lambda: (
        lambda v, d: torch.sparse.mm(torch.sparse_csr_tensor([0, 2, 3, 4], [0, 2, 1, 0], v, (3, 3)), d, "mean"),
        (randn(4), randn(3, 2)),
    )
)
case("sparse rows times dense, largest")(
    lambda: (
        lambda v, d: torch.sparse.mm(torch.sparse_csr_tensor([0, 2, 3, 4], [0, 2, 1, 0], v, (3, 3)), d, "amax"),
        (randn(4), randn(3, 2)),
    )
)
case("sparse times sparse")(
    lambda: (
        lambda v, w: torch.sparse.mm(torch.sparse_coo_tensor(INDICES, v, (3, 3)), torch.sparse_coo_tensor(INDICES, w, (3, 3))).to_dense(),
        (randn(4), randn(4)),
    )
)
case("sparse softmax")(lambda: (lambda v: torch.sparse.softmax(torch.sparse_coo_tensor(INDICES, v, (3, 3)), 1).to_dense(), randn(4)))
case("sparse sum over a dimension")(
    lambda: (lambda v: torch.sparse.sum(torch.sparse_coo_tensor(INDICES, v, (3, 3)), 0).to_dense(), randn(4))
)
case("sampled product")(
    lambda: (
        lambda v, a, b: torch.sparse.sampled_addmm(
            torch.sparse_csr_tensor([0, 2, 3, 4], [0, 2, 1, 0], v, (3, 3)), a, b, beta=0.5, alpha=2.0
        ).to_dense(),
        (randn(4), randn(3, 2), randn(2, 3)),
    )
)
case("nested, softmax and linear")(
    lambda: (
        lambda x, y, w: torch.nested.to_padded_tensor(torch.nested.as_nested_tensor([x, y], layout=torch.jagged) @ w, 0.0),
        (randn(2, 3), randn(4, 3), randn(3, 2)),
    )
)

# Attention
case("attention, a boolean mask")(
    lambda: (
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask=torch.tensor([[True, False, True, True], [True, True, False, False]])
        ),
        (randn(1, 2, 2, 3), randn(1, 2, 4, 3), randn(1, 2, 4, 5)),
    )
)
case("attention, a row without keys")(
    lambda: (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=torch.tensor([[True, False, True], [False, False, False]])),
        (randn(1, 2, 2, 4), randn(1, 2, 3, 4), randn(1, 2, 3, 4)),
    )
)
case("attention, grouped queries, scale, causal")(
    lambda: (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3, enable_gqa=True),
        (randn(1, 4, 3, 4), randn(1, 2, 3, 4), randn(1, 2, 3, 4)),
    )
)
case("attention, gradient of a broadcast bias")(
    lambda: (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
        (randn(2, 2, 3, 4), randn(2, 2, 3, 4), randn(2, 2, 3, 4), randn(1, 1, 3, 3)),
    )
)
case("multi-head attention, key padding")(
    lambda: (
        (lambda m: lambda x: m(x, x, x, key_padding_mask=torch.tensor([[False, False, True]]))[0])(
            nn.MultiheadAttention(4, 2, batch_first=True).double()
        ),
        randn(1, 3, 4),
    )
)

# Recurrent networks
case("LSTM, two layers, both directions, projected", seconds=120)(
    lambda: ((lambda m: lambda x: m(x)[0])(nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2).double()), randn(3, 2, 3))
)
case("GRU, two layers")(lambda: (nn.GRU(3, 4, 2).double(), randn(3, 2, 3)))
case("LSTM cell")(lambda: (nn.LSTMCell(3, 4).double(), randn(2, 3)))

# Transforms
case("stft and its inverse")(
    lambda: (lambda x, w: torch.istft(torch.stft(x, 8, 3, window=w, return_complex=True), 8, 3, window=w), (randn(20), rand(8)))
)
case("stft, moduli, not centred")(
    lambda: (
        lambda x: torch.stft(x, 8, 3, window=torch.hann_window(8, dtype=D), center=False, return_complex=True, normalized=True).abs(),
        randn(20),
    )
)
case("irfft of an odd length")(lambda: (lambda r, i: torch.fft.irfft(torch.complex(r, i), n=7), (randn(4), randn(4))))
case("hfft2 and ihfft2")(lambda: (lambda r: torch.view_as_real(torch.fft.ihfft2(r)), randn(4, 6)))
case("angle and modulus")(lambda: (lambda r, i: (torch.complex(r, i).abs(), torch.complex(r, i).angle()), (randn(4), randn(4))))

# Autograd Functions in Python, random numbers and checkpoints
case("checkpoint, reentrant")(
    lambda: (
        lambda x, w: torch.utils.checkpoint.checkpoint(lambda x, w: torch.tanh(x @ w), x, w, use_reentrant=True),
        (randn(2, 3), randn(3, 2)),
    )
)
case("checkpoint, not reentrant")(
    lambda: (
        lambda x, w: torch.utils.checkpoint.checkpoint(lambda x, w: torch.tanh(x @ w), x, w, use_reentrant=False),
        (randn(2, 3), randn(3, 2)),
    )
)
IMPLICIT = "torch.distributions: rsample of these distributions is differentiated through their distribution function"
case("Dirichlet, drawn", intent="implicit-reparameterization", why_intended=IMPLICIT)(
    lambda: (lambda a: torch.distributions.Dirichlet(a).rsample(), rand(2, 3) + 1)
)
case("gamma, drawn", intent="implicit-reparameterization", why_intended=IMPLICIT)(
    lambda: (lambda a, b: torch.distributions.Gamma(a, b).rsample(), (rand(4) + 1, rand(4)))
)
case("continuous Bernoulli's log density near one half")(
    lambda: (
        lambda p, x: torch.distributions.ContinuousBernoulli(p, validate_args=False).log_prob(x),
        (torch.tensor([0.3, 0.4995, 0.5, 0.503], dtype=D), rand(4)),
    )
)
case("von Mises' log density")(
    lambda: (
        lambda x, m, k: torch.distributions.VonMises(m, k, validate_args=False).log_prob(x),
        (randn(3), randn(3), torch.tensor([0.2, 3.0, 9.0], dtype=D)),
    )
)
case("Kumaraswamy's and Gumbel's log density")(
    lambda: (
        lambda a, b, x: (
            torch.distributions.Kumaraswamy(a, b, validate_args=False).log_prob(x),
            torch.distributions.Gumbel(a, b, validate_args=False).log_prob(x),
        ),
        (rand(3) + 1, rand(3) + 1, rand(3)),
    )
)
case("multivariate normal of low rank")(
    lambda: (
        lambda m, f, d, x: torch.distributions.LowRankMultivariateNormal(m, f, d, validate_args=False).log_prob(x),
        (randn(3), randn(3, 1), rand(3), randn(2, 3)),
    )
)
case(
    "gumbel softmax, hard",
    intent="straight-through",
    why_intended="torch.nn.functional.gumbel_softmax: differentiated as if it is the soft sample in autograd",
)(lambda: (lambda x: F.gumbel_softmax(x, hard=True), randn(3, 4)))
case(
    "fake quantise",
    intent="clamped-straight-through",
    why_intended="torch.fake_quantize_per_tensor_affine: a straight-through estimator between the quantisation limits, as in quantisation-aware training",
)(lambda: (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -5, 5), torch.randn(6)))

# Activations
case("softplus on both sides of its threshold")(
    lambda: (lambda x: F.softplus(x, beta=2.0, threshold=5.0), torch.tensor([2.4, 2.6, -1.0, 10.0], dtype=D))
)
case("prelu, a slope for each channel")(lambda: (F.prelu, (randn(2, 3, 4), rand(3))))
case("celu and elu with negative alpha")(lambda: (lambda x: F.celu(x, alpha=-1.5), torch.tensor([0.3, 1.2, -0.4], dtype=D)))
case("leaky relu with a negative slope")(lambda: (lambda x: F.leaky_relu(x, -0.5), randn(5)))
case("hardswish and hardsigmoid")(
    lambda: (lambda x: (F.hardswish(x), F.hardsigmoid(x)), torch.tensor([-2.9, 2.9, 0.1, 3.5, -3.5], dtype=D))
)
case("threshold and hardshrink")(lambda: (lambda x: (F.softshrink(x, 0.3), F.hardtanh(x, -0.2, 0.7)), randn(6)))
case("glu on a dimension of two")(lambda: (lambda x: F.glu(x, 1), randn(3, 2, 2)))

package.finding(
    "torch-trigamma",
    kind="accuracy",
    where="aten/src/ATen/native/Math.h (trigamma)",
    what="trigamma in float64, which is the derivative of digamma and the second derivative of lgamma, adds four terms of its asymptotic series "
    "from x + 6 on and is right to nine digits only.",
    size="5e-10 of the gradient",
    cases=["digamma", "lgamma, second derivative", "multigammaln", "polygamma of order 1", "beta's log density"],
)
package.finding(
    "torch-bce-double-backward",
    kind="second derivative",
    where="torch/csrc/autograd/FunctionsManual.cpp (binary_cross_entropy_double_backward)",
    what="The double backward adds 1e-12 to p and to 1 - p in its denominators, where the backward does not.",
    size="3e-11 of the second derivative at p = 0.92, 1e-10 at p = 0.02",
    cases=["binary cross entropy", "binary cross entropy, gradient of the target"],
)
package.finding(
    "torch-ctc-log-probs",
    kind="gradient",
    where="aten/src/ATen/native/LossCTC.cpp (ctc_loss_backward)",
    what="The gradient by log_probs is that by the logits behind a log_softmax, and is right only where log_softmax is applied in the same graph.",
    size="of the size of the gradient",
    cases=["ctc loss of its own argument"],
    known="https://github.com/pytorch/pytorch/issues/52241",
)
package.finding(
    "torch-cosine-similarity-eps",
    kind="gradient at special states",
    where="aten/src/ATen/native/Distance.cpp (cosine_similarity)",
    what="A vector shorter than eps is divided by eps, and its gradient is that of a division by its norm.",
    size="0.1 to 0.3 of the gradient, for vectors shorter than eps",
    cases=["cosine similarity of a short vector"],
    known="https://github.com/pytorch/pytorch/pull/31378",
)
package.finding(
    "torch-embedding-options",
    kind="gradient in a configuration",
    where="torch/nn/functional.py (embedding)",
    what="padding_idx, scale_grad_by_freq and max_norm change the gradient, or the weight without a gradient, so that it is not the derivative of the value.",
    size="of the size of the gradient",
    cases=["embedding, padding row", "embedding, scaled by frequency", "embedding, norm capped"],
    documented="torch.nn.functional.embedding: padding_idx does not contribute to the gradient, scale_grad_by_freq scales it, max_norm edits the weight",
)
package.finding(
    "torch-weight-norm-double-backward",
    kind="second derivative",
    where="aten/src/ATen/native/WeightNorm.cpp (_weight_norm_differentiable_backward)",
    what="The second derivative of weight_norm by the direction v is another one than that of g v / |v|, whose value and gradient it has.",
    size="0.4 to 0.7 of the second derivative",
    cases=["weight norm"],
)
package.finding(
    "torch-orthogonal-householder-sign",
    kind="value",
    where="torch/nn/utils/parametrizations.py (_Orthogonal.forward)",
    what="The householder map multiplies with its parameter's diagonal cut down to an integer: a step of weight decay makes the weight zero.",
    size="the whole weight",
    cases=["orthogonal, by reflections"],
)
package.finding(
    "torch-matrix-exp-degree-8",
    kind="value",
    where="aten/src/ATen/native/LinearAlgebra.cpp (compute_T8)",
    what="A coefficient of the Taylor polynomial of degree 8 is wrong, so that value and gradient, which take polynomials of other degrees, differ.",
    size="2e-12 of the gradient; up to 2e-9 of the value",
    cases=["orthogonal, by the exponential"],
    known="https://github.com/pytorch/pytorch/issues/196592",
    fixed="main",
)
package.finding(
    "torch-matrix-exp-large-cotangent",
    kind="accuracy",
    where="torch/csrc/autograd/FunctionsManual.cpp (matrix_exp backward)",
    what="The backward exponentiates a matrix that has grad_output in a corner, so that a large grad_output takes the digits of the rest.",
    size="1e-10 of the gradient in float64 for a grad_output of 1e6; 2e-2 in float32 for one of 65536",
    cases=["matrix exponential in float32"],
)
package.finding(
    "torch-det-singular",
    kind="gradient at special states",
    where="torch/csrc/autograd/FunctionsManual.cpp (linalg_det_backward)",
    what="At a singular matrix of rank n - 1 the gradient of the determinant is zero, and not the matrix of cofactors.",
    size="the whole gradient",
    cases=["determinant of a singular matrix", "determinants of a batch, one of them singular"],
    known="https://github.com/pytorch/pytorch/issues/104675",
)
package.finding(
    "torch-batch-norm-weight-strides",
    kind="layout",
    where="aten/src/ATen/native/cpu/batch_norm_kernel.cpp (batch_norm_cpu_backward_channels_last_impl)",
    what="For inputs of two dimensions or channels last, the backward reads a weight with other strides as if it were contiguous.",
    size="0.04 to 1 of the gradient",
    cases=["batch norm of two dimensions, weight a column of a matrix", "batch norm of channels last, weight a column of a matrix"],
)
package.finding(
    "torch-masked-softmax-transposed",
    kind="layout",
    where="aten/src/ATen/native/SoftMax.cpp (masked_softmax_cpu)",
    what="The value of torch._masked_softmax for a transposed matrix is written in the wrong order.",
    size="of the size of the value",
    cases=["masked softmax and mean"],
)
package.finding(
    "torch-sparse-second-derivative",
    kind="second derivative",
    where="tools/autograd/derivatives.yaml (_sparse_coo_tensor_with_dims_and_tensors)",
    what="The gradient of the values of a sparse tensor is detached, so that second derivatives through it are missing without an error.",
    size="the whole second derivative",
    cases=[
        "sparse times dense",
        "sparse times dense, repeated indices",
        "sparse times sparse",
        "sparse softmax",
        "sparse sum over a dimension",
    ],
)
package.finding(
    "torch-hardsigmoid-sixth",
    kind="accuracy",
    where="aten/src/ATen/native/cpu/Activation.cpp (hardsigmoid_backward_kernel)",
    what="The backward of hardsigmoid in float64 multiplies with one sixth rounded to float32.",
    size="3e-8 of the gradient",
    cases=["hardswish and hardsigmoid"],
)
package.finding(
    "torch-sinc-second-derivative",
    kind="second derivative",
    where="torch/csrc/autograd/FunctionsManual.cpp (sinc_backward)",
    what="The second derivative of sinc at 0 is not a number; it is -pi^2 / 3.",
    size="not a number",
    cases=["sinc at and near zero"],
    known="https://github.com/pytorch/pytorch/issues/196703",
)
package.finding(
    "torch-logcumsumexp-digits",
    kind="accuracy",
    where="torch/csrc/autograd/FunctionsManual.cpp (logcumsumexp_backward)",
    what="The backward works with logarithms of the gradient, so that second derivatives beside a large element lose digits.",
    size="5e-11 of the second derivative beside an element of 700",
    cases=["logcumsumexp after minus infinity"],
)
