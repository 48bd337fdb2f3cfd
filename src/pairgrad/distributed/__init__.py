"""Class banks and losses on several ranks, over `torch.distributed`: data parallel, class parallel, or both.

- `layout` (who has which classes), `communicator`, `collectives`, `meeting` (how batches travel), `watch` (ranks that fail), `calls` (bytes that are sent).
- `distribute`, and `ranks`, the strategy that it gives to a loss.
- `bank`, `cross_entropy`, `scoring`, `top`, `inputs` and `checkpoint`: what is there for one process, for several.
"""

from pairgrad.distributed.bank import EXCHANGES, DistributedClassBank
from pairgrad.distributed.calls import Call, wire_bytes
from pairgrad.distributed.collectives import step_calls
from pairgrad.distributed.communicator import Communicator
from pairgrad.distributed.cross_entropy import ShardedClassState, vmf_cross_entropy
from pairgrad.distributed.distribute import distribute
from pairgrad.distributed.inputs import until_all_are_done
from pairgrad.distributed.layout import Layout, shard
from pairgrad.distributed.top import top_classes
from pairgrad.distributed.watch import RankError, Watch

__all__ = [
    "EXCHANGES",
    "Call",
    "Communicator",
    "DistributedClassBank",
    "Layout",
    "RankError",
    "ShardedClassState",
    "Watch",
    "distribute",
    "shard",
    "step_calls",
    "top_classes",
    "until_all_are_done",
    "vmf_cross_entropy",
    "wire_bytes",
]
