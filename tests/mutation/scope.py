"""What is mutated, and which tests answer for it: declared here, and narrowed down to the line by measured coverage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "pairgrad"


@dataclass(frozen=True)
class Group:
    """Modules that the same tests answer for.

    Attributes:
        name: how the command line calls it.
        modules: files below src/pairgrad.
        tests: files or folders below tests.
        leave_out: files below tests, or tests in them, that are not run: they compile or take long, and say little that others do not.
    """

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    leave_out: tuple[str, ...] = ()


GROUPS = (
    Group(
        "core",
        (
            "potentials/expansion.py",
            "potentials/debye.py",
            "potentials/paired.py",
            "potentials/inverse.py",
            "potentials/plan.py",
            "potentials/kernels.py",
            "potentials/autograd.py",
            "potentials/protocol.py",
            "potentials/registry.py",
            "potentials/formulas.py",
            "potentials/arfr.py",
            "potentials/scott.py",
            "potentials/log_bessel.py",
            "potentials/miller.py",
            "potentials/recurrence.py",
            "potentials/reference.py",
            "ground/arithmetic.py",
            "ground/quadrature.py",
            "ground/checks.py",
            "ground/certificate.py",
        ),
        ("potentials", "ground"),
        (
            "potentials/test_compile.py",
            "potentials/test_devices.py::test_meta",
            "potentials/test_inherited.py",
            "potentials/test_paired_accuracy.py::test_random",
            "potentials/test_registry.py::test_ratio_bound_of_arfr_holds_in_ball_arithmetic",
        ),
    ),
    Group(
        "sphere",
        ("sphere/area.py", "sphere/geometry.py", "sphere/resultant.py", "sphere/statistics.py", "sphere/state.py"),
        ("sphere", "losses/test_scores.py"),
        ("sphere/test_statistics.py::test_a_compiled_step_keeps_the_compensation", "sphere/test_bank_module.py::test_one_graph"),
    ),
    Group(
        "certificates",
        ("certificates/ratio.py", "potentials/proven.py"),
        (
            "certificates/test_ratio.py",
            "certificates/test_ratio_steps.py",
            "certificates/test_curves.py",
            "potentials/test_proven.py",
            "potentials/test_registry.py",
        ),
    ),
    Group(
        "auditor",
        (
            "coherence/panel.py",
            "coherence/differences.py",
            "coherence/limits.py",
            "coherence/state.py",
            "coherence/straight.py",
            "coherence/path.py",
            "coherence/second.py",
            "coherence/verdict.py",
        ),
        (
            "coherence/test_immutable.py",
            "coherence/test_limits.py",
            "coherence/test_panel.py",
            "coherence/test_panel_numbers.py",
            "coherence/test_path.py",
            "coherence/test_reading.py",
            "coherence/test_scan.py",
            "coherence/test_search.py",
            "coherence/test_second.py",
            "coherence/test_state.py",
            "coherence/test_straight.py",
            "coherence/test_verdict.py",
            "coherence/test_hard_cases.py",
        ),
    ),
    Group(
        "scan",
        ("coherence/scan.py",),
        ("coherence/test_immutable.py", "coherence/test_scan.py", "coherence/test_scan_parts.py", "coherence/test_scan_rules.py"),
    ),
    Group("explore", ("coherence/explore.py",), ("coherence/test_explore.py", "coherence/test_straight.py")),
    Group(
        "audit",
        (
            "coherence/audit.py",
            "coherence/conclusions.py",
            "coherence/excuses.py",
            "coherence/structure.py",
            "coherence/subject.py",
            "coherence/domain.py",
            "coherence/consequences.py",
            "coherence/status.py",
        ),
        (
            "coherence/test_audit.py",
            "coherence/test_audit_arguments.py",
            "coherence/test_audit_parts.py",
            "coherence/test_conclusions.py",
            "coherence/test_consequences.py",
            "coherence/test_excuses.py",
            "coherence/test_domain.py",
            "coherence/test_immutable.py",
            "coherence/test_report.py",
            "coherence/test_status.py",
            "coherence/test_structure.py",
            "coherence/test_subject.py",
            "coherence/test_subject_state.py",
        ),
    ),
)


def group_of(module: str) -> Group:
    return next(group for group in GROUPS if module in group.modules)


def selected(names: list[str]) -> list[str]:
    """The modules that names of groups, folders or files below src/pairgrad stand for; all without a name."""
    if not names:
        return [module for group in GROUPS for module in group.modules]
    found: list[str] = []
    for name in names:
        matching = [m for g in GROUPS for m in g.modules if name == g.name or m == name or m.startswith(name.rstrip("/") + "/")]
        if not matching:
            known = ", ".join(g.name for g in GROUPS)
            raise SystemExit(f"--modules: expected a group ({known}), or a folder or file of tests/mutation/scope.py, got {name!r}")
        found += [m for m in matching if m not in found]
    return found
