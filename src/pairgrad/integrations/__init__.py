"""Thin adapters to trainers: `pairgrad.integrations.lightning` and `pairgrad.integrations.transformers`. Each needs the library that it is named after."""

from __future__ import annotations

import importlib
from typing import Any


def base_class(name: str, modules: tuple[str, ...], needs: str) -> Any:
    """A class of the first of several modules that is installed."""
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except ImportError:
            continue
    raise ImportError(f"this adapter needs {needs}: pip install {needs}")
