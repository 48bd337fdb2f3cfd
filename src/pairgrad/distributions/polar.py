r"""The angle \(\theta\) between a von Mises-Fisher direction and its mean direction: exact draws, quantiles, and how a draw moves with \(\kappa\).

In p dimensions the density of the angle is \(f(\theta) \propto e^{q(\theta)}\), \(q(\theta) = \kappa\cos\theta + (p-2)\log\sin\theta\). Everything here
is made of two one-sided integrals of f over f at the point itself,

\[\frac{1}{f(\theta)}\int f(\varphi)\,d\varphi \quad\text{and}\quad \frac{1}{f(\theta)}\int |\cos\varphi - R|\,f(\varphi)\,d\varphi ,\]

over the angles below \(\theta\) or above it. Their integrands have one sign, so nothing cancels; they are smooth, fall off at a known rate, and a
Gauss-Legendre rule of fixed size over the stretch where they count is exact to rounding. No normalising constant is needed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from pairgrad.distributions.unit import source
from pairgrad.ground._torch_private import standard_gamma
from pairgrad.ground.checks import SMALL, in_plain_memory, inside_torch_func, readable
from pairgrad.ground.devices import widest
from pairgrad.ground.quadrature import as_tensors, gauss_legendre
from pairgrad.potentials.autograd import differentiable
from pairgrad.potentials.registry import paired

# The integrand is followed until it has fallen by exp(-REACH), with so many nodes that more of them change nothing.
REACH = {torch.float64: 39.0, torch.float32: 18.0}
RULES = {torch.float64: gauss_legendre(32), torch.float32: gauss_legendre(18)}
# Above the angle the density may fall more slowly than the parabola that osculates its logarithm there (1 - cos d < d^2 / 2): the stretch is longer. With
# 1.6 some 1e-12 of the integrals is missing at p = 3 and kappa = 10, with 1.8 nothing that float64 shows.
_LONGER_ABOVE = 1.8
# Newton steps for a quantile, from the normal approximation at the mode.
QUANTILE_STEPS = {torch.float64: 9, torch.float32: 7}
# Each round of rejection keeps at least 65 % of the proposals: after this many, fewer than 1e-14 of the draws are left to the quantile function.
ROUNDS = 32
_SPARED = 1000  # draws up to which a second round would cost more than proposals to spare
_CHUNK = 1 << 16  # angles whose integrals are taken at once, each with all its nodes


class PolarAngle:
    """The distribution of the angle in `dim` dimensions, for tensors of concentrations."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.potential = paired(dim)

    def _stretch(self, theta: torch.Tensor, kappa: torch.Tensor, side: torch.Tensor) -> torch.Tensor:
        """How far from theta the integrand counts: to where its osculating parabola, or the end of [0, pi], is."""
        sine, cosine = torch.sin(theta), torch.cos(theta)
        fall, bend = side * kappa * sine, kappa * cosine
        if self.dim > 2:
            fall = fall - (self.dim - 2) * side * cosine / sine
            bend = bend + (self.dim - 2) / (sine * sine)
        reach = REACH[theta.dtype]
        room = torch.where(side < 0, theta, math.pi - theta)
        root = torch.sqrt((fall * fall + 2 * reach * bend).clamp_min(torch.finfo(theta.dtype).tiny))
        length = 2 * reach / (fall + root) * torch.where(side < 0, 1.0, _LONGER_ABOVE)
        return torch.where((bend > 0) & (length < room), length, room)

    def _log_rise(self, theta: torch.Tensor, kappa: torch.Tensor, side: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
        """q(theta + side distance) - q(theta), from the distance and not from two large values."""
        half = torch.sin(distance / 2)
        rise = -2 * side * kappa * torch.sin(theta + side * distance / 2) * half
        if self.dim > 2:
            change = side * torch.sin(distance) * torch.cos(theta) / torch.sin(theta) - 2 * half * half
            rise = rise + (self.dim - 2) * torch.log1p(change.clamp_min(-1 + torch.finfo(theta.dtype).eps))
        return rise

    def _nodes(self, theta: torch.Tensor, kappa: torch.Tensor, side: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Distances from theta on one side (on a new last axis), and the weights of f(theta + side distance) / f(theta) there."""
        nodes, weights = as_tensors(RULES[theta.dtype], theta)
        stretch = self._stretch(theta, kappa, side)[..., None]
        distance = stretch * nodes
        density = torch.exp(self._log_rise(theta[..., None], kappa[..., None], side[..., None], distance))
        return distance, stretch * weights * density

    def _mass(self, theta: torch.Tensor, kappa: torch.Tensor, side: torch.Tensor) -> torch.Tensor:
        """The probability below (side -1) or above (side 1) theta, over the density at theta."""
        return self._nodes(theta, kappa, side)[1].sum(-1)

    def rate(self, theta: torch.Tensor, kappa: torch.Tensor) -> torch.Tensor:
        """d theta / d kappa of a draw that keeps its place in the distribution: -(dF / d kappa) / f, by the implicit function theorem.

        dF / d kappa is the integral of (cos - R) f over the angles below theta, or of (R - cos) f over those above: the side where the sign does not
        change is taken. A plain function of tensors, so it can be differentiated in turn. At kappa = 0 it is -sin(theta) / (p - 1).
        """
        if theta.numel() > _CHUNK and readable(theta) and not torch.is_grad_enabled():
            parts = zip(theta.reshape(-1).split(_CHUNK), kappa.reshape(-1).split(_CHUNK), strict=True)
            return torch.cat([self.rate(*part) for part in parts]).reshape(theta.shape)
        rest = self.potential.complement(kappa)
        side = torch.where(2 * torch.sin(theta / 2).square() < rest, -1.0, 1.0).to(theta.dtype).detach()
        distance, weight = self._nodes(theta, kappa, side)
        angle = theta[..., None] + side[..., None] * distance
        excess = 2 * torch.sin(angle / 2).square() - rest[..., None]  # R - cos(angle)
        return -(side[..., None] * excess * weight).sum(-1)

    def draw(self, kappa: torch.Tensor, shape: torch.Size, generator: torch.Generator | None = None) -> torch.Tensor:
        """Angles of `shape`, to which kappa broadcasts, exactly distributed.

        In three dimensions by the closed form of the quantile function. Otherwise by rejection [wood1994simulation] on the CPU, where the draws that are
        still open can be counted without waiting for a device; what `ROUNDS` rounds leave open, and everything on other devices, under torch.compile and
        under torch.func, by the quantile function. No gradient: see `moving`.
        """
        kappa = kappa.detach()
        plain = readable(kappa) and not inside_torch_func()
        if self.dim != 3 and not plain:
            kappa = kappa.expand(shape)
            return self.quantile(_uniform(kappa, shape, generator), kappa)
        few = plain and in_plain_memory((kappa,)) and shape.numel() <= SMALL
        rates: Any = kappa.numpy(force=True) if few else kappa
        if self.dim == 3:
            chances: Any = _uniform(kappa, shape, generator)
            if not few:
                return _quantile_on_the_sphere(chances, rates).to(kappa.dtype)
            with np.errstate(all="ignore"):
                return torch.from_numpy(np.asarray(_quantile_on_the_sphere(chances.numpy(), rates), rates.dtype))
        if kappa.numel() == 1:
            return self._accepted(rates.reshape(()), kappa, shape, generator, few)
        flat = kappa.expand(shape).reshape(-1)
        rates = flat.numpy(force=True) if few else flat
        angle, rejected = self._proposals(rates, len(flat), kappa, generator, few)
        places = _where(rejected)
        for _ in range(ROUNDS - 1):
            if not len(places):
                break
            again, rejected = self._proposals(rates[places], len(places), kappa, generator, few)
            angle[places] = again
            places = places[rejected]
        angle = torch.from_numpy(angle) if few else angle
        if len(places):
            angle[places] = self.quantile(_uniform(flat, flat[places].shape, generator), flat[places])
        return angle.reshape(shape)

    def _accepted(self, rate: Any, kappa: torch.Tensor, shape: torch.Size, generator: torch.Generator | None, few: bool) -> torch.Tensor:
        """Draws of one distribution: of few, more proposals than are needed, because another round takes longer than they do."""
        found: list[Any] = []
        missing = shape.numel()
        for _ in range(ROUNDS):
            if found and not missing:
                break
            spare = 8 + 6 * missing // 10 if missing <= _SPARED else 0
            angle, rejected = self._proposals(rate, missing + spare, kappa, generator, few)
            found.append(angle[~rejected][:missing])
            missing -= len(found[-1])
        if missing:
            left = kappa.expand(missing)
            rest = self.quantile(_uniform(left, left.shape, generator), left)
            found.append(rest.numpy() if few else rest)
        if few:
            found = [torch.from_numpy(part) for part in found]
        return (found[0] if len(found) == 1 else torch.cat(found)).reshape(shape)

    def _proposals(self, kappa: Any, count: int, like: torch.Tensor, generator: torch.Generator | None, few: bool) -> tuple[Any, Any]:
        """Angles from the envelope of [wood1994simulation], and which of them are rejected; `few`: as arrays.

        With b in (0, 1] the solution of 4 kappa b = (p - 1) (1 - b^2) and two gamma variables g, h of shape (p - 1) / 2, the proposal is
        w = (h - b g) / (h + b g), accepted with the probability exp((p - 1) (z + log(1 - z))), z = kappa (w - w_0) / (p - 1), w_0 = (1 - b) / (1 + b). In
        this form 1 - w, 1 + w and w - w_0 are quotients of what was drawn: nothing is lost at large kappa, at small kappa, or in high dimension.
        """
        place = {"dtype": like.dtype, "device": like.device}
        if self.dim == 2:  # the quotient of two gamma variables of shape 1/2 is the square of the tangent of a uniform angle
            uniform, g = torch.rand(2, count, **place, **source(generator))
            g, h = g.mul_(math.pi).tan_().square_(), None
        else:
            g, h = standard_gamma(torch.full((2, count), (self.dim - 1) / 2, **place), generator)
            uniform = torch.rand(count, **place, **source(generator))
        xp: Any = np if few else torch
        if few:
            g, h, uniform = g.numpy(), h if h is None else h.numpy(), uniform.numpy()
        h = xp.ones_like(g) if h is None else h
        with np.errstate(all="ignore"):
            rate = 2 / (self.dim - 1) * kappa
            b = 1 / (rate + xp.hypot(rate, xp.ones_like(rate)))
            share = b * g
            z = rate * b / (1 + b) * (h - g) / (h + share)
            rejected = uniform > xp.exp((self.dim - 1) * (z + xp.log1p(-z)))
            return 2 * xp.arctan2(xp.sqrt(share), xp.sqrt(h)), rejected

    def quantile(self, probability: torch.Tensor, kappa: torch.Tensor) -> torch.Tensor:
        """The angle below which a share `probability` in (0, 1) of the draws lies.

        Newton's method for the logarithm of the smaller of the two probabilities on either side of the mode, which is nearly linear in the logarithm of
        the distance to that end of [0, pi], from a normal start.
        """
        mode = self._mode(kappa)
        low, high = (torch.full_like(mode, s) for s in (-1.0, 1.0))
        below, above = self._mass(mode, kappa, low) if self.dim > 2 else torch.zeros_like(mode), self._mass(mode, kappa, high)
        total = below + above
        side = torch.where(probability * total < below, -1.0, 1.0).to(mode.dtype)
        goal = torch.log(torch.where(side < 0, probability, 1 - probability).to(mode.dtype)) + torch.log(total)
        bend = kappa * torch.cos(mode)
        if self.dim > 2:
            bend = bend + (self.dim - 2) / torch.sin(mode).square()
        spread = torch.rsqrt(bend.clamp_min(1.0))
        start = mode + spread * torch.special.ndtri(probability).to(mode.dtype)
        tiny = torch.finfo(mode.dtype).tiny
        theta = torch.where(side < 0, start.clamp(mode / 16, mode), start.clamp(mode, math.pi - (math.pi - mode) / 16))
        for _ in range(QUANTILE_STEPS[mode.dtype]):
            gap = torch.where(side < 0, theta, math.pi - theta).clamp_min(tiny)
            mass = self._mass(theta, kappa, side)
            logarithm = torch.log(mass) + self._log_rise(mode, kappa, side, (theta - mode).abs())
            step = torch.where(mass > 0, (goal - logarithm) * mass / gap, 0.0)  # no mass is left at the end of [0, pi]
            change = gap * torch.expm1(step.clamp(-6.0, 2.0))
            theta = torch.where(side < 0, (theta + change).clamp_max(mode), (theta - change).clamp_min(mode))
        return theta

    def _mode(self, kappa: torch.Tensor) -> torch.Tensor:
        """The angle with kappa sin^2 = (p - 2) cos, from 1 - cos of it, which does not cancel."""
        if self.dim == 2:
            return torch.zeros_like(kappa)
        n = self.dim - 2
        root = torch.hypot(2 * kappa / n, torch.ones_like(kappa))
        rest = (1 + 1 / (root + 2 * kappa / n)) / (1 + root)
        return 2 * torch.asin(torch.sqrt(rest / 2))


def _where(condition: Any) -> Any:
    """The places in a vector where a condition holds."""
    return condition.nonzero().squeeze(-1) if isinstance(condition, torch.Tensor) else condition.nonzero()[0]


def _quantile_on_the_sphere(probability: Any, kappa: Any) -> Any:
    """The quantile function for p = 3, where cos(theta) has an exponential distribution cut off at -1: kappa (1 - cos) = -log(1 - u (1 - e^(-2 kappa)));
    of tensors or arrays.
    """
    xp: Any = torch if isinstance(kappa, torch.Tensor) else np
    wide = kappa.to(probability.dtype) if isinstance(kappa, torch.Tensor) else kappa.astype(np.float64)
    rate = -2 * (wide + _UNIFORM)
    rest = xp.log1p(probability * xp.expm1(rate)) / rate
    return 2 * xp.arcsin(xp.sqrt(np.minimum(rest, 1.0) if xp is np else rest.clamp_max(1.0)))


_UNIFORM = 1e-31  # a concentration at which the distribution is uniform to rounding, and that is below the rounding of others


def _uniform(like: torch.Tensor, shape: torch.Size, generator: torch.Generator | None) -> torch.Tensor:
    """Uniform in the open interval, in float64 where the device has it: float32 has no numbers between 1 - 6e-8 and 1."""
    dtype = widest(like.device)
    spacing = torch.finfo(dtype).eps / 2
    return torch.rand(shape, dtype=dtype, device=like.device, **source(generator)).clamp(spacing, 1 - spacing)


# theta as a function of kappa: the draw itself, with `rate` as its derivative, as often as it is asked for
moving = differentiable(
    lambda polar, kappa, theta: theta.clone(),
    lambda polar, theta, kappa, drawn: polar.rate(theta, kappa),
    lambda polar, theta, kappa, drawn: torch.ones_like(drawn),
    uses_output=True,
)
