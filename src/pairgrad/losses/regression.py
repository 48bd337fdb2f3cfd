"""Regression of directions: the negative log-likelihood of a von Mises-Fisher (vMF) distribution that a network predicts."""

from __future__ import annotations

import math
import numbers

import torch
from torch import nn

from pairgrad.ground.arithmetic import as_float
from pairgrad.ground.checks import HALF_DTYPES, computing_dtype, describe, floating_tensor, on_one_device, readable, real_number
from pairgrad.ground.devices import HOST, widest
from pairgrad.losses.reduction import check_reduction, reduce
from pairgrad.potentials import Potential, potential
from pairgrad.potentials.autograd import differentiable

# A target of length 1 + e counts the angle (1 + e) times and adds kappa e^2 / 2. Rounded unit vectors have e below 1e-6 in float32, below 1e-3 in
# float16 and below 4e-3 in bfloat16.
UNIT_TOLERANCE, HALF_UNIT_TOLERANCE = 1e-3, 1e-2


def _constant(pot: Potential) -> float:
    return pot.offset + as_float(pot.nu + 1) * math.log(2 * math.pi)


def _log_area(pot: Potential, x: torch.Tensor) -> torch.Tensor:
    """-log C_p(x) - x: one number per sample, so float64 costs nothing where the device has it."""
    wide = x.to(widest(x.device))
    return (_constant(pot) - pot.deficit(wide)).to(x.dtype)


# at x = 0 the logarithm of the area of the sphere; from there it falls with the slope that the potential supplies, less 1
log_area = differentiable(_log_area, lambda pot, _, x: -pot.complement(x))


class VMFRegressionLoss(nn.Module):
    r"""\(-\log p(t) = -\log C_p(\kappa) - \kappa\, \mu^\top t\) of unit vectors t under the vMF distribution that was predicted.

    With \(-\log C_p(\kappa) = \Phi_\nu(\kappa) + \tfrac p2 \log 2\pi\), \(\nu = p/2 - 1\) (\(\Phi_\nu\): eq. patt-score-def), the loss is evaluated as

    \[\bigl[\Phi_\nu(\kappa) - \kappa + \tfrac p2 \log 2\pi\bigr] + \tfrac{\kappa}{2} \lVert \mu - t \rVert^2,\]

    because \(\Phi_\nu(\kappa)\) and \(\kappa\,\mu^\top t\) are both close to \(\kappa\). The bracket is one number per sample, computed in float64 and
    supplied with the derivative \(-(1 - R_\nu)\), which does not cancel either; the squared distance does not depend, to first order, on the
    rounding of the lengths of mu and t.

    Accuracy with `"paired"`, in roundings u of the dtype: values are right to a few u of the two terms, of the logarithm of the area of the sphere and
    of kappa ||mu - t||; coordinates of the gradient to a few u of those of mu and t, and the derivative by kappa to a few u of 1 - R and ||mu - t||.

    A network predicts either a vector of any length, whose direction is mu and whose length is kappa, or a direction and a concentration. In the
    first case the loss is smooth everywhere, at 0 too, where its gradient is -t and its Hessian I / p. float16 and bfloat16 are computed, and the loss
    returned, in float32; of different dtypes the widest is taken.

    Args:
        dim: p >= 2, the number of coordinates.
        realization: how the potential is computed, one of `pairgrad.realizations()`.
        reduction: `"mean"`, `"sum"`, or `"none"`. The mean of no samples is 0 and sends back zeros.

    Examples:
        >>> import torch
        >>> loss = VMFRegressionLoss(dim=3)
        >>> target = torch.tensor([[0.0, 0.0, 1.0]])
        >>> round(loss(torch.zeros(1, 3), target).item(), 4)  # concentration 0 is the uniform density, 1 / (4 pi)
        2.531
        >>> loss(torch.tensor([[0.0, 0.0, 50.0]]), target) < loss(torch.tensor([[0.0, 0.0, 5.0]]), target)
        tensor(True)
    """

    def __init__(self, dim: int, realization: str = "paired", reduction: str = "mean") -> None:
        super().__init__()
        self.potential = potential(dim, realization)
        self.dim = int(dim)
        self.reduction = check_reduction(reduction)
        zero = torch.zeros(1, dtype=torch.float64, device=HOST)
        # the potential near 0 is value_at_zero + bend_at_zero x^2 / 2; "paired" has 1 / p
        self._value_at_zero = float(self.potential.value(zero)) + _constant(self.potential)
        self._bend_at_zero = float(self.potential.curvature(zero))

    def forward(self, prediction: torch.Tensor, target: torch.Tensor, concentration: torch.Tensor | float | None = None) -> torch.Tensor:
        """The loss of predictions against unit vectors.

        Args:
            prediction: (..., dim). Without `concentration`, its length is the concentration; with it, only its direction is used.
            target: (..., dim), of the shape of `prediction`: unit vectors, to within 1e-3 (1e-2 in float16 and bfloat16).
            concentration: (...), or a single number for all: finite and >= 0.

        Raises:
            ValueError: for NaN, infinity, targets of another length, negative concentrations, and a direction of length 0. Values are looked at where
                that costs no synchronisation: plain CPU tensors, outside torch.compile and torch.func.
        """
        self._check_vectors(prediction, target)
        kappa = None if concentration is None else self._checked_concentration(concentration, prediction)
        wide = any(t is not None and t.dtype == torch.float64 for t in (prediction, target, kappa))
        dtype = torch.float64 if wide else torch.float32
        vector, unit = prediction.to(dtype), target.to(dtype)
        if kappa is None:
            return reduce(self._of_vector(vector, unit), self.reduction)
        direction, _ = _polar(vector)
        return reduce(self._of_direction(kappa.to(dtype), direction, unit), self.reduction)

    def _of_direction(self, kappa: torch.Tensor, direction: torch.Tensor, unit: torch.Tensor) -> torch.Tensor:
        return log_area(self.potential, kappa) + kappa * ((direction - unit).square().sum(-1) / 2)

    def _of_vector(self, vector: torch.Tensor, unit: torch.Tensor) -> torch.Tensor:
        """Around 0 directions are no coordinates; there the loss is Phi(0) + Phi''(0) v.v / 2 - v.t, up to |v|^4 / (4 p^3).

        At the border, |v| <= u^(1/3) p with u the rounding, the gradient changes by u and the Hessian by u^(2/3), relative to 1 and to 1 / p; by
        as much do the derivatives of the direction cancel just outside.
        """
        border = (torch.finfo(vector.dtype).eps / 2) ** (1 / 3) * math.sqrt(self.dim)
        near = vector.detach().abs().amax(-1) <= border
        direction, kappa = _polar(torch.where(near[..., None], 1.0, vector))  # what is not chosen must have a gradient too
        at_zero = self._value_at_zero + self._bend_at_zero / 2 * vector.square().sum(-1) - (vector * unit).sum(-1)
        return torch.where(near, at_zero, self._of_direction(kappa, direction, unit))

    def _check_vectors(self, prediction: torch.Tensor, target: torch.Tensor) -> None:
        for name, value in (("prediction", prediction), ("target", target)):
            floating_tensor(name, value)
            if value.dim() < 1 or value.shape[-1] != self.dim:
                raise ValueError(f"{name} must have shape (..., {self.dim}), got {describe(value)}: dim is {self.dim}")
        if prediction.shape != target.shape:
            raise ValueError(
                f"prediction and target must have one shape, got {tuple(prediction.shape)} and {tuple(target.shape)}: expand one of them if you mean to"
            )
        on_one_device("prediction", prediction, "target", target)
        if readable(prediction) and not bool(prediction.isfinite().all()):
            raise ValueError(
                f"prediction must be finite, got NaN or infinity in {describe(prediction)}: look at the layers before the loss"
            )
        if readable(target):
            tolerance = HALF_UNIT_TOLERANCE if target.dtype in HALF_DTYPES else UNIT_TOLERANCE
            lengths = torch.linalg.vector_norm(target.detach().to(computing_dtype("target", target.dtype)), dim=-1)
            wrong = ~((lengths - 1).abs() <= tolerance)
            if bool(wrong.any()):
                raise ValueError(
                    f"target must hold unit vectors, of length 1 to within {tolerance:g}, got the length {lengths[wrong][0].item():g} in {describe(target)}: "
                    "divide by the length, e.g. torch.nn.functional.normalize(target, dim=-1)"
                )

    def _checked_concentration(self, concentration: torch.Tensor | float, prediction: torch.Tensor) -> torch.Tensor:
        shape = prediction.shape[:-1]
        if isinstance(concentration, numbers.Real) and not isinstance(concentration, bool):
            dtype = computing_dtype("prediction", prediction.dtype)
            number = real_number("concentration", concentration, "finite and >= 0", lambda value: 0 <= value <= torch.finfo(dtype).max)
            kappa = torch.full((), number, dtype=dtype, device=prediction.device)
        else:
            kappa = floating_tensor("concentration", concentration)
        if kappa.shape not in ((), shape):
            raise ValueError(
                f"concentration must have shape {tuple(shape)}, that of prediction without its last dimension, or (), got {describe(kappa)}"
            )
        on_one_device("prediction", prediction, "concentration", kappa)
        if readable(kappa):
            values = kappa.detach()
            wrong = ~((values >= 0) & values.isfinite())
            if bool(wrong.any()):
                raise ValueError(
                    f"concentration must be finite and >= 0, got {values[wrong][0].item():g} in {describe(kappa)}: "
                    "apply e.g. torch.nn.functional.softplus to the output that predicts it"
                )
        if readable(prediction) and not bool((prediction != 0).any(-1).all()):
            raise ValueError(
                "prediction must not be 0 when concentration is given, got a vector of length 0: it has no direction; leave concentration out if the "
                "length of prediction is meant to be the concentration"
            )
        return kappa

    def extra_repr(self) -> str:
        return f"dim={self.dim}, realization={self.potential.realization!r}, reduction={self.reduction!r}"


def _polar(vector: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Direction and length. The squares are taken relative to the largest coordinate, so that none overflows; that scale is no variable."""
    largest = vector.detach().abs().amax(-1, keepdim=True)
    length = largest * torch.linalg.vector_norm(vector / largest, dim=-1, keepdim=True)
    return vector / length, length.squeeze(-1)
