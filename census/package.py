"""What a driver says about a package: where it comes from, how its functions are called, and what was found in it.

A driver is importable without its package: it imports the package inside of its cases.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

FAMILIES = (
    "losses and metric learning",
    "segmentation, detection and vision",
    "graph networks",
    "Gaussian processes and probability",
    "optimal transport",
    "differential equations and implicit layers",
    "geometry and pose",
    "spiking networks",
    "quantised networks",
    "domain adaptation",
    "normalizing flows and invertible networks",
    "wavelets and signal processing",
    "sorting, sparse attention and discrete choice",
    "Triton kernels",
    "JAX",
    "torch",
)

# What can be wrong with a backward; the page counts findings by these.
KINDS = (
    "gradient",  # wrong at ordinary arguments
    "gradient in a configuration",  # an option, a shape, an argument left out
    "gradient at special states",  # a border, a tie, a degenerate or extreme argument
    "missing gradient",  # None, zeros or an error where the value depends on the argument
    "accuracy",  # right but for more error than the dtype explains
    "layout",  # other results for the same numbers in another layout
    "second derivative",
    "forward mode or vmap",
    "edits or keeps state",  # in-place edits, a second backward, global state
    "value",  # the backward is right, the value is not (leaps, noise, another function)
    "undeclared estimator",  # an approximation that may be meant and is not documented as one
)


@dataclass(frozen=True)
class Case:
    """One function at one state.

    Attributes:
        name: unique in the package.
        make: returns the callable and its inputs; imports the package.
        options: for `pairgrad.audit`.
        triton: whether it needs Triton's interpreter.
        why_intended: where the package says that the gradient is not meant to be the derivative; empty if it is meant to be.
    """

    name: str
    make: Callable[[], tuple[Callable[..., Any], Any]]
    options: Mapping[str, Any] = field(default_factory=dict)
    triton: bool = False
    why_intended: str = ""

    @property
    def key(self) -> str:
        """Changes with the source of the case."""
        said = (inspect.getsource(self.make), sorted(self.options.items(), key=str), self.triton)
        return hashlib.sha256(repr(said).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Finding:
    """An accusation, or a miss, and what bears it out: evidence/<id>.py, and reports/<id>.md where it looks unreported.

    Attributes:
        id: lower case with hyphens, beginning with the name of the package; evidence/ has it with underscores.
        kind: one of `KINDS`.
        where: file and line in the package, such as "entmax/losses.py:85".
        what: one neutral sentence: what is supplied, and what is right.
        size: by how much, in words: "factor 2", "1e-3 of the gradient".
        cases: names of the cases in which the audit fails for this.
        tests: qualified names of functions that fail for this under the package's own tests.
        known: address of an issue or pull request about it; empty if none was found.
        fixed: the release that has it right, or "" if the newest release, which was audited, does not.
        documented: where the package says so itself; such a finding is a fact and no accusation.
        missed: the audit passes in `cases`, and should not.
    """

    id: str
    kind: str
    where: str
    what: str
    size: str
    cases: Sequence[str] = ()
    tests: Sequence[str] = ()
    known: str = ""
    fixed: str = ""
    documented: str = ""
    missed: bool = False

    @property
    def evidence(self) -> Path:
        """The script that shows it."""
        return HERE / "evidence" / f"{self.id.replace('-', '_')}.py"

    @property
    def report(self) -> Path:
        """The draft for the maintainers, where there is one."""
        return HERE / "reports" / f"{self.id}.md"


class Package:
    """One release of a package, with the cases and findings of its driver.

    Args:
        name: as in the package index.
        version: the release that is audited.
        family: one of `FAMILIES`.
        group: whose virtual environment it shares; locks/<group>.txt has all versions.
        modules: top-level modules it installs.
        tests: paths in its source archive with tests of its own that run under `pytest --coherence`; none are run if empty.
        test_options: for pytest.
        note: what a reader should know, such as what could not be reached and why.
    """

    def __init__(
        self,
        name: str,
        version: str,
        *,
        family: str,
        group: str,
        modules: Sequence[str],
        tests: Sequence[str] = (),
        test_options: Sequence[str] = (),
        note: str = "",
    ) -> None:
        if family not in FAMILIES:
            raise ValueError(f"family of {name} must be one of {', '.join(FAMILIES)}, got {family!r}")
        self.name, self.version, self.family, self.group, self.modules = name, version, family, group, tuple(modules)
        self.tests, self.test_options, self.note = tuple(tests), tuple(test_options), note
        self.cases: dict[str, Case] = {}
        self.findings: dict[str, Finding] = {}

    def case(
        self, name: str | None = None, *, why_intended: str = "", triton: bool = False, **options: Any
    ) -> Callable[[Callable[[], tuple[Callable[..., Any], Any]]], Callable[[], tuple[Callable[..., Any], Any]]]:
        """Declares a function without arguments that returns a callable and its inputs. The options are those of `pairgrad.audit`.

        With `intent=`, `why_intended` says where the package documents it.
        """
        if ("intent" in options) != bool(why_intended):
            raise ValueError(f"{self.name}: intent= and why_intended= go together: say where the package documents what is intended")

        def declare(make: Callable[[], tuple[Callable[..., Any], Any]]) -> Callable[[], tuple[Callable[..., Any], Any]]:
            called = name or getattr(make, "__name__", "case").strip("_").replace("_", " ")
            if called in self.cases:
                raise ValueError(f"{self.name} has two cases with the name {called!r}")
            self.cases[called] = Case(called, make, options, triton, why_intended)
            return make

        return declare

    def finding(self, id: str, *, kind: str, where: str, what: str, size: str, **more: Any) -> None:
        """Declares a finding; the arguments are those of `Finding`."""
        if kind not in KINDS:
            raise ValueError(f"kind of {id} must be one of {', '.join(KINDS)}, got {kind!r}")
        if id in self.findings or not id.startswith(self.name.lower()):
            raise ValueError(f"the id of a finding must begin with the name of its package and be given once, got {id!r} in {self.name}")
        made = Finding(id, kind, where, what, size, **more)
        if unknown := [case for case in made.cases if case not in self.cases]:
            raise ValueError(f"{id} names cases that {self.name} does not have: {unknown}. Declare findings after the cases")
        self.findings[id] = made

    @property
    def record(self) -> Path:
        """The file that has what came of it."""
        return HERE / "records" / f"{self.name.lower()}.json"


def packages() -> dict[str, Package]:
    """Those of all drivers, by name. A driver that cannot be imported is named, and left out."""
    made = []
    for path in sorted((HERE / "drivers").glob("*.py")):
        if path.stem != "__init__":
            try:
                made.append(importlib.import_module(f"census.drivers.{path.stem}").package)
            except Exception as error:
                print(f"{path.name} is left out: {type(error).__name__}: {error}", file=sys.stderr)
    return {package.name: package for package in made}
