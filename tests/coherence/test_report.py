"""What an audit hands back: progress on the way, a report of half an audit, curves, and data that can be read again."""

import json

import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import Report
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
    assert stages == ["repeating calls", "looking at the inputs", "looking over the domain", "looking for causes"]
    assert [now.step for now in seen] == sorted(now.step for now in seen)
    assert {now.steps for now in seen} == {5}
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
    assert again == report or report.limit != report.limit
    assert again.to_dict() == report.to_dict()
    assert str(again) == str(report)
    assert again.explain() == report.explain()


def test_data_of_something_else_is_refused():
    with pytest.raises(ValueError, match=r"data must be a report of schema 'pairgrad.audit/1', as Report.to_dict makes it, got 'x'"):
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
