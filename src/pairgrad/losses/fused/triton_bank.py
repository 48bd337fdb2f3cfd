"""The update of a class bank as one Triton kernel: all views of a batch, from raw features to sums, norms, concentrations and rates.

It does what `sphere.bank.Updating.absorb` does with torch, in one launch. Program b is about the class of sample b. Where b is the first sample of its class,
the program sums all samples of that class view by view, adds each sum to the class's row and writes the bank's row and the entries of all these samples;
otherwise it writes its slot and ends. No two programs write to one place and nothing is added atomically, so results are the same bits every time.
"""
# Kernels have untyped arguments, and are called in Triton's own way.
# pyright: reportMissingParameterType=false, reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from pairgrad.ground.devices import ROCM, current
from pairgrad.sphere.bank import ClassBank, Touched, Updating

MAX_DIM = 8192  # a program holds a whole row, and a longer one would not fit into its registers
_LABELS = 1024  # labels that are compared at once
_TILE = 2048  # numbers of features that are loaded at once
_MOST_SAMPLES = 16  # of one class, at once
_SHORTEST = tl.constexpr(1e-12)  # a feature shorter than this is not brought to unit length


def supports(bank: ClassBank) -> str | None:
    """None if the kernel can update this bank, or the reason why it cannot, as words that follow "because"."""
    if bank.rule.estimator != "closed-form":
        return f"estimator={bank.rule.estimator!r} is computed with torch"
    if bank.on_resultant_above_one == "error":
        return "on_resultant_above_one='error' looks at the new lengths before anything is written"
    if bank.sums.dtype != torch.float32 or bank.counts.dtype != torch.float64:
        return f"its sums are {bank.sums.dtype} and its counts {bank.counts.dtype}, not float32 and float64".replace("torch.", "")
    if bank.dim > MAX_DIM:
        return f"dim = {bank.dim} is larger than {MAX_DIM}"
    if not all(tensor.is_contiguous() for tensor in bank.buffers(recurse=False)):
        return "its buffers are not contiguous"
    return None


def absorb(bank: ClassBank, views: torch.Tensor, labels: torch.Tensor, *, normalize: bool) -> Touched:
    """Take in views (V, B, p) of float32, float16 or bfloat16, already checked, one after the other; `supports(bank)` must be None.

    Args:
        normalize: bring each feature to unit length first, whatever the bank does.
    """
    statistics, following, derived = Updating(bank).buffers()
    rule = bank.rule
    unit = normalize or bank.on_resultant_above_one == "normalize"
    arguments = (*derived, views, labels, unit, rule.small_samples == "unbiased", rule.cap, bank.decay)
    with torch.no_grad():
        if following is not None:
            _update(*following, *arguments)  # what it derives is overwritten by the next line, in the same rows
        rows, rates, concentration, slots = _update(*statistics, *arguments)
    return Touched(rows, rates, concentration, slots, labels)


def launch(dim: int) -> tuple[dict[str, int], dict[str, Any]]:
    """Compile-time constants and options of the kernel for a feature dimension."""
    block = triton.next_power_of_2(dim)
    sizes = {"LABELS": _LABELS, "SAMPLES": max(1, min(_MOST_SAMPLES, _TILE // block)), "BLOCK": block}
    # without fused multiply-add: the error of a sum is exact only if products are rounded before they are added
    options = {"num_warps": 4 if block <= 1024 else 8 if block <= 4096 else 16, "enable_fp_fusion": False}
    if not ROCM:  # without a limit ptxas spills a few registers to use fewer; AMD's compiler does not, and has no such option
        options["maxnreg"] = 128
    return sizes, options


@torch.library.custom_op("pairgrad::vmf_bank_update", mutates_args=("sums", "compensation", "counts", "norms", "concentrations", "rates"))
def _update(
    sums: torch.Tensor,
    compensation: torch.Tensor,
    counts: torch.Tensor,
    norms: torch.Tensor,
    concentrations: torch.Tensor,
    rates: torch.Tensor,
    views: torch.Tensor,
    labels: torch.Tensor,
    unit: bool,
    unbiased: bool,
    cap: float,
    decay: float | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Updates the state of a bank; returns the rows, rates and concentrations of `Touched`, and its slots."""
    touched = _touched(views, sums, labels)
    if not len(labels):
        return touched
    sizes, options = launch(sums.shape[1])
    with current(sums.device):
        bank_update[(len(labels),)](
            *(sums, compensation, counts, norms, concentrations, rates),
            *(views, labels, *touched),
            *(*views.shape, len(sums)),
            *(*views.stride(), labels.stride(0)),
            UNIT=unit,
            UNBIASED=unbiased,
            CAP=cap,
            DECAY=1.0 if decay is None else decay,
            **sizes,
            **options,
        )
    return touched


@_update.register_fake
def _shapes(sums: torch.Tensor, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    views, labels = arguments[5:7]
    return _touched(views, sums, labels)


def _touched(
    views: torch.Tensor, sums: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    num_views, batch, dim = views.shape
    shapes = ((num_views, batch, dim), (num_views, batch), (num_views, batch))
    rows, rates, concentration = (torch.empty(shape, dtype=sums.dtype, device=sums.device) for shape in shapes)
    return rows, rates, concentration, torch.empty(batch, dtype=labels.dtype, device=labels.device)


@triton.jit
def bank_update(
    sums_ptr,
    compensation_ptr,
    counts_ptr,
    norms_ptr,
    concentrations_ptr,
    rates_ptr,
    views_ptr,
    labels_ptr,
    touched_rows_ptr,
    touched_rates_ptr,
    touched_concentration_ptr,
    slots_ptr,
    num_views,
    batch,
    dim,
    num_classes,
    view_stride,
    sample_stride,
    coordinate_stride,
    label_stride,
    UNIT: tl.constexpr,
    UNBIASED: tl.constexpr,
    CAP: tl.constexpr,
    DECAY: tl.constexpr,
    LABELS: tl.constexpr,
    SAMPLES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program for each sample: see the top of this file."""
    sample = tl.program_id(0)
    label = tl.load(labels_ptr + sample.to(tl.int64) * label_stride)
    first, last, multiplicity = _same(labels_ptr, label, batch, label_stride, LABELS)
    tl.store(slots_ptr + sample, first.to(tl.int64))
    if first == sample:
        column = tl.arange(0, BLOCK)
        inside = column < dim
        # a label that names no class leaves the bank as it is, and gets concentration and rate NaN
        known = (label >= 0) & (label < num_classes)
        sums_ptr += label * dim
        compensation_ptr += label * dim
        high = tl.load(sums_ptr + column, mask=inside & known, other=0.0)
        low = tl.load(compensation_ptr + column, mask=inside & known, other=0.0)
        count = tl.load(counts_ptr + label, mask=known, other=float("nan"))
        norm = tl.zeros((), tl.float64)
        concentration = tl.zeros((), tl.float64)
        rate = tl.zeros((), tl.float64)
        forget = tl.full((), DECAY, tl.float32)
        keep = tl.where(count > 0, forget, 0.0)  # the first samples replace an initial direction
        entry = tl.zeros((), tl.int64)
        for _ in range(num_views):
            total = _total(
                views_ptr, labels_ptr, label, first, last, dim, sample_stride, coordinate_stride, label_stride, UNIT, SAMPLES, BLOCK
            )
            high, low = _two_words(high * keep, low * keep, total)
            count = count * keep.to(tl.float64) + multiplicity.to(tl.float64)
            keep = forget
            wide = high.to(tl.float64)
            norm = tl.sqrt(tl.sum(wide * wide, 0))
            concentration = _concentration(norm / count, count, dim, UNBIASED, CAP)
            rate = concentration / tl.where(norm > 0, norm, float("inf"))
            for start in range(first, last + 1, SAMPLES):
                index, here = _matches(labels_ptr, label, start, last, label_stride, SAMPLES)
                rows = (entry + index)[:, None] * dim + column[None, :]
                tl.store(touched_rows_ptr + rows, tl.broadcast_to(high[None, :], (SAMPLES, BLOCK)), mask=here[:, None] & inside[None, :])
                ones = tl.full((SAMPLES,), 1, tl.float32)
                tl.store(touched_rates_ptr + entry + index, ones * rate.to(tl.float32), mask=here)
                tl.store(touched_concentration_ptr + entry + index, ones * concentration.to(tl.float32), mask=here)
            entry += batch
            views_ptr += view_stride
        tl.debug_barrier()  # every warp has read the row before one of them writes it
        tl.store(sums_ptr + column, high, mask=inside & known)
        tl.store(compensation_ptr + column, low, mask=inside & known)
        tl.store(counts_ptr + label, count, mask=known)
        tl.store(norms_ptr + label, norm, mask=known)
        tl.store(concentrations_ptr + label, concentration.to(tl.float32), mask=known)
        tl.store(rates_ptr + label, rate.to(tl.float32), mask=known)


@triton.jit
def _same(labels_ptr, label, batch, label_stride, LABELS: tl.constexpr):
    """The first and the last sample with a label, and how many there are."""
    first = tl.zeros((), tl.int32) + batch
    last = tl.full((), -1, tl.int32)
    multiplicity = tl.zeros((), tl.int32)
    for start in range(0, batch, LABELS):
        index = start + tl.arange(0, LABELS)
        equal = (tl.load(labels_ptr + index.to(tl.int64) * label_stride, mask=index < batch, other=0) == label) & (index < batch)
        first = tl.minimum(first, tl.min(tl.where(equal, index, batch), 0))
        last = tl.maximum(last, tl.max(tl.where(equal, index, -1), 0))
        multiplicity += tl.sum(equal.to(tl.int32), 0)
    return first, last, multiplicity


@triton.jit
def _matches(labels_ptr, label, start, last, label_stride, SAMPLES: tl.constexpr):
    """Samples from a start on, and which of them have a label."""
    index = start + tl.arange(0, SAMPLES)
    here = index <= last
    return index, here & (tl.load(labels_ptr + index.to(tl.int64) * label_stride, mask=here, other=0) == label)


@triton.jit
def _total(
    features_ptr,
    labels_ptr,
    label,
    first,
    last,
    dim,
    sample_stride,
    coordinate_stride,
    label_stride,
    UNIT: tl.constexpr,
    SAMPLES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The sum of one view's features that have a label."""
    column = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(first, last + 1, SAMPLES):
        index, here = _matches(labels_ptr, label, start, last, label_stride, SAMPLES)
        if tl.max(here.to(tl.int32), 0) > 0:
            places = index.to(tl.int64)[:, None] * sample_stride + column.to(tl.int64)[None, :] * coordinate_stride
            features = tl.load(features_ptr + places, mask=here[:, None] & (column < dim)[None, :], other=0.0).to(tl.float32)
            if UNIT:
                length = tl.sqrt_rn(tl.sum(features * features, 1))
                features = tl.div_rn(features, tl.where(length < _SHORTEST, _SHORTEST, length)[:, None])
            total += tl.sum(features, 0)
    return total


@triton.jit
def _two_words(high, low, addend):
    """high + low + addend, renormalised, as `sphere.statistics` does it."""
    total = high + addend
    part = total - high
    low = low + ((high - (total - part)) + (addend - part))
    top = total + low
    return top, low - (top - total)


@triton.jit
def _concentration(length, count, dim, UNBIASED: tl.constexpr, CAP: tl.constexpr):
    """The closed form of `sphere.resultant.ConcentrationRule`, dim R / (1 - R^2), at most the cap."""
    cap = tl.full((), CAP, tl.float64)
    if UNBIASED:
        several = count > 1
        squared = (count * length * length - 1) / tl.where(several, count - 1, 1.0)
        length = tl.where(several, tl.sqrt(tl.where(squared < 0, 0.0, squared)), 0.0)
    rest = (1 - length) * (1 + length)
    full = rest <= 0  # not where the length is NaN, which stays
    concentration = tl.where(full, cap, dim.to(tl.float64) * length) / tl.where(full, 1.0, rest)
    return tl.where(concentration > cap, cap, concentration)
