r"""Whether the gradients that a backward supplies can be the gradients of anything: their field is sampled, the true gradient is never asked for.

For a callable with one number as its output, G(x) is the supplied gradient with respect to all differentiated tensors, strung together, n numbers. Where G is
the gradient of a twice differentiable function, its Jacobian J is symmetric, and the work of G around a closed loop is zero whether or not the
function is smooth. `antisymmetry` and `component` look at J - J^T at a point, `circulation` at the work around a circle (sec:ce-integrability).

Points are moved by multiples of a power of two that their dtype represents exactly, so a difference of gradients belongs to the displacement it is divided
by. What these measurements can see is limited by rounding in the gradients. Replay in float64 (`Subject(..., dtype=torch.float64)`) to see more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pairgrad.coherence.subject.subject import Subject
from pairgrad.ground.checks import describe, integer_at_least
from pairgrad.ground.devices import HOST

# Displacements of a coordinate over the rms of its tensor; a factor 4 from one to the next.
_STEPS = tuple(2.0**-k for k in (4, 6, 8, 10, 12))
_ROUNDINGS = 4  # of each gradient, relative: the least noise that is assumed
_DEVIATIONS = 3  # of the measured noise, in an error bar
_BARS = 4.0  # error bars between zero and what is called significant
_NOISE_STEP = 2.0**-20  # spacing of the samples that measure noise: smooth fields have no fourth differences there
_SEED = 0x70616972  # added to seeds, so that a point drawn with the same one is not among the random directions

Direction = torch.Tensor | Sequence[torch.Tensor]  # (n,), or one tensor for each differentiated one


@dataclass(frozen=True, eq=False)
class Antisymmetry:
    r"""J - J^T of the supplied field at a point, with J_ij = dG_i / dx_j. Made by `antisymmetry`.

    Attributes:
        matrix: (n, n), J - J^T; if not `exact`, (k, k), Q^T (J - J^T) Q for the columns of `directions`.
        errors: error bars of its entries.
        directions: (n, k), orthonormal to the grid of displacements; None if `exact`.
        norm: Frobenius norm of J - J^T; if not `exact`, the root of an unbiased estimate of its square.
        norm_error: error bar of `norm` from differences and rounding.
        noise_floor: the part of `norm_error` that rounding alone makes.
        spread: standard deviation of `norm` over random blocks if J - J^T has rank two, the widest case; 0 if `exact`.
        symmetric_norm: the same norm of J + J^T.
        significant: whether the matrix is nonzero beyond its error bars, all entries considered.
        exact: whether all n columns were taken.
        size: n.
    """

    matrix: torch.Tensor = field(repr=False)
    errors: torch.Tensor = field(repr=False)
    directions: torch.Tensor | None = field(repr=False)
    norm: float
    norm_error: float
    noise_floor: float
    spread: float
    symmetric_norm: float
    significant: bool
    exact: bool
    size: int
    _shapes: tuple[torch.Size, ...] = field(repr=False)

    @property
    def share(self) -> float:
        """norm / sqrt(norm^2 + symmetric_norm^2): 0 for a gradient, 1 for a pure rotation."""
        total = math.hypot(self.norm, self.symmetric_norm)
        return self.norm / total if total else 0.0

    def component(self, first: Direction, second: Direction) -> float:
        """a . (J - J^T) b for directions given flat, (n,), or as one tensor for each differentiated one."""
        if not self.exact:
            taken = f"needs all {self.size} columns, got a block of {len(self.matrix)}"
            raise ValueError(f"component {taken}: call component(subject, first, second), or antisymmetry with a larger exact_up_to")
        a, b = (_flat_direction(name, value, self._shapes) for name, value in (("first", first), ("second", second)))
        return float(a @ self.matrix @ b)

    def plane(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Two orthonormal flat directions that span the plane in which the matrix is largest."""
        if self.size == 1:
            raise ValueError("plane needs two coordinates, got a field of one, which always has a potential")
        left, values, right = torch.linalg.svd(self.matrix)
        frame = torch.stack([left[:, 0], right[0] if values[0] else left[:, 1]], 1)
        return _orthonormal(*(frame if self.directions is None else self.directions @ frame).T)

    def __str__(self) -> str:
        if self.size == 1:
            return "antisymmetry of the supplied field: zero, since a field of one coordinate always has a potential"
        block = f"a block of {len(self.matrix)} of {self.size} directions, spread {self.spread:.2g}"
        taken = f"all {self.size} columns" if self.exact else block
        verdict = "near this point the supplied field is the gradient of no twice differentiable function"
        return (
            f"antisymmetry of the supplied field: {self.norm:.4g} +- {self.norm_error:.1g} (noise floor {self.noise_floor:.1g}; {taken}), "
            f"share {self.share:.2g}: {verdict if self.significant else 'at this point nothing speaks against a potential'}"
        )


@dataclass(frozen=True)
class Component:
    """a . (J - J^T) b of the supplied field at a point. Made by `component`."""

    value: float
    error: float
    noise_floor: float

    @property
    def significant(self) -> bool:
        return abs(self.value) > _BARS * self.error


def antisymmetry(subject: Subject, *, probes: int = 8, exact_up_to: int = 256, seed: int = 0) -> Antisymmetry:
    r"""J - J^T of the supplied field, by central differences of supplied gradients at five steps, extrapolated.

    Up to `exact_up_to` coordinates J is taken whole, with 10 n backwards. Above, it is seen through a random orthonormal block Q of k = `probes`
    columns, with 10 k backwards. For a uniformly random block, \(E \|Q^T A Q\|_F^2 = \|A\|_F^2 k (k - 1) / (n (n - 1))\): given the first of two
    columns, A^T q_1 is orthogonal to q_1, and q_2 is uniform among what is orthogonal to q_1.

    Args:
        subject: what is audited; it must have one output, a single number.
        probes: k >= 2.
        exact_up_to: take all columns up to this many coordinates.
        seed: of the block, and of the line on which rounding noise is measured.
    """
    probes, exact_up_to = integer_at_least("probes", probes, 2), integer_at_least("exact_up_to", exact_up_to, 0)
    seen = _Field(subject, integer_at_least("seed", seed, 0))
    n = seen.size
    exact = n <= max(exact_up_to, probes)
    frame = torch.eye(n, dtype=torch.float64) if exact else torch.linalg.qr(seen.normal(probes).T)[0]
    frame, jacobian, error, floor = seen.jacobian(frame)
    matrix, symmetric = jacobian - jacobian.T, jacobian + jacobian.T
    k = len(matrix)
    pairs = max(k * (k - 1) // 2, 1)
    of_pairs = n * (n - 1) / (2 * pairs)
    errors, floors = ((part + part.T).fill_diagonal_(0) for part in (error, floor))
    norm, norm_error, noise_floor = (math.sqrt(of_pairs) * torch.linalg.matrix_norm(m).item() for m in (matrix, errors, floors))
    on_diagonal = symmetric.diagonal().square().sum()  # the block's diagonal stands for n / k times as much, the rest for of_pairs times
    symmetric_norm = (of_pairs * (symmetric.square().sum() - on_diagonal) + n / k * on_diagonal).clamp_min(0).sqrt().item()
    # what rank two leaves of its square in the block is a product of two Beta variables, of k and k - 1 out of n and n - 1 dimensions
    variance = 0.0 if exact else (k + 2) * n / (k * (n + 2)) * ((k + 1) * (n - 1) / ((k - 1) * (n + 1))) - 1
    bars = _BARS + math.sqrt(2 * math.log(pairs))  # of the largest of so many entries
    significant = norm > _BARS * norm_error or bool((matrix.abs() > bars * errors).any())
    spread = norm * math.sqrt(max(variance, 0.0)) / 2
    directions = None if exact else frame
    return Antisymmetry(
        matrix, errors, directions, norm, norm_error, noise_floor, spread, symmetric_norm, significant, exact, size=n, _shapes=seen.shapes
    )


def component(subject: Subject, first: Direction, second: Direction, *, seed: int = 0) -> Component:
    """a . (J - J^T) b of the supplied field for two directions, at any number of coordinates: 20 backwards, and 9 to measure noise.

    Args:
        subject: what is audited; it must have one output, a single number.
        first: a, flat with n entries, or one tensor for each differentiated one.
        second: b, likewise.
        seed: of the line on which rounding noise is measured.
    """
    seen = _Field(subject, integer_at_least("seed", seed, 0))
    a, b = (_flat_direction(name, value, seen.shapes) for name, value in (("first", first), ("second", second)))
    lengths = [torch.linalg.vector_norm(direction).item() for direction in (a, b)]
    if not all(lengths):
        raise ValueError(f"{'second' if lengths[0] else 'first'} must be a direction, got zeros: every component along it is 0")
    _, jacobian, error, floor = seen.jacobian(torch.stack([a / lengths[0], b / lengths[1]], 1))
    scale = lengths[0] * lengths[1]
    value = (jacobian[0, 1] - jacobian[1, 0]).item()
    return Component(scale * value, *(scale * (part[0, 1] + part[1, 0]).item() for part in (error, floor)))


@dataclass(frozen=True, eq=False)
class Circulation:
    r"""The work of the supplied field around a circle. Made by `circulation`.

    The gradient of any function psi does no work around a loop, so G - grad psi does the same work as G, and somewhere on the loop is at least
    |work| / length long. That much of the update is the gradient of nothing, whatever function one has in mind. `lower_bound` takes the error bar off first.

    Attributes:
        work: loop integral of G . dx, from the first direction towards the second.
        error: its error bar.
        length: of the loop.
        magnitude: loop integral of |G . dx|.
        size: rms length of G on the loop.
        directions: the two orthonormal flat directions.
        radius: of the circle.
    """

    work: float
    error: float
    length: float
    magnitude: float
    size: float
    directions: tuple[torch.Tensor, torch.Tensor] = field(repr=False)
    radius: float

    @property
    def relative(self) -> float:
        """Work over the loop integral of |G . dx|."""
        return self.work / self.magnitude if self.magnitude else 0.0

    @property
    def lower_bound(self) -> float:
        """For every psi, the largest length of G - grad psi on the loop is at least this: (|work| - error) / length."""
        return max(abs(self.work) - self.error, 0.0) / self.length

    @property
    def lower_bound_relative(self) -> float:
        """`lower_bound` over the rms length of G on the loop."""
        return self.lower_bound / self.size if self.size else 0.0

    @property
    def significant(self) -> bool:
        """Whether it is more than quadrature and rounding explain."""
        return abs(self.work) > _BARS * self.error

    def __str__(self) -> str:
        verdict = f"{self.lower_bound_relative:.2g} of the supplied field is the gradient of nothing, somewhere on the loop"
        return (
            f"work of the supplied field around a circle of radius {self.radius:.3g}: {self.work:.4g} +- {self.error:.1g}: "
            f"{verdict if self.significant else 'nothing speaks against a potential'}"
        )


def circulation(
    subject: Subject,
    *,
    radius: float | None = None,
    directions: Antisymmetry | tuple[Direction, Direction] | None = None,
    nodes: int = 64,
    seed: int = 0,
) -> Circulation:
    r"""The work of the supplied field around x + radius (cos(s) a + sin(s) b), by the trapezoidal rule.

    Where the field is smooth, the rule's error falls geometrically with the nodes. The error bar is the difference from what every other node gives,
    plus the size of the highest frequencies on the loop, where kinks and rounding noise show, plus the rounding of the sum. Kinks widen it.

    Args:
        subject: what is audited; it must have one output, a single number.
        radius: None: an eighth of the rms of each tensor at most, in every coordinate.
        directions: two directions, made orthonormal in their plane; or an `Antisymmetry`, for the plane in which it is largest; None: the supplied
            gradient and a random direction.
        nodes: on the loop, an even number >= 16; one backward each.
        seed: of the random direction.
    """
    nodes = integer_at_least("nodes", nodes, 16, hint="an even number, such as 64")
    if nodes % 2:
        raise ValueError(f"nodes must be even, got {nodes}: half of them make the error estimate")
    if radius is not None and (isinstance(radius, bool) or not isinstance(radius, (int, float)) or not 0 < radius < math.inf):
        raise ValueError(f"radius must be a positive finite number or None, got {describe(radius)}")
    seen = _Field(subject, integer_at_least("seed", seed, 0))
    if seen.size == 1:
        raise ValueError("subject must have two coordinates or more for a loop, got one: a field of one coordinate always has a potential")
    a, b = _plane(directions, seen)
    radius = float(radius) if radius is not None else 2.0**-3 * min(seen.reach(a), seen.reach(b))
    angles = 2 * math.pi * torch.arange(nodes, dtype=torch.float64) / nodes
    rates, sizes, roundings = torch.zeros(3, nodes, dtype=torch.float64)  # G . dx/ds, |G|^2, and what sums of G . dx/ds are rounded by
    for i, (cosine, sine) in enumerate(zip(angles.cos().tolist(), angles.sin().tolist(), strict=True)):
        gradient = seen.at(radius * (cosine * a + sine * b))
        if gradient is None:
            raise ValueError(f"radius must keep the loop where the supplied gradient is finite, got {radius:g}: take a smaller one")
        products = gradient * (radius * (cosine * b - sine * a))
        rates[i], sizes[i], roundings[i] = products.sum(), gradient.square().sum(), products.abs().sum()
    work, half = 2 * math.pi * rates.mean().item(), 2 * math.pi * rates[::2].mean().item()
    # what the rule leaves out are the frequencies nodes, 2 nodes, ...; where the spectrum decays, and for noise, those are no larger than the highest ones seen
    tail = torch.fft.rfft(rates)[3 * nodes // 8 :].abs().square().mean().sqrt().item() / nodes
    floor = _ROUNDINGS * seen.eps * 2 * math.pi * roundings.mean().item()
    error = abs(work - half) + _BARS * 2 * math.pi * tail + floor
    magnitude = 2 * math.pi * rates.abs().mean().item()
    return Circulation(work, error, 2 * math.pi * radius, magnitude, sizes.mean().sqrt().item(), (a, b), radius)


def _plane(directions: Any, seen: _Field) -> tuple[torch.Tensor, torch.Tensor]:
    if isinstance(directions, Antisymmetry):
        if directions.size != seen.size:
            raise ValueError(f"directions must be of a subject with {seen.size} coordinates, got an Antisymmetry of {directions.size}")
        return directions.plane()
    if directions is None:
        random = seen.normal(2)
        return _orthonormal(seen.here if seen.here.any() else random[1], random[0])
    if not isinstance(directions, (tuple, list)) or len(directions) != 2:
        raise TypeError(f"directions must be two directions, an Antisymmetry or None, got {describe(directions)}")
    return _orthonormal(*(_flat_direction(f"directions[{i}]", value, seen.shapes) for i, value in enumerate(directions)))


def _orthonormal(first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    frame, triangle = torch.linalg.qr(torch.stack([first, second], 1))
    if not triangle[0, 0].abs() > 0 or not triangle[1, 1].abs() > 1e-8 * torch.linalg.vector_norm(second):
        raise ValueError("directions must span a plane, got two that are parallel or zero")
    a, b = (frame * triangle.diagonal().sign()).T
    return a, b


class _Field:
    """Supplied gradients as a field on R^n in float64, around the point of the subject."""

    def __init__(self, subject: Subject, seed: int) -> None:
        if not isinstance(subject, Subject):
            raise TypeError(f"subject must be a Subject, got {describe(subject)}: make one with Subject(fn, inputs)")
        if len(subject.outputs) != 1 or subject.outputs[0].numel() != 1:
            shapes = ", ".join(str(tuple(output.shape)) for output in subject.outputs)
            raise ValueError(f"subject must have one output, a single number, got {shapes}: let fn sum or weigh its outputs first")
        self._subject = subject
        self._cotangent = (torch.ones_like(subject.outputs[0]),)
        self._generator = torch.Generator().manual_seed(_SEED + seed)
        self.shapes = tuple(tensor.shape for tensor in subject.tensors)
        self.eps = max(torch.finfo(tensor.dtype).eps for tensor in (*subject.tensors, *subject.outputs))
        points, scales, units = zip(*(_grid(tensor) for tensor in subject.tensors), strict=True)
        self._point, self._scale, self._unit = torch.cat(points), torch.cat(scales), torch.cat(units)
        self.size = len(self._point)
        here = self.at(torch.zeros_like(self._point))
        if here is None:
            raise ValueError("subject must supply a finite gradient at its inputs, got NaN or infinity: move the inputs")
        self.here = here

    def normal(self, count: int) -> torch.Tensor:
        return torch.randn(count, self.size, dtype=torch.float64, generator=self._generator)

    def reach(self, direction: torch.Tensor) -> float:
        """How far one can go in a direction until a coordinate has moved by the rms of its tensor."""
        return 1 / (direction.abs() / self._scale).max().item()

    def at(self, displacement: torch.Tensor) -> torch.Tensor | None:
        """G at a displaced point; None if it is not finite."""
        parts = (self._point + displacement).split([shape.numel() for shape in self.shapes])
        point = [part.reshape(tensor.shape).to(tensor) for part, tensor in zip(parts, self._subject.tensors, strict=True)]
        try:
            gradients = self._subject.pull(point, self._cotangent).gradients
        finally:
            self._subject.restore()
        flat = torch.cat([gradient.reshape(-1).to(HOST, torch.float64) for gradient in gradients])
        return flat if bool(torch.isfinite(flat).all()) else None

    def jacobian(self, frame: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Columns W as they are after rounding to displacements, W^T J W, its error bars, and the part of these that is rounding; all but W are (k, k)."""
        least = max(_STEPS[-1], 2.0 ** math.ceil(math.log2(4 * (self._unit / self._scale).max().item())))
        relative = [step for step in (least * 4.0**k for k in reversed(range(5))) if step <= max(_STEPS[0], 4 * least)]
        reaches = [2.0 ** math.floor(math.log2(self.reach(column))) for column in frame.T]
        grid = self._unit[:, None] / (least * torch.tensor(reaches, dtype=torch.float64))
        frame = torch.round(frame / grid) * grid
        noise = self._noise(frame)
        columns = [
            self._column(column, [reach * r for r in relative], frame, noise) for column, reach in zip(frame.T, reaches, strict=True)
        ]
        matrix, error, floor = (torch.stack(part, 1) for part in zip(*columns, strict=True))
        return frame, matrix, error, floor

    def _column(
        self, direction: torch.Tensor, steps: list[float], frame: torch.Tensor, noise: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """W^T J d from central differences at steps that shrink fourfold: the entry of the extrapolation table with the least error."""
        best: tuple[float, torch.Tensor, torch.Tensor, torch.Tensor] | None = None
        row: list[torch.Tensor] = []
        for step in steps:
            ahead, behind = self.at(step * direction), self.at(-step * direction)
            if ahead is None or behind is None:
                row = []  # outside of the domain
                continue
            size = (frame.square().T @ torch.maximum(ahead.abs(), behind.abs()).square()).sqrt()
            floor = (_ROUNDINGS * self.eps * _at_least_rms(size) + _DEVIATIONS * noise) / step
            before, row = row, [frame.T @ (ahead - behind) / (2 * step)]
            for order, coarser in enumerate(before, 1):
                row.append(row[-1] + (row[-1] - coarser) / (16.0**order - 1))
                error = _at_least_rms(torch.maximum((row[-1] - row[-2]).abs(), (row[-1] - coarser).abs())) + floor
                total = torch.linalg.vector_norm(error).item()
                if best is None or total < best[0]:
                    best = total, row[-1], error, floor
        if best is None:
            near = f"within {steps[-2]:.1g} of its inputs"
            raise ValueError(f"subject must supply finite gradients {near}, got NaN or infinity: move the inputs away from there")
        return best[1:]

    def _noise(self, frame: torch.Tensor) -> torch.Tensor:
        """(k,), standard deviation of W^T G between neighbouring points, from fourth differences on a line of eight."""
        spacing = (torch.maximum(_NOISE_STEP * self._scale, 4 * self._unit) / self._unit).round() * self._unit
        line = spacing * torch.sign(self.normal(1)[0])
        found = [sample for sample in (self.at(i * line) for i in range(-4, 4)) if sample is not None]
        if len(found) < 8:
            raise ValueError(
                "subject must supply finite gradients next to its inputs, got NaN or infinity: move the inputs away from there"
            )
        fourth = torch.diff(torch.stack(found) - self.here, n=4, dim=0) @ frame
        return _at_least_rms((fourth.square().mean(0) / math.comb(8, 4)).sqrt())


def _grid(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A tensor flat in float64 on a grid, its rms and the spacing of the grid: all multiples up to twice its largest entry are representable."""
    flat = tensor.detach().reshape(-1).to(HOST, torch.float64)
    largest = flat.abs().max().item() if len(flat) else 0.0
    if not math.isfinite(largest):
        raise ValueError(f"subject must have finite inputs, got NaN or infinity in {describe(tensor)}")
    scale = largest * (flat / largest).square().mean().sqrt().item() if largest else 1.0
    unit = torch.finfo(tensor.dtype).eps * 2.0 ** math.ceil(math.log2(largest + scale))
    return torch.round(flat / unit) * unit, torch.full_like(flat, scale), torch.full_like(flat, unit)


def _at_least_rms(values: torch.Tensor) -> torch.Tensor:
    return values.clamp_min(values.square().mean().sqrt().item())


def _flat_direction(name: str, value: Any, shapes: tuple[torch.Size, ...]) -> torch.Tensor:
    size = sum(shape.numel() for shape in shapes)
    parts = [value] if isinstance(value, torch.Tensor) else list(value) if isinstance(value, (tuple, list)) else []
    fits = all(isinstance(part, torch.Tensor) for part in parts) and (
        [part.shape for part in parts] == list(shapes) or (isinstance(value, torch.Tensor) and value.shape == (size,))
    )
    if not fits:
        wanted = ", ".join(str(tuple(shape)) for shape in shapes)
        came = ", ".join(describe(part) for part in parts) or describe(value)
        raise ValueError(f"{name} must be a direction: a tensor of shape ({size},), or tensors of shapes {wanted}, got {came}")
    flat = torch.cat([part.detach().reshape(-1).to(HOST, torch.float64) for part in parts])
    if not bool(torch.isfinite(flat).all()):
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return flat
