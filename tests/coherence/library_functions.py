"""Smooth functions of torch that the auditor must not accuse: arguments inside the smooth domain, small, drawn from a seed.

Functions with random numbers of their own draw them from a fixed seed. Two lists name exceptions: `ONCE`, those with a first derivative
only, and `NOT_DERIVATIVES`, those whose backward is something else on purpose, so that an accusation is right.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import special
from torch.nn import functional as F

Draw = Callable[[torch.Generator], torch.Tensor]
Interval = tuple[float, float]


@dataclass(frozen=True)
class LibraryFunction:
    """A function of torch with a way to draw its arguments.

    Attributes:
        name: as torch calls it, with the variant.
        fn: takes what `inputs` gives; every floating-point tensor among it is to be differentiated by.
        inputs: arguments for a seed and a dtype; the same numbers, rounded, in every dtype.
        domain: for functions that act element by element, the interval of each argument in which they are smooth; else None.
    """

    name: str
    fn: Callable[..., Any]
    inputs: Callable[[int, torch.dtype], tuple[Any, ...]]
    domain: tuple[Interval | None, ...] | None


def _normal(*shape: int, scale: float = 1.0) -> Draw:
    return lambda generator: scale * torch.randn(shape, generator=generator, dtype=torch.float64)


def _uniform(low: float, high: float, *shape: int) -> Draw:
    return lambda generator: low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


def _integers(high: int, *shape: int) -> Draw:
    return lambda generator: torch.randint(high, shape, generator=generator)


def _invertible(n: int, *batch: int) -> Draw:
    """Well-conditioned square matrices with a positive determinant."""
    return lambda generator: (
        torch.eye(n, dtype=torch.float64) * 2 + 0.3 * torch.randn((*batch, n, n), generator=generator, dtype=torch.float64)
    )


def _simplex(*shape: int) -> Draw:
    return lambda generator: torch.randn(shape, generator=generator, dtype=torch.float64).softmax(-1)


def _away_from_zero(low: float, high: float, *shape: int) -> Draw:
    """Magnitudes between the two, signs at random."""

    def draw(generator: torch.Generator) -> torch.Tensor:
        signs = 2 * torch.randint(2, shape, generator=generator) - 1
        return signs * _uniform(low, high, *shape)(generator)

    return draw


def _drawn(draws: tuple[Any, ...], seed: int, dtype: torch.dtype) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(seed)
    arguments = [draw(generator) if callable(draw) else draw for draw in draws]
    return tuple(a.to(dtype) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments)


def _of(name: str, fn: Callable[..., Any], *draws: Any) -> LibraryFunction:
    """A function of what the draws give; a draw that is not callable is an argument itself."""
    return LibraryFunction(name, fn, functools.partial(_drawn, draws), None)


def _elementwise(name: str, fn: Callable[..., Any], *intervals: Interval | None) -> LibraryFunction:
    """Seven elements of each argument, from its interval."""
    draws = tuple(_uniform(*interval, 7) for interval in intervals if interval is not None)
    return LibraryFunction(name, fn, functools.partial(_drawn, draws), tuple(intervals))


def _like(x: torch.Tensor, low: float, high: float, *shape: int, seed: int = 17) -> torch.Tensor:
    """A constant of the function, in the dtype of its argument."""
    return _uniform(low, high, *shape)(torch.Generator().manual_seed(seed)).to(x.dtype)


def _seeded(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """One call with the same random numbers every time, and none taken from anybody else."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return fn(*args, **kwargs)


_ELEMENTWISE = (
    # torch.special
    _elementwise("special.digamma", special.digamma, (0.1, 50.0)),
    _elementwise("special.digamma, negative", special.digamma, (-2.9, -2.1)),
    _elementwise("special.entr", special.entr, (0.05, 20.0)),
    _elementwise("special.erf", special.erf, (-5.0, 5.0)),
    _elementwise("special.erfc", special.erfc, (-5.0, 8.0)),
    _elementwise("special.erfcx", special.erfcx, (-3.0, 20.0)),
    _elementwise("special.erfinv", special.erfinv, (-0.95, 0.95)),
    _elementwise("special.exp2", special.exp2, (-20.0, 20.0)),
    _elementwise("special.expit", special.expit, (-20.0, 20.0)),
    _elementwise("special.expm1", special.expm1, (-10.0, 10.0)),
    _elementwise("special.gammaln", special.gammaln, (0.1, 50.0)),
    _elementwise("special.gammaln, negative", special.gammaln, (-2.9, -2.1)),
    _elementwise("special.gammainc", lambda x: special.gammainc(torch.full_like(x, 2.7), x), (0.1, 20.0)),
    _elementwise("special.gammaincc", lambda x: special.gammaincc(torch.full_like(x, 2.7), x), (0.1, 20.0)),
    _elementwise("special.i0", special.i0, (-10.0, 10.0)),
    _elementwise("special.i0e", special.i0e, (0.05, 20.0)),  # exp(-|x|) has a kink at zero
    _elementwise("special.i0e, negative", special.i0e, (-20.0, -0.05)),
    _elementwise("special.i1", special.i1, (-10.0, 10.0)),
    _elementwise("special.i1e", special.i1e, (0.05, 20.0)),
    _elementwise("special.i1e, negative", special.i1e, (-20.0, -0.05)),
    _elementwise("special.i1e, both sides of zero", special.i1e, (-20.0, 20.0)),
    _elementwise("special.log1p", special.log1p, (-0.9, 50.0)),
    _elementwise("special.log_ndtr", special.log_ndtr, (-20.0, 5.0)),
    _elementwise("special.logit", special.logit, (0.02, 0.98)),
    _elementwise("special.logit, clamped outside", lambda x: special.logit(x, eps=1e-3), (0.02, 0.98)),
    _elementwise("special.multigammaln", lambda x: special.multigammaln(x, 3), (1.5, 50.0)),
    _elementwise("special.ndtr", special.ndtr, (-6.0, 6.0)),
    _elementwise("special.ndtri", special.ndtri, (0.01, 0.99)),
    _elementwise("special.polygamma, order 0", lambda x: special.polygamma(0, x), (0.3, 30.0)),
    _elementwise("special.polygamma, order 1", lambda x: special.polygamma(1, x), (0.3, 30.0)),
    _elementwise("special.polygamma, order 3", lambda x: special.polygamma(3, x), (0.3, 30.0)),
    _elementwise("special.sinc", special.sinc, (-3.0, 3.0)),
    _elementwise("special.xlog1py", special.xlog1py, (-3.0, 3.0), (-0.9, 20.0)),
    _elementwise("special.xlogy", special.xlogy, (-3.0, 3.0), (0.05, 20.0)),
    _elementwise("special.zeta", lambda q: special.zeta(torch.full_like(q, 2.5), q), (0.5, 20.0)),
    # torch
    _elementwise("acos", torch.acos, (-0.95, 0.95)),
    _elementwise("acosh", torch.acosh, (1.1, 50.0)),
    _elementwise("asin", torch.asin, (-0.95, 0.95)),
    _elementwise("asinh", torch.asinh, (-20.0, 20.0)),
    _elementwise("atan", torch.atan, (-20.0, 20.0)),
    _elementwise("atan2", torch.atan2, (0.2, 3.0), (-3.0, 3.0)),
    _elementwise("atanh", torch.atanh, (-0.95, 0.95)),
    _elementwise("cosh", torch.cosh, (-10.0, 10.0)),
    _elementwise("exp", torch.exp, (-20.0, 20.0)),
    _elementwise("float_power", torch.float_power, (0.1, 5.0), (-3.0, 3.0)),
    _elementwise("hypot", torch.hypot, (0.2, 5.0), (-5.0, 5.0)),
    _elementwise("lerp", torch.lerp, (-3.0, 3.0), (-3.0, 3.0), (-1.0, 2.0)),
    _elementwise("lgamma", torch.lgamma, (0.1, 50.0)),
    _elementwise("log", torch.log, (0.05, 50.0)),
    _elementwise("log10", torch.log10, (0.05, 50.0)),
    _elementwise("log2", torch.log2, (0.05, 50.0)),
    _elementwise("logaddexp", torch.logaddexp, (-10.0, 10.0), (-10.0, 10.0)),
    _elementwise("logaddexp2", torch.logaddexp2, (-10.0, 10.0), (-10.0, 10.0)),
    _elementwise("pow, both", torch.pow, (0.1, 5.0), (-3.0, 3.0)),
    _elementwise("pow, fifth", lambda x: torch.pow(x, 5), (-3.0, 3.0)),
    _elementwise("reciprocal", torch.reciprocal, (0.05, 50.0)),
    _elementwise("rsqrt", torch.rsqrt, (0.05, 50.0)),
    _elementwise("sin", torch.sin, (-20.0, 20.0)),
    _elementwise("sinh", torch.sinh, (-10.0, 10.0)),
    _elementwise("sqrt", torch.sqrt, (0.05, 50.0)),
    _elementwise("tan", torch.tan, (-1.4, 1.4)),
    _elementwise("tanh", torch.tanh, (-8.0, 8.0)),
    # torch.nn.functional
    _elementwise("celu, below zero", lambda x: F.celu(x, alpha=1.5), (-8.0, -0.05)),
    _elementwise("celu, both sides of zero", lambda x: F.celu(x, alpha=1.5), (-6.0, 6.0)),
    _elementwise("elu, below zero", F.elu, (-8.0, -0.05)),
    _elementwise("elu, both sides of zero", F.elu, (-6.0, 6.0)),
    _elementwise("gelu", F.gelu, (-8.0, 8.0)),
    _elementwise("gelu, tanh", lambda x: F.gelu(x, approximate="tanh"), (-8.0, 8.0)),
    _elementwise("logsigmoid", F.logsigmoid, (-30.0, 30.0)),
    _elementwise("mish", F.mish, (-15.0, 15.0)),
    _elementwise("selu, above zero", F.selu, (0.05, 6.0)),
    _elementwise("selu, below zero", F.selu, (-8.0, -0.05)),
    _elementwise("silu", F.silu, (-20.0, 20.0)),
    _elementwise("softplus", F.softplus, (-20.0, 19.0)),  # above 20 torch gives x: a step of 2e-9
    _elementwise("softplus, beta 2", lambda x: F.softplus(x, beta=2), (-10.0, 9.0)),
    _elementwise("softsign, above zero", F.softsign, (0.05, 20.0)),
    _elementwise("softsign, both sides of zero", F.softsign, (-20.0, 20.0)),
    _elementwise("tanhshrink", F.tanhshrink, (-8.0, 8.0)),
)


_NORMALIZED = (
    _of("special.logsumexp", lambda x: special.logsumexp(x, -1), _normal(3, 5, scale=3.0)),
    _of("special.softmax", lambda x: special.softmax(x, -1), _normal(3, 5, scale=2.0)),
    _of("special.log_softmax", lambda x: special.log_softmax(x, -1), _normal(3, 5, scale=2.0)),
    _of("softmax", lambda x: F.softmax(x, 0), _normal(4, 3, scale=2.0)),
    _of("softmin", lambda x: F.softmin(x, -1), _normal(3, 4, scale=2.0)),
    _of("log_softmax", lambda x: F.log_softmax(x, 1), _normal(2, 4, 3, scale=2.0)),
    _of("gumbel_softmax", lambda x: _seeded(F.gumbel_softmax, x, tau=0.7), _normal(3, 5)),
    _of("dropout", lambda x: _seeded(F.dropout, x, 0.4), _normal(20)),
    _of("alpha_dropout", lambda x: _seeded(F.alpha_dropout, x, 0.4, training=True), _normal(20)),
    _of("feature_alpha_dropout", lambda x: _seeded(F.feature_alpha_dropout, x, 0.4, training=True), _normal(3, 4, 2)),
    _of("rrelu, in training", lambda x: _seeded(F.rrelu, x, training=True), _away_from_zero(0.2, 2.0, 12)),
    _of("glu", lambda x: F.glu(x, -1), _normal(3, 6)),
    _of("normalize", lambda x: F.normalize(x, dim=-1), _normal(3, 5)),
    _of("normalize, p = 3", lambda x: F.normalize(x, p=3.0, dim=-1), _uniform(0.2, 2.0, 3, 5)),
    _of("layer_norm", lambda x, w, b: F.layer_norm(x, (6,), w, b), _normal(4, 6), _normal(6), _normal(6)),
    _of("layer_norm, two axes", lambda x: F.layer_norm(x, (3, 4)), _normal(2, 3, 4)),
    _of("rms_norm", lambda x, w: F.rms_norm(x, (6,), w, eps=1e-5), _normal(4, 6), _normal(6)),
    _of("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), _normal(2, 4, 5), _normal(4), _normal(4)),
    _of("instance_norm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b), _normal(2, 3, 6), _normal(3), _normal(3)),
    _of("batch_norm, in training", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), _normal(6, 3), _normal(3), _normal(3)),
    _of(
        "batch_norm, images", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), _normal(3, 2, 3, 3), _normal(2), _normal(2)
    ),
    _of(
        "batch_norm, not in training",
        lambda x, w, b: F.batch_norm(x, _like(x, -1.0, 1.0, 3), _like(x, 0.5, 2.0, 3), w, b, training=False),
        _normal(6, 3),
        _normal(3),
        _normal(3),
    ),
    _of("local_response_norm", lambda x: F.local_response_norm(x, 3, alpha=0.5), _normal(2, 5, 4)),
    _of("logsumexp", lambda x: torch.logsumexp(x, (0, 1)), _normal(3, 5, scale=3.0)),
    _of("logcumsumexp", lambda x: torch.logcumsumexp(x, -1), _normal(3, 6, scale=2.0)),
    _of("cumsum", lambda x: torch.cumsum(x, 0), _normal(6, 2)),
    _of("cumprod", lambda x: torch.cumprod(x, 0), _away_from_zero(0.3, 2.0, 6, 2)),
    _of("prod", lambda x: torch.prod(x, -1), _away_from_zero(0.3, 2.0, 3, 5)),
    _of("var", lambda x: torch.var(x, -1), _normal(3, 6)),
    _of("std", lambda x: torch.std(x, -1), _normal(3, 6)),
    _of("cov", torch.cov, _normal(3, 6)),
    _of("corrcoef", torch.corrcoef, _normal(3, 6)),
    _of("trapezoid", torch.trapezoid, _normal(6), _normal(6)),
    _of("gradient", lambda x: torch.gradient(x, spacing=0.5, edge_order=2)[0], _normal(7)),
    _of("renorm", lambda x: torch.renorm(x, 2, 0, 0.5), _uniform(0.5, 2.0, 3, 4)),
)


_LOSSES = (
    _of("cross_entropy", F.cross_entropy, _normal(5, 4, scale=2.0), _integers(4, 5)),
    _of(
        "cross_entropy, smoothed and weighted",
        lambda x, t: F.cross_entropy(x, t, weight=_like(x, 0.5, 2.0, 4), label_smoothing=0.1),
        _normal(5, 4, scale=2.0),
        _integers(4, 5),
    ),
    _of(
        "cross_entropy, of a class left out",
        lambda x, t: F.cross_entropy(x, t, ignore_index=1, reduction="sum"),
        _normal(6, 4),
        torch.tensor([0, 1, 2, 3, 1, 0]),
    ),
    _of("cross_entropy, probabilities", F.cross_entropy, _normal(5, 4, scale=2.0), _simplex(5, 4)),
    _of(
        "cross_entropy, smoothed probabilities",
        lambda x, p: F.cross_entropy(x, p, weight=_like(x, 0.5, 2.0, 4), label_smoothing=0.2),
        _normal(5, 4, scale=2.0),
        _simplex(5, 4),
    ),
    _of("nll_loss", lambda x, t: F.nll_loss(x, t, weight=_like(x, 0.5, 2.0, 4)), _normal(5, 4), _integers(4, 5)),
    _of("nll_loss, images", lambda x, t: F.nll_loss(x, t), _normal(2, 3, 2, 2), _integers(3, 2, 2, 2)),
    _of("kl_div", lambda x, p: F.kl_div(x.log_softmax(-1), p, reduction="batchmean"), _normal(3, 5), _simplex(3, 5)),
    _of("kl_div, logarithms", lambda x, y: F.kl_div(x, y, reduction="sum", log_target=True), _normal(3, 4), _normal(3, 4)),
    _of("binary_cross_entropy", F.binary_cross_entropy, _uniform(0.05, 0.95, 8), _uniform(0.05, 0.95, 8)),
    _of(
        "binary_cross_entropy, weighted",
        lambda p, t: F.binary_cross_entropy(p, t, weight=_like(p, 0.5, 2.0, 8)),
        _uniform(0.05, 0.95, 8),
        _uniform(0.05, 0.95, 8),
    ),
    _of("binary_cross_entropy_with_logits", F.binary_cross_entropy_with_logits, _normal(3, 4, scale=3.0), _uniform(0.0, 1.0, 3, 4)),
    _of(
        "binary_cross_entropy_with_logits, weighted",
        lambda x, t: F.binary_cross_entropy_with_logits(x, t, weight=_like(x, 0.5, 2.0, 3, 4), pos_weight=_like(x, 0.5, 2.0, 4)),
        _normal(3, 4, scale=3.0),
        _uniform(0.0, 1.0, 3, 4),
    ),
    _of("gaussian_nll_loss", lambda x, t, v: F.gaussian_nll_loss(x, t, v, full=True), _normal(6), _normal(6), _uniform(0.3, 2.0, 6)),
    _of("poisson_nll_loss", lambda x, t: F.poisson_nll_loss(x, t), _normal(6), _uniform(0.5, 5.0, 6)),
    _of(
        "poisson_nll_loss, rates",
        lambda x, t: F.poisson_nll_loss(x, t, log_input=False, full=True),
        _uniform(0.3, 4.0, 6),
        _uniform(1.5, 5.0, 6),
    ),
    _of("mse_loss", F.mse_loss, _normal(3, 4), _normal(3, 4)),
    _of("mse_loss, weighted", lambda x, t, w: F.mse_loss(x, t, weight=w), _normal(6), _normal(6), _uniform(0.5, 2.0, 6)),
    _of("huber_loss, inside", lambda x, t: F.huber_loss(x, t, delta=3.0), _uniform(-1.0, 1.0, 6), _uniform(-1.0, 1.0, 6)),
    _of("huber_loss, outside", lambda x, t: F.huber_loss(x, t, delta=0.7), _uniform(1.0, 3.0, 6), _uniform(-2.0, 0.0, 6)),
    _of("smooth_l1_loss, inside", lambda x, t: F.smooth_l1_loss(x, t, beta=3.0), _uniform(-1.0, 1.0, 6), _uniform(-1.0, 1.0, 6)),
    _of("smooth_l1_loss, outside", lambda x, t: F.smooth_l1_loss(x, t, beta=0.7), _uniform(1.0, 3.0, 6), _uniform(-2.0, 0.0, 6)),
    _of("l1_loss", F.l1_loss, _uniform(1.0, 3.0, 6), _uniform(-2.0, 0.5, 6)),
    _of(
        "cosine_embedding_loss",
        lambda a, b: F.cosine_embedding_loss(a, b, torch.tensor([1, -1, 1]), margin=-0.99),
        _uniform(0.2, 2.0, 3, 5),
        _uniform(0.2, 2.0, 3, 5),
    ),
    _of("triplet_margin_loss", lambda a, p, n: F.triplet_margin_loss(a, p, n, margin=20.0), _normal(4, 5), _normal(4, 5), _normal(4, 5)),
    _of(
        "triplet_margin_loss, swapped",
        lambda a, p, n: F.triplet_margin_loss(a, p, n, margin=20.0, swap=True),
        _uniform(-1.0, 0.0, 4, 5),
        _uniform(1.0, 2.0, 4, 5),
        _uniform(4.0, 5.0, 4, 5),
    ),
    _of(
        "triplet_margin_with_distance_loss",
        lambda a, p, n: F.triplet_margin_with_distance_loss(
            a, p, n, distance_function=lambda u, v: 1 - F.cosine_similarity(u, v), margin=5.0
        ),
        _normal(4, 5),
        _normal(4, 5),
        _normal(4, 5),
    ),
    _of("margin_ranking_loss", lambda a, b: F.margin_ranking_loss(a, b, torch.tensor([1, -1, 1, -1]), margin=20.0), _normal(4), _normal(4)),
    _of("soft_margin_loss", lambda x: F.soft_margin_loss(x, torch.tensor([1, -1, 1, -1, 1, 1]).to(x.dtype)), _normal(6, scale=2.0)),
    _of("multilabel_soft_margin_loss", F.multilabel_soft_margin_loss, _normal(3, 4, scale=2.0), _integers(2, 3, 4)),
    _of("multi_margin_loss, p = 2", lambda x, t: F.multi_margin_loss(x, t, p=2, margin=20.0), _normal(3, 4), _integers(4, 3)),
    _of(
        "multilabel_margin_loss",
        lambda x: F.multilabel_margin_loss(x, torch.tensor([[2, 0, -1, 1], [1, -1, 0, 2]])),
        _uniform(0.0, 0.4, 2, 4),
    ),
    _of("hinge_embedding_loss", lambda x: F.hinge_embedding_loss(x, torch.tensor([1, -1, 1, -1]), margin=20.0), _normal(4)),
    _of(
        "ctc_loss",
        lambda x: F.ctc_loss(x.log_softmax(-1), torch.tensor([[1, 2, 1], [3, 3, 2]]), (7, 6), (3, 2)),
        _normal(7, 2, 4),
    ),
)


_LAYERS = (
    _of("linear", F.linear, _normal(3, 4), _normal(5, 4), _normal(5)),
    _of("bilinear", F.bilinear, _normal(3, 4), _normal(3, 2), _normal(3, 4, 2), _normal(3)),
    _of("conv1d", lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), _normal(2, 3, 7), _normal(4, 3, 3), _normal(4)),
    _of("conv2d", lambda x, w, b: F.conv2d(x, w, b, padding=1), _normal(1, 2, 5, 5), _normal(3, 2, 3, 3), _normal(3)),
    _of(
        "conv2d, groups and dilation",
        lambda x, w: F.conv2d(x, w, stride=2, padding=2, dilation=2, groups=2),
        _normal(2, 4, 4, 4),
        _normal(4, 2, 2, 2),
    ),
    _of("conv3d", F.conv3d, _normal(1, 2, 3, 3, 3), _normal(2, 2, 2, 2, 2), _normal(2)),
    _of(
        "conv_transpose1d",
        lambda x, w, b: F.conv_transpose1d(x, w, b, stride=2, output_padding=1),
        _normal(2, 3, 4),
        _normal(3, 2, 3),
        _normal(2),
    ),
    _of("conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), _normal(1, 2, 3, 3), _normal(2, 3, 3, 3)),
    _of("avg_pool1d", lambda x: F.avg_pool1d(x, 3, stride=2, padding=1), _normal(2, 3, 8)),
    _of("avg_pool2d", lambda x: F.avg_pool2d(x, 2, stride=1, count_include_pad=False, padding=1), _normal(1, 2, 4, 4)),
    _of("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (2, 3)), _normal(1, 2, 5, 4)),
    _of("lp_pool1d", lambda x: F.lp_pool1d(x, 3.0, 3), _uniform(0.2, 2.0, 2, 2, 7)),
    _of("lp_pool2d", lambda x: F.lp_pool2d(x, 2.0, 2), _uniform(0.2, 2.0, 1, 2, 4, 4)),
    _of("interpolate, linear", lambda x: F.interpolate(x, size=9, mode="linear"), _normal(2, 2, 5)),
    _of("interpolate, bilinear", lambda x: F.interpolate(x, scale_factor=1.6, mode="bilinear"), _normal(1, 2, 5, 4)),
    _of("interpolate, antialiased", lambda x: F.interpolate(x, size=(3, 2), mode="bilinear", antialias=True), _normal(1, 2, 6, 5)),
    _of("interpolate, bicubic", lambda x: F.interpolate(x, size=(7, 6), mode="bicubic", align_corners=True), _normal(1, 2, 4, 5)),
    _of("interpolate, trilinear", lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), _normal(1, 1, 2, 3, 2)),
    _of("interpolate, area", lambda x: F.interpolate(x, size=(2, 3), mode="area"), _normal(1, 2, 5, 4)),
    # Places inside the cells of a 5 x 5 grid: between two centres, at 0.15 to 0.85 of the way.
    _of(
        "grid_sample, bilinear",
        lambda x, t: F.grid_sample(x, (_cells(t) + t - 2) / 2, mode="bilinear", align_corners=True),
        _normal(1, 2, 5, 5),
        _uniform(0.15, 0.85, 1, 3, 3, 2),
    ),
    _of(
        "grid_sample, bicubic",
        lambda x, t: F.grid_sample(x, (_cells(t) + t - 2) / 2, mode="bicubic", align_corners=True),
        _normal(1, 2, 5, 5),
        _uniform(0.15, 0.85, 1, 3, 3, 2),
    ),
    _of(
        "grid_sample, reflected",
        lambda x, t: F.grid_sample(x, (_cells(t) + t) / 2, padding_mode="reflection", align_corners=True),
        _normal(1, 2, 5, 5),
        _uniform(0.15, 0.85, 1, 3, 3, 2),
    ),
    _of("affine_grid", lambda theta: F.affine_grid(theta, (2, 1, 3, 4), align_corners=False), _normal(2, 2, 3)),
    _of("scaled_dot_product_attention", F.scaled_dot_product_attention, _normal(1, 2, 4, 3), _normal(1, 2, 5, 3), _normal(1, 2, 5, 3)),
    _of(
        "scaled_dot_product_attention, causal",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        _normal(1, 2, 4, 3),
        _normal(1, 2, 4, 3),
        _normal(1, 2, 4, 3),
    ),
    _of(
        "scaled_dot_product_attention, with a bias",
        lambda q, k, v, bias: F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.7),
        _normal(1, 2, 4, 3),
        _normal(1, 2, 5, 3),
        _normal(1, 2, 5, 3),
        _normal(4, 5),
    ),
    _of(
        "scaled_dot_product_attention, dropped out",
        lambda q, k, v: _seeded(F.scaled_dot_product_attention, q, k, v, dropout_p=0.3),
        _normal(1, 2, 4, 3),
        _normal(1, 2, 5, 3),
        _normal(1, 2, 5, 3),
    ),
    _of("embedding", F.embedding, torch.tensor([[0, 3, 3], [1, 2, 0]]), _normal(5, 3)),
    _of(
        "embedding, with a padding row", lambda i, w: F.embedding(i, w, padding_idx=1), torch.tensor([[0, 3, 3], [1, 2, 0]]), _normal(5, 3)
    ),
    _of("embedding_bag, mean", lambda i, w: F.embedding_bag(i, w, mode="mean"), torch.tensor([[0, 3, 3], [1, 2, 0]]), _normal(5, 3)),
    _of(
        "embedding_bag, weighted",
        lambda i, w, s: F.embedding_bag(i, w, mode="sum", per_sample_weights=s),
        torch.tensor([[0, 3, 3], [1, 2, 0]]),
        _normal(5, 3),
        _normal(2, 3),
    ),
    _of("pairwise_distance", F.pairwise_distance, _normal(4, 5), _normal(4, 5)),
    _of("pairwise_distance, p = 3", lambda x, y: F.pairwise_distance(x, y, p=3.0), _uniform(-2.0, -0.5, 4, 5), _uniform(0.5, 2.0, 4, 5)),
    _of("cosine_similarity", F.cosine_similarity, _normal(4, 5), _normal(4, 5)),
    _of("pdist", F.pdist, _normal(5, 4)),
    _of("pdist, p = 3", lambda x: F.pdist(x, p=3.0), _normal(4, 4)),
    _of("cdist", torch.cdist, _normal(4, 3), _normal(5, 3)),
    _of(
        "cdist, by a product",
        lambda x, y: torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist"),
        _uniform(-2.0, -0.5, 4, 3),
        _uniform(0.5, 2.0, 5, 3),
    ),
    _of("cdist, p = 3", lambda x, y: torch.cdist(x, y, p=3.0), _uniform(-2.0, -0.5, 4, 3), _uniform(0.5, 2.0, 5, 3)),
    _of("unfold", lambda x: F.unfold(x, 2, padding=1), _normal(1, 2, 3, 4)),
    _of("fold", lambda x: F.fold(x, (4, 4), 2), _normal(1, 8, 9)),
    _of("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), _normal(1, 4, 2, 3)),
    _of("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), _normal(1, 1, 4, 6)),
    _of("pad, reflected", lambda x: F.pad(x, (2, 1), mode="reflect"), _normal(2, 2, 5)),
    _of("pad, circular", lambda x: F.pad(x, (1, 2, 0, 1), mode="circular"), _normal(1, 2, 3, 3)),
    _of("gru_cell", torch.gru_cell, _normal(2, 3), _normal(2, 4), _normal(12, 3), _normal(12, 4), _normal(12), _normal(12)),
    _of(
        "lstm_cell",
        lambda x, h, c, *weights: torch.lstm_cell(x, (h, c), *weights),
        _normal(2, 3),
        _normal(2, 4),
        _normal(2, 4),
        _normal(16, 3),
        _normal(16, 4),
        _normal(16),
        _normal(16),
    ),
)


def _cells(t: torch.Tensor) -> torch.Tensor:
    """Indices of cells, 0 to 3 along either axis."""
    return _integers(4, *t.shape)(torch.Generator().manual_seed(23)).to(t.dtype)


def _symmetric(a: torch.Tensor) -> torch.Tensor:
    """With eigenvalues well apart: 0, 4, 8, ..., nearly."""
    return a + a.mT + torch.diag(4 * torch.arange(a.shape[-1], dtype=a.dtype))


def _power_spectrum(x: torch.Tensor) -> torch.Tensor:
    spectrum = torch.fft.rfft(x)
    return spectrum.real**2 + spectrum.imag**2


def _filtered(x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(kernel), n=x.shape[-1])


_ALGEBRA = (
    _of("einsum", lambda a, b, c: torch.einsum("ij,jk,ik->i", a, b, c), _normal(3, 4), _normal(4, 5), _normal(3, 5)),
    _of("matmul", torch.matmul, _normal(2, 3, 4), _normal(4, 5)),
    _of("bmm", torch.bmm, _normal(2, 3, 4), _normal(2, 4, 2)),
    _of("addmm", lambda a, b, c: torch.addmm(a, b, c, beta=0.3, alpha=1.7), _normal(3, 5), _normal(3, 4), _normal(4, 5)),
    _of("kron", torch.kron, _normal(2, 3), _normal(3, 2)),
    _of("tensordot", lambda a, b: torch.tensordot(a, b, dims=2), _normal(2, 3, 4), _normal(3, 4, 2)),
    _of("linalg.cross", torch.linalg.cross, _normal(4, 3), _normal(4, 3)),
    _of("linalg.vector_norm", lambda x: torch.linalg.vector_norm(x, ord=3.5, dim=-1), _away_from_zero(0.3, 2.0, 3, 4)),
    _of(
        "linalg.matrix_norm, nuclear",
        lambda a: torch.linalg.matrix_norm(_symmetric(a) + torch.eye(4, dtype=a.dtype), "nuc"),
        _normal(4, 4, scale=0.3),
    ),
    _of("linalg.det", torch.linalg.det, _invertible(4)),
    _of("linalg.slogdet", lambda a: torch.linalg.slogdet(a)[1], _invertible(4, 2)),
    _of("logdet", torch.logdet, _invertible(5)),
    _of("linalg.inv", torch.linalg.inv, _invertible(4)),
    _of("linalg.pinv", lambda a: torch.linalg.pinv(a @ torch.eye(4, 3, dtype=a.dtype)), _invertible(4)),
    _of("linalg.solve", torch.linalg.solve, _invertible(4), _normal(4, 2)),
    _of("linalg.solve_triangular", lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), _invertible(4), _normal(4, 2)),
    _of("linalg.lstsq", lambda a, b: torch.linalg.lstsq(a @ torch.eye(5, 3, dtype=a.dtype), b).solution, _invertible(5), _normal(5, 2)),
    _of("linalg.cholesky", lambda a: torch.linalg.cholesky(a @ a.mT), _invertible(4)),
    _of("cholesky_solve", lambda b, a: torch.cholesky_solve(b, torch.linalg.cholesky(a @ a.mT)), _normal(4, 2), _invertible(4)),
    _of("cholesky_inverse", lambda a: torch.cholesky_inverse(torch.linalg.cholesky(a @ a.mT)), _invertible(4)),
    _of("linalg.qr", lambda a: torch.linalg.qr(a), _invertible(4)),
    _of("linalg.lu_factor", lambda a: torch.linalg.lu_factor(a)[0], _invertible(4)),
    _of("linalg.eigvalsh", lambda a: torch.linalg.eigvalsh(_symmetric(a)), _normal(4, 4, scale=0.3)),
    _of("linalg.eigh, projector", lambda a: _projector(torch.linalg.eigh(_symmetric(a))[1][:, :2]), _normal(4, 4, scale=0.3)),
    _of("linalg.svdvals", lambda a: torch.linalg.svdvals(_symmetric(a) + torch.eye(4, dtype=a.dtype)), _normal(4, 4, scale=0.2)),
    _of("linalg.matrix_exp", torch.linalg.matrix_exp, _normal(4, 4, scale=0.7)),
    _of("linalg.matrix_exp, large", torch.linalg.matrix_exp, _normal(4, 4, scale=3.0)),
    _of("linalg.matrix_power", lambda a: torch.linalg.matrix_power(a, 3), _normal(4, 4)),
    _of("linalg.matrix_power, negative", lambda a: torch.linalg.matrix_power(a, -2), _invertible(4)),
    _of("linalg.multi_dot", lambda a, b, c: torch.linalg.multi_dot([a, b, c]), _normal(2, 5), _normal(5, 3), _normal(3, 4)),
    _of("linalg.householder_product", torch.linalg.householder_product, _normal(4, 3), _uniform(0.2, 1.5, 3)),
    _of("baddbmm", torch.baddbmm, _normal(2, 3, 3), _normal(2, 3, 2), _normal(2, 2, 3)),
    _of("dist", lambda x, y: torch.dist(x, y, p=2), _normal(5), _normal(5)),
    _of("fft.rfft, power", _power_spectrum, _normal(2, 9)),
    _of("fft.irfft, convolution", _filtered, _normal(2, 8), _normal(8)),
    _of("fft.fft2, real part", lambda x: torch.fft.fft2(x).real, _normal(3, 4)),
    _of("fft.hfft", lambda x, y: torch.fft.hfft(torch.complex(x, y), n=8), _normal(5), _normal(5)),
    _of("fft.ihfft, modulus", lambda x: torch.fft.ihfft(x).abs(), _normal(9)),
    _of(
        "stft, power",
        lambda x: torch.view_as_real(torch.stft(x, 8, window=_like(x, 0.3, 1.0, 8), return_complex=True)).square().sum(-1),
        _normal(20),
    ),
)


def _projector(vectors: torch.Tensor) -> torch.Tensor:
    """Does not depend on the signs of the vectors."""
    return vectors @ vectors.mT


FUNCTIONS: tuple[LibraryFunction, ...] = (*_ELEMENTWISE, *_NORMALIZED, *_LOSSES, *_LAYERS, *_ALGEBRA)

# Without a second derivative: torch has no second backward, or, from "celu" on, the second derivative jumps at zero.
ONCE = frozenset(
    {
        "multi_margin_loss, p = 2",
        "multilabel_margin_loss",
        "ctc_loss",
        "scaled_dot_product_attention",
        "scaled_dot_product_attention, causal",
        "embedding_bag, weighted",
        "pdist",
        "pdist, p = 3",
        "cdist",
        "cdist, p = 3",
        "celu, both sides of zero",
        "elu, both sides of zero",
        "softsign, both sides of zero",
        "special.i1e, both sides of zero",
    }
)

NOT_DERIVATIVES = frozenset({"embedding, with a padding row"})  # the padding row is looked up, and gets no gradient
