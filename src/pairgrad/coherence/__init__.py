"""The auditor: is a supplied gradient the derivative of the value that is computed, where not, and by how much. It knows nothing of von Mises-Fisher.

The folders are in the order in which an audit goes through them: `subject`, `measure`, `judge`, `causes`, `report`; `audit` begins, and the
`stages` lead through them; `finding` has the words for what is found. `sweep` audits many configurations, `checks` has torch's checks with an audit beside
them, `cache` keeps results. `training` records and watches training runs.
"""

from pairgrad.coherence.audit import assert_coherent, audit
from pairgrad.coherence.causes.consistent import differentiated_forward
from pairgrad.coherence.causes.field import Antisymmetry, Circulation, antisymmetry, circulation, component
from pairgrad.coherence.causes.fork import Fork, best_scaling, fork, relative_gap
from pairgrad.coherence.causes.nodes import Visit, replay
from pairgrad.coherence.causes.picture import FieldPicture
from pairgrad.coherence.causes.recorder import visits
from pairgrad.coherence.checks import gradcheck, gradgradcheck, opcheck
from pairgrad.coherence.finding import Finding
from pairgrad.coherence.judge.verdict import Judgement, Verdict
from pairgrad.coherence.measure.scan import Region
from pairgrad.coherence.report.report import ArgumentGradient, Curve, Report, StateDefect
from pairgrad.coherence.report.run import NodeReport, NodeState, RunReport
from pairgrad.coherence.report.sweep import SweepReport, SweepRow
from pairgrad.coherence.stages import Progress
from pairgrad.coherence.subject.configurations import Configuration, configurations
from pairgrad.coherence.subject.domain import Box, LogRange
from pairgrad.coherence.subject.intent import intended
from pairgrad.coherence.subject.jax_functions import from_jax
from pairgrad.coherence.subject.subject import Subject
from pairgrad.coherence.sweep import sweep
from pairgrad.coherence.training.monitor import CoherenceMonitor, CoherenceWarning, IncoherentBackward
from pairgrad.coherence.training.record import Recording, RunProgress, record

__all__ = [
    "Antisymmetry",
    "ArgumentGradient",
    "Box",
    "Circulation",
    "CoherenceMonitor",
    "CoherenceWarning",
    "Configuration",
    "Curve",
    "FieldPicture",
    "Finding",
    "Fork",
    "IncoherentBackward",
    "Judgement",
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
    "SweepReport",
    "SweepRow",
    "Verdict",
    "Visit",
    "antisymmetry",
    "assert_coherent",
    "audit",
    "best_scaling",
    "circulation",
    "component",
    "configurations",
    "differentiated_forward",
    "fork",
    "from_jax",
    "gradcheck",
    "gradgradcheck",
    "intended",
    "opcheck",
    "record",
    "relative_gap",
    "replay",
    "sweep",
    "visits",
]
