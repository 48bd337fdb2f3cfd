"""Tables of states that training visited, made from the records of `pairgrad fork`, `pairgrad frozen` and `pairgrad states`.

`source` finds the record; `audit`, `backward`, `forks`, `replay` and `states` make a table or two each.
"""

from pairgrad.experiments.captured.audit import captured_audit
from pairgrad.experiments.captured.backward import backward_counterfactual, precision_geometry
from pairgrad.experiments.captured.forks import fork_summary
from pairgrad.experiments.captured.replay import one_step_replay
from pairgrad.experiments.captured.states import proco_states

__all__ = ["backward_counterfactual", "captured_audit", "fork_summary", "one_step_replay", "precision_geometry", "proco_states"]
