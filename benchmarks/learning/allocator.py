"""The C library's allocator, which decides whether a large tensor is fresh memory of the operating system or memory that was there already.

By default glibc takes blocks of 32 MiB and more from the system each time and gives them back when they are freed, so that every run of a dense
step pays for its page faults. Unless smaller blocks that something else left behind can be joined to serve it: how much a step pays depends on what has
run before it in the process. `keep_memory` ends that: what was taken once is kept, as by torch's allocator on a GPU.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # names of parameters in malloc.h
_NEVER = -1


def keep_memory() -> bool:
    """From now on nothing goes back to the system, for the whole process; False where the C library has no `mallopt`."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, _NEVER))
