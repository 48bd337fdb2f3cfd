"""Training the systems of the paper: batches that are functions of their number, updates, and a loop that can be left alone.

- `launch` goes from a recipe to a `trainer`, `loop` runs it, `estimate` says how long that takes; `observer` is told, `signals` are heeded, `failure` keeps
  what went wrong.
- `batches`, `objective`, `optimizer`, `seeds` and `chance` (generators) make an update; `process`, `meeting` and `wrapping` are for several processes.
"""

from pairgrad_paper.training.batches import Batch, Batches
from pairgrad_paper.training.estimate import Estimate, estimate
from pairgrad_paper.training.launch import Arm, load_data, make_trainer, run_directory
from pairgrad_paper.training.loop import Options, Outcome, set_deterministic, train
from pairgrad_paper.training.observer import Observer
from pairgrad_paper.training.process import Elsewhere, Process, ProcessError, Sharing
from pairgrad_paper.training.trainer import NonFinite, Trainer

__all__ = [
    "Arm",
    "Batch",
    "Batches",
    "Elsewhere",
    "Estimate",
    "NonFinite",
    "Observer",
    "Options",
    "Outcome",
    "Process",
    "ProcessError",
    "Sharing",
    "Trainer",
    "estimate",
    "load_data",
    "make_trainer",
    "run_directory",
    "set_deterministic",
    "train",
]
