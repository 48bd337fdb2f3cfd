"""The auditor: is a supplied gradient the derivative of the value that is computed, where not, and by how much. It knows nothing of von Mises-Fisher."""

from pairgrad.coherence.audit import Progress, assert_coherent, audit
from pairgrad.coherence.consistent import differentiated_forward
from pairgrad.coherence.domain import Box, LogRange
from pairgrad.coherence.field import Antisymmetry, Circulation, antisymmetry, circulation, component
from pairgrad.coherence.fork import Fork, best_scaling, fork
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
    "replay",
    "visits",
]
