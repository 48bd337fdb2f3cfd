"""Auditing a recorded run: what is said of its functions and of its loss."""

import json
import math

import pytest
import torch
from torch.autograd import Function

import pairgrad as pg
from pairgrad.coherence import RunReport
from tests.coherence.training import Capped, Direction, Net, Opaque, Quarters, linear_steps, same, train


@pytest.fixture(scope="module")
def story():
    torch.manual_seed(0)
    plain = train()
    with pg.record() as recording:
        recorded = train()
    return plain, recorded, recording, recording.audit(seconds=None)


def test_the_run_keeps_its_bits(story):
    plain, recorded, _, _ = story
    assert same(plain, recorded)


def test_the_broken_ones_are_named_and_the_others_cleared(story):
    report = story[3]
    nodes = {node.name: node for node in report.nodes}
    assert {name for name, node in nodes.items() if not node.passed} == {"Capped", "Direction"}
    assert [node.name for node in report.nodes[:2]] == sorted(
        ("Capped", "Direction"), key=lambda n: -nodes[n].contribution * nodes[n].defect
    )
    assert not report.passed
    assert report.verdict == "incoherent"
    assert nodes["Quarters"].intent == "straight-through"
    assert nodes["Opaque"].verdict == "coherent"
    assert nodes["Opaque"].worst.limit < 1e-3
    assert report.backwards == 60
    assert {node.visits for node in report.nodes} == {60}


def test_the_share_of_visited_states_is_that_of_the_run(story):
    """Counted exactly, by asking at every step whether a length is above 2.2."""
    wrong = []

    class Counting(Direction):
        @classmethod
        def backward(cls, ctx, grad_output):
            wrong.append(bool((ctx.saved_tensors[1] > 2.2).any()))
            return super().backward(ctx, grad_output)

    class Counted(Net):
        def forward(self, x):
            x = Opaque.apply(self.dropout(Capped.apply(0.6 * self.first(x))))
            x = self.last(Counting.apply(self.second(x)))
            return x + 0.01 * Quarters.apply(x)

    assert same(train(model=Counted), story[0])
    node = next(node for node in story[3].nodes if node.name == "Direction")
    assert 0 < sum(wrong) < 60
    assert node.share_low <= sum(wrong) / 60 <= node.share_high
    assert all(state.passed != wrong[state.visit] for state in node.states)  # each of them, by the number of its visit
    assert node.failed == sum(not state.passed for state in node.states)
    assert len(node.states) == node.looked == 24


def test_contributions_are_what_goes_through(story):
    """Everything before the last layer goes through Direction; of what goes through Opaque, all goes through Capped."""
    nodes = {node.name: node for node in story[3].nodes}
    assert 0.3 < nodes["Direction"].contribution < 1
    assert math.isclose(nodes["Capped"].contribution, nodes["Opaque"].contribution, rel_tol=0.5)
    assert 0.005 < nodes["Quarters"].contribution < 0.02  # 0.01 / 1.01


def test_the_loss_is_looked_at_too(story):
    report = story[3]
    assert report.loss is not None
    assert report.loss_note


def test_words_and_data(story):
    report = story[3]
    text = str(report)
    assert "Direction (tests/coherence/training.py:" in text or "training.py:" in text
    assert "% of the gradient comes through it" in text
    assert "Likely causes" in report.explain()
    data = json.loads(report.to_json())
    assert data["schema"] == "pairgrad.run/2"
    again = RunReport.from_dict(data)
    assert again == report
    assert str(again) == text
    with pytest.raises(ValueError, match=r"schema 'pairgrad.run/2'"):
        RunReport.from_dict(report.nodes[0].worst.to_dict())


def test_a_run_without_custom_backwards_has_a_coherent_loss():
    with pg.record() as recording:
        linear_steps(lambda y: y.square().mean())
    report = recording.audit()
    assert report.passed
    assert report.nodes == ()
    assert report.loss.verdict == "coherent"
    assert report.loss.name == "loss"


def test_a_loss_that_is_wrong_because_of_a_node_names_it():
    with pg.record() as recording:
        linear_steps(lambda y: Capped.apply(3 + Opaque.apply(y)).mean())
    report = recording.audit()
    assert report.loss.verdict == "incoherent"
    assert report.loss.defect > 0.5
    assert report.loss_note == "the nodes that fail: Capped"


def test_a_declared_node_does_not_excuse_what_it_does_not_carry():
    """A hook loses nine tenths of the gradient; a hundredth of it comes through a straight-through estimator."""

    def loss(y):
        y.register_hook(lambda g: 0.1 * g)
        return (y + 0.01 * Quarters.apply(y)).square().mean()

    with pg.record() as recording:
        linear_steps(loss)
    report = recording.audit()
    assert all(node.passed for node in report.nodes)
    assert not report.loss.passed
    assert not report.passed


def test_a_hook_that_changes_gradients_shows_in_the_loss_alone():
    def loss(y):
        y.register_hook(lambda g: 1.01 * g)
        return y.square().mean()

    with pg.record() as recording:
        linear_steps(loss)
    report = recording.audit()
    assert report.verdict == "incoherent"
    assert not report.passed
    assert report.loss.defect == pytest.approx(0.01, rel=0.02)
    assert "hooks" in report.loss_note


def test_a_loss_that_is_coherent_beside_a_node_that_is_not():
    """Wrong alone by the factor 2, and right in composition."""

    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 1 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    class Half(Function):
        @staticmethod
        def forward(ctx, x):
            return 1 * x

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output / 2

    with pg.record() as recording:
        linear_steps(lambda y: Half.apply(Double.apply(y)).square().mean())
    report = recording.audit()
    assert {node.name for node in report.nodes if not node.passed} == {"Double", "Half"}
    assert report.loss.passed
    assert "made good in another" in report.loss_note


def test_declared_mismatches_account_for_the_loss():
    with pg.record() as recording:
        linear_steps(lambda y: (y + Quarters.apply(y)).square().mean())
    report = recording.audit()
    assert report.passed
    assert "as declared: Quarters (straight-through)" in report.loss_note


def test_a_node_that_hands_on_a_gradient_is_judged_by_the_loss():
    """The library's own loss computes its gradient in the forward."""
    state = pg.ClassState(torch.nn.functional.normalize(torch.randn(4, 16), dim=-1), torch.tensor([20.0, 30.0, 40.0, 50.0]))
    features = torch.nn.Linear(3, 16)

    def run():
        f = torch.nn.functional.normalize(features(torch.randn(8, 3)), dim=-1)
        pg.vmf_cross_entropy(f, torch.randint(0, 4, (8,)), state, temperature=0.1).backward()

    with pg.record() as recording:
        run()
    report = recording.audit()
    assert report.passed, report
    assert report.loss.passed
    assert "it hands on a gradient computed beforehand: only the loss tells whether that is right" in {node.note for node in report.nodes}
    with pg.record(loss=False) as recording:
        run()
    report = recording.audit()
    assert report.verdict == "inconclusive"
    assert not report.passed


class Above(Function):
    """x² with a backward that is wrong where x is above 1."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return torch.where(x > 1, 3 * x, 2 * x) * grad_output


def visited(states, *places):
    """The report on a function at each of the places in turn."""
    with pg.record(states=states, loss=False) as recording:
        for place in places:
            Above.apply(torch.tensor(place, dtype=torch.float64, requires_grad=True)).backward()
    (node,) = recording.audit(effort="glance").nodes
    return node


def test_a_share_is_known_where_all_states_were_looked_at():
    node = visited(24, *[0.5] * 7, *[2.0] * 3)
    assert (node.visits, node.looked, node.failed) == (10, 10, 3)
    assert (node.share, node.share_low, node.share_high) == (0.3, 0.3, 0.3)


def test_the_interval_of_a_share():
    """Wilson's, at 95 %, for `failed` of 24 out of many."""
    node = visited(24, *[0.5, 0.6, 2.0] * 400)
    assert (node.visits, node.looked) == (1200, 24)
    assert 2 <= node.failed <= 14  # a binomial of 24 and 1/3, give or take nearly three deviations
    assert node.share == node.failed / 24
    z, n, p = 1.959964, 24, node.share
    ends = [(p + z * z / (2 * n) + sign * z * math.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2)) / (1 + z * z / n) for sign in (-1, 1)]
    assert (node.share_low, node.share_high) == pytest.approx(ends, rel=1e-6)
    assert f"(of all 1200: {100 * ends[0]:.0f} to {100 * ends[1]:.0f} %)" in str(node)


def test_the_interval_of_a_share_of_few_visits_has_what_was_seen():
    """24 of 30, all bad: at least these are; and none of the good ones is bad."""
    bad, good = visited(24, *[2.0] * 30), visited(24, *[0.5] * 30)
    assert (bad.share_low, bad.share_high) == (pytest.approx(0.862, abs=1e-3), 1)
    assert (good.share_low, good.share_high) == (0, pytest.approx(0.138, abs=1e-3))
    few = visited(2, 2.0, 2.0, 2.0)
    assert (few.looked, few.share_low) == (2, pytest.approx(2 / 3))


def test_the_verdict_is_the_gravest_of_all_states():
    class Bent(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.abs()

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return torch.where(x > 5, 2.0, x.sign()) * grad_output

    def verdict(*places):
        with pg.record(loss=False) as recording:
            for place in places:
                Bent.apply(torch.tensor(place, dtype=torch.float64, requires_grad=True)).backward()
        report = recording.audit()
        assert report.verdict == report.nodes[0].verdict
        return report.verdict.value, report.passed

    assert verdict(1.0, 2.0) == ("coherent", True)
    assert verdict(1.0, 0.0) == ("kink", True)
    assert verdict(1.0, 0.0, 9.0) == ("incoherent", False)
    assert verdict(1.0, math.nan) == ("coherent", True)  # one state could not be judged
    assert verdict(math.nan) == ("inconclusive", False)


def test_ranking():
    """Those that fail first, by contribution times defect; then those that could not be judged, then the others."""

    def off_by(name, factor):
        class Off(Function):
            @staticmethod
            def forward(ctx, x):
                return 1 * x

            @staticmethod
            def backward(ctx, grad_output):
                return factor * grad_output

        Off.__name__ = Off.__qualname__ = name
        return Off.apply

    good, small, large = off_by("Good", 1.0), off_by("Small", 1.2), off_by("Large", 1.1)

    class Unknown(Function):
        @staticmethod
        def forward(ctx, x):
            return (x * 1e9).sin() * (1 + x * 1e-9)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    with pg.record() as recording:
        linear_steps(lambda y: (5 * good(y) + 10 * large(y) + 0.1 * small(y)).mean() + 0 * Unknown.apply(y).mean(), steps=1)
    report = recording.audit()
    assert [node.name for node in report.nodes] == ["Large", "Small", "Unknown", "Good"]
    assert [node.passed for node in report.nodes] == [False, False, False, True]
