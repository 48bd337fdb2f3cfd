"""What every other part stands on: arithmetics, checks, files and timing. Its modules import torch and numpy, nothing of ours.

`arithmetic` (floats, mpmath, balls), `balls`, `quadrature`, `certificate` (a statement about an error), `checks` (of arguments), `files` (atomic writes),
`reading` (limits for files that anyone may have made), `text` (names and messages of others, made printable), `timing` (medians of interleaved calls),
`devices` (what differs between types of devices), `compilation`, `precision` (autocast off), `_torch_private` (every private name of torch that is used).
The names below are for packages that build on pairgrad, such as the paper's experiments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pairgrad._lazy import attach

if TYPE_CHECKING:
    from pairgrad.ground.arithmetic import BallArithmetic, MpmathArithmetic, TorchArithmetic
    from pairgrad.ground.balls import flint, working_precision
    from pairgrad.ground.certificate import Certificate, rounded_up
    from pairgrad.ground.checks import describe, integer_at_least, one_of
    from pairgrad.ground.devices import widest
    from pairgrad.ground.files import followed, sync_directory, temporary_name, write_atomically
    from pairgrad.ground.reading import npy_layout, open_plain, open_zip, read_bytes, read_entry, read_json, read_safetensors, room
    from pairgrad.ground.text import printable
    from pairgrad.ground.timing import machine, machine_line, median_seconds, processor, threads

__all__ = [
    "BallArithmetic",
    "Certificate",
    "MpmathArithmetic",
    "TorchArithmetic",
    "describe",
    "flint",
    "followed",
    "integer_at_least",
    "machine",
    "machine_line",
    "median_seconds",
    "npy_layout",
    "one_of",
    "open_plain",
    "open_zip",
    "printable",
    "processor",
    "read_bytes",
    "read_entry",
    "read_json",
    "read_safetensors",
    "room",
    "rounded_up",
    "sync_directory",
    "temporary_name",
    "threads",
    "widest",
    "working_precision",
    "write_atomically",
]

_NAMES = {
    "arithmetic": ("BallArithmetic", "MpmathArithmetic", "TorchArithmetic"),
    "balls": ("flint", "working_precision"),
    "certificate": ("Certificate", "rounded_up"),
    "checks": ("describe", "integer_at_least", "one_of"),
    "devices": ("widest",),
    "files": ("followed", "sync_directory", "temporary_name", "write_atomically"),
    "reading": ("npy_layout", "open_plain", "open_zip", "read_bytes", "read_entry", "read_json", "read_safetensors", "room"),
    "text": ("printable",),
    "timing": ("machine", "machine_line", "median_seconds", "processor", "threads"),
}
_MODULES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}
__getattr__, __dir__ = attach(__name__, _MODULES, tuple(_NAMES))
