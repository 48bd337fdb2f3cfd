"""What a computation allocates."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten


class Largest(TorchDispatchMode):
    """The largest number of elements of any tensor that an operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.elements, self.shapes = 0, set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_flatten(result)[0]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
                self.shapes.add(tuple(tensor.shape))
        return result
