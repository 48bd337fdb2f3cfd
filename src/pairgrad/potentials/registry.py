"""Names of realizations, and the one way to make a potential."""

from __future__ import annotations

import inspect
import operator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np

from pairgrad.ground._torch_private import constant_result
from pairgrad.ground.checks import describe, exact_number, integer_at_least, one_of
from pairgrad.potentials.arfr import ArFr
from pairgrad.potentials.log_bessel import LogBessel
from pairgrad.potentials.paired import Paired
from pairgrad.potentials.protocol import Potential
from pairgrad.potentials.recurrence import Consistent, LogMiller, Original
from pairgrad.potentials.reference import Reference
from pairgrad.potentials.scott import Scott

_CLASSES: dict[str, type[Potential]] = {
    c.realization: c for c in (Paired, ArFr, Original, Consistent, LogMiller, LogBessel, Scott, Reference)
}


@dataclass(frozen=True)
class Realization:
    """One row of the table of realizations."""

    name: str
    summary: str
    trade: str
    coherent: bool
    options: tuple[str, ...]


def realizations() -> tuple[Realization, ...]:
    """Every realization: its name, what it computes, what it trades, whether it is coherent, and its options.

    Examples:
        >>> [r.name for r in realizations() if not r.coherent]
        ['original', 'log-miller']
    """
    return tuple(Realization(name, c.summary, c.trade, c.coherent, _options(c)) for name, c in _CLASSES.items())


def potential(
    dim: int | None = None,
    realization: str = "paired",
    order: int | str = "auto",
    *,
    nu: float | Fraction | None = None,
    **options: Any,
) -> Potential:
    r"""The vMF potential of a feature dimension, in one of its realizations.

    Args:
        dim: feature dimension p >= 2; the Bessel order is nu = p / 2 - 1.
        realization: how it is computed; `pairgrad.realizations()` lists them. `"paired"` is exact to rounding and coherent.
        order: order of the uniform expansion, for `"paired"` (`"auto"`: below rounding) and `"arfr"` (`"auto"`: 2, the paper's).
        nu: Bessel order >= 0 instead of `dim`; any real number.
        **options: of the realization, e.g. `start=`, `clip=`, `epsilon=` of `"original"`.

    Returns:
        The potential. Equal arguments give the same object (the last 1024 are kept); making one takes up to a tenth of a second.

    Examples:
        >>> import torch, pairgrad as pg
        >>> pot = pg.potential(dim=512)
        >>> x = torch.tensor([300.0], dtype=torch.float64, requires_grad=True)
        >>> pot.value(x).backward()
        >>> torch.equal(x.grad, pot.slope(x.detach()))
        True
    """
    one_of("realization", realization, tuple(_CLASSES))
    if (dim is None) == (nu is None):
        raise TypeError(f"exactly one of dim and nu must be given, got dim={dim!r} and nu={nu!r}")
    if dim is not None:
        exact = Fraction(integer_at_least("dim", dim, 2, hint="a direction needs at least two coordinates"), 2) - 1
    else:
        exact = exact_number("nu", nu)
    if exact > 10**9:
        raise ValueError(f"nu must be <= 1e9 (dim <= 2e9), got {float(exact):g}")
    allowed = _options(_CLASSES[realization])
    if not isinstance(order, str) or order != "auto":
        options = {"order": order, **options}
    for name in options:
        if name not in allowed:
            takes = f"takes {', '.join(map(repr, allowed))}" if allowed else "takes none"
            raise TypeError(f"realization {realization!r} has no option {name!r}; it {takes}")
    return rebuild(realization, exact, options)


def rebuild(realization: str, nu: Fraction, options: dict[str, Any]) -> Potential:
    """The potential of checked arguments; unpickling comes through here."""
    options = {name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()}
    for name, value in options.items():
        if not isinstance(value, (int, float, str, type(None))):
            raise TypeError(f"option {name!r} must be a plain number, string or None, got {describe(value)}")
    names = tuple(sorted(options))
    return _build(realization, nu, names, *(options[name] for name in names))


@lru_cache(maxsize=1024, typed=True)  # typed: clip=0 and clip=False are different options, though 0 == False
def _build(realization: str, nu: Fraction, names: tuple[str, ...], *values: Any) -> Potential:
    return _CLASSES[realization](nu, **dict(zip(names, values, strict=True)))


_PAIRED: dict[int, Potential] = {}


def paired(dim: int) -> Potential:
    """The `"paired"` potential of a dimension, for code that may run inside a region that torch.compile traces.

    Making a potential is exact arithmetic that the compiler must not follow: `_make_paired` is run, not traced, and the potential found by its number.
    """
    size = operator.index(dim)  # a symbolic size becomes a number here
    _make_paired(size)
    return _PAIRED[size]


@constant_result
def _make_paired(dim: int) -> bool:
    if dim not in _PAIRED:
        _PAIRED[dim] = potential(dim)
    return True


@cache
def _options(cls: type[Potential]) -> tuple[str, ...]:
    parameters = inspect.signature(cls.__init__).parameters.values()
    return tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)
