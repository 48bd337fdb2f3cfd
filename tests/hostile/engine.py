"""Puts hostile values into valid calls and judges what comes back."""

from __future__ import annotations

import math
import os
import re
import signal
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import pairgrad
from tests.hostile.values import Hostile, Kind

SOURCE = os.path.dirname(pairgrad.__file__)
LONGEST = 5  # seconds of processor time: a call that takes longer hangs
OURS = (ValueError, TypeError)
# what torch, numpy and Python say of their own insides
INTERNAL = re.compile(
    r"size of tensor|invalid combination of arguments|must match the|not implemented for|expected scalar type|Expected all tensors"
    r"|Boolean value of Tensor|truth value of an|only one element|could not convert string|unpacking|object is not|has no attribute"
    r"|unsupported operand|not supported between|cannot be interpreted|broadcast together|Overflow when|Tensor for argument|enforce fail"
    r"|too many indices|out of bounds|out of range in self|got an unexpected keyword|unhashable",
    re.I,
)


@dataclass(frozen=True)
class Argument:
    """A valid value of an argument, its kind, and by which names an error may call it."""

    valid: Any
    kind: Kind
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A public callable with a valid call.

    Attributes:
        name: for the report.
        call: of the arguments by name.
        arguments: by name; what is not here is not replaced.
        state: everything that a refused call must leave alone, as a mapping to tensors or numbers; made anew for every call.
        nonfinite: results may be NaN or infinite.
        errors: further exceptions that are proper here.
        elsewhere: modules whose own checks may speak (scikit-learn's, of an estimator that is one of its own).
    """

    name: str
    call: Callable[..., Any]
    arguments: Mapping[str, Argument]
    state: Callable[[], Any] | None = None
    nonfinite: bool = False
    errors: tuple[type[Exception], ...] = ()
    elsewhere: tuple[str, ...] = ()
    rounding: bool = False  # results of other strides and storage agree to rounding only
    unasked: tuple[str, ...] = ()  # hostile values that are left out
    takes: Mapping[str, Collection[str]] = field(default_factory=dict)  # argument -> names of hostile values that are valid here
    fits: Callable[..., bool] | None = (
        None  # of all arguments, where all are numbers: a limit that is wrong for one value may be right beside another
    )

    def valid(self) -> dict[str, Any]:
        return {name: fresh(argument.valid) for name, argument in self.arguments.items()}


@dataclass(frozen=True)
class Outcome:
    """What a call gave: a result in plain tensors, or an exception."""

    result: list[Any] | None
    error: BaseException | None
    changed: bool = False

    @property
    def refused(self) -> bool:
        return self.error is not None


def fresh(value: Any) -> Any:
    """A copy that nobody else writes to."""
    if type(value) is torch.Tensor and value.device.type == "cpu" and value.layout is torch.strided and not value.requires_grad:
        return value.clone()
    return value


class Hang(BaseException):
    """The call took too long."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise Hang(f"no answer within {seconds} seconds")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run(entry: Entry, arguments: dict[str, Any]) -> Outcome:
    torch.manual_seed(0)
    state = entry.state() if entry.state is not None else None
    keywords = dict(arguments) if state is None else {"state_": state, **arguments}
    before = snapshot(state)
    try:
        with limited(LONGEST), warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "features are float64 and the class bank is float32"
            )  # said, and the conversion is asked for here
            return Outcome(flat(entry.call(**keywords)), None)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        return Outcome(None, error, changed=not same(before, snapshot(state)))


def snapshot(state: Any) -> list[Any]:
    if state is None:
        return []
    kept = state.state_dict() if hasattr(state, "state_dict") else vars(state)
    return [fresh(value) for value in kept.values()]


def flat(result: Any) -> list[Any]:
    """The numbers of a result, in order."""
    if isinstance(result, torch.Tensor):
        return [result.detach().clone().as_subclass(torch.Tensor)]
    if isinstance(result, np.ndarray):
        return [torch.as_tensor(result.copy())]
    if isinstance(result, (int, float, str, type(None), np.generic)):
        return [result]
    if isinstance(result, torch.nn.Module):
        return flat(list(result.state_dict().values()))
    if isinstance(result, Mapping):
        return flat(list(result.values()))
    if isinstance(result, (tuple, list)):
        return [part for item in result for part in flat(item)]
    return []


def same(a: list[Any], b: list[Any], exact: bool = True, within: float = 2e-2) -> bool:
    """Equal bits; otherwise `within` a difference, by default the rounding of half precision, that of the narrowest dtype."""
    if len(a) != len(b):
        return False
    for x, y in zip(a, b, strict=True):
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
            if x.shape != y.shape or (exact and x.dtype != y.dtype):
                return False
            if x.device.type == "meta" or y.device.type == "meta":
                continue
            close = torch.equal(x, y) or torch.allclose(
                x.double(), y.double(), rtol=0 if exact else within, atol=0 if exact else within, equal_nan=True
            )
            if not close:
                return False
        elif isinstance(x, float) and isinstance(y, float):
            if not (x == y or (math.isnan(x) and math.isnan(y)) or (not exact and math.isclose(x, y, rel_tol=within, abs_tol=within))):
                return False
        elif type(x) is not type(y) or x != y:
            return False
    return True


def finite(result: list[Any], *, infinite: bool = False) -> bool:
    """Whether there are numbers only; `infinite` lets infinities pass."""
    for part in result:
        values = part if isinstance(part, torch.Tensor) else torch.tensor(part if isinstance(part, float) else 0.0, dtype=torch.float64)
        if values.device.type != "meta" and not bool((~values.isnan() if infinite else values.isfinite()).all()):
            return False
    return True


def complaint(entry: Entry, replaced: Mapping[str, Hostile], outcome: Outcome, plain: Outcome | None = None) -> str | None:
    """What is wrong with the outcome of a call in which these arguments were replaced; None if nothing is."""
    if outcome.error is not None:
        if plain is not None and not plain.refused and any(h.plain is not None and not h.refused for h in replaced.values()):
            pass  # to be strict about what is taken is allowed, as long as the error is a good one
        return _bad_error(entry, replaced, outcome)
    names = ", ".join(f"{name} = {h.name}" for name, h in replaced.items())
    together = {**entry.valid(), **{name: h.value for name, h in replaced.items()}}
    fit = entry.fits is not None and all(type(value) in (int, float) for value in together.values()) and entry.fits(**together)
    for name, hostile in replaced.items():
        if hostile.refused and not fit and hostile.name not in entry.takes.get(name, ()):
            return f"took {name} = {hostile.name}: {_short(outcome.result)}"
    if plain is not None:
        exact = not entry.rounding and all(h.exact for h in replaced.values())
        if plain.refused and not exact:
            return None  # of half precision less is asked: a unit vector in few digits is not one in many
        if plain.refused:
            return f"took {names} though the plain value is refused: {plain.error}"
        assert plain.result is not None
        assert outcome.result is not None
        within = 1e-5 if all(h.exact for h in replaced.values()) else 2e-2  # float32 in another order, or half precision
        if not same(outcome.result, plain.result, exact=exact, within=within):
            return f"{names} gives {_short(outcome.result)}, the plain value {_short(plain.result)}"
    assert outcome.result is not None
    if not entry.nonfinite and not finite(outcome.result, infinite=any(h.huge for h in replaced.values())):
        return f"{names} gives {_short(outcome.result)}"
    return None


def _short(result: list[Any] | None) -> str:
    return repr(result)[:160].replace("\n", " ")


def _bad_error(entry: Entry, replaced: Mapping[str, Hostile], outcome: Outcome) -> str | None:
    error = outcome.error
    assert error is not None
    text = f"{type(error).__name__}: {error}"[:300]
    if outcome.changed:
        return f"the state has changed, though the call was refused: {text}"
    if "Inference tensors cannot be saved" in text:  # torch's own rule, in clear words
        return None
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, (*OURS, OverflowError)) and any(place in frame.filename for place in entry.elsewhere for frame in frames):
        return None
    if type(error) not in (*OURS, *entry.errors):
        return f"not an error of ours: {text}"
    if SOURCE not in frames[-1].filename:
        return f"raised in {frames[-1].filename.split('site-packages/')[-1]}: {text}"
    if INTERNAL.search(str(error)):
        return f"internals: {text}"
    names = [word for name in replaced for word in (name, *entry.arguments[name].also)]
    if not any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(error)) for name in names):
        return f"does not name {' or '.join(names)}: {text}"
    return None


def one_at_a_time(entry: Entry) -> Iterator[tuple[str, Hostile]]:
    for name, argument in entry.arguments.items():
        for hostile in argument.kind.hostile(argument.valid):
            if hostile.name not in entry.unasked:
                yield name, hostile


def judged(entry: Entry, replaced: Mapping[str, Hostile]) -> str | None:
    arguments = entry.valid()
    outcome = run(entry, {**arguments, **{name: h.value for name, h in replaced.items()}})
    plain = None
    if all(h.plain is not None for h in replaced.values()) and not outcome.refused:
        plain = run(entry, {**entry.valid(), **{name: fresh(h.plain) for name, h in replaced.items()}})
    return complaint(entry, replaced, outcome, plain)
