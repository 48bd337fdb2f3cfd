"""Names of a package that are imported when they are first used (PEP 562), so that `pairgrad --help` does not load torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def attach(
    package: str, where: Mapping[str, str], submodules: tuple[str, ...] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for the `__init__.py` of a package.

    Args:
        package: its name.
        where: the module that each name is imported from.
        submodules: packages below it that are attributes without being imported first.
    """

    def __getattr__(name: str) -> Any:
        if name in submodules:
            return import_module(f"{package}.{name}")
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(where[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *where, *submodules})

    return __getattr__, __dir__
