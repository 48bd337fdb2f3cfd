"""What differs between types of devices, and why. No other file of the library names one; a test enforces it.

Everything else is written for all of them: a type that is not in the table is taken for an accelerator without anything special.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

HOST = torch.device("cpu")  # where Python and NumPy have their numbers
NOWHERE = torch.device("meta")  # shapes without numbers
ROCM = torch.version.hip is not None  # what this build of torch calls CUDA devices are AMD's
GPU = torch.device("cuda")  # what a GPU calls itself, there or not


@dataclass(frozen=True)
class Kind:
    """A type of device.

    Attributes:
        why: the reasons for what differs.
        values: its tensors hold numbers.
        on_host: reading a number waits for nothing, and a copy to the host costs nothing.
        float64: it has double precision.
        ordered_sums: `index_add_` adds in the same order every time.
        queued: operations are queued, and starting one costs microseconds whatever its size, so that few and large ones are better. On the host an operation
            costs what it computes, and operands that fit into a cache make it cheap.
        triton: the package triton compiles for it.
    """

    why: str
    values: bool = True
    on_host: bool = False
    float64: bool = True
    ordered_sums: bool = False
    queued: bool = True
    triton: bool = False


KINDS = {
    "cpu": Kind("the host itself; its sums run over the rows in their order", on_host=True, ordered_sums=True, queued=False),
    "cuda": Kind(
        "atomic additions come in any order; float64 exists, at 1/32 or 1/64 of the speed of float32 on consumer GPUs (ROCm has this name too)",
        triton=True,
    ),
    "mps": Kind("Metal has no float64; atomic additions come in any order", float64=False),
    "xpu": Kind("atomic additions come in any order; float64 exists, emulated on some GPUs"),
    "meta": Kind("shapes and dtypes without numbers, made in the same way as on the host", values=False, queued=False),
}
_OTHER = Kind("not known here: nothing is assumed about the order of sums, and float64 to exist")


def kind(device: torch.device) -> Kind:
    """The row of the table for a device.

    Examples:
        >>> kind(torch.device("cpu")).on_host, kind(torch.device("meta")).values
        (True, False)
    """
    return KINDS.get(device.type, _OTHER)


def has_values(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds numbers; one on the device "meta" does not."""
    return kind(tensor.device).values


def on_host(tensor: torch.Tensor) -> bool:
    """Whether reading a number of it waits for nothing."""
    device = tensor.device
    return device == HOST or kind(device).on_host  # the first is fast, and this is asked many times in a step


def widest(device: torch.device | None) -> torch.dtype:
    """float64, or float32 where the device has no float64; None is torch's default device.

    Examples:
        >>> widest(torch.device("cpu")), widest(torch.device("mps"))
        (torch.float64, torch.float32)
    """
    device = torch.get_default_device() if device is None else device
    return torch.float64 if kind(device).float64 else torch.float32


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in float64: where it is, or on the host if its device has no float64."""
    return (tensor if kind(tensor.device).float64 else tensor.to(HOST)).to(torch.float64)


def need_float64(name: str, tensor: torch.Tensor, what: str) -> None:
    """A ValueError where `what`, which computes in float64, is given a tensor on a device without it."""
    if not kind(tensor.device).float64:
        raise ValueError(f"{name} must be on a device that has float64, in which {what} computes, got {tensor.device}: move it to the CPU")


def host_or(device: torch.device) -> torch.device:
    """The device, or the host in place of one without values."""
    return device if kind(device).values else HOST


def usable_device(option: str, name: str, dtype: torch.dtype = torch.float32) -> torch.device:
    """The device of that name; a ValueError that names `option` if torch cannot compute on it here."""
    hint = f"torch sees {', '.join(map(str, devices_here()))} here"
    try:
        device = torch.device(name)
        if kind(device).values:
            torch.ones(1, dtype=dtype, device=device).add(1).item()
            return device
        reason = "it holds no numbers"
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
    words = str(dtype).removeprefix("torch.")
    raise ValueError(f"{option} must be one that torch can use with {words}, got {name!r} ({reason}): {hint}")


def devices_here() -> list[torch.device]:
    """The host and every accelerator that torch sees."""
    module, accelerator = _accelerator()
    if module is None or accelerator is None:
        return [HOST]
    return [HOST, *(torch.device(accelerator.type, index) for index in range(torch.accelerator.device_count()))]


def device_name(device: torch.device) -> str:
    """What its vendor calls it, with its memory where torch knows that; empty for the host and where torch has no name."""
    if kind(device).on_host:
        return ""
    module = torch.get_device_module(device)
    properties = getattr(module, "get_device_properties", None)
    found: Any = properties(device) if properties is not None else None
    parts = [str(getattr(found, "name", ""))]
    if hasattr(found, "total_memory"):
        parts.append(f"{found.total_memory / 2**30:.0f} GiB")
    if hasattr(found, "major"):
        parts.append(f"capability {found.major}.{found.minor}")
    return ", ".join(filter(None, parts))


def wait_for(device: torch.device) -> None:
    """Return when the device has done all its work."""
    if not kind(device).on_host:
        torch.accelerator.synchronize(device)


def current(device: torch.device) -> AbstractContextManager[Any]:
    """A context in which kernels that do not look at their arguments, as Triton's do not, are launched on this device."""
    return nullcontext() if kind(device).on_host else torch.get_device_module(device).device(device)


def peak_bytes(device: torch.device, call: Callable[[], Any]) -> int | None:
    """The peak of what a call allocates above what is there before it; None where torch does not count, as on the host."""
    if kind(device).on_host:
        return None
    try:
        wait_for(device)
        torch.accelerator.reset_peak_memory_stats(device)
        before = torch.accelerator.memory_allocated(device)
        call()
        wait_for(device)
        return torch.accelerator.max_memory_allocated(device) - before
    except (RuntimeError, NotImplementedError):
        return None


def tensor_core_generation(device: torch.device) -> int | None:
    """8 for Ampere, 9 for Hopper, 10 and 12 for Blackwell; None for what is not NVIDIA's, or not there."""
    there = kind(device).triton and not ROCM and torch.cuda.is_available()
    return torch.cuda.get_device_capability(device)[0] if there else None


def device_random_state() -> list[torch.Tensor]:
    """The states of the generators of an accelerator that is in use; none where there is none."""
    module, _ = _accelerator()
    if module is None or not getattr(module, "is_initialized", lambda: True)():
        return []
    return module.get_rng_state_all() if hasattr(module, "get_rng_state_all") else [module.get_rng_state()]


def set_device_random_state(states: list[torch.Tensor]) -> None:
    """Put back what `device_random_state` gave."""
    module, _ = _accelerator()
    if not states or module is None:
        return
    if hasattr(module, "set_rng_state_all"):
        module.set_rng_state_all(states)
    else:
        module.set_rng_state(states[0])


@contextmanager
def random_seed_kept(device: torch.device) -> Iterator[None]:
    """The generators of the host and of a device are afterwards as they were before."""
    accelerated = not kind(device).on_host
    with torch.random.fork_rng(devices=[device] if accelerated else [], device_type=device.type if accelerated else "cuda"):
        yield


@contextmanager
def refusing_to_wait(device: torch.device) -> Iterator[bool]:
    """Gives whether torch raises an error in this context when the host waits for the device; only CUDA can."""
    mode = getattr(torch.get_device_module(device), "set_sync_debug_mode", None)
    if mode is None:
        yield False
        return
    mode("error")
    try:
        yield True
    finally:
        mode("default")


def graph_of(device: torch.device, step: Callable[[], Any], clear: Callable[[], Any]) -> Callable[[], None] | None:
    """Capture a step after three warm-ups on a side stream, and give what replays it; None where the device has no graphs.

    Args:
        step: forward and backward.
        clear: called before each of them.
    """
    module: Any = torch.get_device_module(device)
    if not hasattr(module, "CUDAGraph"):
        return None
    side = module.Stream(device)
    side.wait_stream(module.current_stream(device))
    with module.stream(side):
        for _ in range(3):
            clear()
            step()
    module.current_stream(device).wait_stream(side)
    graph = module.CUDAGraph()
    clear()
    with module.graph(graph):
        step()
    return graph.replay


def capturing_graph() -> bool:
    """Whether a stream of the accelerator is being captured in a graph."""
    module, _ = _accelerator()
    return bool(module is not None and getattr(module, "is_current_stream_capturing", lambda: False)())


def autocast_types() -> tuple[str, ...]:
    """The types of devices here that have autocast."""
    _, accelerator = _accelerator()
    types = (HOST.type,) if accelerator is None else (HOST.type, accelerator.type)
    return tuple(name for name in types if torch.amp.is_autocast_available(name))


def has_autocast(device_type: str) -> bool:
    """Whether autocast may be asked about a type of device; not about one without values."""
    return KINDS.get(device_type, _OTHER).values


def torch_build() -> str:
    """For which GPUs torch was built."""
    return f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}" if torch.version.hip else "CPU build"


def backends_here() -> list[str]:
    """The backends of torch.distributed that this build of torch has."""
    if not torch.distributed.is_available():
        return []
    return [name for name in ("gloo", "nccl", "mpi") if getattr(torch.distributed, f"is_{name}_available")()]


def device_of_backend(backend: str) -> torch.device:
    """Where a backend of torch.distributed has its tensors: nccl on the current GPU of the process, others on the host."""
    return torch.device("cuda", torch.cuda.current_device()) if "nccl" in backend else HOST


def backend_moves(backend: str, device: torch.device) -> bool:
    """Whether a backend of torch.distributed moves tensors of a device."""
    return backend != "nccl" or device.type == "cuda"


def float32_backends() -> tuple[Any, ...]:
    """What has a precision of float32 products of its own, `fp32_precision`."""
    cudnn, mkldnn = torch.backends.cudnn, torch.backends.mkldnn
    return torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn, mkldnn.matmul, mkldnn.conv, mkldnn.rnn


def _accelerator() -> tuple[Any, torch.device | None]:
    """Its module (torch.cuda, torch.mps ...) and its device without an index; None and None where there is none."""
    if not torch.accelerator.is_available():
        return None, None
    accelerator = torch.accelerator.current_accelerator()
    module = None if accelerator is None else torch.get_device_module(accelerator)
    return (module, accelerator) if getattr(module, "is_available", lambda: module is not None)() else (None, None)
