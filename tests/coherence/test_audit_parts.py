"""How an audit comes to its verdict and its report, rule by rule: on observations and findings that are made up. Tests of whole audits are in test_audit.py."""

from __future__ import annotations

import importlib
import itertools
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import Box, Finding, LogRange, Report, Verdict
from pairgrad.coherence.audit import _Audit
from pairgrad.coherence.consequences import Consistent, NodeVerdict
from pairgrad.coherence.explore import EFFORTS, Observation
from pairgrad.coherence.limits import FALSE_ALARM_RATE, TESTS
from pairgrad.coherence.nodes import Visit
from pairgrad.coherence.panel import DEGREE
from pairgrad.coherence.state import Event
from pairgrad.coherence.straight import StraightThrough
from pairgrad.coherence.subject import Subject
from tests.coherence.functions import Round, sine_with
from tests.coherence.readings import panel_of, seen

module = importlib.import_module("pairgrad.coherence.audit")  # the package has a function of this name
X = torch.tensor([0.4, -1.1], dtype=torch.float64)


class Clock:
    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are drawn along lines, which made-up observations do not have."""
    monkeypatch.setattr(module, "loudest_curves", lambda observations: ())


def under_way(
    *observations: Observation,
    findings: tuple[Finding, ...] = (),
    fn: Any = torch.sin,
    x: Any = X,
    tolerance: float = 0.0,
    intent: str | None = None,
    effort: str = "quick",
    progress: Any = None,
) -> _Audit:
    made = _Audit(Subject(fn, x), effort, 7, intent, tolerance, -0.5, progress)
    made.observations, made.findings = list(observations), list(findings)
    return made


def good(argument: str = "x", **options: Any) -> Observation:
    return seen("coherent", argument, panel=panel_of(), line=options.pop("line", SimpleNamespace(panels=1)), **options)


def bad(argument: str = "x", defect: float = 0.5, **options: Any) -> Observation:
    line = options.pop("line", SimpleNamespace(panels=1))
    return seen("incoherent", argument, panel=panel_of(defect=defect), difference=defect, line=line, **options)


def alarm(kind: str, severity: str = "alarm") -> Finding:
    return Finding(kind, severity, f"{kind} {severity}")


# The verdict ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        ((), "coherent"),
        ((alarm("edits"),), "not-reentrant"),
        ((alarm("not-reentrant"), alarm("non-finite")), "not-reentrant"),
        ((alarm("edits", "note"),), "coherent"),
        ((alarm("non-finite"),), "incoherent"),
        ((alarm("not-linear", "warning"),), "coherent"),
        ((alarm("jump", "warning"),), "jump"),
        ((alarm("kink", "note"),), "kink"),
        ((alarm("kink", "note"), alarm("jump", "warning")), "jump"),
        ((alarm("jump", "warning"), alarm("not-linear")), "incoherent"),
    ],
)
def test_findings_decide_gravest_first(findings: tuple[Finding, ...], verdict: str) -> None:
    audit = under_way(good(), findings=findings)
    audit.classify()
    assert audit.verdict == verdict


def test_an_argument_of_which_nothing_is_known_leaves_the_question_open() -> None:
    unknown = seen("unresolved", "y")
    audit = under_way(good(), unknown, findings=(alarm("jump", "warning"),))
    audit.classify()
    assert audit.verdict == "inconclusive"
    assert [finding.where for finding in audit.findings if finding.kind == "unresolved"] == ["y"]
    audit = under_way(good(), unknown, findings=(alarm("non-finite"),))
    audit.classify()
    assert audit.verdict == "incoherent"


def _defects(audit: _Audit) -> list[str]:
    audit.classify()
    return [finding.where for finding in audit.findings if finding.kind == "defect"]


def test_a_defect_of_all_tensors_is_told_where_no_argument_has_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "straight_through", lambda line: None)
    assert _defects(under_way(bad("x"), bad("all tensors"), bad("y"))) == ["x", "y"]
    assert _defects(under_way(good("x"), bad("all tensors"))) == ["all tensors"]
    assert _defects(under_way(bad("x"), good("all tensors"))) == ["x"]


def test_orders_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "straight_through", lambda line: None)
    for order, kind in ((1, "defect"), (2, "second-order")):
        audit = under_way(good(), bad(order=order))
        audit.classify()
        assert [finding.kind for finding in audit.findings if finding.severity == "alarm"] == [kind]
        assert audit.verdict == "incoherent"


STEPS = StraightThrough((1.0, 8.0), (0.9, 0.01), Event("jump", 0.5, 1e-6, 1.0))


@pytest.mark.parametrize(
    ("observations", "options", "complete", "like"),
    [
        ((bad(),), {}, True, True),
        ((bad(middle=0.25),), {}, True, False),  # beside a state
        ((bad(),), {}, False, False),  # the callable may not be called any more
        ((bad(middle=0.25),), {}, False, False),
        ((bad(),), {"tolerance": 0.9}, True, False),
        ((bad(order=2),), {}, True, False),
        ((bad(defect=0.25, middle=0.25), bad(defect=0.5)), {}, True, True),  # the worst one counts
        ((bad(defect=0.25), bad(defect=0.5, middle=0.25)), {}, True, False),
    ],
)
def test_a_defect_at_a_state_is_asked_whether_it_is_a_straight_through_estimator(
    monkeypatch: pytest.MonkeyPatch, observations: tuple[Observation, ...], options: dict[str, Any], complete: bool, like: bool
) -> None:
    monkeypatch.setattr(module, "straight_through", lambda line: STEPS)
    audit = under_way(good(), *observations, **options)
    audit.complete = complete
    audit.classify()
    assert (audit.verdict == "straight-through-like") is like
    assert (audit.straight is STEPS) is like
    assert any(finding.kind == "straight-through" for finding in audit.findings) is like


def test_a_backward_that_is_not_repeatable_is_no_straight_through_estimator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "straight_through", lambda line: STEPS)
    audit = under_way(bad(), findings=(alarm("edits"),))
    audit.classify()
    assert audit.verdict == "not-reentrant"
    monkeypatch.setattr(module, "straight_through", lambda line: StraightThrough((), (), None))
    audit = under_way(bad())
    audit.classify()
    assert audit.verdict == "incoherent"


@pytest.mark.parametrize(
    ("fn", "value"),
    [
        (lambda x: x.sum(), "the value"),
        (torch.sin, "a random combination of the outputs"),
        (lambda x: (x.sum(), x.prod()), "a random combination of the outputs"),
    ],
)
def test_what_leaps_is_the_value_if_it_is_one_number(monkeypatch: pytest.MonkeyPatch, fn: Any, value: str) -> None:
    said = []
    monkeypatch.setattr(module, "event_findings", lambda *arguments: (said.append(arguments[-1]), [])[1])
    under_way(good(), fn=fn).classify()
    assert said == [value]


# Second derivatives -----------------------------------------------------------------------------------------------------


def _second(monkeypatch: pytest.MonkeyPatch, audit: _Audit, answer: Any) -> list[str]:
    """Texts of the findings, and "looked" if the second backward was looked at."""

    def raises(*_: Any) -> str:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module, "second_backward_raises", raises)
    monkeypatch.setattr(module, "observe_second", lambda *_: [good("looked", order=2)])
    audit.second_order()
    return [finding.text for finding in audit.findings] + [o.argument for o in audit.observations if o.order == 2]


@pytest.mark.parametrize("answer", ["no second", RuntimeError("no second\nwhat to do"), NotImplementedError("no second\nx\ny")], ids=repr)
def test_a_second_backward_that_raises_is_a_note(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    text = "second derivatives raise instead of being wrong silently: no second"
    assert _second(monkeypatch, under_way(good()), answer) == [text]


def test_a_second_backward_is_looked_at_where_the_first_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _second(monkeypatch, under_way(good()), "") == ["looked"]
    assert _second(monkeypatch, under_way(good(), bad()), "") == []
    assert _second(monkeypatch, under_way(good(), fn=lambda x: x.detach()), "") == []
    with pytest.raises(KeyError):
        _second(monkeypatch, under_way(good()), KeyError("other"))


# Where it looks ---------------------------------------------------------------------------------------------------------


def _looks(monkeypatch: pytest.MonkeyPatch, domain: dict[int, Any], x: Any, **options: Any) -> tuple[list[Any], list[Any]]:
    """Of each drawn state its name and lines, and of each scan its edges, middle of two and tensors at its ends."""
    states: list[Any] = []
    scans: list[Any] = []

    def observe(subject: Any, state: Any, name: str, effort: Any, generator: Any) -> list[Observation]:
        states.append((name, effort.relative, effort.even))
        return []

    def scan(line: Any, edges: list[float], between: Any) -> Any:
        scans.append((edges, between(1.0, 4.0), [[t.tolist() for t in line.path.point(e)] for e in (edges[0], edges[-1])], line.unit(8.0)))
        return SimpleNamespace(readings=(), regions=())

    monkeypatch.setattr(module, "observe", observe)
    monkeypatch.setattr(module, "scan", scan)
    audit = under_way(x=x, fn=lambda *x: sum(part.sum() for part in x), **options)
    audit.domain(domain)
    assert audit.scans == []
    return states, scans


def test_states_of_the_domain_get_one_line_for_each_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    states, _ = _looks(monkeypatch, {0: Box(0, 1)}, X)
    assert states == [(f"state {i} of the domain", 1, 0) for i in range(EFFORTS["quick"].states)]
    assert _looks(monkeypatch, {}, X) == ([], [])


def test_an_interval_is_scanned_from_end_to_end_with_all_elements_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = torch.tensor(0.5, dtype=torch.float64), torch.tensor([3.0, 3.0], dtype=torch.float64)
    _, ((edges, middle, ends, unit),) = _looks(monkeypatch, {0: LogRange(1, 16)}, (one, other))
    assert (edges[0], edges[-1], len(edges)) == (1.0, 16.0, EFFORTS["quick"].tiles + 1)
    assert middle == 2.0
    assert ends == [[1.0, [3.0, 3.0]], [16.0, [3.0, 3.0]]]
    assert unit == 8.0  # t is the argument


@pytest.mark.parametrize(
    ("x", "domain", "sweeps"), [((1,), (0,), 0), ((2,), (0,), 1), ((1, 1), (0,), 0), ((1, 1), (0, 1), 1), ((1, 2), (1,), 1)]
)
def test_several_coordinates_are_swept_at_once(monkeypatch: pytest.MonkeyPatch, x: Any, domain: Any, sweeps: int) -> None:
    tensors = tuple(torch.ones(n, dtype=torch.float64) for n in x)
    _, scans = _looks(monkeypatch, {place: Box(0, 4) for place in domain}, tensors)
    swept = scans[len(domain) :]
    assert len(swept) == sweeps
    for edges, _, (low, high), unit in swept:
        assert (edges[0], edges[-1], unit) == (-1.0, 1.0, 1.0)
        for place, n in enumerate(x):
            ends = [sorted(pair) for pair in zip(low[place], high[place], strict=True)]
            assert ends == [[0.0, 4.0] if place in domain else [1.0, 1.0]] * n


def test_the_number_of_sweeps_is_that_of_the_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    _, scans = _looks(monkeypatch, {0: Box(0, 1)}, X, effort="thorough")
    assert len(scans) == 1 + EFFORTS["thorough"].sweeps


@pytest.mark.parametrize(("verdict", "kept"), [("coherent", True), ("incoherent", True), ("outside", False), ("unresolved", False)])
def test_a_scan_that_tells_nothing_is_left_out(monkeypatch: pytest.MonkeyPatch, verdict: str, kept: bool) -> None:
    readings = (seen("outside").reading, seen(verdict, middle=0.25).reading)
    monkeypatch.setattr(module, "scan", lambda *_: SimpleNamespace(readings=readings, regions=("region",)))
    monkeypatch.setattr(module, "observe", lambda *_: [])
    audit = under_way()
    audit.domain({0: Box(-1, 3)})
    assert audit.regions == ({"input 0": ("region",)} if kept else {})
    assert [name for name, _, _ in audit.scans] == (["input 0", module.TOGETHER] if kept else [])
    places = ["input 0 = 0", "input 0 = 0.25", "sweep 0 of the domain, t = 0", "sweep 0 of the domain, t = 0.25"]
    assert [(o.state, o.scale) for o in audit.observations] == (list(zip(places, [1.0, 1.0, None, None], strict=True)) if kept else [])


# Progress ---------------------------------------------------------------------------------------------------------------


def test_progress_is_told_at_each_stage_and_ten_times_a_second(clock: Clock) -> None:
    told: list[tuple[str, int, float]] = []
    audit = under_way(progress=lambda now: told.append((now.stage, now.step, now.seconds)))
    for clock.now in (0.05, 0.1, 0.15, 0.25, 0.4):
        audit.subject.outputs_at(audit.subject.tensors)
    assert told == [("repeating calls", 0, 0.6), ("repeating calls", 0, 0.75), ("repeating calls", 0, 0.9)]  # it began at -0.5
    audit.structure()
    audit.second_order()
    assert [(stage, step) for stage, step, _ in told[3:]] == [("repeating calls", 0), ("looking at second derivatives", 3)]


def test_each_stage_is_told_of_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int]] = []
    for name in ("structural_findings", "observe", "draw_states", "nodes"):
        monkeypatch.setattr(module, name, lambda *_: [])
    monkeypatch.setattr(module, "scan", lambda *_: SimpleNamespace(readings=(), regions=()))
    monkeypatch.setattr(module, "slope_picture", lambda *_: None)
    audit = under_way(good(), progress=lambda now: told.append((now.stage, now.step)))
    audit.structure()
    audit.inputs()
    audit.domain({0: Box(0, 1)})
    _second(monkeypatch, audit, "no second")
    audit.verdict = Verdict.STRAIGHT_THROUGH
    audit.observations.append(bad())
    audit.consequences()
    stages = ["repeating calls", "looking at the inputs", "looking over the domain", "looking at second derivatives", "looking for causes"]
    assert list(dict.fromkeys(told)) == [(stage, i) for i, stage in enumerate(stages)]


def test_progress_does_not_show_the_audit_behind_it() -> None:
    shown = []
    under_way(progress=lambda now: shown.append(repr(now))).structure()
    assert "_audit" not in shown[0]
    assert "stage='repeating calls', step=0, steps=5" in shown[0]


def test_half_an_audit_is_no_pass_and_leaves_the_audit_as_it_is() -> None:
    for seen_so_far, verdict in (((good(),), "inconclusive"), ((good(), bad()), "incoherent")):
        audit = under_way(*seen_so_far)
        report = audit.so_far()
        assert (report.verdict, report.complete, report.passed) == (verdict, False, False)
        assert report.findings[-1 if verdict == "inconclusive" else 1].text.startswith("stopped while repeating calls")
        assert (audit.verdict, audit.findings, audit.complete) == (None, [], True)


def test_a_verdict_that_stands_is_not_made_again_for_half_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    audit = under_way(good())
    audit.verdict = Verdict.JUMP
    assert audit.so_far().verdict == "jump"
    audit.verdict = Verdict.KINK
    assert audit.so_far().verdict == "inconclusive"


def test_errors_of_repeated_calls_get_a_note() -> None:
    calls = itertools.count()

    def fn(x: torch.Tensor) -> torch.Tensor:
        if next(calls) > 1:
            raise KeyError("third call")
        return x * 2

    with pytest.raises(KeyError) as caught:
        pg.audit(fn, X)
    assert caught.value.__notes__ == ["raised by fn or its backward at the inputs given to pairgrad.audit"]


# Consequences -----------------------------------------------------------------------------------------------------------

CONSISTENT = Consistent((), (), "forward", 0.0)


def _followed(monkeypatch: pytest.MonkeyPatch, audit: _Audit, consistent: Any = CONSISTENT, slope: Any = None) -> list[str]:
    """Which consequences are looked at."""
    asked: list[str] = []

    def answer(name: str, result: Any) -> Any:
        return lambda *arguments, **_: (asked.append(name), result)[1]

    def nodes(subject: Any, worst: Observation, audit_node: Any) -> list[Any]:
        asked.append(f"nodes of {worst.argument}, order {worst.order}")
        return []

    def consistent_gradient(subject: Any, worst: Observation) -> Any:
        asked.append(f"consistent at {worst.argument}")
        return consistent

    monkeypatch.setattr(module, "nodes", nodes)
    monkeypatch.setattr(module, "consistent_gradient", consistent_gradient)
    monkeypatch.setattr(module, "slope_picture", answer("slope picture", slope))
    for name in ("scaling", "field", "fork"):
        monkeypatch.setattr(module, f"{name}_findings", answer(name, [alarm(name, "note")]))
    monkeypatch.setattr(module, "field_picture", answer("field picture", "drawn"))
    audit.consequences()
    return asked


def _decided(*observations: Observation, verdict: Verdict = Verdict.INCOHERENT) -> _Audit:
    audit = under_way(*observations)
    audit.verdict = verdict
    return audit


def test_all_consequences_of_a_defect_at_the_inputs_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    audit = _decided(bad("y", defect=0.25), bad("x", defect=0.5), bad("z", defect=0.9, state="elsewhere"))
    everything = ["nodes of z, order 1", "slope picture", "consistent at x", "scaling", "field", "fork", "field picture"]
    assert _followed(monkeypatch, audit) == everything
    assert [finding.kind for finding in audit.findings] == ["scaling", "field", "fork"]
    assert audit.picture == "drawn"


def test_without_a_differentiated_forward_nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Consistent((), (), "differences", 0.0)
    assert _followed(monkeypatch, _decided(bad()), measured)[2:] == ["consistent at x", "scaling", "field", "field picture"]
    assert _followed(monkeypatch, _decided(bad()), None)[2:] == ["consistent at x", "field", "field picture"]


def test_one_picture_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    audit = _decided(bad())
    assert "field picture" not in _followed(monkeypatch, audit, slope="slopes")
    assert audit.picture == "slopes"


def test_a_defect_elsewhere_or_of_second_order_or_of_steps_is_traced_to_its_node_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _followed(monkeypatch, _decided(bad(state="elsewhere"))) == ["nodes of x, order 1", "slope picture"]
    assert _followed(monkeypatch, _decided(good(), bad(order=2))) == ["nodes of x, order 2", "slope picture"]
    assert _followed(monkeypatch, _decided(bad(), verdict=Verdict.STRAIGHT_THROUGH)) == ["nodes of x, order 1", "slope picture"]


def test_nothing_follows_where_nothing_is_wrong_or_it_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _followed(monkeypatch, _decided(good())) == []
    assert _followed(monkeypatch, _decided(bad(), verdict=Verdict.KINK)) == []


def test_a_node_is_audited_quickly_in_the_order_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(module, "audit", lambda *arguments, **options: asked.append((arguments, options)))
    for observations, second in (((bad(),), False), ((good(), bad(order=2)), True)):
        under_way(*observations)._audit_node(torch.sin, (X,), "gradient-cap")
        options = {"effort": "quick", "second_order": second, "consequences": False, "intent": "gradient-cap", "seed": 7}
        assert asked.pop() == ((torch.sin, (X,)), options)


# The report -------------------------------------------------------------------------------------------------------------


def _reported(audit: _Audit, verdict: Verdict = Verdict.INCOHERENT) -> Report:
    audit.verdict = verdict
    return audit.report()


def test_numbers_of_a_report_are_those_of_its_observations(clock: Clock) -> None:
    """Segments of half-length 1/2 and slope 1, with an allowance of 1e-6: the defect is known to 2e-6 of the supplied 1.5. Two observations share a line."""
    twice = SimpleNamespace(panels=3)
    first, second = good("y", line=twice, state="a"), good("z", line=twice, state="b")
    audit = under_way(first, second, bad("x", 0.5, line=SimpleNamespace(panels=4)), bad("w", 0.25), bad("v", 0.75, order=2))
    clock.now = 2.5
    report = _reported(audit)
    assert report.defect == pytest.approx(0.5 / 1.5, rel=1e-12)
    assert report.defect_error == pytest.approx(2e-6 / 1.5, rel=1e-12)
    assert report.tests == DEGREE * (3 + 4 + 1 + 1)
    assert report.false_alarm_rate == FALSE_ALARM_RATE
    assert (report.evaluations, report.seconds, report.seed, report.effort, report.dtype) == (1, 3.0, 7, "quick", "float64")
    assert [state.argument for state in report.states] == ["y", "z", "x", "w", "v"]
    assert not report.passed


def test_a_report_of_second_order_has_the_defect_of_second_order() -> None:
    assert _reported(under_way(good(), bad("v", 0.75, order=2))).defect == pytest.approx(0.75 / 1.75, rel=1e-12)


def test_a_report_without_a_defect() -> None:
    report = _reported(under_way(good()), Verdict.COHERENT)
    assert (report.defect, report.defect_error, report.passed) == (0.0, 0.0, True)
    assert report.limit == report.typical_limit < math.inf
    empty = _reported(under_way(), Verdict.INCONCLUSIVE)
    assert (empty.limit, empty.typical_limit, empty.tests) == (math.inf, math.inf, 0)


def test_limits_are_the_largest_and_the_median() -> None:
    limits = (1e-3, 1e-6, 1e-5)
    seen_at = [seen("coherent", state=str(a), panel=panel_of(allowance=a / 2), allowance=a, line=SimpleNamespace(panels=1)) for a in limits]
    report = _reported(under_way(*seen_at), Verdict.COHERENT)
    assert report.limit == pytest.approx(1e-3, rel=0.5)
    assert report.typical_limit == pytest.approx(1e-5, rel=0.5)


def test_more_tests_than_the_rate_is_for_raise_the_rate() -> None:
    many = good(line=SimpleNamespace(panels=2 * TESTS))
    assert _reported(under_way(many)).false_alarm_rate == pytest.approx(2 * DEGREE * FALSE_ALARM_RATE, rel=1e-12)
    some = good(line=SimpleNamespace(panels=TESTS // 4))
    assert _reported(under_way(some)).false_alarm_rate == FALSE_ALARM_RATE


def test_findings_are_told_gravest_first_and_else_in_their_order() -> None:
    severities = ("note", "warning", "alarm", "note", "alarm", "warning")
    told = _reported(under_way(findings=tuple(Finding(str(i), s, "") for i, s in enumerate(severities)))).findings
    assert [finding.kind for finding in told] == ["2", "4", "1", "5", "0", "3"]


Declared = pg.intended("straight-through")(type("Declared", (Round,), {}))
Capped = pg.intended("gradient-cap")(type("Capped", (sine_with(lambda x: 0.5),), {}))
PASSED, FAILED = (Report("n", Verdict.INCOHERENT, passed, None, 0.0, 0.0, 0.0, 0.0, (), ()) for passed in (True, False))


def _node(function: Any, *reports: Report) -> NodeVerdict:
    return NodeVerdict(Visit(function, function.__name__, None, (), (), ()), reports)


@pytest.mark.parametrize(
    ("nodes", "alarms", "intent"),
    [
        ((_node(Declared, PASSED),), ("defect",), "straight-through"),
        ((_node(Declared, PASSED), _node(Capped, PASSED)), ("defect", "no-gradient"), "straight-through"),
        ((_node(Round, PASSED), _node(Capped, PASSED)), ("defect",), "gradient-cap"),
        ((_node(Round, FAILED), _node(Declared, PASSED)), ("defect",), None),
        ((_node(Declared, FAILED),), ("defect",), None),
        ((_node(Round, PASSED),), ("defect",), None),
        ((), ("defect",), None),
        ((_node(Declared, PASSED),), ("defect", "edits"), None),
        ((_node(Declared, PASSED),), (), None),
    ],
)
def test_declared_nodes_pass_for_the_whole_if_nothing_else_is_wrong(nodes: Any, alarms: tuple[str, ...], intent: str | None) -> None:
    audit = under_way(bad(), findings=tuple(alarm(kind) for kind in alarms))
    audit.nodes = list(nodes)
    report = _reported(audit)
    assert (report.intent, report.passed) == (intent, intent is not None)
    told = [finding for finding in report.findings if finding.kind == "intent"]
    assert len(told) == (1 if intent else 0)
    if intent:
        names = [f"{node.visit.name} ({node.declared})" for node in nodes if node.declared]
        assert told[0].text.startswith(f"declared inside: {', '.join(names)};")
        assert told[0].severity == "note"


@pytest.mark.parametrize("accepted", [True, False])
def test_an_intent_of_its_own_goes_first_and_is_weighed(monkeypatch: pytest.MonkeyPatch, accepted: bool) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(module, "excused", lambda *arguments, **facts: (asked.append((arguments, facts)), (accepted, "because"))[1])
    audit = under_way(bad(), findings=(alarm("defect"), alarm("jump", "warning")), intent="gradient-cap")
    audit.nodes, audit.straight = [_node(Declared, PASSED)], STEPS
    report = _reported(audit)
    ((intent, alarms, subject, observations), facts) = asked.pop()
    assert (intent, [finding.kind for finding in alarms], subject, observations) == (
        "gradient-cap", ["defect"], audit.subject, audit.observations,
    )  # fmt: skip
    assert facts == {"verdict": Verdict.INCOHERENT, "straight": STEPS, "complete": True}
    assert (report.intent, report.passed) == ("gradient-cap", accepted)
    (told,) = [finding for finding in report.findings if finding.kind == "intent"]
    assert (told.text, told.severity) == ("because", "note" if accepted else "warning")


def test_an_intent_is_not_weighed_where_there_is_no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "excused", None)
    report = _reported(under_way(good(), intent="gradient-cap"), Verdict.COHERENT)
    assert (report.intent, report.passed) == ("gradient-cap", True)
    assert report.findings == ()
