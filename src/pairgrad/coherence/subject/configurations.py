"""Configurations of a function: every combination of the values that its arguments are given, and the arguments that belong to each."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pairgrad.coherence.subject.signature import function_of, signature
from pairgrad.coherence.subject.subject import arguments_of, generators_restored
from pairgrad.ground._torch_private import pytree
from pairgrad.ground.checks import describe

Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Configuration:
    """One combination of values. `str()` of it is a name for tests.

    Attributes:
        values: by name. `...` leaves an argument out.
        changed: how many of them are not the first of their list.
    """

    values: dict[str, Any]
    changed: int
    _make: Callable[[dict[str, Any]], Any] = field(repr=False)

    @property
    def inputs(self) -> Any:
        """The arguments, as `audit` takes them; the same random numbers every time."""
        return self._make(self.values)

    @property
    def shown(self) -> dict[str, str]:
        """The values in words."""
        return {name: shown(value) for name, value in self.values.items()}

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.shown.items())


def configurations(fn: Callable[..., Any], inputs: Any = None, *, seed: int = 0, **grid: Any) -> Iterator[Configuration]:
    """All combinations of the values in `grid` with the arguments for `fn`, those that change few values first: for `pytest.mark.parametrize`.

    Args:
        fn: the function that is called.
        inputs: its other arguments, the same for all configurations; or a function that makes them and takes the values that it needs by name. Without it,
            `shape` makes them.
        seed: of the random numbers that `inputs` draws.
        grid: a list of values for each name, or a single value. A value goes to the function that has an argument of that name, `fn`, `inputs` or both;
            `...` leaves the argument out. Without `inputs`, each `shape` is that of a normally distributed tensor in float64; a list of shapes gives several
            tensors, a dict of shapes gives them by name.

    Examples:
        >>> import torch
        >>> from pairgrad.coherence import configurations
        >>> loss = torch.nn.functional.huber_loss
        >>> [
        ...     str(c) for c in configurations(loss, shape=[[(3,), (3,)]], reduction=["mean", "none"], delta=[1.0, 0.1])
        ... ]  # doctest: +NORMALIZE_WHITESPACE
        ["shape=[(3,), (3,)], reduction='mean', delta=1.0", "shape=[(3,), (3,)], reduction='none', delta=1.0",
         "shape=[(3,), (3,)], reduction='mean', delta=0.1", "shape=[(3,), (3,)], reduction='none', delta=0.1"]
    """
    return combined(listed(grid), maker(fn, inputs, grid, seed))


def listed(grid: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values of each name."""
    found = {name: values if isinstance(values, list) else [values] for name, values in grid.items()}
    for name, values in found.items():
        if not values:
            raise ValueError(f"{name} must be a list with at least one value, got []")
    return found


def combined(grid: Grid, make: Callable[[dict[str, Any]], Any]) -> Iterator[Configuration]:
    """The configuration of all first values, then those in which one value changes, then two, and so on."""
    for changed in range(len(grid) + 1):
        for names in itertools.combinations(grid, changed):
            for values in itertools.product(*(grid[name][1:] for name in names)):
                chosen = {name: of[0] for name, of in grid.items()} | dict(zip(names, values, strict=True))
                yield Configuration(chosen, changed, make)


def maker(fn: Callable[..., Any], inputs: Any, names: Iterable[str], seed: int) -> Callable[[dict[str, Any]], Any]:
    """A function from the values of a configuration to the arguments of `fn`. Every name must be of use."""
    expected = signature(fn)
    takes = _names(expected)
    makes = _names(inspect.signature(inputs)) if callable(inputs) else {"shape"} if inputs is None else set()
    own = {name for name in names if name in takes or (None in takes and name not in (*makes, "dtype"))}
    useless = set(names) - own - (set(names) if None in makes else makes) - {"dtype"}
    if useless:
        place = "inputs" if callable(inputs) else "inputs (give a function that takes it)"
        known = ", ".join(sorted(name for name in takes if name)) or "positional arguments alone"
        raise TypeError(f"{sorted(useless)[0]} must be an argument of fn or of {place}: fn takes {known}")
    if inputs is None and "shape" not in names:
        raise TypeError(
            "inputs must be given unless shape is: the arguments of fn, or a function that makes them from the values of a configuration"
        )

    def make(values: dict[str, Any]) -> Any:
        with generators_restored():
            torch.manual_seed(seed)
            if inputs is None:
                made = _of_shape(values["shape"])
            elif callable(inputs):
                made = inputs(**{name: value for name, value in values.items() if (name in makes or None in makes) and value is not ...})
            else:
                made = inputs
        args, kwargs = _marked(arguments_of(made)) if any(isinstance(values[name], torch.Tensor) for name in own) else arguments_of(made)
        kwargs = kwargs | {name: values[name] for name in own if values[name] is not ...}
        if expected is None:
            return kwargs or args
        bound = expected.bind(*args, **kwargs)
        if function_of(fn) is not None:  # apply takes no keywords, and fills no gaps
            bound.apply_defaults()
        return bound

    return make


def _marked(arguments: Any) -> Any:
    """The arguments with the mark that they are differentiated, if none has it: a tensor among the values of a configuration is not, unless it is marked."""
    tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    if any(tensor.requires_grad for tensor in tensors):
        return arguments
    return pytree.tree_map_only(torch.Tensor, lambda x: x.detach().requires_grad_() if x.is_floating_point() else x, arguments)


def _names(expected: inspect.Signature | None) -> set[str | None]:
    """What can be given by name; None among them if that is anything."""
    if expected is None:
        return set()
    kinds = {parameter.name: parameter.kind for parameter in expected.parameters.values()}
    named = {name for name, kind in kinds.items() if kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)}
    return named | ({None} if inspect.Parameter.VAR_KEYWORD in kinds.values() else set())


def _of_shape(shape: Any) -> Any:
    def drawn(one: Any) -> torch.Tensor:
        return torch.randn(tuple(one), dtype=torch.float64)

    if isinstance(shape, Mapping):
        return {name: drawn(one) for name, one in shape.items()}
    if isinstance(shape, Sequence) and all(isinstance(size, int) for size in shape):
        return (drawn(shape),)
    if isinstance(shape, Sequence) and all(isinstance(one, Sequence) and all(isinstance(size, int) for size in one) for one in shape):
        return tuple(map(drawn, shape))
    raise TypeError(f"shape must be a list of shapes such as (4, 5), [(4, 5), (5,)] or {{'x': (4, 5)}}, got {describe(shape)}")


def elements(inputs: Any) -> int:
    """How many numbers the arguments hold."""
    args, kwargs = arguments_of(inputs)
    return sum(math.prod(leaf.shape) for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor))


def shown(value: Any) -> str:
    """A value in few characters."""
    if value is ...:
        return "left out"
    if isinstance(value, torch.Tensor):
        return f"tensor of shape {tuple(value.shape)}"
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    text = getattr(value, "__name__", None) if callable(value) else None
    text = text or repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
