"""Thin adapters: `lightning` and `transformers`, to trainers, which need the library they are named after; `openood` and `pytorch_ood`, to benchmarks of
out-of-distribution detection, which follow its interface and derive from its classes where it is installed.
"""

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
