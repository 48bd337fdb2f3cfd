"""Cross-entropy with a class prior: logit adjustment (LA), and temperature logit adjustment (TLA)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from pairgrad.ground.checks import (
    HALF_DTYPES,
    LARGEST,
    computing_dtype,
    dense,
    describe,
    floating_tensor,
    integer_at_least,
    on_one_device,
    readable,
    real_number,
)
from pairgrad.ground.devices import HOST, has_values, kind, widened
from pairgrad.losses.reduction import check_reduction, reduce

_HINT = "give the number of training samples of every class, in the order of the labels"


def log_prior(class_counts: Sequence[float] | torch.Tensor) -> torch.Tensor:
    r"""\(b_k = \log \pi_k = \log (n_k / \sum_j n_j)\), the long-tail prior of eq. view-loss, in float64.

    A class with count 0 gets \(-\infty\). Counts need not be integers: frequencies do as well. The result is on the device of the counts (on the CPU
    if that has no float64).

    Examples:
        >>> log_prior([50, 30, 20]).exp()
        tensor([0.5000, 0.3000, 0.2000], dtype=torch.float64)
    """
    counts = real_vector("class_counts", class_counts, _HINT)
    if not bool(((counts >= 0) & counts.isfinite()).all()):
        raise ValueError(f"class_counts must be finite and >= 0, got values from {counts.min():g} to {counts.max():g}: {_HINT}")
    largest = counts.max()
    if largest == 0:
        raise ValueError(f"class_counts must have a positive entry, got {counts.numel()} zeros: {_HINT}")
    shares = counts / largest  # so that their sum does not overflow
    prior = torch.log(shares / shares.sum())
    return prior.to(class_counts.device) if isinstance(class_counts, torch.Tensor) and kind(class_counts.device).float64 else prior


def check_strength(name: str, strength: float, prior: torch.Tensor, dtype: torch.dtype) -> None:
    """A ValueError where the strongest log prior of a class that can occur is no number in `dtype`."""
    finite = prior[prior > -torch.finfo(torch.float64).max]
    if not bool(finite.to(dtype).isfinite().all()) or not finite.numel():
        raise ValueError(f"{name} must keep {name} times the log prior a number in {dtype}, got {strength:g}: 1 is the prior itself")


def kept_counts(class_counts: Sequence[float] | torch.Tensor) -> torch.Tensor:
    """A copy on the CPU, where it stays, whichever way the loss goes."""
    return real_vector("class_counts", class_counts, _HINT)


def check_possible(name: str, labels: torch.Tensor, impossible: torch.Tensor) -> None:
    """A ValueError where a label, of those marked, is a class that cannot occur."""
    if bool(impossible.any()):
        raise ValueError(
            f"{name} must not name a class with count 0, got class {labels[impossible][0].item()}: its prior probability is 0 and the loss would "
            "be infinite; count it in class_counts"
        )


def check_same_prior(part: str, module: Any, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    """A hook of `load_state_dict`: the prior of the submodule `part` in the file, which it would take over, must be that of the whole loss."""
    theirs, errors = state.get(f"{prefix}{part}.log_prior"), rest[-1]
    ours = getattr(module, part).log_prior
    if not has_values(ours) and module.class_counts is not None:
        ours = log_prior(module.class_counts)
    if not isinstance(theirs, torch.Tensor) or not (has_values(theirs) and has_values(ours)) or ours.shape != theirs.shape:
        return  # of the shape torch itself says what is wrong
    if not torch.allclose(widened(theirs.detach()).to(HOST), widened(ours).to(HOST), rtol=1e-5, atol=1e-5):
        errors.append(
            f"class_counts of this {type(module).__name__} must be those of the checkpoint, got another log prior: make the loss with the same "
            "class_counts, and call set_prior(...) after loading to change them"
        )


class _PriorAdjusted(nn.Module):
    """Cross-entropy of logits / temperature + strength * log prior; the two public classes choose which of the two factors can be set."""

    log_prior: torch.Tensor
    weight: torch.Tensor | None

    def __init__(
        self,
        class_counts: Sequence[float] | torch.Tensor,
        temperature: float,
        strength: float,
        weight: Sequence[float] | torch.Tensor | None,
        label_smoothing: float,
        ignore_index: int,
        reduction: str,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.temperature = real_number("temperature", temperature, "a finite number > 0", lambda v: 0 < v < math.inf)
        self.strength = real_number("strength", strength, "a finite number >= 0", lambda v: 0 <= v < math.inf)
        self.label_smoothing = real_number("label_smoothing", label_smoothing, "a number in [0, 1]", lambda v: 0 <= v <= 1)
        self.ignore_index = integer_at_least("ignore_index", ignore_index, -LARGEST - 1)
        self.reduction = check_reduction(reduction)
        prior = log_prior(class_counts)
        prior = self.strength * prior if self.strength else torch.zeros_like(prior)  # 0 times -inf: no adjustment
        if self.label_smoothing > 0 and bool(prior.isinf().any()):
            raise ValueError(
                f"label_smoothing must be 0 when a class has count 0, got {self.label_smoothing}: it gives every class a share of every label, "
                "and a class of probability 0 then makes each loss infinite; leave those classes out, or give them a small count"
            )
        kept = computing_dtype("dtype", torch.get_default_dtype() if dtype is None else dtype)
        check_strength("strength", self.strength, prior, kept)
        device = class_counts.device if isinstance(class_counts, torch.Tensor) else None
        self.register_buffer("log_prior", prior.to(dtype=kept, device=device))
        self.register_buffer("weight", None if weight is None else self._checked_weight(weight).to(dtype=kept, device=device))

    def _checked_weight(self, weight: Sequence[float] | torch.Tensor) -> torch.Tensor:
        values = real_vector("weight", weight, "give one factor per class, or None")
        if values.numel() != self.num_classes:
            raise ValueError(f"weight must have one entry for each of the {self.num_classes} classes, got {values.numel()}")
        if not bool(((values >= 0) & values.isfinite()).all()):
            raise ValueError(f"weight must be finite and >= 0, got values from {values.min():g} to {values.max():g}")
        return values

    @property
    def num_classes(self) -> int:
        """How many classes the prior has."""
        return self.log_prior.numel()

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        """As for every module, except that `.half()` and `.bfloat16()` move the prior and the weights but leave their precision alone."""
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            if getattr(self, name).dtype in HALF_DTYPES:
                setattr(self, name, buffer.to(getattr(self, name).device))
        return self

    def adjusted(self, logits: torch.Tensor) -> torch.Tensor:
        """logits / temperature + strength * log prior, (B, K), of which `forward` takes the cross-entropy."""
        self._check_logits(logits)
        return self._adjusted(logits)

    def _adjusted(self, logits: torch.Tensor) -> torch.Tensor:
        z = logits.to(computing_dtype("logits", logits.dtype))
        if self.temperature != 1:
            z = z / self.temperature
        z = z + self.log_prior.to(z.dtype)
        if readable(z) and not bool(z.detach().amax(1).isfinite().all()):
            raise ValueError(
                f"logits must leave every row a class that can occur, with logits / temperature a number, got none or infinity in {describe(logits)} at "
                f"temperature {self.temperature:g}: -inf, or a count of 0, leaves a class out"
            )
        return z

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss of logits of shape (B, K) against labels of shape (B,), or against class probabilities of shape (B, K)."""
        self._check_logits(logits)
        if not isinstance(labels, torch.Tensor):
            raise TypeError(f"labels must be a tensor of integers or of class probabilities, got {describe(labels)}")
        dense("labels", labels)
        on_one_device("logits", logits, "labels", labels)
        if labels.is_floating_point():
            return self._from_probabilities(logits, labels)
        return self._from_labels(logits, labels)

    def _from_labels(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if labels.dtype == torch.bool or labels.is_complex() or labels.shape != logits.shape[:1]:
            raise ValueError(
                f"labels must be integers of shape ({logits.shape[0]},) or class probabilities of shape {tuple(logits.shape)}, "
                f"got {describe(labels)}"
            )
        labels = labels.long()
        taken = labels != self.ignore_index
        if readable(labels):
            inside = (labels >= 0) & (labels < self.num_classes)
            if not bool((inside | ~taken).all()):
                wrong = labels[taken & ~inside][0].item()
                raise ValueError(
                    f"labels must lie in [0, {self.num_classes - 1}] or be ignore_index = {self.ignore_index}, got the label {wrong}"
                )
        places = torch.where(taken, labels, 0)
        if readable(labels):
            check_possible("labels", places, taken & self.log_prior[places].isinf())
        adjusted = self._adjusted(logits)
        weight = None if self.weight is None else self.weight.to(adjusted.dtype)
        losses = F.cross_entropy(
            adjusted, labels, weight, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing, reduction="none"
        )
        counted = taken.to(adjusted.dtype) if weight is None else weight[places] * taken
        return reduce(losses, self.reduction, counted.sum())

    def _from_probabilities(self, logits: torch.Tensor, probabilities: torch.Tensor) -> torch.Tensor:
        floating_tensor("labels", probabilities)
        if probabilities.shape != logits.shape:
            raise ValueError(
                f"labels of a floating dtype are class probabilities and must have the shape of logits, {tuple(logits.shape)}, "
                f"got {describe(probabilities)}: for class numbers give integers, e.g. labels.long()"
            )
        if self.ignore_index >= 0:
            raise ValueError(
                f"labels must be integers when ignore_index is a class, got ignore_index = {self.ignore_index} and {describe(probabilities)}"
            )
        if readable(probabilities):
            if not bool(((probabilities >= 0) & probabilities.isfinite()).all()):
                raise ValueError(
                    f"labels that are class probabilities must be finite and >= 0, got {describe(probabilities)} with other values"
                )
            impossible = (probabilities > 0) & self.log_prior.isinf()
            check_possible("labels", torch.arange(self.num_classes).expand(probabilities.shape), impossible)
        adjusted = self._adjusted(logits)
        shares = probabilities.to(adjusted.dtype)
        if self.label_smoothing > 0:
            shares = shares * (1 - self.label_smoothing) + self.label_smoothing / self.num_classes
        log_probabilities = torch.where(shares > 0, F.log_softmax(adjusted, 1), 0.0)  # 0 log 0 = 0, for classes of count 0
        if self.weight is not None:
            shares = shares * self.weight.to(adjusted.dtype)
        return reduce(-(shares * log_probabilities).sum(1), self.reduction)

    def _check_logits(self, logits: torch.Tensor) -> None:
        floating_tensor("logits", logits)
        if logits.dim() != 2 or logits.shape[1] != self.num_classes:
            raise ValueError(
                f"logits must have shape (batch, {self.num_classes}), one column for each entry of class_counts, got {describe(logits)}"
            )
        if logits.device != self.log_prior.device:
            raise ValueError(
                f"logits must be on the device of the prior, {self.log_prior.device}, got {describe(logits)}: move the loss with .to(logits.device)"
            )
        if readable(logits) and bool((logits.isnan() | (logits == torch.inf)).any()):
            raise ValueError(
                f"logits must not be NaN or +inf (-inf leaves a class out), got such values in {describe(logits)}: look at the layers before the loss"
            )

    def extra_repr(self) -> str:
        return f"num_classes={self.num_classes}, temperature={self.temperature:g}, strength={self.strength:g}, reduction={self.reduction!r}"


class LogitAdjust(_PriorAdjusted):
    r"""Cross-entropy of logits plus a class prior: \(\ell_i = -\log \operatorname{softmax}_{y_i}(z_i + \tau b)\), with b = log pi (eq. view-loss).

    float16 and bfloat16 logits are computed, and the loss returned, in float32. The prior is computed in float64 and kept as a buffer, strength
    included, in `dtype`; `.half()` and `.bfloat16()` leave it in that dtype, because rounding it would move every class by another amount, and
    `.float()` and `.double()` convert it as they convert everything.

    Args:
        class_counts: (K,), training samples per class. A class with count 0 gets probability 0: it may not be a label.
        strength: tau >= 0; 0 is plain cross-entropy.
        weight: (K,), a factor per class, as in `torch.nn.functional.cross_entropy`, whose mean over labels divides by the sum of factors.
        label_smoothing: in [0, 1], the share of each label that is spread over all classes.
        ignore_index: samples with this label do not count.
        reduction: `"mean"`, `"sum"`, or `"none"`. Where nothing counts, the mean is 0 and sends back zeros.
        dtype: of the buffers, float32 or float64; None for torch's default dtype. With float64 logits, choose float64.

    Examples:
        >>> import torch
        >>> loss = LogitAdjust([900, 100])
        >>> loss(torch.zeros(1, 2), torch.tensor([1])).neg().exp()
        tensor(0.1000)
    """

    def __init__(
        self,
        class_counts: Sequence[float] | torch.Tensor,
        strength: float = 1.0,
        weight: Sequence[float] | torch.Tensor | None = None,
        *,
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
        reduction: str = "mean",
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(class_counts, 1.0, strength, weight, label_smoothing, ignore_index, reduction, dtype)


class TemperatureLogitAdjust(_PriorAdjusted):
    r"""Logit adjustment with a temperature on the logits alone: \(\ell_i = -\log \operatorname{softmax}_{y_i}(z_i / T + \tau b)\).

    \(L_{\mathrm{TLA}}\) of eq. patt-total [he2025patt]. The prior is not divided by T.

    Args:
        class_counts: (K,), as for [`LogitAdjust`][pairgrad.LogitAdjust], like all the arguments below.
        temperature: T > 0. PATT's code takes 0.9 for CIFAR and 0.7 for ImageNet.
        strength: tau >= 0.
        weight: (K,), a factor per class.
        label_smoothing: in [0, 1].
        ignore_index: samples with this label do not count.
        reduction: `"mean"`, `"sum"`, or `"none"`.
        dtype: of the buffers.

    Examples:
        >>> import torch
        >>> loss = TemperatureLogitAdjust([900, 100], temperature=0.5)
        >>> loss.adjusted(torch.tensor([[0.0, 1.0]])).exp()
        tensor([[0.9000, 0.7389]])
    """

    def __init__(
        self,
        class_counts: Sequence[float] | torch.Tensor,
        temperature: float = 0.9,
        strength: float = 1.0,
        weight: Sequence[float] | torch.Tensor | None = None,
        *,
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
        reduction: str = "mean",
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(class_counts, temperature, strength, weight, label_smoothing, ignore_index, reduction, dtype)


def real_vector(name: str, values: Any, hint: str) -> torch.Tensor:
    """`values` copied to a float64 CPU vector of at least one element; not every device has float64."""
    if isinstance(values, torch.Tensor):
        dense(name, values)
        if values.is_quantized or not has_values(values):
            raise TypeError(f"{name} must hold numbers, got {describe(values)}: {hint}")
    try:
        given = torch.as_tensor(values, device=HOST)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise TypeError(f"{name} must be a one-dimensional sequence or tensor of numbers, got {describe(values)}: {hint}") from None
    if given.dtype == torch.bool or given.is_complex():
        raise TypeError(f"{name} must hold real numbers, got {describe(given)}: {hint}")
    if given.dim() != 1 or given.numel() == 0:
        raise ValueError(f"{name} must have one dimension and at least one entry, got {describe(given)}: {hint}")
    return torch.as_tensor(values, dtype=torch.float64, device=HOST).detach().clone()  # `given` has Python floats in float32
