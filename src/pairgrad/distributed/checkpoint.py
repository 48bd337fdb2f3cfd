"""Rows of a bank that is shared out, as a checkpoint sees them: one tensor of all classes, of which every rank has a part.

In `state_dict` these are `DTensor`s, so that `torch.distributed.checkpoint` writes every row once, whichever rank holds it, and reads it back into any number
of ranks, or into the plain tensors of one process.
"""

from __future__ import annotations

from typing import Any

import torch

from pairgrad.distributed.layout import Layout
from pairgrad.ground.checks import describe
from pairgrad.ground.devices import NOWHERE


def mesh_of(layout: Layout, device_type: str) -> Any:
    """The ranks that share the classes out as a mesh."""
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh.from_group(layout.classes.group, device_type, mesh_dim_names=("classes",))


def whole(local: torch.Tensor, layout: Layout, mesh: Any) -> torch.Tensor:
    """The tensor of all classes of which `local` is this rank's part."""
    from torch.distributed.tensor import DTensor, Shard

    shape = torch.Size((layout.num_classes, *local.shape[1:]))
    stride = torch.empty(shape, device=NOWHERE).stride()
    return DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=shape, stride=stride)


def part(tensor: torch.Tensor, name: str, layout: Layout) -> torch.Tensor:
    """This rank's part of a tensor of all classes, which is a `DTensor` in this layout or a plain tensor."""
    from torch.distributed.tensor import DTensor

    if isinstance(tensor, DTensor):
        local = tensor.to_local()
        if tensor.shape[0] != layout.num_classes or local.shape[0] != layout.rows:
            raise ValueError(
                f"{name} has {tensor.shape[0]} classes, {local.shape[0]} of them on this rank, and the bank has {layout.num_classes} and {layout.rows}: "
                "load with torch.distributed.checkpoint, which brings the rows to the ranks that hold them now"
            )
        return local
    if tensor.shape[0] != layout.num_classes:
        raise ValueError(f"{name} must have a row for each of the {layout.num_classes} classes, got {describe(tensor)}")
    return tensor[layout.first : layout.last]
