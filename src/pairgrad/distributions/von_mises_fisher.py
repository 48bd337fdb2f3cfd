"""The von Mises-Fisher distribution as a `torch.distributions.Distribution`."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from torch.distributions import Distribution, constraints, register_kl

from pairgrad.distributions.density import few_log_densities, log_density
from pairgrad.distributions.estimate import Estimate, estimate
from pairgrad.distributions.polar import PolarAngle, moving
from pairgrad.distributions.uniform import HypersphericalUniform
from pairgrad.distributions.unit import check_batch, check_last, check_unit, directions_at, unit_arrays, unit_vector
from pairgrad.ground._torch_private import new_distribution
from pairgrad.ground.checks import (
    HALF_DTYPES,
    computing_dtype,
    describe,
    floating_tensor,
    generator_or_none,
    in_plain_memory,
    on_one_device,
    optional_boolean,
    real_number,
    shape_of,
)
from pairgrad.ground.precision import full_precision
from pairgrad.potentials.kernels import of_number
from pairgrad.potentials.protocol import result_dtype
from pairgrad.potentials.registry import paired
from pairgrad.sphere.area import log_area
from pairgrad.sphere.inputs import looks


class VonMisesFisher(Distribution):
    r"""Directions around a mean direction \(\mu\), with density \(C_p(\kappa)\,e^{\kappa\mu^\top x}\) on the unit sphere in p dimensions.

    Any dimension from 2 and any concentration from 0, where the distribution is uniform. With \(\Phi\) the potential that is 0 at 0
    ([`pairgrad.potential`][pairgrad.potential]), \(R = \Phi'\) and \(|S|\) the area of the sphere,

    \[\log f(x) = \bigl[\kappa - \Phi(\kappa)\bigr] - \tfrac\kappa2\lVert x - \mu\rVert^2 - \log|S|,\]

    which is the density above for unit vectors, and does not subtract \(\Phi(\kappa)\) from \(\kappa\mu^\top x\), two numbers close to \(\kappa\). Values,
    entropy and divergences are right to a few roundings of their terms, in float32 and float64, and differentiable twice in both parameters. Off the sphere
    the formula above defines them, so the gradient in a unit vector is \(\kappa(x-\mu)\), and its part along the sphere is what means something: parametrise
    a direction by `torch.nn.functional.normalize`, which keeps just that part.

    `sample` is exact, and `rsample` differentiable in both parameters: in the concentration by the implicit derivative of the angle
    to the mean direction, in the direction by the reflection that carries the first axis there.

    Args:
        mean_direction: (..., p), unit vectors.
        concentration: (...), finite and >= 0; broadcast against the batch of directions. A number is taken in their dtype.
        validate_args: whether to look at the values of parameters and arguments. None, the default: where that costs no synchronisation, on the CPU
            outside torch.compile and torch.func; True: on every device; False: never.

    Examples:
        >>> import torch
        >>> mu = torch.nn.functional.normalize(torch.ones(512, dtype=torch.float64), dim=-1)
        >>> kappa = torch.tensor(11.0, dtype=torch.float64, requires_grad=True)
        >>> vmf = VonMisesFisher(mu, kappa)
        >>> x = vmf.rsample((1000,), generator=torch.Generator().manual_seed(0))
        >>> x.shape, round((x.detach() @ mu).mean().item(), 3), round(vmf.mean.detach().norm().item(), 4)
        (torch.Size([1000, 512]), 0.02, 0.0215)
        >>> kl = torch.distributions.kl_divergence(vmf, VonMisesFisher(-mu, 2 * kappa))
        >>> round(kl.item(), 4)
        1.0627
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {  # pyright: ignore
        "mean_direction": unit_vector,
        "concentration": constraints.nonnegative,
    }
    support = unit_vector  # pyright: ignore
    has_rsample = True

    def __init__(self, mean_direction: torch.Tensor, concentration: torch.Tensor | float, validate_args: bool | None = None) -> None:
        validate_args = optional_boolean("validate_args", validate_args)
        floating_tensor("mean_direction", mean_direction)
        if mean_direction.dim() < 1 or mean_direction.shape[-1] < 2:
            raise ValueError(f"mean_direction must have shape (..., p) with p >= 2 coordinates, got {describe(mean_direction)}")
        if isinstance(concentration, numbers.Real) and not isinstance(concentration, bool):
            number = real_number("concentration", concentration, "finite and >= 0", lambda kappa: True)  # the sign is looked at below
            concentration = torch.full((), number, dtype=mean_direction.dtype, device=mean_direction.device)  # no copy from the host
        concentration = floating_tensor("concentration", concentration)
        on_one_device("mean_direction", mean_direction, "concentration", concentration)
        batch_shape = _batch_shape(mean_direction, concentration)
        dtype = torch.promote_types(mean_direction.dtype, concentration.dtype)
        direction, values = mean_direction.to(dtype), concentration.to(dtype)
        if mean_direction.dtype in HALF_DTYPES and dtype not in HALF_DTYPES:
            direction = torch.nn.functional.normalize(direction, dim=-1)  # a unit vector in few digits is not one in many
        self.mean_direction = direction if direction.shape[:-1] == batch_shape else direction.expand(*batch_shape, -1)
        self.concentration = values if values.shape == batch_shape else values.expand(batch_shape)
        self.estimate: Estimate | None = None
        self._potential = paired(mean_direction.shape[-1])
        self._looks = validate_args
        self._kept: dict[str, tuple[Any, Any]] = {}
        check_unit("mean_direction", mean_direction, validate_args)
        if looks(concentration, validate_args):
            _check_concentration(concentration.detach())
        super().__init__(batch_shape, mean_direction.shape[-1:], validate_args=False)  # the values have been looked at

    @classmethod
    def fit(cls, x: torch.Tensor, weights: torch.Tensor | None = None, *, estimator: str = "mle") -> VonMisesFisher:
        r"""The distribution that fits unit vectors best.

        The mean direction is that of their sum S. The concentration solves \(R(\kappa) = \lVert S\rVert / n\) for `"mle"`, maximum
        likelihood, to rounding at every dimension; \(1 - \lVert S\rVert/n\) is taken from the distances to the mean direction, so that nothing is lost for
        concentrated data. Where n is small beside \(p^2/\kappa^2\) maximum likelihood is far too high, because n directions without any preference have a
        mean of squared length 1/n; `"unbiased"` solves the same equation for the length whose square is \((n r^2 - 1)/(n - 1)\), r the length
        above, and finds 0 where that is negative. The closed forms are `"closed-form"`, \(p r / (1 - r^2)\); `"banerjee"`,
        \(r (p - r^2) / (1 - r^2)\) [banerjee2005clustering]; `"sra"`, two Newton steps from there [sra2012note]. The fit is differentiable in `x` and
        `weights`.

        Args:
            x: (..., n, p), unit vectors; each batch entry is a sample of its own.
            weights: (..., n), >= 0, floats or integers: how often each vector counts; None for once. Broadcast against the batch of x: (k, n) with (n, p) is
                k fits to the same vectors.
            estimator: one of the names above.

        Returns:
            A distribution with the batch shape of x (and weights), whose `estimate` holds the standard errors
            ([`Estimate`][pairgrad.distributions.Estimate]).

        Raises:
            ValueError: for vectors that are not unit, weights that are negative or sum to 0, and vectors that all coincide: their likelihood grows with
                the concentration without bound.
        """
        direction, concentration, facts = estimate(x, weights, estimator)
        fitted = cls(direction, concentration, validate_args=False)
        fitted._looks = None
        fitted.estimate = facts
        return fitted

    def expand(self, batch_shape: Any, _instance: Any = None) -> VonMisesFisher:
        """The same distribution with a larger batch shape; nothing is copied."""
        new: Any = new_distribution(self, VonMisesFisher, _instance)
        shape = shape_of("batch_shape", batch_shape)
        try:
            torch.broadcast_shapes(self.batch_shape, shape)
            fits = len(shape) >= len(self.batch_shape)
        except RuntimeError:
            fits = False
        if not fits:
            raise ValueError(f"batch_shape must be one that the batch {tuple(self.batch_shape)} expands to, got {tuple(shape)}")
        new.mean_direction = self.mean_direction.expand(*shape, self.dim)
        new.concentration = self.concentration.expand(shape)
        new.estimate, new._potential, new._looks, new._kept = None, self._potential, self._looks, {}
        Distribution.__init__(new, shape, self.event_shape, validate_args=False)
        return new

    @property
    def dim(self) -> int:
        """Number of coordinates, p."""
        return self.mean_direction.shape[-1]

    @property
    def mean(self) -> torch.Tensor:
        """R mu, inside the sphere: the expected vector."""
        return self._potential.slope(self.concentration)[..., None] * self.mean_direction

    @property
    def mode(self) -> torch.Tensor:
        """The mean direction."""
        return self.mean_direction

    @property
    def _across(self) -> torch.Tensor:
        """R / kappa, the variance in each direction orthogonal to mu: from R' = 1 - R^2 - (p - 1) R / kappa, which has no quotient at kappa = 0."""
        rest = self._potential.complement(self.concentration)
        return (rest * (2 - rest) - self._potential.curvature(self.concentration)) / (self.dim - 1)

    @property
    def variance(self) -> torch.Tensor:
        """Variances of the coordinates: the diagonal of `covariance`."""
        square = self.mean_direction.square()
        along = self._potential.curvature(self.concentration)[..., None]
        return along * square + self._across[..., None] * (1 - square).clamp_min(0)

    @property
    def covariance(self) -> torch.Tensor:
        """R' mu mu^T + (R / kappa) (I - mu mu^T), of shape (..., p, p)."""
        across = self._across[..., None, None]
        outer = self.mean_direction[..., :, None] * self.mean_direction[..., None, :]
        identity = torch.eye(self.dim, dtype=outer.dtype, device=outer.device)
        return self._potential.curvature(self.concentration)[..., None, None] * outer + across * (identity - outer)

    covariance_matrix = covariance  # its name in torch.distributions.MultivariateNormal

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """The logarithm of the density with respect to the area of the sphere."""
        floating_tensor("value", value)
        check_last("value", value, self.dim)
        check_batch("value", value, self.batch_shape, self.mean_direction.device)
        direction, kappa = self.mean_direction, self.concentration
        dtype = value.dtype
        if dtype is direction.dtype and in_plain_memory((value, direction, kappa)):
            array = value.numpy(force=True)
            if self._looks is not False and not unit_arrays(array):
                check_unit("value", value, self._looks)
            return few_log_densities(self._peak(dtype), array, direction, kappa)
        lengths = check_unit("value", value, self._looks)
        dtype = torch.promote_types(dtype, direction.dtype)
        wide = computing_dtype("value", dtype)
        x, direction, kappa = (t if t.dtype is wide else t.to(wide) for t in (value, direction, kappa))
        lengths = lengths if value.dtype is wide else None
        density = log_density(self._potential, lambda: self._peak(wide), x, direction, kappa, lengths)
        dtype = result_dtype(dtype, value.device.type)
        return density if density.dtype is dtype else density.to(dtype)

    def _peak(self, dtype: torch.dtype) -> torch.Tensor | float:
        """[kappa - Phi(kappa)] - log |S|, the largest log-density: of one distribution on the host without a graph a number, else a tensor of `dtype`."""
        return self._once(
            f"peak in {dtype}",
            lambda kappa: self._potential.deficit(kappa.to(dtype)) - log_area(self.dim),
            lambda kappa: of_number(self._potential, "deficit", kappa) - log_area(self.dim),
        )

    def entropy(self) -> torch.Tensor:
        """Differential entropy: the logarithm of the area, less the divergence from the uniform distribution."""
        found = self._once(
            "entropy",
            lambda kappa: log_area(self.dim) - self._potential.legendre(_wide(kappa)),
            lambda kappa: log_area(self.dim) - of_number(self._potential, "legendre", kappa),
        )
        if not isinstance(found, torch.Tensor):
            return torch.full(self.batch_shape, found, dtype=self.mean_direction.dtype, device=self.mean_direction.device)
        return _rounded(found, self)

    def _once(
        self, name: str, of_tensor: Callable[[torch.Tensor], torch.Tensor], of_number: Callable[[float], float]
    ) -> torch.Tensor | float:
        """A function of the concentration, which is kept where it is cheap to see that this has not changed: numbers on the host, without a graph."""
        kappa = self.concentration
        if not in_plain_memory((kappa,)):
            return of_tensor(kappa)
        kept = self._kept.get(name)
        if kappa.numel() == 1:
            number = kappa.item()
            if kept is None or kept[0] != number:
                kept = self._kept[name] = number, of_number(number)
        elif kept is None or not np.array_equal(kept[0], kappa.numpy(force=True)):
            kept = self._kept[name] = kappa.numpy(force=True).copy(), of_tensor(kappa)
        return kept[1].clone() if isinstance(kept[1], torch.Tensor) else kept[1]

    def _from_uniform(self) -> torch.Tensor:
        """kappa R - Phi, the Kullback-Leibler divergence to the uniform distribution, in the dtype that is computed in."""
        return self._potential.legendre(_wide(self.concentration))

    def cross_entropy(self, other: Distribution) -> torch.Tensor:
        """-E log q of directions from this distribution, for a von Mises-Fisher or uniform q: entropy() + kl_divergence(self, other)."""
        if isinstance(other, HypersphericalUniform):
            return other.entropy().expand(_same_sphere(self, other)) + 0 * self.concentration
        if not isinstance(other, VonMisesFisher):
            raise TypeError(f"other must be a VonMisesFisher or a HypersphericalUniform, got {type(other).__name__}")
        _same_sphere(self, other)
        kappa, own = torch.broadcast_tensors(_wide(other.concentration), _wide(self.concentration))
        ratio, rest = self._potential.slope(own), self._potential.complement(own)
        # Phi(kappa) - kappa R, or the same as kappa (1 - R) - (kappa - Phi(kappa)): whichever has the smaller terms
        gap = torch.where(ratio < 0.5, self._potential.value(kappa) - kappa * ratio, kappa * rest - self._potential.deficit(kappa))
        return _rounded(log_area(self.dim) + gap + kappa * ratio * (_squared_distance(self, other) / 2), self, other)

    def sample(self, sample_shape: Any = (), generator: torch.Generator | None = None) -> torch.Tensor:
        """Exact draws, of shape sample_shape + batch_shape + (p,); time and memory are proportional to their number of coordinates."""
        with torch.no_grad():
            return self._drawn(sample_shape, generator, moves=False).detach()  # forward-mode tangents too

    def rsample(self, sample_shape: Any = (), generator: torch.Generator | None = None) -> torch.Tensor:
        r"""Exact draws \(x = \cos\theta\,\mu + \sin\theta\,v\) that move with the parameters.

        \(\theta\) keeps its place in its distribution: \(d\theta/d\kappa = -(\partial F/\partial\kappa) / f\). v, uniform among the directions orthogonal to
        \(\mu\), is carried along by the reflection that takes the first axis to \(\mu\). The gradient of an expectation is estimated without bias, for every
        concentration from 0 on, and can be differentiated again.

        Args:
            sample_shape: of the draws per entry of the batch.
            generator: where the randomness comes from; torch's default generator of the device if None.
        """
        return self._drawn(sample_shape, generator, moves=True)

    def _drawn(self, sample_shape: Any, generator: torch.Generator | None, *, moves: bool) -> torch.Tensor:
        shape = shape_of("sample_shape", sample_shape) + self.batch_shape + self.event_shape
        generator_or_none("generator", generator)
        direction, kappa = _wide(self.mean_direction), _wide(self.concentration)
        polar = PolarAngle(self.dim)
        with full_precision(direction.device.type):
            angle = polar.draw(kappa, shape[:-1], generator)
            if moves:
                angle = moving(polar, kappa.expand(shape[:-1]), angle)
            drawn = directions_at(angle, direction, shape, generator)
        return drawn if drawn.dtype is self.mean_direction.dtype else drawn.to(self.mean_direction.dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dim={self.dim}, batch_shape={tuple(self.batch_shape)}, dtype={self.mean_direction.dtype})"


def _batch_shape(mean_direction: torch.Tensor, concentration: torch.Tensor) -> torch.Size:
    """What the two broadcast to; a ValueError for a concentration that still has the dimension of the coordinates."""
    batch, shape = mean_direction.shape[:-1], concentration.shape
    if shape == batch or not shape:
        return batch
    if batch and shape == (*batch, 1):
        raise ValueError(
            f"concentration must have the shape {tuple(batch)} of mean_direction without its last dimension, got {describe(concentration)}, which would "
            "broadcast to every pair of the two: use concentration.squeeze(-1)"
        )
    try:
        return torch.broadcast_shapes(batch, shape)
    except RuntimeError:
        raise ValueError(
            f"concentration must broadcast against the batch {tuple(batch)} of mean_direction (its shape without the last dimension), got "
            f"{describe(concentration)}"
        ) from None


def _check_concentration(values: torch.Tensor) -> None:
    if values.numel() == 1:
        wrong = None if 0 <= (number := values.item()) < math.inf else number
    else:
        outside = ~((values >= 0) & values.isfinite())
        wrong = values[outside][0].item() if bool(outside.any()) else None
    if wrong is not None:
        raise ValueError(
            f"concentration must be finite and >= 0, got {wrong:g} in {describe(values)}: apply e.g. "
            "torch.nn.functional.softplus to the output that predicts it"
        )


def _same_sphere(first: Any, second: Any) -> torch.Size:
    """The common batch shape of two distributions; a ValueError unless they have one, and live in the same dimension."""
    if first.dim != second.dim:
        raise ValueError(f"the distributions must live on one sphere, got dimensions {first.dim} and {second.dim}")
    try:
        return torch.broadcast_shapes(first.batch_shape, second.batch_shape)
    except RuntimeError:
        shapes = f"{tuple(first.batch_shape)} and {tuple(second.batch_shape)}"
        raise ValueError(f"the distributions must have batch shapes that broadcast against each other, got {shapes}") from None


def _squared_distance(first: VonMisesFisher, second: VonMisesFisher) -> torch.Tensor:
    return (_wide(first.mean_direction) - _wide(second.mean_direction)).square().sum(-1)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """In the dtype that is computed in: half precision in float32, so that terms are not rounded before they are added."""
    return tensor.float() if tensor.dtype in HALF_DTYPES else tensor


def _rounded(result: torch.Tensor, *laws: VonMisesFisher) -> torch.Tensor:
    """In the dtype of the parameters, rounded once."""
    dtype = (
        laws[0].mean_direction.dtype if len(laws) == 1 else torch.promote_types(laws[0].mean_direction.dtype, laws[1].mean_direction.dtype)
    )
    return result.to(result_dtype(dtype, result.device.type))


@register_kl(VonMisesFisher, VonMisesFisher)
def _kl_vmf_vmf(p: VonMisesFisher, q: VonMisesFisher) -> torch.Tensor:
    r"""\(D(\kappa_p, \kappa_q) + \kappa_q R(\kappa_p)\lVert\mu_p - \mu_q\rVert^2/2\): what the concentrations differ in, and what the directions do.

    D is the Bregman divergence of the potential; neither term is negative, and of neither is more lost than a few roundings of its parts.
    """
    _same_sphere(p, q)
    own, kappa = _wide(p.concentration), _wide(q.concentration)
    turn = kappa * p._potential.slope(own) * (_squared_distance(p, q) / 2)
    return _rounded(p._potential.bregman(*torch.broadcast_tensors(own, kappa)) + turn, p, q)


@register_kl(VonMisesFisher, HypersphericalUniform)
def _kl_vmf_uniform(p: VonMisesFisher, q: HypersphericalUniform) -> torch.Tensor:
    """kappa R - Phi(kappa)."""
    return _rounded(p._from_uniform(), p).expand(_same_sphere(p, q))


@register_kl(HypersphericalUniform, VonMisesFisher)
def _kl_uniform_vmf(p: HypersphericalUniform, q: VonMisesFisher) -> torch.Tensor:
    """Phi(kappa): the mean of kappa mu.x is 0."""
    return q._potential.value(q.concentration).expand(_same_sphere(p, q))


@register_kl(HypersphericalUniform, HypersphericalUniform)
def _kl_uniform_uniform(p: HypersphericalUniform, q: HypersphericalUniform) -> torch.Tensor:
    return torch.zeros_like(p.entropy()).expand(_same_sphere(p, q))
