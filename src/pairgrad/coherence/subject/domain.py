"""Where to look: intervals and Hypothesis strategies for the arguments, and states drawn from them."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pairgrad.coherence.subject.curves import Geometric, Straight, random_signs
from pairgrad.ground.checks import describe

_HUGE = sys.float_info.max


@dataclass(frozen=True)
class Interval:
    """Between two finite numbers."""

    low: float
    high: float

    def __post_init__(self) -> None:
        low, high, name = self.low, self.high, type(self).__name__
        if not all(isinstance(end, (int, float)) and not isinstance(end, bool) and -_HUGE <= end <= _HUGE for end in (low, high)):
            raise ValueError(f"{name} needs two finite numbers low < high, got low={describe(low)}, high={describe(high)}")
        if not low < high:
            raise ValueError(f"{name} needs low < high, got low={low!r}, high={high!r}")
        object.__setattr__(self, "low", float(low))
        object.__setattr__(self, "high", float(high))

    @property
    def middle(self) -> float:
        """Of the interval, on its scale."""
        return self.between(self.low, self.high)

    def between(self, a: float, b: float) -> float:
        """The middle of two points, on the scale of the interval."""
        raise NotImplementedError


@dataclass(frozen=True)
class Box(Interval):
    """Every element of an argument lies between `low` and `high`, and is drawn evenly.

    Examples:
        >>> from pairgrad.coherence import Box
        >>> Box(-3, 3)
        Box(low=-3.0, high=3.0)
    """

    def __post_init__(self) -> None:
        low, high = self.low, self.high
        super().__post_init__()
        if not math.isfinite(self.high - self.low):
            raise ValueError(f"Box needs a width that is finite, got low={low!r}, high={high!r}")

    def draw(self, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Points for every element of a tensor, uniformly."""
        unit = torch.rand(like.shape, generator=generator, dtype=torch.float64)
        return (self.low + (self.high - self.low) * unit).to(like.device, like.dtype)

    def sweep(self, like: torch.Tensor, generator: torch.Generator) -> Straight:
        """From end to end for t from -1 to 1, each element upwards or downwards."""
        middle = torch.full_like(like, self.middle)
        return Straight(middle, random_signs(like, generator) * ((self.high - self.low) / 2))

    def edges(self, tiles: int) -> list[float]:
        """Ends of `tiles` equal pieces."""
        return [self.low + (self.high - self.low) * i / tiles for i in range(tiles)] + [self.high]

    def between(self, a: float, b: float) -> float:
        return a / 2 + b / 2


@dataclass(frozen=True)
class LogRange(Interval):
    """Every element of an argument lies between `low` and `high`, both positive, and its logarithm is drawn evenly.

    Examples:
        >>> from pairgrad.coherence import LogRange
        >>> LogRange(1e-3, 1e5)
        LogRange(low=0.001, high=100000.0)
    """

    def __post_init__(self) -> None:
        low = self.low
        super().__post_init__()
        if low <= 0:
            raise ValueError(f"LogRange needs 0 < low < high, got low={low!r}: use Box for intervals that reach zero")

    def draw(self, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Points for every element of a tensor, log-uniformly."""
        unit = torch.rand(like.shape, generator=generator, dtype=torch.float64)
        return torch.exp(math.log(self.low) + self._span * unit).to(like.device, like.dtype)

    def sweep(self, like: torch.Tensor, generator: torch.Generator) -> Geometric:
        """A curve through all of the interval, another one for each element."""
        return Geometric(torch.full_like(like, self.middle), random_signs(like, generator) * (self._span / 2))

    def edges(self, tiles: int) -> list[float]:
        """Of tiles with ends in equal ratios."""
        return [self.low * math.exp(self._span * i / tiles) for i in range(tiles)] + [self.high]

    @property
    def _span(self) -> float:
        """log(high / low), also where the quotient overflows."""
        return math.log(self.high) - math.log(self.low)

    def between(self, a: float, b: float) -> float:
        return math.sqrt(a) * math.sqrt(b)


def is_strategy(value: Any) -> bool:
    """Whether this is a Hypothesis strategy, without importing Hypothesis."""
    return any(cls.__name__ == "SearchStrategy" and cls.__module__.startswith("hypothesis.") for cls in type(value).__mro__)


def as_interval(value: Any) -> Any:
    """An interval, a strategy, or a pair of numbers as a box."""
    if isinstance(value, Interval) or is_strategy(value):
        return value
    if isinstance(value, (tuple, list)) and len(value) == 2 and all(isinstance(end, (int, float)) for end in value):
        return Box(*value)
    raise TypeError(
        f"domain must be made of Box(low, high), LogRange(low, high), pairs (low, high) or Hypothesis strategies, got {describe(value)}"
    )


def resolve(domain: Any, names: Sequence[str]) -> dict[int, Any]:
    """The interval or strategy of each differentiated tensor that has one.

    `domain` is one of them for all inputs, a sequence with one (or None) for each input, or a mapping from names ("input 0", a keyword, the name of a
    parameter) or positions.
    """
    if domain is None:
        return {}
    if isinstance(domain, Mapping):
        known = {name: i for i, name in enumerate(names)} | {i: i for i in range(len(names))}
        unknown = [key for key in domain if key not in known]
        if unknown:
            raise ValueError(
                f"domain names {unknown[0]!r}, which is not differentiated: the differentiated tensors are {', '.join(map(repr, names))}"
            )
        return {known[key]: as_interval(value) for key, value in domain.items() if value is not None}
    if isinstance(domain, (tuple, list)) and not (len(domain) == 2 and all(isinstance(end, (int, float)) for end in domain)):
        places = [i for i, name in enumerate(names) if name.startswith("input ")]
        if len(domain) > len(places):
            raise ValueError(
                f"domain has {len(domain)} entries for {len(places)} differentiated inputs ({', '.join(names)}): give one for each, or a dict"
            )
        return {place: as_interval(value) for place, value in zip(places, domain, strict=False) if value is not None}
    everywhere = as_interval(domain)
    places = [i for i, name in enumerate(names) if name.startswith("input ")] or list(range(len(names)))
    return dict.fromkeys(places, everywhere)


def draw_states(
    domain: Mapping[int, Any], tensors: Sequence[torch.Tensor], count: int, generator: torch.Generator
) -> list[tuple[torch.Tensor, ...]]:
    """States with the tensors of the domain drawn anew, the others as they are."""
    drawn = {place: draw_examples(value, count) for place, value in domain.items() if is_strategy(value)}
    states = []
    for i in range(count):
        state = list(tensors)
        for place, value in domain.items():
            like = tensors[place]
            state[place] = _as_tensor(drawn[place][i], like) if place in drawn else value.draw(like, generator)
        states.append(tuple(state))
    return states


def draw_examples(strategy: Any, count: int) -> list[Any]:
    """Values a Hypothesis strategy generates, always the same ones."""
    import hypothesis

    found: list[Any] = []

    checks = [check for check in hypothesis.HealthCheck]  # noqa: C416 (its iteration leaves the deprecated ones out)

    @hypothesis.settings(max_examples=max(count, 1), database=None, derandomize=True, deadline=None, suppress_health_check=checks)  # pyright: ignore[reportArgumentType]
    @hypothesis.given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return [found[i % len(found)] for i in range(count)]


def _as_tensor(value: Any, like: torch.Tensor) -> torch.Tensor:
    tensor = torch.as_tensor(value).to(like.device, like.dtype)
    try:
        return tensor.expand(like.shape).clone()
    except RuntimeError:
        raise ValueError(f"domain: the strategy gave {describe(value)}, which does not fit {describe(like)}") from None
