r"""The field of feature gradients that a realization supplies at a fixed class state, and what keeps it from being a gradient (sec:ce-integrability).

With scores \(q_j = F(r_j) - F(\kappa_j) + b_j\), probabilities p = softmax(q) and a supplied slope g, cross-entropy hands the features

    G = sum_j (p_j - 1[j = y]) w_j,      w_j = g(r_j) grad r_j,        where the loss has the gradient with      v_j = F'(r_j) grad r_j.

All vectors here are combinations sum_j a_j gain_j (kappa_j mu_j + f / tau) / tau with gain = slope(r) / r: one product with the class rows each. What
separates the two fields is formed from the gap of the gains, before any vectors are subtracted, so that small gaps keep their digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from pairgrad.ground.checks import describe, floating_tensor, on_device, readable, real_number
from pairgrad.ground.precision import full_precision
from pairgrad.losses.cross_entropy import checked_per_class, vmf_cross_entropy
from pairgrad.losses.options import Options
from pairgrad.losses.scores import State, checked_state
from pairgrad.potentials import Potential, kernels
from pairgrad.potentials.formulas import OwnDerivative
from pairgrad.potentials.protocol import dtype_on
from pairgrad.sphere.geometry import Temperature, squared_increment
from pairgrad.sphere.inputs import checked_features, checked_labels
from pairgrad.sphere.state import Classes


def update_field(
    features: torch.Tensor,
    labels: torch.Tensor,
    state: State,
    temperature: Temperature = 0.1,
    log_prior: torch.Tensor | None = None,
    realization: str | Potential = "original",
    *,
    strength: float = 1.0,
    geometry_dtype: torch.dtype | None = None,
    validate: bool | None = None,
) -> UpdateField:
    r"""The feature gradients that cross-entropy supplies at a fixed class state, beside the gradients of the loss it computes.

    A measurement: nothing of it is differentiable, and the state is read, not updated. Arguments are those of
    [`vmf_cross_entropy`][pairgrad.vmf_cross_entropy]; the geometry is factorised, and (B, K) matrices are held.

    Args:
        features: (B, p).
        labels: (B,), integers.
        state: a [`ClassBank`][pairgrad.ClassBank] or a [`ClassState`][pairgrad.ClassState].
        temperature: tau > 0.
        log_prior: (K,), added to the scores.
        realization: of the potential, by name or as a `Potential`.
        strength: lambda in \(g_\lambda = F' + \lambda (g - F')\): 1 is what the realization supplies, 0 the derivative of its value.
        geometry_dtype: compute in this dtype; None: in that of the features.
        validate: check values on every device (True), on the CPU (None) or nowhere (False).

    Examples:
        >>> import torch, pairgrad as pg
        >>> state = pg.ClassState(torch.eye(2, 128, dtype=torch.float64), torch.tensor([4032.0, 8064.0], dtype=torch.float64))
        >>> field = pg.update_field(torch.zeros(1, 128, dtype=torch.float64), torch.tensor([0]), state, temperature=1.0)
        >>> first, second = torch.eye(2, 128, dtype=torch.float64)
        >>> round(field.antisymmetry_along(first, second).item(), 8)
        -0.00193915
        >>> bool(field.with_strength(0).antisymmetry_norm == 0)
        True
    """
    options = Options.checked(checked_state(state).dim, temperature, realization, geometry_dtype=geometry_dtype, validate=validate)
    classes = state.classes()
    features = checked_features(features, state.dim, classes.rows, validate=validate, single=True)
    labels = checked_labels(labels, len(features), state.num_classes, classes.rows, validate=validate)
    dtype = options.dtype(features, classes)
    log_prior = checked_per_class("log_prior", log_prior, state.num_classes, classes.rows, dtype)
    strength = _checked_strength(strength)
    options.check_reach(features, classes, dtype)
    temperature, pot = options.temperature, options.potential

    with torch.no_grad(), full_precision(features.device.type):
        loss = vmf_cross_entropy(
            features.detach(), labels, state, temperature, log_prior, "none", pot, geometry_dtype=geometry_dtype, validate=validate
        )
        tau = temperature.detach().to(dtype).reshape(()) if isinstance(temperature, torch.Tensor) else temperature
        classes = Classes(*(tensor.detach() for tensor in classes)).to(dtype)
        place = _Place(
            features.detach().to(dtype),
            labels,
            classes,
            replace(options, temperature=tau),
            None if log_prior is None else log_prior.detach(),
        )
        return place.measure(loss, strength)


@dataclass(frozen=True, eq=False)
class _Place:
    """Where the field is looked at: everything that is held fixed, and the features."""

    features: torch.Tensor  # (B, p)
    labels: torch.Tensor
    classes: Classes
    options: Options
    log_prior: torch.Tensor | None

    @property
    def pot(self) -> Potential:
        return self.options.potential

    @property
    def temperature(self) -> Temperature:
        return self.options.temperature

    def measure(self, loss: torch.Tensor, strength: float) -> UpdateField:
        dtype = self.features.dtype
        concentration, squared, square = self._squares(self.features)
        score, gain = kernels.increment_pair(self.pot, concentration, squared)
        own = kernels.own_gain(self.pot, square) if isinstance(self.pot.formulas(square.dtype), OwnDerivative) else gain
        radius, gain_gap = square.sqrt(), gain - own
        probabilities = self._probabilities(score.to(dtype))
        errors = self._errors(probabilities)
        own, gain_gap = own.to(dtype), gain_gap.to(dtype)
        return UpdateField(
            loss=loss,
            probabilities=probabilities,
            radius=radius.to(dtype),
            derivative=own * radius.to(dtype),
            consistent=self._combined(errors, own),
            mean_consistent=self._combined(probabilities, own),
            strength=strength,
            _place=self,
            _radial=gain_gap * radius.to(dtype),
            _gap=self._combined(errors, gain_gap),
            _mean_gap=self._combined(probabilities, gain_gap),
        )

    def repeated(self, times: int) -> _Place:
        return replace(self, features=self.features.repeat(times, 1), labels=self.labels.repeat(times))

    def along(self, direction: torch.Tensor, strength: float) -> torch.Tensor:
        """J h, (B, p), for a direction h (p,) or (B, p), by forward-mode differentiation of the field."""
        tangent = direction.expand_as(self.features)
        return torch.func.jvp(lambda features: self.field(features, strength), (self.features,), (tangent,))[1]

    def field(self, features: torch.Tensor, strength: float) -> torch.Tensor:
        """G(f), whose probabilities are differentiated as the forward computes them (`own_increment`), whatever slope is supplied."""
        dtype = features.dtype
        concentration, squared, square = self._squares(features)
        scores = kernels.own_increment(self.pot, concentration.expand_as(squared), squared)
        errors = self._errors(self._probabilities(scores.to(dtype)))
        own = kernels.own_gain(self.pot, square)
        gain = own if strength == 0 else own + strength * (kernels.gain(self.pot, square) - own)
        return replace(self, features=features)._combined(errors, gain.to(dtype))

    def _squares(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """kappa (K,), r^2 - kappa^2 and r^2 (B, K), in the dtype the potential computes in."""
        compute = dtype_on(self.pot, features.device, features.dtype)
        concentration = self.classes.concentration.to(compute)
        squared = squared_increment(features, self.classes, self.temperature).to(compute)
        return concentration, squared, (concentration * concentration + squared).clamp_min(0)

    def _probabilities(self, scores: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores if self.log_prior is None else scores + self.log_prior, 1)

    def _errors(self, probabilities: torch.Tensor) -> torch.Tensor:
        """p_j - 1[j = y]; at the label minus the sum of the others, which keeps its digits where p_y is close to 1."""
        at_label = torch.nn.functional.one_hot(self.labels, probabilities.shape[1]).bool()
        others = torch.where(at_label, 0.0, probabilities)
        return torch.where(at_label, -others.sum(1, keepdim=True), others)

    def _combined(self, weights: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
        """sum_j a_j gain_j (kappa_j mu_j + f / tau) / tau, (B, p), for weights a and gains (B, K)."""
        weights = weights * gains
        pull = weights.sum(1, keepdim=True) / self.temperature
        return ((weights * self.classes.rates) @ self.classes.rows + pull * self.features) / self.temperature


@dataclass(frozen=True, eq=False, repr=False)
class UpdateField:
    r"""Gradient fields at a fixed class state, per sample. Made by [`update_field`][pairgrad.update_field].

    A nonzero `antisymmetry` at a point where the slopes are smooth says that no twice differentiable function has the supplied field as its gradient near that
    point (eq. ce-curl-obstruction). Zero says nothing about the neighbourhood; for a coherent realization it is zero everywhere.

    Do not look for it by differentiating the loss twice. A second backward through an incoherent realization takes the derivative of the probabilities
    from the slope that is *supplied*, so its Jacobian is that of another field, and symmetric. `differentiated_along` and `differentiated_antisymmetry`
    differentiate the probabilities as the forward computes them.

    Attributes:
        loss: (B,), as `vmf_cross_entropy` computes it.
        probabilities: (B, K), p.
        radius: (B, K), r.
        derivative: (B, K), F'(r), of the value that is computed.
        consistent: (B, p), the gradient of the loss that is computed.
        mean_consistent: (B, p), the mean of v_j under the probabilities.
        strength: lambda.
    """

    loss: torch.Tensor
    probabilities: torch.Tensor
    radius: torch.Tensor
    derivative: torch.Tensor
    consistent: torch.Tensor
    mean_consistent: torch.Tensor
    strength: float
    _place: _Place
    _radial: torch.Tensor  # these three at strength 1
    _gap: torch.Tensor
    _mean_gap: torch.Tensor

    def with_strength(self, strength: float) -> UpdateField:
        """The field of the same forward with another strength of the mismatch; nothing is computed again."""
        return replace(self, strength=_checked_strength(strength))

    @property
    def radial_defect(self) -> torch.Tensor:
        """(B, K), supplied slope - F' (eq. coherence-defect)."""
        return self.strength * self._radial

    @property
    def slope(self) -> torch.Tensor:
        """(B, K), the supplied slope g."""
        return self.derivative + self.radial_defect

    @property
    def supplied(self) -> torch.Tensor:
        """(B, p), G: what backward gives to the features."""
        return self.consistent + self.gap

    def supplied_at(self, features: torch.Tensor) -> torch.Tensor:
        """(B, p), G at other features of the same shape, everything else held fixed; `supplied` to rounding at its own."""
        features = checked_features(features, self.consistent.shape[1], self.consistent)
        if features.shape != self.consistent.shape:
            raise ValueError(f"features must have shape {tuple(self.consistent.shape)}, one row per label, got {describe(features)}")
        self._place.options.check_reach(features, self._place.classes, self.consistent.dtype)
        return self._place.field(features.to(self.consistent), self.strength)

    @property
    def gap(self) -> torch.Tensor:
        """(B, p), supplied - consistent."""
        return self.strength * self._gap

    @property
    def mean_supplied(self) -> torch.Tensor:
        """(B, p), the mean of w_j under the probabilities."""
        return self.mean_consistent + self._mean_defect

    @property
    def _mean_defect(self) -> torch.Tensor:
        return self.strength * self._mean_gap

    def _gradient_and_gap(self) -> tuple[torch.Tensor, torch.Tensor]:
        """`consistent` and `gap` over the largest coordinate of the first: squares of what sure predictions leave would underflow in float32."""
        largest = self.consistent.abs().amax(1, keepdim=True)
        largest = torch.where(largest == 0, 1.0, largest)
        return self.consistent / largest, self.gap / largest

    @property
    def relative_gap(self) -> torch.Tensor:
        """(B,), length of the gap over that of the consistent gradient."""
        gradient, gap = self._gradient_and_gap()
        return _over(_length(gap), _length(gradient))

    @property
    def scaling(self) -> torch.Tensor:
        """(B,), the number c with which c times the consistent gradient comes closest to the supplied one."""
        gradient, gap = self._gradient_and_gap()
        return 1 + _over(_dot(gradient, gap), _dot(gradient, gradient))

    @property
    def residual(self) -> torch.Tensor:
        """(B,), what that scaling leaves, over the length of the supplied gradient: the sine of the angle between the two."""
        gradient, gap = self._gradient_and_gap()
        return _over(_length(_across(gap, gradient)), _length(gradient + gap))

    @property
    def cosine(self) -> torch.Tensor:
        """(B,), of the angle between the two gradients."""
        size = torch.sqrt((1 - self.residual.square()).clamp_min(0))
        return torch.where(self.scaling < 0, -size, size)

    @property
    def one_minus_cosine(self) -> torch.Tensor:
        """(B,), 1 - cosine, for small angles to all digits."""
        cosine = self.cosine
        return torch.where(cosine > 0, self.residual.square() / (1 + cosine), 1 - cosine)

    @property
    def antisymmetry_norm(self) -> torch.Tensor:
        """(B,), Frobenius norm of J - J^T: sqrt(2) times its one component in the plane of the two mean vectors."""
        across = _across(self._mean_defect, self.mean_consistent)
        return math.sqrt(2) * _length(self.mean_consistent) * _length(across)

    def antisymmetry_along(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """(B,), the component a . (J - J^T) b for directions a, b of shape (p,) or (B, p): J_12 - J_21 for the first two unit vectors."""
        first, second = self._direction("first", first), self._direction("second", second)
        v, d = self.mean_consistent, self._mean_defect
        return _dot(v, first) * _dot(d, second) - _dot(d, first) * _dot(v, second)

    def antisymmetry(self) -> torch.Tensor:
        """(B, p, p), J - J^T from the two mean vectors (eq. ce-curl-obstruction)."""
        product = self.mean_consistent.unsqueeze(-1) * self._mean_defect.unsqueeze(-2)
        return product - product.mT

    def differentiated_along(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """(B,), the same component as `antisymmetry_along`, by differentiating the field: a . J b - b . J a."""
        first, second = self._direction("first", first), self._direction("second", second)
        twice = self._place.repeated(2)  # both derivatives in one pass
        along_second, along_first = twice.along(torch.cat([second.expand_as(self.gap), first.expand_as(self.gap)]), self.strength).chunk(2)
        return _dot(first, along_second) - _dot(second, along_first)

    def jacobian(self) -> torch.Tensor:
        """(B, p, p), dG_i / df_j by differentiating the field: dim forward-mode passes at once, in their memory."""
        units = torch.eye(self.consistent.shape[1], dtype=self.consistent.dtype, device=self.consistent.device)
        return torch.func.vmap(lambda unit: self._place.along(unit, self.strength), out_dims=-1)(units)

    def differentiated_antisymmetry(self) -> torch.Tensor:
        """(B, p, p), J - J^T by differentiating the field."""
        jacobian = self.jacobian()
        return jacobian - jacobian.mT

    def _direction(self, name: str, direction: torch.Tensor) -> torch.Tensor:
        wanted = self.consistent
        if not isinstance(direction, torch.Tensor) or direction.shape not in (wanted.shape, wanted.shape[1:]):
            shapes = f"({wanted.shape[1]},) or {tuple(wanted.shape)}"
            raise ValueError(f"{name} must be a direction, a tensor of shape {shapes}, got {describe(direction)}")
        floating_tensor(name, direction)
        on_device(name, direction, wanted.device, "the field is", "it")
        if readable(direction) and not bool(torch.isfinite(direction).all()):
            raise ValueError(f"{name} must be finite, got NaN or infinity in {describe(direction)}")
        return direction.detach().to(wanted)

    def __repr__(self) -> str:
        batch, dim = self.consistent.shape
        sizes = f"batch={batch}, num_classes={self.probabilities.shape[1]}, dim={dim}"
        return f"UpdateField({self._place.pot.realization!r}, {sizes}, strength={self.strength:g})"

    def __str__(self) -> str:
        batch, dim = self.consistent.shape
        samples = f"{batch} feature{'s' * (batch != 1)}, {self.probabilities.shape[1]} classes, dimension {dim}"
        lines = [f"update field of {self._place.pot.realization!r}: {samples}, strength of the mismatch {self.strength:g}"]
        if batch:
            lines += [
                f"  loss                 {_range(self.loss)}",
                f"  radial defect        {_range(self.radial_defect)}: supplied slope minus derivative of the value",
                f"  gradient gap         {_range(self.relative_gap)} of the gradient of the loss; {_range(self.residual)} after the best rescaling",
                f"  antisymmetry         {_range(self.antisymmetry_norm)}: {self._meaning()}",
            ]
        return "\n".join(lines)

    def _meaning(self) -> str:
        if not bool(self.radial_defect.any()):
            return "the supplied field is the gradient of the loss"
        if self._place.pot.coherent:
            return "rounding alone, the realization being coherent"
        # v and d are sums over the classes: each coordinate is right to some roundings of the largest terms
        noise = 16 * torch.finfo(self.consistent.dtype).eps * _length(self.mean_consistent) * _length(self._mean_defect)
        if bool((self.antisymmetry_norm > noise).any()):
            return "nonzero, so near these features the supplied field is the gradient of no function"
        return "zero to rounding, so at these features nothing speaks against a potential"


def _range(values: torch.Tensor) -> str:
    low, high = f"{values.min().item():.3g}", f"{values.max().item():.3g}"
    return low if low == high else f"{low} to {high}"


def _dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a * b).sum(-1)


def _length(a: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(a, dim=-1)


def _over(numerator: torch.Tensor, denominator: torch.Tensor) -> torch.Tensor:
    """The quotient, and 0 where the numerator is 0."""
    zero = numerator == 0
    return torch.where(zero, 0.0, numerator / torch.where(zero, 1.0, denominator))


def _across(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The part of a perpendicular to b, to a rounding of a."""
    return a - b * _over(_dot(a, b), _dot(b, b)).unsqueeze(-1)


def _checked_strength(strength: float) -> float:
    return real_number(
        "strength",
        strength,
        "a finite number (1: as supplied, 0: the derivative of the value), at most 1e18",
        lambda s: abs(s) <= 1e18,
        kind=ValueError,
    )
