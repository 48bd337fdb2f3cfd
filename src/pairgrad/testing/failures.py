"""One state in one dtype, and what is said where a test on it fails."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch

from pairgrad.coherence.measure.structure import SLACK
from pairgrad.coherence.report.report import Report
from pairgrad.testing.calls import Result, difference


@dataclass(frozen=True)
class Case:
    """One state in one dtype."""

    state: str
    dtype: torch.dtype
    inputs: Any = field(repr=False, compare=False, default=None)

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.state}-{dtype}" if self.state else dtype


class explained:
    """An exception inside becomes an AssertionError that says what was tried and what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what, self.remedy = what, remedy

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        __tracebackhide__ = True
        if isinstance(error, Exception) and not isinstance(error, unittest.SkipTest):
            first = next(iter(str(error).strip().splitlines()), "")
            raise AssertionError(f"{self.what}, it raises {type(error).__name__}: {first}\nWhat to do: {self.remedy}.") from error


def attempt(run: Callable[[], Result], expected: Result, case: Case, what: str, remedy: str) -> None:
    """Fails if a call raises, or gives another result than expected."""
    __tracebackhide__ = True
    with explained(what, remedy):
        got = run()
    compare(got, expected, case, what, remedy)


def compare(got: Result, expected: Result, case: Case, what: str, remedy: str) -> None:
    """Fails if two results differ by more than rounding explains."""
    __tracebackhide__ = True
    found = difference(got, expected, SLACK[case.dtype])
    if found:
        wrong(case, what, f"{found}; that is more than rounding explains", remedy)


def wrong(case: Case, what: str, found: str, remedy: str) -> NoReturn:
    """Fails with the case, what was found, and what to do."""
    __tracebackhide__ = True
    raise AssertionError(f"{what} ({case}): {found}.\nWhat to do: {remedy}.")


def fail(report: Report, text: str) -> NoReturn:
    """Fails with the report of an audit and what to say of it."""
    __tracebackhide__ = True
    raise AssertionError(f"{report}\n\n{text}")
