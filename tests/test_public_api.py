"""The public names and the parameters of everything that can be called, pinned: adding one is a decision, losing or renaming one a break.

`python -m tests.test_public_api` writes tests/public_api.txt anew, after a change on purpose.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pairgrad

PINNED = Path(__file__).with_name("public_api.txt")
HEAD = """# Every public callable with its parameters, written by `python -m tests.test_public_api`.
# A parameter with a default ends in "="; those before "/" are given by position, those after "*" by name.
"""

PUBLIC = {
    "ClassBank",
    "ClassState",
    "CoherenceMonitor",
    "HypersphericalUniform",
    "LogitAdjust",
    "OutlierExposure",
    "PATTLoss",
    "Pair",
    "Potential",
    "ProCoLoss",
    "Realization",
    "TemperatureLogitAdjust",
    "UpdateField",
    "VMFClassifier",
    "VMFMixture",
    "VMFRegressionLoss",
    "VonMisesFisher",
    "__version__",
    "assert_coherent",
    "audit",
    "certify",
    "coherence",
    "compat",
    "compile",
    "distributed",
    "gradcheck",
    "gradgradcheck",
    "intended",
    "ood",
    "opcheck",
    "potential",
    "realizations",
    "record",
    "sweep",
    "testing",
    "update_field",
    "vmf_cross_entropy",
    "vmf_scores",
}
POTENTIAL = {
    "bregman",
    "coherent",
    "complement",
    "compute_dtype",
    "concentration",
    "curvature",
    "defect",
    "deficit",
    "derivative",
    "difference",
    "dim",
    "formulas",
    "increment",
    "invertible",
    "legendre",
    "offset",
    "pair",
    "ratio_bound",
    "ratio_certificate",
    "secant",
    "slope",
    "to_rounding",
    "value",
}


def test_public_names():
    assert set(pairgrad.__all__) == PUBLIC
    assert len(pairgrad.__all__) == len(PUBLIC)


def test_public_names_exist():
    for name in PUBLIC:
        assert getattr(pairgrad, name) is not None


def test_names_of_a_potential():
    assert {name for name in dir(pairgrad.Potential) if not name.startswith("_")} == POTENTIAL


def test_fields():
    assert pairgrad.Pair._fields == ("value", "slope")
    assert tuple(pairgrad.Realization.__dataclass_fields__) == ("name", "summary", "trade", "coherent", "options")


def test_the_mixture_is_loaded_late_and_says_what_it_needs():
    """In a fresh process in which scikit-learn cannot be imported."""
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import pairgrad\n"
        "assert 'VMFMixture' in dir(pairgrad) and not hasattr(pairgrad, 'VMFMixtures')\n"
        "try: pairgrad.VMFMixture\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "pairgrad.VMFMixture needs scikit-learn, which is not installed: pip install 'pairgrad[mixture]'"


def shown(parameter: inspect.Parameter) -> str:
    prefix = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    return prefix + parameter.name + ("" if parameter.default is inspect.Parameter.empty else "=")


def parameters(function: Callable[..., Any], *, bound: bool = False) -> str:
    """Names and kinds, as in the head of a definition; `bound` leaves the first one out."""
    given = list(inspect.signature(function).parameters.values())[1 if bound else 0 :]
    words: list[str] = []
    kinds = [parameter.kind for parameter in given]
    for i, parameter in enumerate(given):
        starts = parameter.kind is parameter.KEYWORD_ONLY and parameter.KEYWORD_ONLY not in kinds[:i]
        if starts and parameter.VAR_POSITIONAL not in kinds[:i]:
            words.append("*")
        words.append(shown(parameter))
        if parameter.kind is parameter.POSITIONAL_ONLY and (i + 1 == len(given) or kinds[i + 1] is not parameter.POSITIONAL_ONLY):
            words.append("/")
    return f"({', '.join(words)})"


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class of ours, or one that it derives from, adds to those of torch and scikit-learn: public names and `__call__`."""
    for name in sorted(dir(kind)):
        owner = next((base for base in kind.__mro__ if name in vars(base)), None)
        if (not name.startswith("_") or name == "__call__") and owner is not None and owner.__module__.startswith("pairgrad"):
            yield name, inspect.getattr_static(kind, name)


def everything(module: ModuleType = pairgrad, prefix: str = "pairgrad") -> Iterator[tuple[str, str, Any]]:
    """Name, parameters and object of all that is public: exported by `pairgrad` or by a module that it exports."""
    for name in sorted(module.__all__):
        value, full = getattr(module, name), f"{prefix}.{name}"
        if isinstance(value, ModuleType):
            yield from everything(value, full) if hasattr(value, "__all__") else ()
        elif isinstance(value, type):
            plain = issubclass(value, Enum) or (issubclass(value, BaseException) and not inspect.isfunction(value.__init__))
            yield full, "" if plain else parameters(value), value
            yield from ((f"{full}.{member.name}", "", value) for member in value) if issubclass(value, Enum) else ()
            for member, found in members(value):
                if isinstance(found, property):
                    yield f"{full}.{member}", "", found
                function = found.__func__ if isinstance(found, (classmethod, staticmethod)) else found
                if inspect.isfunction(function):
                    yield f"{full}.{member}", parameters(function, bound=not isinstance(found, staticmethod)), getattr(value, member)
        elif callable(value):
            yield full, parameters(value), value


def pinned() -> str:
    return HEAD + "".join(f"{name}{given}\n" for name, given, _ in everything())


def test_signatures() -> None:
    missing, new = (set(a.splitlines()) - set(b.splitlines()) for a, b in ((PINNED.read_text(), pinned()), (pinned(), PINNED.read_text())))
    assert not missing, f"gone or changed: {sorted(missing)}; now: {sorted(new)}. If that is wanted, run python -m tests.test_public_api"
    assert not new, f"new: {sorted(new)}. If they are to be public, run python -m tests.test_public_api"


def test_a_renamed_parameter_is_noticed() -> None:
    def before(a, /, b, *rest, c=1, **more): ...
    def after(a, /, b, *, c): ...

    assert parameters(before) == "(a, /, b, *rest, c=, **more)"
    assert parameters(after) == "(a, /, b, *, c)"
    assert parameters(after, bound=True) == "(b, *, c)"
    lines = PINNED.read_text().splitlines()
    assert "pairgrad.ClassBank.update(features, labels)" in lines
    assert "pairgrad.coherence.Report.headline" in lines


def test_everything_public_is_documented() -> None:
    """By itself, or by the class that it implements a method of."""
    bare = [name for name, _, value in everything() if not inspect.getdoc(value) or inspect.getdoc(value) == inspect.getdoc(object)]
    assert bare == []


if __name__ == "__main__":
    PINNED.write_text(pinned())
    print(f"{PINNED.name}: {len(pinned().splitlines()) - len(HEAD.splitlines())} public callables and properties")
