"""Other people's names and conventions over our losses.

- `proco`: the names of ProCo's public code; `checkpoint` reads the files it saves, through `archive` (the container) and `pickles` (nothing is executed).
- `conventions`: the calling conventions of pytorch-metric-learning and timm.
"""

from pairgrad.compat import proco
from pairgrad.compat.archive import read_tensors
from pairgrad.compat.checkpoint import EstimatorState, ProCoState, read_proco_checkpoint
from pairgrad.compat.conventions import MetricLearningLoss, TimmLoss
from pairgrad.compat.pickles import Construction, Symbol, kind, read_pickle

__all__ = [
    "Construction",
    "EstimatorState",
    "MetricLearningLoss",
    "ProCoState",
    "Symbol",
    "TimmLoss",
    "kind",
    "proco",
    "read_pickle",
    "read_proco_checkpoint",
    "read_tensors",
]
