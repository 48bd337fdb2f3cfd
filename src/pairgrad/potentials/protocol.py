"""The protocol every realization follows: a potential, the slope it supplies, and what can be derived from the two."""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import torch

from pairgrad.ground.certificate import Certificate
from pairgrad.ground.checks import HALF_DTYPES, computing_dtype, floating_tensor, one_of
from pairgrad.ground.devices import kind
from pairgrad.ground.precision import autocast_enabled
from pairgrad.potentials import inverse, kernels
from pairgrad.potentials.formulas import Formulas

RATIO_ERROR = "sup over x >= 0 of |slope(x) - R(x)|"


class Pair(NamedTuple):
    """A value and the derivative supplied for it. They leave a function together."""

    value: torch.Tensor
    slope: torch.Tensor


def dtype_on(pot: Potential, device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a potential computes, given `dtype` on a device; a ValueError where the device does not have it."""
    compute = pot.compute_dtype(dtype)
    if compute == torch.float64 and not kind(device).float64:
        raise ValueError(
            f"realization must be one that computes in the dtype of its argument on {device}, which has no float64, got {pot.realization!r}: use 'paired', "
            "or move the tensors to the CPU"
        )
    return compute


def result_dtype(dtype: torch.dtype, device_type: str) -> torch.dtype:
    """The dtype of the argument; under autocast, float32 for the dtypes that are computed in it."""
    if dtype in HALF_DTYPES and autocast_enabled(device_type):
        return torch.float32
    return dtype


class Potential(ABC):
    r"""One realization of the vMF potential \(\Phi_\nu(x) = \log I_\nu(x) - \nu \log x\) and of its slope \(R_\nu = I_{\nu+1}/I_\nu\).

    The two, and that the second is the derivative of the first, are eqs. main-vmf-pair and potential-identity.

    All methods are elementwise on float32 or float64 tensors of any shape and device (float16 and bfloat16 are computed in float32 and
    returned in their own dtype, or in float32 under autocast). Values are even in x and slopes odd; NaN propagates; at infinity the limits
    are taken. `value`, `slope`, `difference`, `secant`, `increment`, `complement`, `deficit`, `legendre`, `bregman` and `concentration` are differentiable,
    twice (for the recurrences: value, difference and deficit twice, the rest once), with the slope that this realization *supplies*: for a coherent
    one that is the derivative of its value, for `"original"` it is not.

    Made by [`pairgrad.potential`][pairgrad.potential], which holds one object per set of arguments.
    """

    realization: ClassVar[str]
    summary: ClassVar[str]
    trade: ClassVar[str]
    coherent: ClassVar[bool] = True
    to_rounding: bool = True  # the slope is R up to rounding
    invertible: bool = True  # the slope increases with x
    _no_theorem: ClassVar[str] = "no error bound has been proven for it; use realization='paired'"

    nu: Fraction
    options: dict[str, Any]

    def __init__(self, nu: Fraction, **options: Any) -> None:
        self.nu = nu
        self.options = options

    @abstractmethod
    def formulas(self, dtype: torch.dtype = torch.float64) -> Formulas:
        """The formulas that run for tensors of `dtype`; they can be evaluated in other arithmetics too."""

    def compute_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype the formulas are evaluated in for arguments of `dtype`."""
        return computing_dtype("dtype", dtype)

    @property
    @abstractmethod
    def offset(self) -> float:
        """The constant with Phi = value + offset, up to the error of the realization."""

    def ratio_certificate(self, dtype: torch.dtype = torch.float64) -> Certificate:
        """What is proven about sup over x >= 0 of |slope(x) - R(x)|, in exact arithmetic: the bound, its hypothesis, or why there is none."""
        return Certificate(RATIO_ERROR, None, "", "", "none", f"realization {self.realization!r}: {self._no_theorem}")

    def ratio_bound(self, dtype: torch.dtype = torch.float64) -> float | None:
        """A proven bound of sup over x >= 0 of |slope(x) - R(x)|, or None where there is no theorem (`ratio_certificate` says why).

        A theorem about the formulas that run for tensors of `dtype`, in exact arithmetic; the rounding of their evaluation comes on top.
        """
        return self.ratio_certificate(dtype).bound

    def value(self, x: torch.Tensor) -> torch.Tensor:
        """The potential; backward multiplies by the supplied slope."""
        return self._elementwise(kernels.value, x=x)

    def slope(self, x: torch.Tensor) -> torch.Tensor:
        """The derivative this realization supplies for `value`."""
        return self._elementwise(kernels.slope, x=x)

    def pair(self, x: torch.Tensor) -> Pair:
        """Value and supplied slope, computed together."""
        if torch.compiler.is_compiling():  # the compiler shares what the two have in common
            return Pair(self.value(x), self.slope(x))
        floating_tensor("x", x)
        results = kernels.pair(self, x.to(dtype_on(self, x.device, x.dtype)))
        return Pair(*(result.to(result_dtype(x.dtype, x.device.type)) for result in results))

    def curvature(self, x: torch.Tensor) -> torch.Tensor:
        """The derivative of the supplied slope."""
        return self._elementwise(kernels.curvature, x=x)

    def derivative(self, x: torch.Tensor) -> torch.Tensor:
        """The derivative of `value` as this realization computes it, whatever slope it supplies; differentiable.

        The slope itself, for a coherent realization. For the recurrences, the derivative of the finite value, through the tangent of the recurrence; for
        `"log-bessel"`, that of its expansion of log I_nu, without the rounding of the difference of logarithms.
        """
        return self._elementwise(kernels.derivative, x=x)

    def defect(self, x: torch.Tensor) -> torch.Tensor:
        """slope - derivative (eq. coherence-defect): 0 for a coherent realization. A difference, right to a few roundings of the two; differentiable."""
        return self._elementwise(kernels.defect, x=x)

    def complement(self, x: torch.Tensor) -> torch.Tensor:
        """1 - slope(x), accurate where the slope is close to 1."""
        return self._elementwise(kernels.complement, x=x)

    def deficit(self, x: torch.Tensor) -> torch.Tensor:
        """x - value(x), accurate where the value is close to x; its derivative is `complement`."""
        return self._elementwise(kernels.deficit, x=x)

    def legendre(self, x: torch.Tensor) -> torch.Tensor:
        """x slope(x) - value(x), without cancellation: the Legendre transform of the potential at slope(x).

        The Kullback-Leibler divergence from the vMF distribution of concentration x to the uniform one, for a potential that is 0 at 0.
        """
        return self._elementwise(kernels.legendre, x=x)

    def bregman(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """value(b) - value(a) - slope(a) (b - a) for a, b >= 0: how far the potential lies above its tangent at a.

        Right to a few roundings of the smallest parts it can be put together from; relative to itself to about three hundred of them at worst.

        The Kullback-Leibler divergence from the vMF distribution of concentration a to that of concentration b and the same mean direction.
        """
        return self._elementwise(kernels.bregman, a=a, b=b)

    def difference(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """value(b) - value(a), without cancellation where the realization has a secant."""
        return self._elementwise(kernels.difference, a=a, b=b)

    def secant(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """(value(b) - value(a)) / (b - a), and slope(a) where a = b."""
        return self._elementwise(kernels.secant, a=a, b=b)

    def increment(self, a: torch.Tensor, squared: torch.Tensor) -> torch.Tensor:
        """value(b) - value(a) for a >= 0 and b^2 = a^2 + `squared` (eqs. stable-delta, stable-f2).

        What a vMF score is: the square of a radius changes by an amount that is known without cancellation, and the difference of the values is
        had from it without subtracting potentials, and without the division by b that `difference` would leave to the gradient.
        """
        return self._elementwise(kernels.increment, a=a, squared=squared)

    def concentration(
        self, resultant_length: torch.Tensor, method: str = "newton", *, complement: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The x with slope(x) = `resultant_length`: maximum likelihood of a vMF concentration.

        Args:
            resultant_length: in [-1, 1]; 1 gives infinity. Outside it is an error for plain tensors on the CPU, and NaN on other devices,
                under torch.compile and under vmap, where looking would cost a synchronisation.
            method: `"newton"`, a fixed number of steps on the pair, differentiable by the implicit function theorem; or
                `"closed-form"`, the classic estimate dim r / (1 - r^2) (eq. released-state).
            complement: 1 - |resultant_length|, for `"newton"`, where it is known to more digits than the subtraction would give: from the mean squared
                distance to the mean direction, say. The gradient goes through `resultant_length`.
        """
        one_of("method", method, ("newton", "closed-form"))
        if method == "newton" and not self.invertible:
            raise ValueError(
                f"concentration needs a smooth increasing slope, and the slope of realization {self.realization!r} is clipped or not monotone: "
                "use realization='paired', or method='closed-form'"
            )
        floating_tensor("resultant_length", resultant_length)
        inverse.check_range(resultant_length)
        if complement is not None:
            if method != "newton":
                raise ValueError(f"complement is read by method='newton' only, got it with method={method!r}: leave it out")
            return self._elementwise(inverse.newton, resultant_length=resultant_length, complement=complement)
        rule = inverse.newton if method == "newton" else inverse.closed_form
        return self._elementwise(rule, resultant_length=resultant_length)

    def _elementwise(self, rule: kernels.Kernel, **arguments: torch.Tensor) -> torch.Tensor:
        tensors = [floating_tensor(name, value) for name, value in arguments.items()]
        dtype, device = tensors[0].dtype, tensors[0].device
        if len(tensors) == 2:
            dtype = torch.promote_types(dtype, tensors[1].dtype)
            if device != tensors[1].device:
                places = " and ".join(f"{name} on {t.device}" for name, t in arguments.items())
                raise ValueError(f"{' and '.join(arguments)} must be on one device, got {places}: move one with .to(...)")
            try:
                tensors = list(torch.broadcast_tensors(*tensors))
            except RuntimeError:
                shapes = " and ".join(f"{name} of shape {tuple(t.shape)}" for name, t in arguments.items())
                raise ValueError(f"{' and '.join(arguments)} must broadcast against each other, got {shapes}") from None
        compute = dtype_on(self, device, dtype)
        result = rule(self, *(t if t.dtype is compute else t.to(compute) for t in tensors))
        wanted = result_dtype(dtype, device.type)
        return result if result.dtype is wanted else result.to(wanted)

    @property
    def dim(self) -> int | None:
        """Feature dimension 2 nu + 2, or None where that is not an integer."""
        dim = 2 * self.nu + 2
        return dim.numerator if dim.denominator == 1 else None

    def _size(self) -> str:
        if self.dim is not None:
            return f"dim={self.dim}"
        return f"nu={float(self.nu) if Fraction(float(self.nu)) == self.nu else self.nu!r}"

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"pairgrad.potential({self._size()}, realization={self.realization!r}{options})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Potential) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        options = tuple((name, type(self.options[name]), self.options[name]) for name in sorted(self.options))
        return (type(self), self.nu, options)

    def __reduce__(self) -> tuple[Any, ...]:
        from pairgrad.potentials.registry import rebuild

        return rebuild, (self.realization, self.nu, self.options)
