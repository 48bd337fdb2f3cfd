"""Reports of several workers as one."""

import json

import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import RunReport
from pairgrad.testing import merged
from tests.testing.broken import Capped, Sinh


def recorded(*calls):
    """The report on backwards of (function, argument) pairs."""
    with pg.coherence.record(loss=False) as recording:
        for function, x in calls:
            function.apply(torch.tensor([x], dtype=torch.float64, requires_grad=True)).sum().backward()
    return recording.audit()


@pytest.fixture(scope="module")
def reports():
    """Two workers and one that met nothing. Capped is right up to 2.29."""
    first = recorded((Capped, 1.0), (Sinh, 1.0), (Capped, 2.5), (Capped, 1.5))
    return first, recorded((Capped, 3.0), (Sinh, 2.0)), recorded()


def test_counts_add_up(reports):
    both = merged(reports)
    assert [node.name for node in both.nodes] == ["Capped", "Sinh"]
    capped, sinh = both.nodes
    assert (capped.visits, capped.looked, capped.failed) == (4, 4, 2)
    assert (sinh.visits, sinh.looked, sinh.failed) == (2, 2, 0)
    assert both.backwards == 6
    assert capped.share == pytest.approx((3 * (1 / 3) + 1) / 4)
    assert capped.share_low <= capped.share <= capped.share_high
    assert [state.visit for state in capped.states] == [0, 1, 2, 3]
    assert [state.passed for state in capped.states] == [True, False, True, False]


def test_the_gravest_counts(reports):
    both = merged(reports)
    capped, sinh = both.nodes
    assert capped.verdict == both.verdict == "incoherent"
    assert not both.passed
    assert not capped.passed
    assert sinh.passed
    assert capped.defect == reports[1].nodes[0].defect > reports[0].nodes[0].defect
    assert capped.worst is not None
    assert capped.worst.defect == capped.defect


def test_one_that_met_nothing_changes_nothing(reports):
    right = recorded((Sinh, 1.0))
    both = merged([right, reports[2]])
    assert both.passed
    assert both.verdict == "coherent"
    assert both.nodes[0].headline == right.nodes[0].headline


def test_one_report_is_itself(reports):
    assert merged(reports[:1]) is reports[0]


def test_of_none_passes():
    assert merged([]).passed
    assert "no custom backward was met" in merged([]).headline


def test_it_can_be_written_and_read(reports):
    both = merged(reports)
    assert str(RunReport.from_dict(json.loads(both.to_json()))) == str(both)


def test_functions_of_one_name_in_two_places_stay_apart(reports):
    class Sinh(Capped):
        @staticmethod
        def forward(x):
            return x.sinh()

    both = merged([reports[1], recorded((Sinh, 3.0))])
    assert sorted(node.name for node in both.nodes) == ["Capped", "Sinh", "Sinh"]
