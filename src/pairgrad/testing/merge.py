"""Several reports on recorded runs as one: what the workers of a parallel test session hand in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pairgrad.coherence.judge.verdict import gravest
from pairgrad.coherence.report.run import NodeReport, RunReport, ranked


def merged(reports: Sequence[RunReport]) -> RunReport:
    """One report on several runs; custom backwards are the same if their names and locations are.

    The share of failing states is the mean of the runs' shares, weighted by their visits, and so are the ends of its interval, which makes it at least as wide
    as it has to be. What each backward contributes to a gradient is not known over several runs.
    """
    if len(reports) == 1:
        return reports[0]
    groups: dict[tuple[str, str | None], list[NodeReport]] = {}
    for report in reports:
        for node in report.nodes:
            groups.setdefault((node.name, node.location), []).append(node)
    nodes = ranked([_together(group) for group in groups.values()])
    telling = [report for report in reports if report.nodes or report.loss is not None]  # a worker may have met nothing
    return RunReport(
        verdict=gravest([report.verdict for report in telling]),
        passed=all(report.passed for report in telling),
        nodes=nodes,
        loss=None,
        loss_note="",
        backwards=sum(report.backwards for report in reports),
        notes=tuple(dict.fromkeys(note for report in reports for note in report.notes)),
        seconds=sum(report.seconds for report in reports),
        left_out=tuple(dict.fromkeys(check for report in reports for check in report.left_out)),
    )


def _together(nodes: Sequence[NodeReport]) -> NodeReport:
    """One function, met in several runs."""
    if len(nodes) == 1:
        return replace(nodes[0], contribution=None)
    visits, looked, states = sum(node.visits for node in nodes), sum(node.looked for node in nodes), []
    before = 0
    for node in nodes:
        states += [replace(state, visit=state.visit + before) for state in node.states]
        before += node.visits
    worst = min(nodes, key=lambda node: (node.passed, not node.looked, -node.defect))

    def mean(shares: Sequence[float]) -> float:
        return sum(node.visits * share for node, share in zip(nodes, shares, strict=True)) / visits if visits else 0.0

    return NodeReport(
        name=worst.name,
        location=worst.location,
        verdict=gravest([node.verdict for node in nodes if node.looked or not looked]),
        passed=all(node.passed for node in nodes if node.looked or not looked),
        intent=next((node.intent for node in nodes if node.intent), None),
        visits=visits,
        looked=looked,
        failed=sum(node.failed for node in nodes),
        share=mean([node.share for node in nodes]),
        share_low=mean([node.share_low for node in nodes]),
        share_high=mean([node.share_high for node in nodes]),
        defect=worst.defect,
        defect_error=worst.defect_error,
        contribution=None,
        states=tuple(states),
        worst=worst.worst,
        note="; ".join(dict.fromkeys(node.note for node in nodes if node.note)),
        left_out=tuple(dict.fromkeys(check for node in nodes for check in node.left_out)),
    )
