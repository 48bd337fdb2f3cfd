"""A CPU build of torch on which fake tensors can live on "cuda", autograd included.

`compiler` and `build` make the library from noop_cuda_guard.cpp; `load` takes it into a process that has not imported torch yet: torch looks for guards and
hooks when it is loaded, and keeps what it finds for the life of the process. So this module does not import torch.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

_SOURCE = Path(__file__).with_name("noop_cuda_guard.cpp")


def compiler() -> str | None:
    """A C++ compiler of this machine, if it has one."""
    return shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


def _torch_folder() -> Path:
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def build(folder: Path) -> Path:
    """The guard as a shared library in `folder`."""
    torch, library, command = _torch_folder(), folder / "libnoop_cuda_guard.so", compiler()
    assert command is not None
    links = [f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu"]
    done = subprocess.run(
        [command, "-std=c++20", "-shared", "-fPIC", f"-I{torch / 'include'}", str(_SOURCE), "-o", str(library), *links],
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    return library


def load(library: Path) -> None:
    """Before `import torch`."""
    assert "torch" not in sys.modules, "the guard must be loaded before torch"
    folder = _torch_folder() / "lib"
    for path in (folder / "libc10.so", folder / "libtorch_cpu.so", library):
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
