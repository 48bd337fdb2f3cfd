"""Sets that arguments lie in, such as symmetric matrices or the unit sphere: directions within them, and curves that stay in them.

A backward is right within a set if <supplied gradient, velocity> is the derivative of the value along every curve in the set. Open sets (positive numbers)
and flat ones (symmetric matrices) have straight lines, as exact as those without a constraint. On curved sets (spheres, orthogonal matrices) the points
are computed in float64 and rounded to the dtype of the argument, so a point lies in the set, and on the curve, only up to rounding. The value then
carries the noise of one rounding of the argument, about |gradient| |x| eps: an audit sees it as noise, and its limit is higher by that much in float32.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributions import constraints as torch_constraints

from pairgrad.coherence.subject.curves import Curve, GreatCircles, Rotation, Straight, power_of_two_below
from pairgrad.ground.checks import describe

_QUARTER_TURN = math.pi / 2  # curves on spheres and orthogonal matrices are shorter than that on each side


@dataclass(frozen=True, eq=False)
class Constraint:
    """A set that an argument lies in. This one is the whole space; the others redefine what is different."""

    name: str
    expected = "numbers that are not NaN"
    remedy = "replace NaN"
    exact = True  # whether tangents keep steps of few bits, so that a snapped base gives exact points

    def violation(self, x: torch.Tensor) -> str | None:
        """In what way x lies outside of the set, None if it does not."""
        return "NaN among its elements" if bool(x.isnan().any()) else None

    def project(self, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """The orthogonal projection of a direction onto the tangent space at x, in float64."""
        return direction.double()

    def tangent(self, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """A tangent direction at x made of `direction`, in float64, so short that the curve stays inside for |t| <= 1.

        It is shortened by powers of two, which keeps steps of few bits exact. Coordinates on the border of the set stay there.
        """
        return self.project(x, direction)

    def curve(self, x: torch.Tensor, direction: torch.Tensor) -> Curve:
        """The curve through x at t = 0 with the velocity `tangent(x, direction)`, inside the set for |t| <= 1."""
        return Straight(x, self.tangent(x, direction))


@dataclass(frozen=True, eq=False)
class Bounded(Constraint):
    """Every element lies between two bounds."""

    low: Any = -math.inf  # a number, or a tensor that broadcasts to the argument
    high: Any = math.inf
    closed: tuple[bool, bool] = (False, False)

    @property
    def expected(self) -> str:
        """The bounds as a sentence has them."""
        left, right = ("<=" if closed else "<" for closed in self.closed)
        if self._is_infinite(self.high):
            return f"elements {'>=' if self.closed[0] else '>'} {_bound(self.low)}"
        if self._is_infinite(self.low):
            return f"elements {right} {_bound(self.high)}"
        return f"elements with {_bound(self.low)} {left} x {right} {_bound(self.high)}"

    remedy = "move the argument inside"

    @staticmethod
    def _is_infinite(bound: Any) -> bool:
        return not isinstance(bound, torch.Tensor) and math.isinf(bound)

    def _bounds(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        low, high = (torch.as_tensor(bound, dtype=torch.float64, device=x.device).detach() for bound in (self.low, self.high))
        return low, high

    def violation(self, x: torch.Tensor) -> str | None:
        low, high = self._bounds(x)
        values = x.double()
        try:
            above = values >= low if self.closed[0] else values > low
            inside = above & (values <= high if self.closed[1] else values < high)
            inside = inside.expand_as(x)
        except RuntimeError:
            return f"bounds of shapes {tuple(low.shape)} and {tuple(high.shape)}, which do not broadcast to it"
        if bool(inside.all()):
            return None
        place = tuple((~inside).nonzero()[0].tolist())
        return f"{float(values[place]):.6g} at {list(place)}" if place else f"{float(values):.6g}"

    def tangent(self, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        low, high = self._bounds(x)
        direction = self.project(x, direction)
        return _shortened(direction, direction.abs(), torch.minimum(x.double() - low, high - x.double()))


class Square(Constraint):
    """Square matrices, otherwise free."""

    expected = "square matrices in the last two dimensions"
    remedy = "give a square matrix"

    def violation(self, x: torch.Tensor) -> str | None:
        if x.dim() < 2:
            return f"{x.dim()} dimensions"
        if x.shape[-1] != x.shape[-2]:
            return f"matrices of {x.shape[-2]} x {x.shape[-1]}"
        return super().violation(x)


class Symmetric(Square):
    """Matrices that equal their transposes."""

    expected = "square matrices in the last two dimensions that equal their transposes"
    remedy = "use (x + x.mT) / 2"

    def violation(self, x: torch.Tensor) -> str | None:
        found = super().violation(x)
        if found or bool(torch_constraints.symmetric.check(x.double()).all()):
            return found
        return f"elements that differ from the transpose by up to {float((x.double() - x.double().mT).abs().max()):.3g}"

    def project(self, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        return (direction.double() + direction.double().mT) / 2


@dataclass(frozen=True, eq=False)
class PositiveMatrix(Symmetric):
    """Symmetric matrices with positive eigenvalues, or with eigenvalues that are not negative."""

    definite: bool = True

    @property
    def expected(self) -> str:
        """The eigenvalues that are allowed."""
        return f"symmetric matrices with eigenvalues {'>' if self.definite else '>='} 0 in the last two dimensions"

    remedy = "use x @ x.mT, with a multiple of the identity added"

    def violation(self, x: torch.Tensor) -> str | None:
        found = super().violation(x)
        if found or not x.numel():
            return found
        if self.definite and bool(torch_constraints.positive_definite.check(x.double()).all()):
            return None
        eigenvalues = torch.linalg.eigvalsh(x.double())
        lowest, largest = eigenvalues.amin(-1), eigenvalues.abs().amax(-1)
        if not self.definite and bool((lowest >= -_rounding(x, x.shape[-1]) * largest).all()):
            return None
        return f"an eigenvalue of {float(lowest.min()):.3g}"

    def tangent(self, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """As everywhere, but shortened element by element in the basis of the eigenvectors: the least eigenvalue does not shorten all the steps."""
        direction = self.project(x, direction)
        if not x.numel():
            return direction
        eigenvalues, vectors = torch.linalg.eigh(self.project(x, x))
        least = 0.0 if self.definite else _rounding(x, x.shape[-1]) * eigenvalues[..., -1:]
        roots = torch.where(eigenvalues > least, eigenvalues, 0.0).sqrt().unsqueeze(-2)
        whitened = vectors * torch.where(roots > 0, 1 / roots, 0.0)
        seen = whitened.mT @ direction @ whitened  # x + t d is as definite as I + t seen
        if bool((roots > 0).all()) and float(torch.linalg.eigvalsh(seen).abs().max()) <= 0.875:
            return direction
        short = _shortened(seen, seen.abs(), torch.full_like(seen, 1 / x.shape[-1]))
        return self.project(x, (vectors * roots) @ short @ (vectors * roots).mT)


class LowerTriangular(Constraint):
    """Matrices with zeros above the diagonal."""

    expected = "lower-triangular matrices in the last two dimensions"
    remedy = "use x.tril()"

    def violation(self, x: torch.Tensor) -> str | None:
        if x.dim() < 2:
            return f"{x.dim()} dimensions"
        if bool((x.triu(1) != 0).any()):
            return f"elements of up to {float(x.triu(1).double().abs().max()):.3g} above the diagonal"
        return super().violation(x)

    def project(self, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        return direction.double().tril()


class LowerCholesky(LowerTriangular, Square):
    """Lower-triangular matrices with a positive diagonal."""

    expected = "lower-triangular square matrices with a positive diagonal in the last two dimensions"
    remedy = "use torch.linalg.cholesky of a positive-definite matrix"

    def violation(self, x: torch.Tensor) -> str | None:
        found = super().violation(x)
        if found or bool((x.diagonal(dim1=-2, dim2=-1) > 0).all()):
            return found
        return f"{float(x.diagonal(dim1=-2, dim2=-1).min()):.3g} on the diagonal"

    def tangent(self, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        direction = self.project(x, direction)
        diagonal = direction.diagonal(dim1=-2, dim2=-1)
        short = _shortened(diagonal, diagonal.abs(), x.double().diagonal(dim1=-2, dim2=-1))
        return direction.diagonal_scatter(short, dim1=-2, dim2=-1)


class CorrelationCholesky(LowerCholesky):
    """Cholesky factors of correlation matrices: each row has length 1."""

    expected = "lower-triangular square matrices with a positive diagonal and rows of length 1 in the last two dimensions"
    remedy = "use torch.linalg.cholesky of a correlation matrix"
    exact = False

    def violation(self, x: torch.Tensor) -> str | None:
        return super().violation(x) or _uneven_rows(x)

    def project(self, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        return _sideways(x, super().project(x, direction))

    def tangent(self, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        direction = self.project(x, direction)
        rate = GreatCircles(x, direction).rate
        height = x.double().diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
        slope = direction.diagonal(dim1=-2, dim2=-1).unsqueeze(-1).abs()
        return _shortened(direction, rate, torch.atan2(rate * height, slope))  # the angle at which the diagonal reaches zero

    def curve(self, x: torch.Tensor, direction: torch.Tensor) -> Curve:
        return GreatCircles(x, self.tangent(x, direction))


class Simplex(Constraint):
    """Probabilities: nonnegative, with the sum 1 along the last dimension."""

    expected = "nonnegative elements with the sum 1 along the last dimension"
    remedy = "use x.softmax(-1) or x / x.sum(-1, keepdim=True)"
    exact = False

    def violation(self, x: torch.Tensor) -> str | None:
        if not x.dim():
            return "0 dimensions"
        if bool((x < 0).any()):
            return f"an element of {float(x.min()):.3g}"
        off = (x.double().sum(-1) - 1).abs()
        if x.numel() and bool((off > max(1e-6, _rounding(x, x.shape[-1]))).any()):
            return f"a sum that differs from 1 by {float(off.max()):.3g}"
        return super().violation(x)

    def project(self, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        return direction.double() - direction.double().mean(-1, keepdim=True)

    def tangent(self, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """As everywhere, but the sum of the direction is subtracted in proportion to x, not evenly: subtracting the mean moves a probability of 1e-9 by
        more than itself, and shortening that would shorten the steps of all the others to 1e-9.
        """
        x, direction = x.double(), direction.double()
        short = _shortened(direction, direction.abs(), x) / 2
        return short - x * (short.sum(-1, keepdim=True) / x.sum(-1, keepdim=True))


class Sphere(Constraint):
    """Vectors of length 1 along the last dimension."""

    expected = "vectors of length 1 along the last dimension"
    remedy = "use torch.nn.functional.normalize(x, dim=-1)"
    exact = False

    def violation(self, x: torch.Tensor) -> str | None:
        if not x.dim():
            return "0 dimensions"
        return super().violation(x) or _uneven_rows(x)

    def project(self, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        return _sideways(x, direction.double())

    def tangent(self, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        direction = self.project(x, direction)
        rate = GreatCircles(x, direction).rate
        return _shortened(direction, rate, torch.full_like(rate, _QUARTER_TURN))

    def curve(self, x: torch.Tensor, direction: torch.Tensor) -> Curve:
        return GreatCircles(x, self.tangent(x, direction))


class Orthogonal(Constraint):
    """Matrices with orthonormal columns, square or tall."""

    expected = "matrices with orthonormal columns in the last two dimensions, with as many rows as columns or more"
    remedy = "use torch.linalg.qr(x).Q"
    exact = False

    def violation(self, x: torch.Tensor) -> str | None:
        if x.dim() < 2:
            return f"{x.dim()} dimensions"
        if x.shape[-2] < x.shape[-1]:
            return f"matrices of {x.shape[-2]} x {x.shape[-1]}"
        found = super().violation(x)
        if found or not x.numel():
            return found
        off = (x.double().mT @ x.double() - torch.eye(x.shape[-1], dtype=torch.float64, device=x.device)).abs().max()
        return f"scalar products of columns that are off by {float(off):.3g}" if off > _rounding(x, x.shape[-2]) else None

    def project(self, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        x, direction = x.double(), direction.double()
        inner = x.mT @ direction
        return direction - x @ ((inner + inner.mT) / 2)

    def tangent(self, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        direction = self.project(x, direction)
        rate = torch.linalg.matrix_norm(direction, 2, keepdim=True) if x.numel() else torch.ones((), dtype=torch.float64, device=x.device)
        return _shortened(direction, rate, torch.full_like(rate, _QUARTER_TURN))

    def curve(self, x: torch.Tensor, direction: torch.Tensor) -> Curve:
        wide = x.double()
        tangent = self.tangent(x, direction)
        half = (tangent - wide @ (wide.mT @ tangent) / 2) @ wide.mT
        return Rotation(x, half - half.mT)


_NAMED: dict[str, Constraint] = {
    constraint.name: constraint
    for constraint in (
        Constraint("real"),
        Bounded("positive", 0.0),
        Bounded("nonnegative", 0.0, closed=(True, False)),
        Bounded("unit_interval", 0.0, 1.0, (True, True)),
        Square("square"),
        Symmetric("symmetric"),
        PositiveMatrix("positive_definite"),
        PositiveMatrix("positive_semidefinite", definite=False),
        LowerTriangular("lower_triangular"),
        LowerCholesky("lower_cholesky"),
        CorrelationCholesky("corr_cholesky"),
        Simplex("simplex"),
        Sphere("sphere"),
        Orthogonal("orthogonal"),
    )
}
_OWN = ("positive", "nonnegative", "unit_interval", "sphere", "orthogonal")  # those that are not the only object of a class of torch
_TORCH = {type(getattr(torch_constraints, name)): constraint for name, constraint in _NAMED.items() if name not in _OWN}


def is_exactly_symmetric(x: torch.Tensor) -> bool:
    """Whether x holds matrices of 2 x 2 or more that equal their transposes in every bit; diagonal ones are among them."""
    return x.layout == torch.strided and x.dim() >= 2 and x.numel() > 0 and x.shape[-1] == x.shape[-2] > 1 and torch.equal(x, x.mT)


def as_constraint(value: Any) -> Constraint:
    """A constraint by its name, from torch.distributions.constraints, or one of our own as it is."""
    if isinstance(value, Constraint):
        return value
    if isinstance(value, str):
        if value in _NAMED:
            return _NAMED[value]
        near = difflib.get_close_matches(value, sorted(_NAMED), 1, 0.6)
        raise ValueError(
            f"constraints: there is no constraint {value!r}: {f'did you mean {near[0]!r}?' if near else 'there are ' + ', '.join(_NAMED)}"
        )
    if isinstance(value, torch_constraints.independent):
        return as_constraint(value.base_constraint)
    if type(value) in _TORCH:
        return _TORCH[type(value)]
    for kind, closed in (
        (torch_constraints.interval, (True, True)),
        (torch_constraints.half_open_interval, (True, False)),
        (torch_constraints.greater_than, (False, False)),
        (torch_constraints.greater_than_eq, (True, False)),
        (torch_constraints.less_than, (False, False)),
    ):
        if type(value) is kind:
            return Bounded(repr(value), getattr(value, "lower_bound", -math.inf), getattr(value, "upper_bound", math.inf), closed)
    if isinstance(value, torch_constraints.Constraint):
        why = "has no directions to move in" if _is_discrete(value) else "is made of several or depends on other arguments"
        raise TypeError(
            f"constraints: {describe(value)} is not supported, because it {why}: use one of {', '.join(_NAMED)}, or an interval, "
            "and audit other parts as arguments of their own"
        )
    raise TypeError(
        "constraints must be made of names such as 'symmetric' or objects of torch.distributions.constraints such as interval(0, 1), "
        f"got {describe(value)}: the names are {', '.join(_NAMED)}"
    )


def resolve_constraints(constraints: Any, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> dict[int, Constraint]:
    """The constraint of each differentiated tensor that has one, with a ValueError where a tensor does not satisfy it.

    `constraints` is one of them for all inputs, a sequence with one (or None) for each input, or a mapping from names ("input 0", a keyword, the name of a
    parameter) or positions.
    """
    found = {place: as_constraint(value) for place, value in _placed(constraints, names).items() if value is not None}
    for place, constraint in found.items():
        violation = constraint.violation(tensors[place])
        if violation is not None:
            raise ValueError(
                f"constraints: {names[place]!r} is declared {constraint.name!r} and must have {constraint.expected}, "
                f"got {describe(tensors[place])} with {violation}: {constraint.remedy}, or constrain other arguments only, "
                "by a dict from names to constraints"
            )
    return found


def _placed(constraints: Any, names: Sequence[str]) -> dict[int, Any]:
    """What was given for each place."""
    if constraints is None:
        return {}
    if isinstance(constraints, Mapping):
        known = {name: i for i, name in enumerate(names)} | {i: i for i in range(len(names))}
        unknown = [key for key in constraints if key not in known]
        if unknown:
            raise ValueError(
                f"constraints names {unknown[0]!r}, which is not differentiated: the differentiated tensors are {', '.join(map(repr, names))}"
            )
        return {known[key]: value for key, value in constraints.items()}
    places = [i for i, name in enumerate(names) if name.startswith("input ")]
    if isinstance(constraints, (tuple, list)):
        if len(constraints) > len(places):
            raise ValueError(
                f"constraints has {len(constraints)} entries for {len(places)} differentiated inputs ({', '.join(names)}): "
                "give one for each, or a dict"
            )
        return dict(zip(places, constraints, strict=False))
    return dict.fromkeys(places or range(len(names)), constraints)


def _is_discrete(constraint: torch_constraints.Constraint) -> bool:
    try:
        return bool(constraint.is_discrete)
    except NotImplementedError:
        return False


def _bound(bound: Any) -> str:
    return describe(bound) if isinstance(bound, torch.Tensor) and bound.numel() > 1 else f"{float(bound):.6g}"


def _rounding(x: torch.Tensor, terms: int) -> float:
    """What the length of a vector of numbers near 1 may be off by, because they were computed in the dtype of x."""
    return (16 + math.sqrt(terms)) * torch.finfo(x.dtype).eps


def _uneven_rows(x: torch.Tensor) -> str | None:
    if not x.numel():
        return None
    off = (torch.linalg.vector_norm(x.double(), dim=-1) - 1).abs().max()
    return f"a length that differs from 1 by {float(off):.3g}" if off > _rounding(x, x.shape[-1]) else None


def _sideways(x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """The direction without its part along x, row by row. Twice, because the first difference may cancel."""
    x = x.double()
    for _ in range(2):
        direction = direction - x * ((x * direction).sum(-1, keepdim=True) / x.square().sum(-1, keepdim=True))
    return direction


def _shortened(direction: torch.Tensor, length: torch.Tensor, room: torch.Tensor) -> torch.Tensor:
    """The direction divided by the power of two that makes it as long as 7/8 of the room there is, or shorter; zero where there is none.

    The last eighth is for the rounding of points in a coarse dtype.
    """
    safe = torch.where(length > 0, length, 1.0)
    return direction * power_of_two_below((0.875 * room / safe).clamp(0.0, 1.0))
