"""What an audit hands back: progress on the way, a report of half an audit, curves, and data that can be read again."""

import dataclasses
import inspect
import json
import math
import re

import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import Finding, NodeReport, Report, RunReport, Verdict
from pairgrad.coherence.judge.verdict import Judgement
from pairgrad.coherence.report.report import ArgumentGradient
from tests.coherence.functions import Round, sine_with

X = torch.tensor([0.4, -1.1, 0.9], dtype=torch.float64)


def off_by(factor):
    return sine_with(lambda x: factor).apply


class Stop(Exception):
    pass


def stopped_at(stage, fn, **options):
    """The report of an audit that is stopped when it comes to a stage."""
    seen = []

    def progress(now):
        seen.append(now)
        if now.stage == stage:
            raise Stop

    with pytest.raises(Stop):
        pg.audit(fn, X, progress=progress, **options)
    return seen[-1].report()


def test_progress_goes_through_the_stages():
    seen = []
    report = pg.audit(lambda x: off_by(1.001)(x).sum(), X, domain=(-2, 2), effort="quick", progress=seen.append)
    stages = list(dict.fromkeys(now.stage for now in seen))
    assert stages == [
        "repeating calls",
        "looking at the inputs",
        "looking over the domain",
        "looking at second derivatives",
        "trying forward mode and vmap",
        "looking for causes",
    ]
    assert [now.step for now in seen] == sorted(now.step for now in seen)
    assert {now.steps for now in seen} == {6}
    assert [now.calls for now in seen] == sorted(now.calls for now in seen)
    assert seen[-1].calls <= report.evaluations
    assert seen[-1].seconds <= report.seconds


def test_progress_changes_nothing_in_the_report():
    plain = pg.audit(torch.sin, X, effort="quick").to_dict()
    watched = pg.audit(torch.sin, X, effort="quick", progress=lambda now: None).to_dict()
    assert plain.pop("seconds") != watched.pop("seconds")
    assert plain == watched


def test_half_an_audit_of_a_right_function_is_inconclusive():
    report = stopped_at("looking at second derivatives", torch.sin)
    assert report.complete is False
    assert report.verdict == "inconclusive"
    assert not report.passed
    assert any("stopped while looking at second derivatives" in finding.text for finding in report.findings)
    assert report.states  # what was looked at is there
    assert all(state.verdict == "coherent" for state in report.states)


def test_half_an_audit_keeps_what_was_found():
    report = stopped_at("looking for causes", off_by(1.001))
    assert report.verdict == "incoherent"
    assert report.defect == pytest.approx(1e-3, rel=1e-2)
    assert report.curves


def test_an_interruption_in_the_middle_of_a_state_keeps_its_lines():
    lines = []

    def progress(now):
        lines.append(now)
        if len(now.report().states) == 2:
            raise Stop

    with pytest.raises(Stop):
        pg.audit(_slow_sine, X, progress=progress, effort="thorough")
    assert len(lines[-1].report().states) == 2


def _slow_sine(x):
    import time

    time.sleep(0.004)  # so that progress is told of between two lines
    return torch.sin(x)


def test_the_callable_is_not_called_for_half_a_report():
    calls = []

    def counted(x):
        calls.append(x)
        return Round.apply(x)  # a straight-through estimator takes further calls to be told from a defect

    seen = []

    def progress(now):
        seen.append(now)
        if now.stage == "looking for causes":
            raise Stop

    with pytest.raises(Stop):
        pg.audit(counted, X, progress=progress)
    before = len(calls)
    seen[1].report()
    seen[-1].report()
    assert len(calls) == before


def test_half_an_audit_does_not_excuse_what_is_declared():
    report = stopped_at("looking for causes", off_by(0.9), intent="gradient-cap")
    assert not report.passed
    assert pg.audit(off_by(0.9), X, intent="gradient-cap").passed


def test_curves_show_value_and_work():
    report = pg.audit(off_by(1.01), X)
    (curve, *_) = report.curves
    assert curve.verdict == "incoherent"
    assert len(curve.t) == len(curve.value) == len(curve.work) == 17
    middle = len(curve.t) // 2
    assert curve.value[middle] == curve.work[middle] == 0
    assert curve.work[-1] == pytest.approx(1.01 * curve.value[-1], rel=1e-9)
    assert abs(curve.value[-1] - curve.work[-1]) > 100 * curve.allowance
    good = pg.audit(torch.sin, X).curves[0]
    assert good.verdict == "coherent"
    assert max(abs(v - w) for v, w in zip(good.value, good.work, strict=True)) < 4 * good.allowance


def test_scans_say_where_they_are():
    report = pg.audit(torch.sin, X, domain=(-2, 2), effort="quick")
    places = [state.at for state in report.states if state.at is not None]
    assert len(places) >= 32
    assert all(-2 <= place <= 2 for place in places)
    assert all(f"= {state.at:.6g}" in state.state for state in report.states if state.at is not None)


@pytest.mark.parametrize(
    "made",
    [
        lambda: pg.audit(torch.sin, X, domain=(-2, 2), effort="quick"),
        lambda: pg.audit(lambda x: off_by(1.001)(x).sum(), X),
        lambda: pg.audit(Round.apply, X),
        lambda: pg.audit(lambda x: x.round() * 0, X, effort="quick"),
        lambda: stopped_at("looking at the inputs", torch.sin),
    ],
    ids=["domain", "incoherent", "straight-through", "nothing to tell", "stopped"],
)
def test_data_can_be_read_again(made):
    report = made()
    again = Report.from_dict(json.loads(report.to_json()))
    assert again == report
    assert again.to_dict() == report.to_dict()
    assert str(again) == str(report)
    assert again.explain() == report.explain()


def test_data_of_something_else_is_refused():
    with pytest.raises(ValueError, match=r"data must be a report of schema 'pairgrad.audit/2', as Report.to_dict makes it, got 'x'"):
        Report.from_dict({"schema": "x"})
    with pytest.raises(ValueError, match="got None"):
        Report.from_dict([])


def test_efforts_for_one_glance_and_for_whole_models():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    whole = pg.audit(model, X, effort="whole", second_order=False)
    assert whole.verdict == "coherent"
    assert len(whole.states) == 2  # lines that move all five tensors
    glance = pg.audit(model, X, effort="glance", second_order=False)
    assert len({state.argument for state in glance.states}) == 6  # each tensor, and all of them
    assert glance.evaluations < pg.audit(model, X, effort="quick", second_order=False).evaluations
    broken = pg.audit(lambda x, y: off_by(1.001)(x) * y, (X, X), effort="whole", second_order=False, consequences=False)
    assert broken.verdict == "incoherent"


# The first lines


class Shift(torch.autograd.Function):
    """x w for a batch x, whose backward takes the mean over the batch where the sum belongs."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        return grad_output * w, (grad_output * x).mean(0)


BATCH = torch.arange(1.0, 16.0, dtype=torch.float64).sin().reshape(5, 3)


def test_a_failing_report_begins_with_what_a_person_needs():
    report = pg.audit(Shift.apply, (BATCH, X), effort="quick")
    title, wrong, checks, element, hint, empty, *rest = str(report).splitlines()
    line = inspect.getsourcelines(Shift.backward)[1]
    assert re.fullmatch(rf"FAIL Shift\.backward  \S*test_report\.py:{line}", title)
    assert wrong == "gradient of input 1 (argument 2) is 0.2 x the true one"
    assert checks == "first order WRONG, second not judged, re-entrant yes, layouts yes"
    at, supplied, true = re.fullmatch(r"at input 1\[(\d)\]: supplied (\S+), true (\S+)", element).groups()
    assert int(at) < 3
    assert float(supplied) == pytest.approx(0.2 * float(true), rel=1e-2)
    assert hint == "hint: the ratio is 1/5, the batch size: mean instead of sum?"
    assert empty == ""
    assert rest[0].startswith("Shift.apply: incoherent, by 0.8 of the gradient")
    assert re.search(r"\d+ of \d+ directions resolved; \d+ calls in ", rest[-1])
    assert report.summary.splitlines() == [title, wrong, checks, element, hint] == report.to_dict()["summary"]
    assert report.explain().startswith(title)


def test_a_passing_report_says_to_which_limit_and_at_which_distances():
    report = pg.audit(torch.sin, X, effort="quick")
    near, far = report.scales
    assert report.summary.splitlines() == [
        "PASS sin",
        f"{report.headline}, at distances of {near:.1g} to {far:.2g} of the size of the inputs",
        "first order right, second right, re-entrant yes, layouts yes",
    ]


def test_a_declared_report_says_so_first():
    report = pg.audit(Round.apply, X, intent="straight-through", effort="quick")
    assert report.summary.startswith("PASS (declared: straight-through) Round.apply\n")


def test_an_undecided_report_says_why():
    title, why, *_ = pg.audit(lambda x: x.round() * 0, X, effort="quick").summary.splitlines()
    assert title == "UNDECIDED <lambda>"
    assert "neither the value nor the gradient depends on it" in why


def made_of(*gradients, relative=0.5, verdict=Verdict.INCOHERENT, **fields):
    judgement = Judgement(verdict, relative, 1e-9, "what was found in words")
    return Report("f", verdict, False, None, 1e-12, 1e-12, 0.5, 1e-9, (), (), verdicts=(judgement,), gradients=gradients, **fields)


@pytest.mark.parametrize(
    ("relative", "error", "factor", "words"),
    [
        (0.35, 0.01, 1.02, "off by 0.35 of the true one (± 0.01)"),
        (1e-6, 1e-12, 1.000001, "1.000001 x the true one"),
        (65535.0, 1e-9, 65536.0, "65536 x the true one"),
        (2.0, 1e-12, -1.0, "-1 x the true one"),
        (1.0, 1e-12, 0.0, "zero, where the true one is not"),
        (math.inf, 0.0, math.nan, "not zero, where the true one is"),
        (1e-4, 1e-9, 1.0, "off by 0.0001 of the true one (± 1e-09)"),  # across the true one: not a multiple of it
    ],
)
def test_how_far_a_gradient_is_off(relative, error, factor, words):
    gradient = ArgumentGradient("w", relative, error, factor, (0, 2), 1.0, 1.0 + 1e-7, "coordinates")
    right = ArgumentGradient("x", 0.0, 1e-12, 1.0, (0,), 1.0, 1.0, "coordinates")
    _, wrong, element = made_of(right, gradient, relative=relative).summary.splitlines()
    assert wrong == f"gradient of w is {words}"
    assert element == "at w[0, 2]: supplied 1, true 1.0000001"


def test_what_is_graver_elsewhere_comes_first():
    gradient = ArgumentGradient("w", 0.01, 1e-9, 1.01, (), math.nan, math.nan, "directions")
    assert made_of(gradient, relative=0.9).summary.splitlines() == ["FAIL f", "what was found in words"]
    assert made_of(gradient, relative=0.01).summary.splitlines() == ["FAIL f", "gradient of w is 1.01 x the true one"]
    second = made_of(gradient, verdict=Verdict.SECOND_ORDER, checks={"first order": "right", "second order": "wrong", "linear": "no"})
    assert second.summary.splitlines()[1:] == ["what was found in words", "first order right, second WRONG, linear NO"]


def test_every_verdict_and_what_was_left_out_are_named():
    both = (Judgement(Verdict.INCOHERENT, 1.2, 1e-3), Judgement(Verdict.NOT_REENTRANT, excused=True))
    text = str(dataclasses.replace(made_of(), verdicts=both, left_out=("second order: time was up",)))
    assert "All verdicts: incoherent by 1.2 (± 0.001); not-reentrant as declared" in text
    assert "not looked at: second order: time was up" in text


def test_words_are_explained_where_they_are_used():
    text = made_of().explain()
    assert "limit: the smallest defect that would have been seen" in " ".join(text.split())
    assert "cotangent:" not in text
    used = Finding("not-linear", "alarm", "the backward is not linear in grad_output")
    assert "cotangent: what a backward receives" in " ".join(dataclasses.replace(made_of(), findings=(used,)).explain().split())


def test_numbers_that_are_not_finite_are_read_again():
    gradient = ArgumentGradient("w", math.inf, 0.0, math.nan, (1,), 1.0, 0.0, "coordinates")
    report = dataclasses.replace(
        made_of(gradient), findings=(Finding("defect", "alarm", "off", "w", {"relative": math.inf}),), checks={"linear": "no"}
    )
    again = Report.from_dict(json.loads(report.to_json()))
    assert again == report
    assert isinstance(again.verdicts[0], Judgement)
    assert again.verdicts[0].verdict is Verdict.INCOHERENT
    assert math.isnan(again.gradients[0].factor)
    assert again.findings[0].numbers["relative"] == math.inf
    assert all(map(math.isnan, again.scales))


def test_a_domain_is_named_by_its_regions():
    clamped = sine_with(lambda x: torch.where(x.abs() > 1, 1.01, 1.0))
    report = pg.audit(clamped.apply, torch.tensor(0.5, dtype=torch.float64), domain=(-2, 0.8), effort="quick", second_order=False)
    _, wrong, *_ = report.summary.splitlines()
    assert wrong.startswith("gradient of input 0 (argument 1) is off from -2 to -1, by up to 0.01 of the true one (± ")


def node_of(name, verdict, worst, passed=False):
    return NodeReport(name, "a.py:3", verdict, passed, None, 9, 4, 0 if passed else 2, 0.5, 0.1, 0.9, 0.25, 1e-9, None, (), worst)


def test_a_run_counts_every_function_that_fails_and_says_what_is_wrong_with_it():
    gradient = ArgumentGradient("w", 0.8, 1e-9, 0.2, (0,), 0.31, 1.55, "coordinates")
    worst = made_of(gradient, hint="the ratio is 1/5, the batch size: mean instead of sum?")
    jumping = made_of(verdict=Verdict.JUMP)
    fine = node_of("Fine", Verdict.COHERENT, dataclasses.replace(worst, passed=True), passed=True)
    dim = node_of("Dim", Verdict.INCONCLUSIVE, made_of(verdict=Verdict.INCONCLUSIVE))
    nodes = (node_of("Mean", Verdict.INCOHERENT, worst), node_of("Step", Verdict.JUMP, jumping), dim, fine)
    run = RunReport(Verdict.INCOHERENT, False, nodes, None, "", 3)
    assert run.headline == "incoherent: Mean; jump: Step (2 of 4 custom backwards)"
    lines = [line.strip() for line in str(run).splitlines()]
    start = lines.index(next(line for line in lines if line.startswith("1. Mean (a.py:3): incoherent")))
    assert lines[start + 1 : start + 4] == [
        "gradient of w is 0.2 x the true one",
        "at w[0]: supplied 0.31, true 1.55",
        "hint: the ratio is 1/5, the batch size: mean instead of sum?",
    ]
    assert "At the worst state: gradient of w is 0.2 x the true one;" in " ".join(run.explain().split())
    assert lines[-1].startswith("4. Fine (a.py:3): "), "nothing more is said of what passes"
    loss = dataclasses.replace(run, nodes=nodes[1:], loss=made_of())
    assert loss.headline == "incoherent: the loss; jump: Step (1 of 3 custom backwards)"
    undecided = RunReport(Verdict.INCONCLUSIVE, False, (dim, fine), None, "", 3)
    assert undecided.headline == "inconclusive: Dim (1 of 2 custom backwards)"
