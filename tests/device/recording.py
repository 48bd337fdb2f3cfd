"""What a step does to a device: a dispatch mode under which CPU tensors are real and CUDA tensors fake, and which writes down what costs or breaks.

Needs `fake_cuda.load` before torch. Leans on names of torch that are not public; the pin of torch in constraints.txt covers them.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

_SOURCES = "src/pairgrad/"
_aten = torch.ops.aten
# Their results have a shape that depends on values, which the host waits for.
_SHAPED_BY_VALUES = {"aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive"}
_INDEXED = {"aten::index", "aten::index_put", "aten::index_put_"}
# Launch nothing: memory from the allocator, or another look at the same memory.
_LAUNCHES_NOTHING = {"aten::empty", "aten::empty_like", "aten::new_empty", "aten::empty_strided", "aten::new_empty_strided"}
_LAUNCHES_NOTHING |= {"aten::_unsafe_view", "aten::_reshape_alias", "aten::lift_fresh", "aten::detach", "aten::_local_scalar_dense"}
_KERNELS = {"pairgrad::vmf_cross_entropy": 2}  # of an operator, if not one
_DECIDED = {_aten.equal.default, _aten.allclose.default, _aten.is_nonzero.default}
_COPIES = {_aten._to_copy.default, _aten.copy_.default}

SYNC, TO_DEVICE, CPU_SCALAR, ERROR = "sync", "copy to the device", "CPU scalar beside a device tensor", "error"


def prepare() -> None:
    """Once for each process, before the first CUDA tensor."""
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device="cuda") makes a CPU tensor and moves it
    torch.cuda._lazy_init = lambda: None  # factories call it


def _place() -> str:
    """The innermost line of the library that is running."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if _SOURCES in name:
            return f"{name.split(_SOURCES, 1)[1]}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "outside of pairgrad"  # in a node of torch's own that autograd runs


def _end(args: Any, target: str | None) -> str:
    """The type of the device that a copy is on."""
    return target or args[0].device.type


class Recorder(TorchDispatchMode):
    """Runs operations with CUDA tensors on fake ones and goes on with made-up values where the host reads one.

    Attributes:
        events: how often each (kind, what, line of the library) was seen.
        operations: device operations by name; views and allocations do not count.
        peak: bytes that were allocated at the most, above what was there at first.
    """

    def __init__(self, fake: FakeTensorMode) -> None:
        super().__init__()
        self.fake = fake
        self.events: Counter[tuple[str, str, str]] = Counter()
        self.operations: Counter[str] = Counter()
        self.peak, self._before = 0, 0
        self._live: dict[int, int] = {}

    def clear(self) -> None:
        """Forget what was seen: what follows is a step."""
        self.events.clear()
        self.operations.clear()
        self.peak, self._before = 0, sum(self._live.values())

    def _note(self, kind: str, what: str) -> None:
        self.events[kind, what, _place()] += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func._schema.name
        tensors = [leaf for leaf in tree_iter((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        target = None if kwargs.get("device") is None else torch.device(kwargs["device"]).type
        if target != "cuda" and not any(isinstance(tensor, FakeTensor) for tensor in tensors):
            return func(*args, **kwargs)
        on_device = [tensor for tensor in tensors if tensor.device.type == "cuda"]
        if func is _aten._local_scalar_dense.default:
            if on_device:
                self._note(SYNC, f"a number of shape {tuple(tensors[0].shape)}, {tensors[0].dtype}, is read")
            return {torch.bool: getattr(tensors[0], "answer", True), torch.int64: 1}.get(tensors[0].dtype, 1.0)
        if func in _DECIDED:
            if on_device:
                self._note(SYNC, f"the answer of {name} is read")
            return True
        self._look(func, name, args, tensors, on_device, target)
        if func in _COPIES and on_device and _end(args, target) != "cuda":  # real tensors from here on, of ones
            return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype) if func is _aten._to_copy.default else args[0]
        if isinstance(kwargs.get("generator"), torch.Generator):
            kwargs["generator"] = None
        args, kwargs = tree_map(self._fake, (args, kwargs))
        if name in _SHAPED_BY_VALUES or name in _INDEXED:
            made_up = self._as_if_all(name, args)
            if isinstance(made_up, torch.Tensor):
                return made_up
            args = made_up
        try:
            with self.fake:
                out = func(*args, **kwargs)
        except Exception as error:
            self._note(ERROR, f"{name}: {type(error).__name__}: {error}"[:300])
            raise
        if (
            (on_device or target == "cuda")
            and not func.is_view
            and name not in _LAUNCHES_NOTHING
            and func.namespace in ("aten", "pairgrad")
        ):
            self.operations[name] += _KERNELS.get(name, 1)
        self._allocated(out)
        if name in ("aten::all", "aten::any"):
            out.answer = name == "aten::all"  # checks are written as (good).all() or (bad).any(): nothing is wrong
        return out

    def _allocated(self, out: Any) -> None:
        for tensor in tree_iter(out):
            if isinstance(tensor, FakeTensor) and tensor.device.type == "cuda":
                storage = tensor.untyped_storage()
                if storage._cdata not in self._live:
                    self._live[storage._cdata] = storage.nbytes()
                    weakref.finalize(storage, self._live.pop, storage._cdata, None).atexit = False
        self.peak = max(self.peak, sum(self._live.values()) - self._before)

    def _as_if_all(self, name: str, args: Any) -> Any:
        """The result, or the arguments, as if a mask were true everywhere and everything were different from 0 and from the rest."""
        with self.fake:
            if name == "aten::nonzero":
                return args[0].new_zeros(args[0].numel(), args[0].dim(), dtype=torch.int64)
            if name == "aten::masked_select":
                return args[0].new_empty(args[0].numel())
            if name not in _INDEXED:
                return args
            indices = []
            for index in args[1]:
                if index is not None and index.dtype in (torch.bool, torch.uint8):
                    indices += [index.new_zeros(index.numel(), dtype=torch.int64)] * index.dim()
                else:
                    indices.append(index)
        return args[0], indices, *args[2:]

    def _look(
        self, func: Any, name: str, args: Any, tensors: list[torch.Tensor], on_device: list[torch.Tensor], target: str | None
    ) -> None:
        if func in _COPIES:
            source, end = args[0] if func is _aten._to_copy.default else args[1], _end(args, target)
            if source.device.type != end:
                self._note(TO_DEVICE if end == "cuda" else SYNC, f"{source.numel()} numbers are copied from {source.device.type} to {end}")
            return
        if not on_device:
            return
        if name in _SHAPED_BY_VALUES or (name == "aten::repeat_interleave" and len(tensors) == 1):
            self._note(SYNC, f"the shape of the result of {name} is read")
        indices = args[1] if name in _INDEXED else ()
        if any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices):
            self._note(SYNC, f"{name} with a mask, whose size is read")
        if any(tensor.device.type == "cpu" and tensor.dim() == 0 for tensor in tensors):
            self._note(CPU_SCALAR, name)

    def _fake(self, value: Any) -> Any:
        return self.fake.from_tensor(value) if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) else value
