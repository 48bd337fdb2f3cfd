r"""What an incoherent backward does to training: one start, two branches, the supplied gradient and the one that belongs to the forward.

Both branches compute the same loss by the same forward; only what is sent back differs. After the first update the difference is that of the two gradients,
as the optimizer passes it on. From there on it feeds itself.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from pairgrad.coherence.causes.consistent import differentiated_forward
from pairgrad.coherence.subject.subject import Evaluation, Point, Subject
from pairgrad.ground._torch_private import pytree
from pairgrad.ground.checks import describe, integer_at_least

MakeOptimizer = Callable[[list[torch.Tensor]], torch.optim.Optimizer]
FIRST_STEP = 0.01  # length of the first update over that of the parameters, by default


class Scaling(NamedTuple):
    """The multiple of the consistent gradients that is nearest to the supplied ones, and what it leaves over, relative to the supplied ones."""

    factor: float | torch.Tensor
    residual: float | torch.Tensor


def relative_gap(first: Sequence[torch.Tensor], reference: Sequence[torch.Tensor]) -> float:
    """||first - reference|| / ||reference|| over all tensors together, in float64; 0 if they are equal, infinite if only the reference is 0.

    Tensors are scaled by powers of two, so that squares neither overflow nor vanish.
    """
    a, b = _rows(first, reference, per_sample=False)
    scale = torch.maximum(_power(a), _power(b))
    gap, size = a / scale - b / scale, b / _power(b)
    if not bool(gap.any()):
        return 0.0
    return (_norm(gap) / _norm(size) * (scale / _power(b)).squeeze(1)).item()


def best_scaling(supplied: Sequence[torch.Tensor], consistent: Sequence[torch.Tensor], *, per_sample: bool = False) -> Scaling:
    r"""The factor \(c^* = a \cdot b / \|a\|^2\) that minimises ||b - c a||, for b supplied and a consistent, and the residual ||b - c^* a|| / ||b||.

    A residual of 0 says that the mismatch is a change of step length, 1 that the gradients are perpendicular. Where b is 0 the residual is 0; where a is
    0 the factor is 0. Computed in float64, with each side scaled by a power of two, so that squares neither overflow nor vanish.

    Args:
        supplied: tensors, taken together as one vector.
        consistent: tensors of the same shapes.
        per_sample: one factor and one residual for each index of the first dimension, as tensors of that length; else two numbers.
    """
    b, a = _rows(supplied, consistent, per_sample=per_sample)
    b_scale, a_scale = _power(b), _power(a)
    b, a = b / b_scale, a / a_scale
    square = (a * a).sum(1, keepdim=True)
    scaled = (a * b).sum(1, keepdim=True) / torch.where(square == 0, 1.0, square)
    size = _norm(b)
    residual = _norm(b - scaled * a) / torch.where(size == 0, 1.0, size)
    factor = (scaled * (b_scale / a_scale)).squeeze(1)
    return Scaling(factor, residual) if per_sample else Scaling(factor.item(), residual.item())


def _rows(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor], *, per_sample: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Both as float64 matrices, a row for each sample, or one for everything."""
    first, second = tuple(first), tuple(second)
    if [t.shape for t in first] != [t.shape for t in second]:
        raise ValueError(f"supplied and consistent must have the same shapes, got {_shapes(first)} and {_shapes(second)}")
    if not first or (per_sample and (any(t.dim() == 0 for t in first) or len({len(t) for t in first}) > 1)):
        wanted = "one first dimension, that of the samples" if per_sample else "at least one tensor"
        raise ValueError(f"supplied and consistent must have {wanted}, got {_shapes(first)}")
    rows = len(first[0]) if per_sample else 1
    a, b = (torch.cat([t.detach().double().reshape(rows, -1) for t in tensors], 1) for tensors in (first, second))
    return a, b


def _power(rows: torch.Tensor) -> torch.Tensor:
    """(B, 1), a power of two next to the largest element of each row; 1 where that is 0 or not finite."""
    largest = rows.abs().amax(1, keepdim=True) if rows.shape[1] else rows.new_zeros(len(rows), 1)
    usable = (largest > 0) & torch.isfinite(largest)
    exponent = torch.frexp(torch.where(usable, largest, 1.0)).exponent - 1
    return torch.ldexp(torch.ones_like(largest), exponent.clamp(-1021, 1022))


def _norm(rows: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(rows, dim=1)


def _shapes(tensors: Iterable[torch.Tensor]) -> str:
    return "[" + ", ".join(str(tuple(t.shape)) for t in tensors) + "]"


@dataclass(frozen=True, eq=False)
class Fork:
    """Two trainings from one start, as `fork` ran them.

    Attributes:
        distance: (steps + 1,), float64, ||theta_s - theta_c|| / ||theta_s|| after each update, from 0 at the start on.
        supplied_loss: (steps + 1,), float64, the loss of the branch that uses the supplied backward.
        consistent_loss: (steps + 1,), float64, that of the other.
        one_step: of the first update: "gradient", the gap of the gradients relative to the consistent one; "update", that of the updates; "rescaled",
            what is left of the supplied update after the best multiple of the consistent one is taken off, relative to it. Empty without an update.
        optimizer: in words.
        steps: updates made.
        stopped: why there are fewer than asked for, or None.
    """

    distance: torch.Tensor
    supplied_loss: torch.Tensor
    consistent_loss: torch.Tensor
    one_step: dict[str, float]
    optimizer: str
    steps: int
    stopped: str | None = None

    def __str__(self) -> str:
        lines = [f"fork of supplied and consistent backward: {self.steps} update{'s' * (self.steps != 1)} with {self.optimizer}"]
        if self.one_step:
            gradient, update, rescaled = (self.one_step[key] for key in ("gradient", "update", "rescaled"))
            lines += [
                f"  first gradient       {gradient:.3g} apart, relative to the consistent one",
                f"  first update         {update:.3g} apart; {rescaled:.3g} after the best rescaling",
                f"  parameters           {self.distance[-1].item():.3g} apart after the last update, at most {self.distance.max().item():.3g}",
            ]
        lines.append(
            f"  loss                 {self.supplied_loss[0].item():.6g} at the start, then {self.supplied_loss[-1].item():.6g} supplied, "
            f"{self.consistent_loss[-1].item():.6g} consistent"
        )
        return "\n".join(lines + ([f"  stopped early: {self.stopped}"] if self.stopped else []))


def fork(
    fn: Callable[..., Any],
    inputs: Any,
    *,
    steps: int = 100,
    optimizer: MakeOptimizer | None = None,
    consistent: str | Callable[..., Any] = "forward",
    parameters: torch.nn.Module | None = None,
) -> Fork:
    """Trains twice from the same start: with the backward that `fn` supplies, and with the one that belongs to its forward.

    Updated are the parameters of the module that `fn` is, or belongs to, and the tensors among the inputs that ask for a gradient; all floating-point
    tensors among the inputs if there is neither. Every call starts from the same buffers and random numbers, so that the loss is one function of what is
    updated. Nothing is left changed.

    Args:
        fn: maps the inputs to a loss, a tensor of one element.
        inputs: as for the audit: a tensor, a tuple of positional arguments or a dict of keyword arguments.
        steps: updates to make. A loss that is not finite ends the fork early.
        optimizer: makes an optimizer, whose step needs no closure, for a list of tensors. None: plain SGD, with the learning rate at which the first
            consistent update has 0.01 of the length of the parameters (of 1 if they are 0).
        consistent: "forward" differentiates the forward bodies (`differentiated_forward`); a callable is another implementation of the same function, with
            the right backward.
        parameters: the module whose parameters `fn` uses, where it does not say so itself (a lambda).
    """
    steps = integer_at_least("steps", steps, 1)
    if consistent != "forward" and not callable(consistent):
        raise ValueError(f'consistent must be "forward" or a callable that computes the same loss, got {describe(consistent)}')
    if parameters is not None and not isinstance(parameters, torch.nn.Module):
        raise TypeError(f"parameters must be a torch.nn.Module, got {describe(parameters)}: pass tensors as inputs instead")
    with contextlib.ExitStack() as stack:
        subject = stack.enter_context(Subject(fn, inputs, module=parameters))
        subject.restore()  # the subject has called fn once, and both are to start from the same state
        other = None if isinstance(consistent, str) else stack.enter_context(Subject(consistent, inputs, module=parameters))
        return _Fork(subject, other, _updated(subject, inputs)).run(steps, optimizer)


def _updated(subject: Subject, inputs: Any) -> list[int]:
    """Which of the tensors of a subject training would update: data is not, where there are parameters."""
    count, parameters = len(subject.tensors), len(subject._trained)
    asking = any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in pytree.tree_leaves(inputs))
    return list(range(0 if asking or not parameters else count - parameters, count))


class _Fork:
    def __init__(self, subject: Subject, other: Subject | None, updated: list[int]) -> None:
        self._subject, self._other, self._updated = subject, other, updated
        if len(subject.outputs) != 1 or subject.outputs[0].numel() != 1:
            raise ValueError(f"fn must return one loss, a tensor with one element, got {_shapes(subject.outputs)}: sum or average it")
        if not subject.connected:
            raise ValueError(f"fn must return a loss that depends on its inputs, got one without a graph from {subject.name}")
        if other is not None and not _equal(subject.tensors, other.tensors):
            raise ValueError(
                "consistent must be a function of the same tensors with the same values as fn, "
                f"got {_shapes(other.tensors)} beside {_shapes(subject.tensors)}: copy the parameters over first"
            )

    def run(self, steps: int, optimizer: MakeOptimizer | None) -> Fork:
        start = [self._subject.tensors[i] for i in self._updated]
        supplied, consistent = self._pull(self._subject, start), self._consistent(start)
        self._check_start(supplied, consistent)
        make = _plain_sgd(start, self._part(consistent.gradients), self._part(supplied.gradients)) if optimizer is None else optimizer
        branches = [_Branch(start, make), _Branch(start, make)]
        distances, losses = [0.0], [(_loss(supplied), _loss(consistent))]
        one_step, stopped = {}, None
        for step in range(1, steps + 1):
            branches[0].update(self._part(supplied.gradients))
            branches[1].update(self._part(consistent.gradients))
            points = [branch.point for branch in branches]
            if step == 1:
                one_step = self._one_step(start, points, supplied, consistent)
            supplied, consistent = self._pull(self._subject, points[0]), self._consistent(points[1])
            now = _loss(supplied), _loss(consistent)
            if not all(map(math.isfinite, now)):
                which = "supplied" if not math.isfinite(now[0]) else "consistent"
                stopped = f"the loss of the {which} branch was {now[which == 'consistent']} after update {step}"
                break
            distances.append(relative_gap(points[1], points[0]))
            losses.append(now)
        columns = [torch.tensor(column, dtype=torch.float64) for column in (distances, *zip(*losses, strict=True))]
        return Fork(columns[0], columns[1], columns[2], one_step, branches[0].name, len(distances) - 1, stopped)

    def _consistent(self, point: Sequence[torch.Tensor]) -> Evaluation:
        if self._other is not None:
            return self._pull(self._other, point)
        with differentiated_forward():
            return self._pull(self._subject, point)

    def _pull(self, subject: Subject, point: Sequence[torch.Tensor]) -> Evaluation:
        everything = list(self._subject.tensors)
        for i, value in zip(self._updated, point, strict=True):
            everything[i] = value
        return subject.pull(everything, tuple(torch.ones_like(output) for output in self._subject.outputs))

    def _part(self, gradients: Point) -> list[torch.Tensor]:
        return [gradients[i] for i in self._updated]

    def _check_start(self, supplied: Evaluation, consistent: Evaluation) -> None:
        a, b = _loss(supplied), _loss(consistent)
        if not math.isfinite(a):
            raise ValueError(f"fn must return a finite loss at the inputs, got {a}")
        # two implementations of one function round differently; half of the digits are enough to tell it from another function
        slack = 0.0 if self._other is None else math.sqrt(torch.finfo(supplied.outputs[0].dtype).eps) * max(abs(a), abs(b))
        if not abs(a - b) <= slack:
            hint = "fn keeps something from call to call" if self._other is None else "consistent must compute the same function"
            raise ValueError(f"both branches must report the same loss at the start, got {a!r} supplied and {b!r} consistent: {hint}")

    def _one_step(
        self, start: list[torch.Tensor], points: list[list[torch.Tensor]], supplied: Evaluation, consistent: Evaluation
    ) -> dict[str, float]:
        first, second = ([new.double() - old.double() for new, old in zip(point, start, strict=True)] for point in points)
        residual = best_scaling(first, second).residual
        assert isinstance(residual, float)
        return {
            "gradient": relative_gap(self._part(supplied.gradients), self._part(consistent.gradients)),
            "update": relative_gap(first, second),
            "rescaled": residual,
        }


class _Branch:
    """Tensors and the optimizer that moves them."""

    def __init__(self, start: Sequence[torch.Tensor], make: MakeOptimizer) -> None:
        self._tensors = [tensor.detach().clone().requires_grad_() for tensor in start]
        made = make(list(self._tensors))
        if not isinstance(made, torch.optim.Optimizer):
            raise TypeError(
                "optimizer must make a torch.optim.Optimizer from a list of tensors, e.g. lambda tensors: torch.optim.Adam(tensors), "
                f"got {describe(made)} from it"
            )
        self._optimizer = made
        rate = made.defaults.get("lr")
        self.name = type(made).__name__ + (f"(lr={float(rate):.6g})" if isinstance(rate, (int, float, torch.Tensor)) else "")

    @property
    def point(self) -> list[torch.Tensor]:
        return [tensor.detach().clone() for tensor in self._tensors]

    def update(self, gradients: Sequence[torch.Tensor]) -> None:
        for tensor, gradient in zip(self._tensors, gradients, strict=True):
            tensor.grad = gradient.clone()
        self._optimizer.step()


def _plain_sgd(start: Sequence[torch.Tensor], consistent: Sequence[torch.Tensor], supplied: Sequence[torch.Tensor]) -> MakeOptimizer:
    rate = FIRST_STEP * (_length(start) or 1.0) / (_length(consistent) or _length(supplied) or 1.0)
    return lambda tensors: torch.optim.SGD(tensors, lr=rate)


def _length(tensors: Sequence[torch.Tensor]) -> float:
    rows, _ = _rows(tensors, tensors, per_sample=False)
    power = _power(rows)
    return (_norm(rows / power) * power.squeeze(1)).item()


def _loss(evaluation: Evaluation) -> float:
    return evaluation.outputs[0].item()


def _equal(first: Point, second: Point) -> bool:
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
