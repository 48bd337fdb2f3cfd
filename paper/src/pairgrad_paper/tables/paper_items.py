"""Every table and figure of the paper by its LaTeX label: where it stands, what it shows, and which item of the catalogue stands beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PaperItem:
    """A table or figure of the paper.

    Attributes:
        label: the LaTeX label.
        section: a key of `SECTIONS`.
        name: the table or figure of the catalogue that stands beside it.
        shows: what the paper shows there, in one sentence.
        also: further items of the catalogue about it.
    """

    label: str
    section: str
    name: str
    shows: str
    also: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)


SECTIONS: Mapping[str, str] = {
    "sec:introduction": "1. Introduction",
    "sec:realization": "2. Coherence and fidelity",
    "sec:diagnosis": "3. How a finite recurrence breaks coherence",
    "sec:f2": "4. The paired realization",
    "sec:trajectories": "5.2. Same forward, different gradients and trajectories",
    "sec:mismatch-regimes": "5.3. When there is a mismatch",
    "sec:fidelity": "5.4. Fidelity of AR/FR",
    "sec:tasks": "5.5. Complete tasks",
    "sec:efficiency": "5.6. Cost",
    "app:proco-extended": "Appendix C. ProCo",
    "app:theory": "Appendix D. Proofs",
    "app:mechanism-protocol": "Appendix E.1. Frozen states",
    "app:non-timing": "Appendix E.2. Fidelity against exact references",
    "app:stress": "Appendix E.3. Class counts and priors",
    "app:experiment-details": "Appendix E.4. Measured update fields",
    "app:mechanism-interventions": "Appendix E.5. Geometry by class, and whole updates",
    "app:h100-local": "Appendix F. Cost on an H100",
    "app:extended-tasks": "Appendix G. Complete task metrics",
    "": "Beyond the paper",
}  # in the paper's order; keys are its labels where it has them

_ITEMS = (
    PaperItem(
        "fig:overview",
        "sec:introduction",
        "overview",
        "One loss can come with two updates; the coherence defect tells them apart; building value and slope together closes the gap.",
    ),
    PaperItem(
        "fig:theoretical-field",
        "sec:diagnosis",
        "theoretical-field",
        "On one and the same surface, a slope that belongs to it gives a gradient field, and one that does not gives a field that turns.",
    ),
    PaperItem(
        "fig:patt-trajectory",
        "sec:trajectories",
        "patt-trajectory",
        "Two branches that start from one state and differ in the backward alone have equal losses at first and end up with different parameters.",
        ("fork-summary",),
    ),
    PaperItem(
        "fig:proco-conditions",
        "sec:mismatch-regimes",
        "concentration-depth",
        "How large the mismatch is depends on concentration and depth together, and a deeper recurrence can have the larger one.",
    ),
    PaperItem(
        "fig:dimension-error",
        "sec:fidelity",
        "cubic-decay",
        "The error of the analytic ratio falls with the third power of the dimension and stays below its bound.",
    ),
    PaperItem(
        "tab:task-summary",
        "sec:tasks",
        "task-summary",
        "Accuracy and detection of foreign images after complete training runs of three realizations, in seven settings.",
        ("cifar-study", "cifar-study-differences", "cifar-study-ood", "learning-curves"),
    ),
    PaperItem(
        "fig:efficiency-compact",
        "sec:efficiency",
        "efficiency-compact",
        "Time against memory of the local step, for five ways to compute it.",
    ),
    PaperItem(
        "fig:proco-state-distribution",
        "app:proco-extended",
        "proco-state-distribution",
        "In ProCo the defect depends on where training is: it is visible in the first batches and close to rounding later.",
        ("proco-states",),
    ),
    PaperItem(
        "tab:backward-counterfactual",
        "app:mechanism-protocol",
        "backward-counterfactual",
        "At a frozen state, changing the backward alone leaves scores and loss as they are and changes the gradient by a quarter of a percent.",
    ),
    PaperItem(
        "tab:parity-counterfactual",
        "app:mechanism-protocol",
        "parity",
        "Far out, the raw ratio grows without limit at odd orders and vanishes at even ones, as the theorem says.",
    ),
    PaperItem(
        "tab:captured-audit",
        "app:non-timing",
        "captured-audit",
        "Scores and slopes at states taken from training, each against the exact function and against its own value.",
    ),
    PaperItem(
        "tab:dimension-main",
        "app:non-timing",
        "ratio-fidelity",
        "Largest errors of the ratio over the concentrations, and the bound, in seven dimensions.",
    ),
    PaperItem(
        "tab:endpoint-scaling",
        "app:non-timing",
        "difference-fidelity",
        "Largest errors of differences of the potential, which are what a score is made of, in seven dimensions.",
    ),
    PaperItem(
        "fig:class-count-control",
        "app:stress",
        "class-count-control",
        "Neither more classes nor steeper priors lift the errors of scores and loss above their bounds.",
        ("class-count",),
    ),
    PaperItem(
        "fig:patt-measured-field",
        "app:experiment-details",
        "patt-measured-field",
        "Around a feature taken from training, the supplied field and the gradient differ in length far more than in direction.",
    ),
    PaperItem(
        "fig:mechanism-controls",
        "app:mechanism-interventions",
        "mechanism-controls",
        "With two classes, the rotation of the field follows the ratio of their concentrations and the strength of the mismatch, as predicted.",
        ("two-class", "mismatch-strength"),
    ),
    PaperItem(
        "fig:regime-scaling",
        "app:mechanism-interventions",
        "regime-scaling",
        "Far out the clipped defect falls again, and rescaling each query's gradient removes most of the difference at a frozen state.",
        ("clipped-defect",),
    ),
    PaperItem(
        "tab:h100-local",
        "app:h100-local",
        "h100-local",
        "Time and additional memory of the local step on one H100, for five ways to compute it.",
    ),
    PaperItem(
        "tab:task-complete",
        "app:extended-tasks",
        "task-complete",
        "The task results with all three metrics.",
    ),
)

PAPER: Mapping[str, PaperItem] = {item.label: item for item in _ITEMS}

# The other labels that items of the catalogue stand beside: theorems and sections.
_PLACES: Mapping[str, str] = {
    "sec:ce-integrability": "sec:diagnosis",
    "sec:high-dimension": "sec:f2",
    "app:curl-proof": "app:theory",
    "cor:complexity-certificate": "sec:f2",
    "tab:class-count-control": "app:stress",  # a second label of the figure
    "app:numerical-validation": "app:mechanism-protocol",
    "app:detailed-tables": "app:non-timing",
    "app:intervention-protocol": "sec:trajectories",
    "app:current-protocol": "sec:tasks",
    "app:aggregate-results": "app:extended-tasks",
}


# Items of the catalogue that stand beside something else too, or alone: labels of the paper, as the items print them.
BESIDE: Mapping[str, tuple[str, ...]] = {
    "constants": ("fig:dimension-error", "app:curl-proof", "app:mechanism-protocol", "tab:captured-audit", "tab:backward-counterfactual"),
    "complexity": ("cor:complexity-certificate",),
    "complexity-certificate": ("cor:complexity-certificate",),
    "two-class": ("fig:mechanism-controls", "app:curl-proof"),
    "mismatch-strength": ("fig:mechanism-controls", "app:curl-proof"),
    "precision-geometry": ("app:mechanism-protocol",),
    "one-step-replay": ("app:mechanism-interventions",),
    "value-and-slope": ("sec:mismatch-regimes",),
    "fork-summary": ("app:intervention-protocol",),
    "proco-states": ("app:proco-extended",),
}


def item_of(name: str) -> PaperItem | None:
    """The table or figure of the paper that an item of the catalogue stands beside."""
    return next((item for item in _ITEMS if name in item.names), None)


def section_of(name: str, label: str) -> str:
    """The key of the section that an item of the catalogue belongs to; `label` is its own, or several with commas between.

    Examples:
        >>> section_of("parity", "tab:parity-counterfactual"), section_of("some", "app:curl-proof, fig:x"), section_of("other", "")
        ('app:mechanism-protocol', 'app:theory', '')
    """
    item = item_of(name)
    if item is not None:
        return item.section
    for each in (part.strip() for part in label.split(",")):
        if each in PAPER:
            return PAPER[each].section
        if each in SECTIONS or each in _PLACES:
            return _PLACES.get(each, each)
    return ""


def named(wanted: str, known: Iterable[str]) -> list[str]:
    """The names that a word stands for: itself if it is one, else those beside the table, figure, section or theorem of the paper with this label.

    Examples:
        >>> named("parity", ["parity"]), named("tab:parity-counterfactual", ["parity"]), named("class-count-control", ["class-count"])
        (['parity'], ['parity'], ['class-count'])
        >>> named("app:curl-proof", ["parity", "two-class"])
        ['two-class']
    """
    known = list(known)
    if wanted in known:
        return [wanted]
    labels = (wanted, f"tab:{wanted}", f"fig:{wanted}") if ":" not in wanted else (wanted, wanted.replace("tab:", "fig:", 1))
    found = {name for label in labels if label in PAPER for name in PAPER[label].names}
    found |= {name for name, beside in BESIDE.items() if not set(beside).isdisjoint(labels)}
    return [name for name in known if name in found]
