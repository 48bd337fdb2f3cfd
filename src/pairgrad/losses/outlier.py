"""Outlier exposure (OE): logits of inputs that belong to no class are pulled towards the uniform distribution."""

from __future__ import annotations

import torch
from torch import nn

from pairgrad.ground.checks import computing_dtype, describe, floating_tensor, readable
from pairgrad.losses.reduction import check_reduction, reduce


class OutlierExposure(nn.Module):
    r"""Cross-entropy from the uniform distribution to the softmax of outlier logits: \(L_{\mathrm{OE}}\) of eq. patt-total [he2025patt].

    \[\ell_i = \log\sum_{k=1}^{K} e^{z_{ik}} - \frac1K \sum_{k=1}^{K} z_{ik},\]

    at least log K, with equality for equal logits. No temperature and no prior enter. Logits are taken relative to the largest of their row, so a
    common offset costs no digits. float16 and bfloat16 logits are computed, and the loss returned, in float32.

    Args:
        reduction: `"mean"` over outliers, `"sum"`, or `"none"`. The mean of no outliers is 0 and sends back zeros.

    Examples:
        >>> import torch
        >>> round(OutlierExposure()(torch.zeros(3, 8)).item(), 4)  # log 8
        2.0794
        >>> OutlierExposure()(torch.zeros(0, 8))
        tensor(0.)
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = check_reduction(reduction)

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        """The loss of outlier logits of shape (B, K)."""
        floating_tensor("logits", logits)
        if logits.dim() != 2 or logits.shape[1] < 1:
            raise ValueError(f"logits must have shape (batch, num_classes), got {describe(logits)}: one row of class logits per outlier")
        if readable(logits) and not bool(torch.isfinite(logits).all()):
            raise ValueError(f"logits must be finite, got NaN or infinity in {describe(logits)}: look at the layers before the loss")
        z = logits.to(computing_dtype("logits", logits.dtype))
        z = z - z.detach().amax(1, keepdim=True)
        return reduce(torch.logsumexp(z, 1) - z.mean(1), self.reduction)

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"
