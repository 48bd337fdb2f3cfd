"""Losses with a class bank on several ranks: [`distribute`][pairgrad.distributed.distribute] turns one that was written for a single process into one."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from pairgrad.distributed.bank import DistributedClassBank
from pairgrad.distributed.communicator import Group
from pairgrad.distributed.layout import Layout
from pairgrad.distributed.ranks import PRIOR, Ranks, checksum, number_of_classes
from pairgrad.ground.checks import describe
from pairgrad.ground.devices import has_values, host_or
from pairgrad.losses.bank_loss import BankLoss
from pairgrad.losses.patt import PATTLoss
from pairgrad.losses.step import OneProcess

Module = TypeVar("Module", bound=nn.Module)
_EVERYONE = "everyone"


def distribute(
    module: Module,
    *,
    data: Group = _EVERYONE,
    classes: Group = None,
    inputs: str = "sharded",
    exchange: str = "auto",
    static: bool = False,
    averaged: bool = True,
    sample: int | float | None = None,
    seed: int | None = None,
    device: Any = None,
) -> Module:
    r"""Let a loss with a class bank run on several ranks, as one process with all their samples would; `module` itself is changed and returned.

    Losses and gradients are those of the whole batch, banks have the same bits on all ranks that hold the same classes, and local batches may have any size,
    0 included. Every forward is a collective: all ranks call it, as often as each other. Without a process group nothing changes.

        loss = pg.distributed.distribute(pg.ProCoLoss(num_classes=1000, dim=128))                            # every rank has all classes
        loss = pg.distributed.distribute(pg.ProCoLoss(10**6, 128), data=None, classes=dist.group.WORLD)      # classes sharded
        mesh = init_device_mesh("cuda", (8, 4), mesh_dim_names=("data", "classes"))                          # both
        loss = pg.distributed.distribute(pg.ProCoLoss(10**7, 512, device="meta"), data=mesh["data"], classes=mesh["classes"], device="cuda")

    Args:
        module: a `ProCoLoss`, a `PATTLoss`, a [`BankLoss`][pairgrad.losses.BankLoss], or a module that has some. A bank on the device `"meta"` is made here,
            with the classes that this rank holds and no others; one that exists is sharded, and comes from the first rank where several hold it.
        data: the ranks that hold the same classes and see different samples: a process group, a mesh with one dimension, or None; by default all ranks, if
            `classes` is None.
        classes: the ranks that shard the classes, likewise.
        inputs: `"sharded"`: the ranks of `classes` bring different samples; `"replicated"`: the same.
        exchange: how ranks that hold the same classes bring their banks up to date: `"gather"`, `"reduce"`, or `"auto"`, the cheaper one
            ([`DistributedClassBank`][pairgrad.distributed.DistributedClassBank]).
        static: batch sizes never change, so that they need not be exchanged at every step, which waits for the device.
        averaged: gradients will be averaged over all ranks, as `DistributedDataParallel` and FSDP do: `reduction="mean"` then gives every rank a loss whose
            *mean over the ranks* is the loss of the whole batch. False: they will be summed, and so the losses.
        sample: in training, score this many classes of a rank (an integer), or this share of them (a number below 1), drawn at every step, besides those
            of the batch: partial softmax [an2021partial]. The normaliser is then estimated, without bias; its logarithm, and so the loss, is too small on
            average.
        seed: of the initial directions of unseen classes of a bank that is made here; None: agreed on.
        device: of the banks that are made here; None: where the module's are, or the CPU.

    Returns:
        The module.
    """
    if isinstance(data, str) and data == _EVERYONE:
        there = dist.is_available() and dist.is_initialized()
        data = dist.group.WORLD if classes is None and there else None
    losses = [part for part in module.modules() if isinstance(part, BankLoss)] if isinstance(module, nn.Module) else []
    if not losses:
        raise TypeError(f"module must be a loss with a class bank, or contain one, got {describe(module)}: e.g. pairgrad.ProCoLoss(...)")
    for loss in losses:
        if not isinstance(loss.strategy, OneProcess):
            raise ValueError("module is distributed already: distribute a new one, or a copy from before")
        layout = Layout(loss.bank.num_classes, data=data, classes=classes, inputs=inputs)
        place = torch.zeros(0, device=device if device is not None else host_or(loss.bank.sums.device)).device
        with layout.beginning("settings", place):
            number_of_classes(sample, layout.rows)
            facts = _options_of(loss, averaged, sample)
            bank = DistributedClassBank(layout, loss.bank, exchange=exchange, static=static, seed=seed, facts=facts, device=place)
        loss.use(bank, Ranks(bank, averaged=averaged, sample=sample))
    for part in module.modules():
        if isinstance(part, PATTLoss) and part.class_counts is not None:
            part.set_prior(part.class_counts)
    if any(not has_values(tensor) for tensor in [*module.parameters(), *module.buffers()]):
        raise ValueError("a part of the module other than its bank is on the device 'meta': make that part on a real device")
    return module


def _options_of(loss: BankLoss, averaged: bool, sample: int | float | None) -> dict[str, Any]:
    """What ranks must have in common besides what a bank is made with."""
    prior, imagined = loss.log_prior, not has_values(loss.bank.sums)
    return {
        "whether the loss is on the device 'meta'": imagined,
        "unseen": loss.bank.unseen,
        "temperature": loss.temperature,
        "realization": loss.potential.realization,
        "normalize": loss.normalize,
        "score": loss.score,
        "geometry": loss.options.geometry,
        "geometry_dtype": loss.options.geometry_dtype,
        "scalar_dtype": loss.options.scalar_dtype,
        "averaged": bool(averaged),
        "sample": sample,
        PRIOR: None if prior is None or imagined else checksum(prior),
    }
