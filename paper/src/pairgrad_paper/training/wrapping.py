"""A network on several processes: wrapped in torch's data parallelism, and its state as that of one process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pairgrad_paper.models import Network
from pairgrad_paper.training.process import Process

_SIDE = 32  # of an image of which only the way of its gradient matters


def wrapped(network: Network, process: Process, device: torch.device) -> nn.Module:
    """What is to be called instead of the network, so that gradients are means over the processes; with `"fsdp"` the network itself, its weights sharded.

    To be called before the optimizer is made.
    """
    if process.world == 1:
        return network
    with process.watched("comparing networks"):
        if process.sharing.wrap == "ddp":
            running = DistributedDataParallel(network, device_ids=[device] if device.type == "cuda" else None)
            _settle(running, network, device)
            return running
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.type, (process.world,))
        for block in network.backbone.stages:
            fully_shard(block, mesh=mesh)
        fully_shard(network, mesh=mesh)
    return network


def _settle(running: DistributedDataParallel, network: Network, device: torch.device) -> None:
    """Let torch order its buckets of gradients now, not after the first update: from three processes on, sums depend on the order in which they are taken,
    and a resumed run would have another first update.
    """
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    channels = next(module.in_channels for module in network.modules() if isinstance(module, nn.Conv2d))
    outputs = running(torch.zeros(2, channels, _SIDE, _SIDE, device=device))
    (outputs.logits.sum() + outputs.features.sum()).backward()
    network.zero_grad(set_to_none=True)
    with torch.no_grad():
        for name, buffer in network.named_buffers():
            buffer.copy_(buffers[name])


def whole(tree: Any) -> Any:
    """A nested state in which sharded tensors are whole, on the CPU. All processes take part, in the order of the state."""
    if isinstance(tree, Mapping):
        return {key: whole(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(whole(value) for value in tree)
    return tree.full_tensor().cpu() if _is_shared(tree) else tree


def like(tensor: torch.Tensor, model: torch.Tensor) -> torch.Tensor:
    """A whole tensor, sharded as `model` is."""
    if not _is_shared(model):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(model.device), model.device_mesh, model.placements)  # pyright: ignore[reportAttributeAccessIssue]


def _is_shared(value: Any) -> bool:
    """Whether it is a DTensor; without loading that part of torch where none was made."""
    return isinstance(value, torch.Tensor) and hasattr(value, "full_tensor")
