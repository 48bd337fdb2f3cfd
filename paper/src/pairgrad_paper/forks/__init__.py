"""Causal forks: one start, one branch per realization, the same augmented tensors at every update (app:intervention-protocol, fig:patt-trajectory).

`start` makes the common start, `fork` runs the branches, `probing` looks at them, `distance` compares, `record` writes down.
"""

from pairgrad_paper.forks.fork import PROBES, ForkDirectory, ForkRun, Outcome, Plan
from pairgrad_paper.forks.probing import probe
from pairgrad_paper.forks.record import fork_record
from pairgrad_paper.forks.start import Start, random_start, trained_start

__all__ = ["PROBES", "ForkDirectory", "ForkRun", "Outcome", "Plan", "Start", "fork_record", "probe", "random_start", "trained_start"]
