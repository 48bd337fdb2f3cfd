"""The auditor: is a supplied gradient the derivative of the value that is computed, where not, and by how much. It knows nothing of von Mises-Fisher.

From the callable to the report, in the order in which an audit goes through it:

- the callable: `subject` (with its arguments), `jax_functions` (from JAX), `intent` (what is declared), `domain` (where to look), `limits` (constants);
- one place: `path`, `panel` (work and energy), `differences`, `state` (both together), `second` and `structure` (what needs no derivative);
- many places: `explore` (lines through states), `scan` (intervals), `straight` (straight-through estimators);
- what follows: `audit` leads, `conclusions` draws findings and verdict, `excuses` weighs what was declared;
- causes and consequences: `consequences`, by `nodes` (single Functions), `consistent` (the gradient that belongs to the forward), `field`, `fork`, `picture`;
- results: `verdict`, `report`, `run` (of a recorded run), `annotations` (for code hosts), `page` (HTML), `status` (a line on a terminal);
- training runs: `record`, with `recorder` (which visits are kept), `tape` and `step` (the loss computed again); `monitor` watches a long run.
"""

from pairgrad.coherence.audit import Progress, assert_coherent, audit
from pairgrad.coherence.consistent import differentiated_forward
from pairgrad.coherence.domain import Box, LogRange
from pairgrad.coherence.field import Antisymmetry, Circulation, antisymmetry, circulation, component
from pairgrad.coherence.fork import Fork, best_scaling, fork, relative_gap
from pairgrad.coherence.intent import intended
from pairgrad.coherence.jax_functions import from_jax
from pairgrad.coherence.monitor import CoherenceMonitor, CoherenceWarning, IncoherentBackward
from pairgrad.coherence.nodes import Visit, replay
from pairgrad.coherence.record import Recording, RunProgress, record
from pairgrad.coherence.recorder import visits
from pairgrad.coherence.report import Curve, FieldPicture, Report, StateDefect
from pairgrad.coherence.run import NodeReport, NodeState, RunReport
from pairgrad.coherence.scan import Region
from pairgrad.coherence.subject import Subject
from pairgrad.coherence.verdict import Finding, Verdict

__all__ = [
    "Antisymmetry",
    "Box",
    "Circulation",
    "CoherenceMonitor",
    "CoherenceWarning",
    "Curve",
    "FieldPicture",
    "Finding",
    "Fork",
    "IncoherentBackward",
    "LogRange",
    "NodeReport",
    "NodeState",
    "Progress",
    "Recording",
    "Region",
    "Report",
    "RunProgress",
    "RunReport",
    "StateDefect",
    "Subject",
    "Verdict",
    "Visit",
    "antisymmetry",
    "assert_coherent",
    "audit",
    "best_scaling",
    "circulation",
    "component",
    "differentiated_forward",
    "fork",
    "from_jax",
    "intended",
    "record",
    "relative_gap",
    "replay",
    "visits",
]
