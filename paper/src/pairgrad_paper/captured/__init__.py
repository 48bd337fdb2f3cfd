"""States that a training run visits, held still: what the backward rule alone changes there, and how far scores and slopes are from exact.

`pairgrad frozen` writes a record `frozen` of one run at some of its checkpoints. A batch is captured as the next update would see it, and the class state
that each view is scored against; the two views of the vMF term are numbers 2 and 3. Lines, by kind:

| kind | | what it holds |
|---|---|---|
| `state` | each step and view | radii r / nu, lengths of the features, classes at the cap, mean loss |
| `counterfactual` | each step and view | `"original"` against `"consistent"` in the precision of training (tab:backward-counterfactual) |
| `audit` | each step and view | largest distances from exact scores and slopes in float64 (tab:captured-audit) |
| `replay` | each step | gradients of all parameters, and one step of the optimizer |
| `cross` | last step, view 2 | `counterfactual` for both precisions and both geometries |
| `field_facts`, `field` | last step, view 2 | both gradients of one query over a plane (fig:patt-measured-field) |
| `query` | last step | both gradients of every query before and after the best scaling (fig:regime-scaling) |

`pairgrad states` writes a record `states`: the defects at the radii of the first batch and after every epoch that has a checkpoint, of queries and of the
class bank (fig:proco-state-distribution), as quantiles (`capture`) and as distribution functions (`cumulative`).

`source` opens the run, `capture` holds a batch still, `states` and `view` look at it, `audit`, `replay` and `plane` measure, `record` writes.
"""

from pairgrad_paper.captured.capture import Captured, capture
from pairgrad_paper.captured.record import frozen_record, states_record
from pairgrad_paper.captured.source import Source

__all__ = ["Captured", "Source", "capture", "frozen_record", "states_record"]
