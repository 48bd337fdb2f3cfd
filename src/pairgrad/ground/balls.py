"""python-flint, which is optional: imported when balls are asked for, at a working precision that is global to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def flint() -> Any:
    """The module, or what to install."""
    try:
        import flint
    except ImportError:
        raise ImportError("ball arithmetic (references, proofs, tables) needs python-flint: pip install 'pairgrad[reference]'") from None
    return flint


@contextmanager
def working_precision(bits: int) -> Iterator[Any]:
    """python-flint at a precision of `bits`; set back on leaving, also after an error."""
    module = flint()
    before, module.ctx.prec = module.ctx.prec, bits
    try:
        yield module
    finally:
        module.ctx.prec = before
