"""Triton kernels on a machine without a GPU: Triton's interpreter, corrected, for audits and tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

_ON = ("1", "true", "on", "y", "yes")  # as Triton reads its variables
_MISSING = object()
_running: list[list[str]] = []  # the notes of the one that is active
NOT_SET = (
    "the kernels run in Triton's interpreter only if TRITON_INTERPRET=1 is set before triton is imported: set it in the shell, "
    "TRITON_INTERPRET=1 pytest or TRITON_INTERPRET=1 python script.py"
)


def is_set() -> bool:
    """Whether TRITON_INTERPRET is, where triton is installed."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in _ON and find_spec("triton") is not None


@contextmanager
def triton_interpreter() -> Iterator[list[str]]:
    """Run Triton kernels on CPU tensors in Triton's interpreter, so that functions with kernels can be audited and tested without a GPU.

    While it is active, autotuned kernels use their first configuration; arithmetic in bfloat16, which Triton's interpreter gets wrong, is right; functions of
    libdevice work; and, where there is no GPU, what libraries ask of one around a launch (`torch.cuda.device`, the driver of Triton, ...) is answered.
    All of it is put back at the end. The environment variable TRITON_INTERPRET=1 must be set before triton is imported.

    Yields:
        A list of notes, one for each pitfall of the interpreter that a kernel met and that cannot be corrected.

    Raises:
        ModuleNotFoundError: triton is not installed.
        RuntimeError: TRITON_INTERPRET is not set, or was set too late, or this version of Triton does not have what is corrected.
    """
    if find_spec("triton") is None:
        raise ModuleNotFoundError("pairgrad.testing.triton_interpreter needs the package triton: pip install 'pairgrad[triton]'")
    if not is_set():
        raise RuntimeError(f"TRITON_INTERPRET is not set: {NOT_SET}")
    if _running:
        yield _running[-1]
        return
    import triton

    from pairgrad.testing import triton_corrections as corrections

    if not corrections.interprets():
        raise RuntimeError(f"triton was imported before TRITON_INTERPRET was set: {NOT_SET}")
    notes: list[str] = []
    with ExitStack() as stack:
        try:
            for owner, name, value in corrections.changes(notes):
                _replace(stack, owner, name, value)
        except (AttributeError, ImportError) as error:
            raise RuntimeError(f"triton {triton.__version__} lacks what is corrected in 3.7.0: {error}") from error
        _running.append(notes)
        stack.callback(_running.pop)
        yield notes


def _replace(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    before = vars(owner).get(name, _MISSING)
    if before is _MISSING and name in ("__code__", "__kwdefaults__"):  # of a function, which are not in its dict
        before = getattr(owner, name)
    if before is _MISSING:
        stack.callback(delattr, owner, name)
    else:
        stack.callback(setattr, owner, name, before)
    setattr(owner, name, value)
