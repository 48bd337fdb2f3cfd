"""Cross-entropy of vMF scores and its gradient in the features as an operator of torch, streamed over tiles of classes by two Triton kernels.

`sweep` goes once over the classes and leaves, for each row and each part of the classes, the sums of `tiles`: top, total, pull and push. `finish` joins the
parts, adds the label's term, and writes loss, log-sum-exp and gradient. Neither the scores nor anything else of shape (rows, classes) is stored.

A row is a sample in a view. Labels, class states and the bank are those of `views.cross_entropy_of_views`: all views but the last see the classes of the batch
as they were after that view (`SEEN_...`), which `sweep` visits as a part of their own, and every other class as it is in the end.

POTENTIAL is what an expansion without shift is made of, in numbers known when a kernel is compiled: (centre, nu + m, stretch, head, tail, integral of the tail,
terms of the two series, or 0 for logarithms); names as in `potentials.expansion`.
"""
# What Triton compiles is not Python to a type checker.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false, reportAssignmentType=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportIndexIssue=false, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from pairgrad.ground.devices import current, tensor_core_generation
from pairgrad.losses.fused.triton import IN_INTERPRETER, parts_of, tiles_for

# The interpreter takes the bits of bfloat16 for integers in products and knows one precision of float32: both are written out there.
INTERPRETED = tl.constexpr(IN_INTERPRETER)
_LOWEST = tl.constexpr(-3e38)  # where a running maximum starts: finite, so that differences are numbers
_SHORTEST = tl.constexpr(1e-12)  # a feature shorter than this is not brought to unit length


def finish_options(dim: int) -> tuple[dict[str, int], dict[str, Any]]:
    """Constants and options of `finish` that depend on the dimension."""
    width = 1 << (dim - 1).bit_length()  # the next power of 2
    return {"WIDTH": width, "GROUP": max(1, min(8, 8192 // width))}, {"num_warps": 4 if width <= 1024 else 8 if width <= 4096 else 16}


@torch.library.custom_op("pairgrad::vmf_cross_entropy", mutates_args=())
def vmf_cross_entropy(
    features: torch.Tensor,
    labels: torch.Tensor,
    rows: torch.Tensor,
    rates: torch.Tensor,
    concentration: torch.Tensor,
    log_prior: torch.Tensor | None,
    hard: torch.Tensor | None,
    soft: torch.Tensor | None,
    counted: torch.Tensor | None,
    seen: Sequence[torch.Tensor],
    entries: torch.Tensor | None,
    temperature: torch.Tensor | None,
    tau: float,
    numbers: Sequence[float],
    lengths: Sequence[int],
    normalize: bool,
    gradient: bool,
    share: float,
    products: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Loss (V, B), gradient (V, B, p) of each of them in the features, or (0,) if it is not wanted, and log-sum-exp (V, B); all float32.

    Args:
        features: (V, B, p), float32 or half.
        labels: (B,) int64.
        rows: (K, p), float32 or half; the next two (K,), float32: a class state as in `sphere.state.Classes`.
        log_prior: (K,) or None.
        hard: (B,), weights of the labels' terms; None: 1.
        soft: (K,), weights u of a further term sum_j u_j (log sum_k exp z_k - z_j), or None.
        counted: (B,), factors of that term; None: 1.
        seen: rows (V, T, p), rates, concentrations (V, T), labels (T,) and slots (T,) of `sphere.bank.Touched`; or nothing.
        entries: (B,), which of the T is the class of a sample; None: entry b.
        temperature: a tensor on the device, or None, and then `tau` counts.
        numbers: of the potential, with `lengths`, from `potential_numbers`.
        normalize: scale the features to unit length first.
        gradient: whether it is wanted.
        share: what the gradient is multiplied with.
        products: `"ieee"`, `"3xtf32"` or `"tf32"`, of float32 operands.
    """
    views, batch, dim = features.shape
    num_classes = len(rows)
    features, rows, labels = _side_by_side(features), _side_by_side(rows), labels.contiguous()
    loss, found, normaliser = _results(features, gradient)
    if not batch:
        return loss, found, normaliser
    half = features.dtype == rows.dtype != torch.float32
    generation = 9 if INTERPRETED else tensor_core_generation(features.device)
    tiles = tiles_for(views * batch, num_classes, generation)
    parts, per_part = parts_of(tiles, views * batch, dim, num_classes, gradient)
    parts += len(seen) > 0
    grid = (triton.cdiv(views * batch, tiles.samples), parts)
    seen, (entries, hard, counted) = [tensor.contiguous() for tensor in seen], (_contiguous(tensor) for tensor in (entries, hard, counted))
    states = (rows, rates.contiguous(), concentration.contiguous(), _contiguous(log_prior))
    seen_states, seen_names = ((*seen[:3],), (*seen[3:],)) if seen else ((None,) * 3, (None,) * 2)
    sizes = {"views": views, "batch": batch, "dim": dim, "seen": len(seen[3]) if seen else 0}
    sizes |= {"view_stride": features.stride(0), "row_stride": features.stride(1), "class_stride": rows.stride(0)}
    known = {"POTENTIAL": packed(numbers, lengths), "NORMALIZE": normalize, "GRADIENT": gradient, "ON_DEVICE": temperature is not None}
    known |= {"temperature": tau if temperature is None else temperature, **sizes}

    def swept(weights: torch.Tensor | None) -> list[torch.Tensor]:
        sums = list(torch.empty(3, parts, views, batch, dtype=torch.float32, device=features.device).unbind())
        sums.append(torch.empty(parts, views, batch, dim, dtype=torch.float32, device=features.device) if gradient else found)
        sweep[grid](
            features, labels, *states, weights, *seen_states, *seen_names, *sums, num_classes=num_classes, per_part=per_part, PRODUCTS=products,
            SAMPLES=tiles.samples, CLASSES=tiles.classes, DEPTH=tiles.depth, **known, **tiles.options(generation, half, not lengths[-1]),
        )  # fmt: skip
        return sums

    with current(features.device):
        sums = swept(None)
        linear = [None] * 4 if soft is None else swept(soft.contiguous())
        constants, options = finish_options(dim)
        finish[(views * batch,)](
            features, labels, *states, *seen_states, entries, *sums, *linear, hard, counted, loss, normaliser, found, parts=parts, share_of_row=share,
            PARTS=triton.next_power_of_2(parts), **constants, **known, **options,
        )  # fmt: skip
    return loss, found, normaliser


@vmf_cross_entropy.register_fake
def _shapes(features: torch.Tensor, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _results(features, arguments[15])


def _results(features: torch.Tensor, gradient: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    shape = features.shape[:-1]
    loss, normaliser = (torch.empty(shape, dtype=torch.float32, device=features.device) for _ in range(2))
    return loss, torch.empty(features.shape if gradient else (0,), dtype=torch.float32, device=features.device), normaliser


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    ctx.mark_non_differentiable(*output[1:])
    ctx.given, ctx.share, ctx.dtype, ctx.seen = inputs[16], inputs[17], inputs[0].dtype, len(inputs[9])
    ctx.save_for_backward(output[1])


def _backward(ctx: Any, grad: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
    if not ctx.given:
        raise RuntimeError(
            "pairgrad::vmf_cross_entropy was called with gradient=False: call it with gradient=True to differentiate its loss"
        )
    (gradient,) = ctx.saved_tensors
    found = grad[..., None] * gradient
    return (found if ctx.share == 1 else found / ctx.share).to(ctx.dtype), *(None,) * 8, [None] * ctx.seen, *(None,) * 9


vmf_cross_entropy.register_autograd(_backward, setup_context=_save)


def _contiguous(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _side_by_side(tensor: torch.Tensor) -> torch.Tensor:
    """With coordinates side by side, and for features with offsets that fit in 32 bits."""
    apart = tensor.stride(-1) != 1
    if tensor.dim() == 3:
        if tensor.numel() >= 2**31:
            raise ValueError(
                f"features of execution='triton' must have fewer than 2^31 numbers, got shape {tuple(tensor.shape)}: divide the batch, or use execution='eager'"
            )
        apart |= sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) >= 2**31
    return tensor.contiguous() if apart else tensor


def packed(numbers: Sequence[float], lengths: Sequence[int]) -> tuple[Any, ...]:
    """POTENTIAL from what an operator can be given."""
    head, tail, integral, *terms = lengths
    rest = iter(numbers[3:])
    polynomials = (tuple(next(rest) for _ in range(length)) for length in (head, tail, integral))
    return (*numbers[:3], *polynomials, *terms)


@triton.jit
def _to_tf32(x):
    """Rounded to the 10 bits that a tensor core keeps of float32."""
    bits = x.to(tl.int32, bitcast=True)
    return ((bits + 0x1000) & ~0x1FFF).to(tl.float32, bitcast=True)


@triton.jit
def _product(a, b, total, PRODUCTS: tl.constexpr):
    """total + a @ b in float32, for operands of one dtype. Those of half precision are multiplied exactly."""
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    if a.dtype != tl.float32 or PRODUCTS == "ieee":
        total = tl.dot(a, b, total, input_precision="ieee")
    else:
        high_a, high_b = _to_tf32(a), _to_tf32(b)
        if PRODUCTS == "3xtf32":
            total = tl.dot(_to_tf32(a - high_a), high_b, total, input_precision="tf32")
            total = tl.dot(high_a, _to_tf32(b - high_b), total, input_precision="tf32")
        total = tl.dot(high_a, high_b, total, input_precision="tf32")
    return total


@triton.jit
def _polynomial(COEFFICIENTS: tl.constexpr, x):
    LAST: tl.constexpr = len(COEFFICIENTS) - 1
    total = x * 0 + COEFFICIENTS[LAST]
    for i in tl.static_range(LAST):
        total = total * x + COEFFICIENTS[LAST - 1 - i]
    return total


@triton.jit
def _divided_difference(COEFFICIENTS: tl.constexpr, a, b):
    """(q(b) - q(a)) / (b - a) of a polynomial q without a subtraction."""
    LAST: tl.constexpr = len(COEFFICIENTS) - 1
    if LAST == 0:
        return a * 0
    total = b * 0 + COEFFICIENTS[LAST]
    quotient = a * 0 + total
    for i in tl.static_range(LAST - 1):
        total = total * b + COEFFICIENTS[LAST - 1 - i]
        quotient = quotient * a + total
    return quotient


@triton.jit
def _artanh_over(z, above, below, TERMS: tl.constexpr):
    """artanh(z) / z for z = (above - below) / (above + below): by its series, or as log(above / below) / 2 where the series is longer."""
    square = z * z
    TAKEN: tl.constexpr = 6 if TERMS == 0 else TERMS
    total = square * 0 + 1.0 / (2 * TAKEN - 1)
    for i in tl.static_range(TAKEN - 1):
        total = total * square + 1.0 / (2 * (TAKEN - 2 - i) + 1)
    if TERMS == 0:
        small = tl.abs(z) < 0.25
        total = tl.where(small, total, 0.5 * tl.log(above / below) / tl.where(small, 1.0, z))
    return total


@triton.jit
def _score_and_gain(squared, concentration, POTENTIAL: tl.constexpr):
    """value(b) - value(a) and slope(b) / b for a = `concentration` and b^2 = a^2 + `squared` (eqs. stable-delta, stable-f2): see `Expansion.increment`."""
    CENTRE: tl.constexpr = POTENTIAL[0]
    STRETCH: tl.constexpr = POTENTIAL[2]
    HEAD: tl.constexpr = POTENTIAL[3]
    TAIL: tl.constexpr = POTENTIAL[4]
    INTEGRAL: tl.constexpr = POTENTIAL[5]
    base = concentration * concentration + CENTRE * CENTRE
    low = tl.sqrt(base)
    high = tl.sqrt(tl.maximum(base + squared, CENTRE * CENTRE))
    both = low + high
    inner, outer = 1.0 / both, 1.0 / (both + 2 * CENTRE)
    t, t_low = CENTRE / high, CENTRE / low
    place, place_low = t, t_low
    if STRETCH != 1:
        place, place_low = STRETCH * t - 1, STRETCH * t_low - 1
    size = squared * inner
    logarithms = (2 * POTENTIAL[1]) * outer * _artanh_over(size * outer, high + CENTRE, low + CENTRE, POTENTIAL[6])
    logarithms += inner * _artanh_over(size * inner, high, low, POTENTIAL[7])
    tail = STRETCH * t_low * t * _divided_difference(INTEGRAL, place, place_low)
    score = size + size * (tail - logarithms)
    height = _polynomial(HEAD, t) / (1 + t) + t * t * _polynomial(TAIL, place)
    return score, height * t * (1.0 / CENTRE)


@triton.jit
def _inverse_temperature(temperature, ON_DEVICE: tl.constexpr):
    return 1.0 / tl.load(temperature).to(tl.float32) if ON_DEVICE else 1.0 / temperature


@triton.jit
def _scale(square, NORMALIZE: tl.constexpr):
    """What features of that squared length are multiplied with before they are scored."""
    return 1.0 / tl.maximum(tl.sqrt(square), _SHORTEST) if NORMALIZE else square * 0 + 1.0


@triton.jit
def _among(named, LABELS, number):
    """Which of some classes occur in the first `number` labels."""
    hits = tl.zeros(named.shape, tl.int32)
    for start in range(0, number, 32):
        entries = start + tl.arange(0, 32)
        label = tl.load(LABELS + entries, mask=entries < number, other=-1)
        hits = tl.maximum(hits, tl.max((named[:, None] == label[None, :]).to(tl.int32), 1))
    return hits > 0


@triton.jit
def sweep(
    FEATURES,  # (V, B, p)
    LABELS,  # (B,)
    ROWS,  # (K, p)
    RATES,  # (K,)
    CONCENTRATION,  # (K,)
    PRIOR,  # (K,) or None
    WEIGHTS,  # (K,) or None: the sums are those with these weights instead of the exponentials, and no label is left out
    SEEN_ROWS,  # (V, T, p) or None
    SEEN_RATES,  # (V, T)
    SEEN_CONCENTRATION,  # (V, T)
    SEEN_LABELS,  # (T,)
    SEEN_SLOTS,  # (T,), the first entry of the same class
    TOP,  # (parts, V B); with weights, sums of weight times logit
    TOTAL,
    PULL,
    PUSH,  # (parts, V B, p)
    temperature,
    views,
    batch,
    num_classes,
    dim,
    seen,  # T
    per_part,  # classes in a part
    view_stride,
    row_stride,
    class_stride,
    POTENTIAL: tl.constexpr,
    PRODUCTS: tl.constexpr,
    NORMALIZE: tl.constexpr,
    GRADIENT: tl.constexpr,
    ON_DEVICE: tl.constexpr,  # the temperature is a tensor
    SAMPLES: tl.constexpr,
    CLASSES: tl.constexpr,
    DEPTH: tl.constexpr,  # coordinates in one step of a product
):
    """One program: a block of rows, which are all samples of the first view, then all of the next, and a part of the classes.

    With SEEN_..., the last part is not one of the K classes: it is the classes of the batch, each once, as each earlier view saw them.
    """
    places = tl.program_id(0) * SAMPLES + tl.arange(0, SAMPLES)
    live = places < views * batch
    view, sample = places // batch, places % batch
    part = tl.program_id(1)
    inverse = _inverse_temperature(temperature, ON_DEVICE)
    label = tl.load(LABELS + sample, mask=live, other=-1).to(tl.int32)
    feature_rows = (view * view_stride + sample * row_stride)[:, None]
    place = part * (views * batch) + places
    PUSH += (part * (views * batch) + tl.program_id(0) * SAMPLES).to(tl.int64) * dim
    push_rows = tl.arange(0, SAMPLES)[:, None] * dim
    depth = tl.arange(0, DEPTH)[None, :]
    column = tl.arange(0, CLASSES)

    square = tl.zeros((SAMPLES,), tl.float32)
    for start in range(0, dim, DEPTH):
        feature = tl.load(FEATURES + (feature_rows + start + depth), mask=live[:, None] & (start + depth < dim), other=0.0).to(tl.float32)
        square += tl.sum(feature * feature, 1)
    scale = _scale(square, NORMALIZE)
    own = square * scale * scale * (inverse * inverse)

    number, stride = num_classes, class_stride
    first, last = part * per_part, tl.minimum((part + 1) * per_part, num_classes)
    if SEEN_ROWS is not None:
        earlier = live & (view < views - 1)
        any_earlier = tl.max(earlier.to(tl.int32), 0) > 0
        apart = part == tl.num_programs(1) - 1
        number, stride = tl.where(apart, seen, num_classes), tl.where(apart, dim, class_stride)
        padded = tl.cdiv(seen, CLASSES) * CLASSES
        first, last = tl.where(apart, 0, first), tl.where(apart, tl.where(any_earlier, (views - 1) * padded, 0), last)
        compared = tl.where(any_earlier & ~apart, seen, 0)
        ROWS, RATES, CONCENTRATION = (
            tl.where(apart, SEEN_ROWS, ROWS),
            tl.where(apart, SEEN_RATES, RATES),
            tl.where(apart, SEEN_CONCENTRATION, CONCENTRATION),
        )

    top = tl.full((SAMPLES,), _LOWEST if WEIGHTS is None else 0.0, tl.float32)
    total = tl.zeros((SAMPLES,), tl.float32)
    pull = tl.zeros((SAMPLES,), tl.float32)
    for tile in range(first, last, CLASSES):
        begin, offset = tile, tile
        if SEEN_ROWS is not None:
            passed = tl.where(apart, tile // padded, 0)
            begin = tile - passed * padded
            offset = begin + passed * seen
        entries = begin + column
        real = entries < number
        rate = tl.load(RATES + (offset + column), mask=real, other=0.0)
        concentration = tl.load(CONCENTRATION + (offset + column), mask=real, other=0.0)
        TILE = ROWS + (tl.zeros((), tl.int64) + offset) * stride
        class_rows = column[:, None] * stride
        dots = tl.zeros((SAMPLES, CLASSES), tl.float32)
        for start in range(0, dim, DEPTH):
            inside = start + depth < dim
            feature = tl.load(FEATURES + (feature_rows + start + depth), mask=live[:, None] & inside, other=0.0)
            row = tl.load(TILE + (class_rows + start + depth), mask=real[:, None] & inside, other=0.0)
            if feature.dtype != row.dtype:
                feature, row = feature.to(tl.float32), row.to(tl.float32)
            dots = _product(feature, tl.trans(row), dots, PRODUCTS)
        squared = dots * (scale * (2 * inverse))[:, None] * rate[None, :] + own[:, None]
        logit, gain = _score_and_gain(squared, concentration[None, :], POTENTIAL)
        named = entries
        if SEEN_ROWS is not None:
            named = tl.where(apart, tl.load(SEEN_LABELS + entries, mask=real & apart, other=0).to(tl.int32), entries)
        if PRIOR is not None:
            logit += tl.load(PRIOR + named, mask=real, other=0.0)[None, :]
        if WEIGHTS is None:
            left_out = (named[None, :] == label[:, None]) | ~real[None, :]
            if SEEN_ROWS is not None:
                repeated = tl.load(SEEN_SLOTS + entries, mask=real & apart, other=0) != entries
                elsewhere = _among(named, SEEN_LABELS, compared)[None, :] & earlier[:, None]
                left_out = left_out | tl.where(apart, repeated[None, :] | (view != passed)[:, None], elsewhere)
            logit = tl.where(left_out, float("-inf"), logit)
            highest = tl.maximum(top, tl.max(logit, 1))
            weight = tl.exp(logit - highest[:, None])
            shrink = tl.exp(top - highest)
            top = highest
            total = total * shrink + tl.sum(weight, 1)
            weight = weight * gain
            if not NORMALIZE:
                pull = pull * shrink + tl.sum(weight, 1)
        else:
            given = tl.load(WEIGHTS + named, mask=real, other=0.0)[None, :]
            top += tl.sum(tl.where(given == 0, 0.0, given * logit), 1)
            total += tl.sum(given + 0 * gain, 1)
            weight = given * gain
            if not NORMALIZE:
                pull += tl.sum(weight, 1)
            shrink = tl.full((SAMPLES,), 1.0, tl.float32)
        if GRADIENT:
            # `push` is too large for registers, and is read and written where it is
            weight = weight * rate[None, :]
            for start in range(0, dim, DEPTH):
                inside = start + depth < dim
                row = tl.load(TILE + (class_rows + start + depth), mask=real[:, None] & inside, other=0.0).to(tl.float32)
                before = tl.load(PUSH + (push_rows + start + depth), mask=live[:, None] & inside & (tile > first), other=0.0)
                after = _product(weight, row, before * shrink[:, None], PRODUCTS)
                tl.store(PUSH + (push_rows + start + depth), after, mask=live[:, None] & inside)
            tl.debug_barrier()  # what one thread has written, another may read for the next tile
    tl.store(TOP + place, top, mask=live)
    tl.store(TOTAL + place, total, mask=live)
    if not NORMALIZE:
        tl.store(PULL + place, pull, mask=live)


@triton.jit
def _log1p(x):
    """For 0 <= x <= 1."""
    above = 1 + x
    step = above - 1
    return tl.where(step == 0, x, tl.log(above) * (x / tl.where(step == 0, 1.0, step)))


@triton.jit
def finish(
    FEATURES,
    LABELS,
    ROWS,
    RATES,
    CONCENTRATION,
    PRIOR,
    SEEN_ROWS,
    SEEN_RATES,
    SEEN_CONCENTRATION,
    ENTRIES,  # (B,), the entry of each sample's class among the T; None: entry b
    TOP,
    TOTAL,
    PULL,
    PUSH,
    LINEAR_SCORE,  # (parts, V, B), the sums with weights, or None
    LINEAR_WEIGHT,
    LINEAR_PULL,
    LINEAR_PUSH,
    HARD,  # (B,) the weight of the label's term, or None
    COUNTED,  # (B,) 1, or 0 for a row that does not count, or None
    LOSS,  # (V, B)
    NORMALISER,
    GRADIENTS,  # (V, B, p)
    temperature,
    views,
    batch,
    dim,
    seen,
    parts,
    share_of_row,  # a factor of the gradient
    view_stride,
    row_stride,
    class_stride,
    POTENTIAL: tl.constexpr,
    NORMALIZE: tl.constexpr,
    GRADIENT: tl.constexpr,
    ON_DEVICE: tl.constexpr,
    PARTS: tl.constexpr,  # at least the number of parts
    GROUP: tl.constexpr,  # parts whose `push` is read at once
    WIDTH: tl.constexpr,  # at least p
):
    """One program: one sample in one view."""
    view, sample = tl.program_id(0) // batch, tl.program_id(0) % batch
    coordinates = tl.arange(0, WIDTH)
    inside = coordinates < dim
    inverse = _inverse_temperature(temperature, ON_DEVICE)
    label = tl.load(LABELS + sample)
    feature = tl.load(
        FEATURES + view.to(tl.int64) * view_stride + sample.to(tl.int64) * row_stride + coordinates, mask=inside, other=0.0
    ).to(tl.float32)
    if SEEN_ROWS is not None:
        entry = view * seen + (sample if ENTRIES is None else tl.load(ENTRIES + sample))
        row = tl.load(SEEN_ROWS + entry.to(tl.int64) * dim + coordinates, mask=inside, other=0.0)
        rate, concentration = tl.load(SEEN_RATES + entry), tl.load(SEEN_CONCENTRATION + entry)
    else:
        row = tl.load(ROWS + label * class_stride + coordinates, mask=inside, other=0.0).to(tl.float32)
        rate, concentration = tl.load(RATES + label), tl.load(CONCENTRATION + label)
    square = tl.sum(feature * feature, 0)
    scale = _scale(square, NORMALIZE)
    own = square * scale * scale * (inverse * inverse)
    squared = tl.sum(feature * row, 0) * scale * (2 * inverse) * rate + own
    logit, gain = _score_and_gain(squared, concentration, POTENTIAL)
    if PRIOR is not None:
        logit += tl.load(PRIOR + label)

    part = tl.arange(0, PARTS)
    at = (part * views + view) * batch + sample
    top = tl.load(TOP + at, mask=part < parts, other=_LOWEST)
    highest = tl.max(top, 0)
    shrink = tl.exp(top - highest)
    total = tl.sum(tl.load(TOTAL + at, mask=part < parts, other=0.0) * shrink, 0)
    log_total = tl.where(total == 0, float("-inf"), tl.log(tl.where(total == 0, 1.0, total)))  # where there is one class
    odds = log_total + (highest - logit)  # log of (1 - p_y) / p_y
    small = tl.exp(-tl.abs(odds))
    loss = tl.maximum(odds, 0.0) + _log1p(small)
    away = tl.where(odds >= 0, 1 / (1 + small), small / (1 + small))  # 1 - p_y
    others = log_total + highest
    normaliser = tl.maximum(logit, others) + _log1p(small)
    hard = 1.0 if HARD is None else tl.load(HARD + sample)
    counted = 1.0 if COUNTED is None else tl.load(COUNTED + sample)
    tl.store(NORMALISER + tl.program_id(0), normaliser)
    result = tl.where(hard == 0, 0.0, hard * loss)
    weight = 0.0
    if LINEAR_SCORE is not None:
        weight = tl.sum(tl.load(LINEAR_WEIGHT + at, mask=part < parts, other=0.0), 0)
        score = tl.sum(tl.load(LINEAR_SCORE + at, mask=part < parts, other=0.0), 0)
        result += tl.where(counted == 0, 0.0, counted * (weight * normaliser - score))
    tl.store(LOSS + tl.program_id(0), result)
    if GRADIENT:
        # d loss / d z_j = share exp(z_j - highest) - counted u_j for j != y, and for the label `own_share` in place of the first term
        all_ = total + tl.exp(tl.minimum(logit - highest, 88.0))  # beyond, others have no share that float32 could hold
        share = (hard + counted * weight) / all_
        own_share = -hard * away
        if LINEAR_SCORE is not None:
            own_share += counted * weight * (1 - away)
        push = tl.zeros((WIDTH,), tl.float32)
        for begin in range(0, parts, GROUP):
            group = begin + tl.arange(0, GROUP)
            place = (group * views + view) * batch + sample
            factor = share * tl.exp(tl.load(TOP + place, mask=group < parts, other=float("-inf")) - highest)
            at_all = place.to(tl.int64)[:, None] * dim + coordinates[None, :]
            visited = tl.load(TOTAL + place, mask=group < parts, other=0.0) != 0  # a part without classes has left its `push` as it was
            there = (group < parts)[:, None] & inside[None, :]
            push += tl.sum(tl.load(PUSH + at_all, mask=there & visited[:, None], other=0.0) * factor[:, None], 0)
            if LINEAR_SCORE is not None:
                push -= counted * tl.sum(tl.load(LINEAR_PUSH + at_all, mask=there, other=0.0), 0)
        gradient = (push + row * (own_share * gain * rate)) * inverse
        unit = feature * scale
        if NORMALIZE:
            along = tl.sum(gradient * unit, 0)
            gradient = (gradient - unit * along) * scale
        else:
            pull = share * tl.sum(tl.load(PULL + at, mask=part < parts, other=0.0) * shrink, 0) + own_share * gain
            if LINEAR_SCORE is not None:
                pull -= counted * tl.sum(tl.load(LINEAR_PULL + at, mask=part < parts, other=0.0), 0)
            gradient += unit * (pull * inverse * inverse)
        nothing = (hard == 0) & ((LINEAR_SCORE is None) | (counted == 0))
        gradient = tl.where(nothing, 0.0, gradient * share_of_row)
        tl.store(GRADIENTS + tl.program_id(0).to(tl.int64) * dim + coordinates, gradient, mask=inside)
