"""Metrics of OOD scores: against scikit-learn, against definitions written as loops, and against numbers worked by hand, with ties everywhere."""

import json
import math
import pickle
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from pairgrad.ood import CONVENTIONS, OODMetrics, aupr_in, aupr_out, auroc, fpr95, ood_metrics

# Sums of at most 60 products of ratios, each correct to a few units of the last place.
TOL = 1e-12

# Few distinct values: nearly all are tied, within a set and across both.
TIED = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=60)
FREE = st.lists(st.floats(allow_nan=False), min_size=1, max_size=40)
PAIRS = st.one_of(st.tuples(TIED, TIED), st.tuples(FREE, FREE))


def joined(inside, outside):
    """Labels (OOD is 1) and ranks of the scores: scikit-learn refuses infinities, and ranks have the same order and ties."""
    ranks = np.unique([*inside, *outside], return_inverse=True)[1].astype(float)
    return np.array([0] * len(inside) + [1] * len(outside)), ranks


@settings(max_examples=150, deadline=None, derandomize=True)
@given(PAIRS)
def test_areas_agree_with_scikit_learn(pair):
    inside, outside = map(np.array, pair)
    truth, ranks = joined(*pair)
    assert auroc(inside, outside) == pytest.approx(roc_auc_score(truth, ranks), abs=TOL)
    assert aupr_out(inside, outside) == pytest.approx(average_precision_score(truth, ranks), abs=TOL)
    assert aupr_in(inside, outside) == pytest.approx(average_precision_score(1 - truth, -ranks), abs=TOL)
    for got, labels, scores in [(aupr_out, truth, ranks), (aupr_in, 1 - truth, -ranks)]:
        precision, recall, _ = precision_recall_curve(labels, scores)
        assert got(inside, outside, rule="trapezoid") == pytest.approx(auc(recall, precision), abs=TOL)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(PAIRS)
def test_fpr95_agrees_with_its_definitions(pair):
    """The loops below follow the three texts; OpenOOD's is a look-up in scikit-learn's curve."""
    inside, outside = map(np.array, pair)
    truth, ranks = joined(*pair)

    curve = []
    for level in sorted({*pair[0], *pair[1]}, reverse=True):
        recall = sum(score >= level for score in pair[1]) / len(pair[1])
        curve.append((recall, sum(score >= level for score in pair[0]) / len(pair[0])))
        if recall == 1:
            break
    best = curve[-1]
    for point in reversed(curve):
        best = point if abs(point[0] - 0.95) < abs(best[0] - 0.95) else best
    assert fpr95(inside, outside, "patt") == best[1]

    false, found, _ = roc_curve(truth, ranks)
    assert fpr95(inside, outside, "openood") == false[np.argmax(found >= 0.95)]

    confidence = sorted((-score for score in pair[0]), reverse=True)
    threshold = confidence[max(math.floor(0.95 * len(confidence)), 1) - 1]
    assert fpr95(inside, outside, "sc-ood") == sum(-score > threshold for score in pair[1]) / len(pair[1])


def test_fpr95_by_hand():
    """At or above 5, 4, 3, 2 are 19 of 20 OOD and 2, 3, 4, 6 of 10 ID; at or above 1, all OOD and 7 ID."""
    inside = np.array([5, 5, 4, 3, 2, 2, 1, 0, 0, 0.0])
    outside = np.array([5.0] * 19 + [1.0])
    assert fpr95(inside, outside, "patt") == 0.6  # recall exactly 0.95 down to 2: the lowest of these thresholds
    assert fpr95(inside, outside, "openood") == 0.2  # the highest of them
    assert fpr95(inside, outside, "sc-ood") == 0.05  # nine ID scores reach up to 5, and one OOD score is strictly below
    assert ood_metrics(inside, outside).fpr95 == {"patt": 0.6, "openood": 0.2, "sc-ood": 0.05}


def test_patt_goes_below_the_recall_where_that_is_nearer():
    """With 17 OOD scores 16/17 = 0.941 is nearer to 0.95 than 1; with 3, full recall is, at its highest threshold."""
    outside, inside = np.r_[np.full(16, 5.0), 1.0], np.array([6.0, 4.0, 3.0, 1.0, 0.0])
    assert fpr95(inside, outside, "patt") == 3 / 5
    assert fpr95(inside, outside, "openood") == 4 / 5
    assert fpr95(inside, np.array([5.0, 3.0, 1.0]), "patt") == 4 / 5


@pytest.mark.parametrize(("count", "missed"), [(10, 1), (30, 2), (50, 3), (70, 4), (90, 5)])
def test_patt_with_two_recalls_equally_near(count, missed):
    """0.95 M is between two integers: float64 decides, as written in the public evaluator; the level tells which was taken."""
    outside, inside = np.arange(count) + 0.5, np.arange(count + 1.0)
    below, above = ((count - m) / count for m in (missed, missed - 1))
    lower = abs(below - 0.95) < abs(above - 0.95)
    # Taking `below`, the OOD scores from `missed` on are found: the threshold goes down to the ID score `missed`.
    expected = count + 1 - (missed if lower else missed - 1)
    assert fpr95(inside, outside, "patt") == (expected if expected <= count else count) / (count + 1)


def test_openood_passes_over_points_without_a_turn():
    """Twenty scores shared by one ID and one OOD sample each: the curve is one straight line, and only its ends are on it."""
    shared = np.arange(20.0)
    assert fpr95(shared, shared, "openood") == 1.0
    assert fpr95(shared, shared, "patt") == 0.95
    assert fpr95(shared, shared, "sc-ood") == 0.9  # the 19th ID score is 18: 0 to 17 are strictly below
    # One OOD sample at each of twenty levels, and three more ID samples at the lowest: the curve turns there, at recall 0.95.
    assert fpr95(np.r_[shared, 0, 0, 0], shared, "openood") == 19 / 23


def test_sc_ood_with_a_single_id_score():
    assert fpr95(np.array([2.0]), np.array([1.0, 2.0, 3.0, 1.5]), "sc-ood") == 0.5


@pytest.mark.parametrize("outside", [[2.0], [2.0, 3.0, 4.0]])
def test_separated_and_reversed(outside):
    best = ood_metrics(np.array([0.0, 1.0]), np.array(outside))
    assert (best.auroc, best.aupr_in, best.aupr_out, *best.fpr95.values()) == (1, 1, 1, 0, 0, 0)
    worst = ood_metrics(np.array(outside), np.array([0.0, 1.0]))
    assert (worst.auroc, *worst.fpr95.values()) == (0, 1, 1, 1)


def test_all_scores_equal():
    metrics = ood_metrics(np.zeros(3), np.zeros(6))
    assert (metrics.auroc, metrics.aupr_in, metrics.aupr_out) == (0.5, 3 / 9, 6 / 9)
    assert dict(metrics.fpr95) == {"patt": 1.0, "sc-ood": 0.0, "openood": 1.0}


def test_auroc_is_one_correctly_rounded_quotient():
    """Two thirds of a third of the pairs, and so on: a sum of float64 terms would not always hit the nearest number."""
    inside, outside = torch.arange(333.0), torch.arange(777.0) % 350
    wins = sum(2 * (o > i) + (o == i) for o in outside.tolist() for i in range(333))
    assert auroc(inside, outside) == wins / (2 * 333 * 777)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32])
def test_dtypes(dtype):
    inside, outside = torch.tensor([1, 2, 2, 3]), torch.tensor([2, 3, 3, 4])
    expected = ood_metrics(inside.numpy().astype(float), outside.numpy().astype(float))
    assert ood_metrics(inside.to(dtype), outside.to(dtype)) == expected
    assert expected.auroc == (0.5 * 2 + 1 + 2 * (3 + 0.5) + 4) / 16


def test_tensors_that_need_a_gradient_and_infinities():
    inside = torch.tensor([-math.inf, 0.0], requires_grad=True)
    assert auroc(inside, torch.tensor([0.0, math.inf])) == 0.875
    assert auroc(np.array([-0.0]), np.array([0.0])) == 0.5  # one score, not two
    assert fpr95(np.array([math.inf]), np.array([math.inf, math.inf]), "patt") == 1


def test_nothing_given_is_changed():
    inside, outside = np.array([3.0, 1.0, 2.0]), torch.tensor([2.0, 1.0])
    ood_metrics(inside, outside)
    assert inside.tolist() == [3, 1, 2]
    assert outside.tolist() == [2, 1]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    ("bad", "error", "says"),
    [
        (np.array([1.0, np.nan, np.nan]), ValueError, r"2 of 3"),
        (torch.tensor([]), ValueError, "at least one score"),
        (torch.zeros(2, 2), ValueError, r"\(2, 2\)"),
        (torch.tensor(1.0), ValueError, r"shape \(\)"),
        ([1.0, 2.0], TypeError, "list"),
        (torch.tensor([True]), TypeError, "bool"),
        (torch.tensor([1j]), TypeError, "complex"),
        (np.array(["a"]), TypeError, "<U1"),
        (np.array([2**53 + 1]), ValueError, "2\\^53"),
    ],
)
def test_what_is_refused(side, bad, error, says):
    arguments = [np.zeros(2), np.ones(2)]
    arguments[side] = bad
    name = ("id_scores", "ood_scores")[side]
    for metric in (auroc, aupr_in, aupr_out, ood_metrics, lambda i, o: fpr95(i, o, "patt")):
        with pytest.raises(error, match=f"(?s){name}.*{says}"):
            metric(*arguments)


def test_names_are_checked():
    with pytest.raises(ValueError, match="convention must be one of 'patt', 'sc-ood', 'openood', got 'tpr'"):
        fpr95(np.zeros(1), np.zeros(1), "tpr")
    for metric, name in [(aupr_in, "rule"), (aupr_out, "rule"), (ood_metrics, "aupr")]:
        with pytest.raises(ValueError, match=f"{name} must be one of 'average-precision', 'trapezoid'"):
            metric(np.zeros(1), np.zeros(1), **{name: "simpson"})


def test_metrics_are_a_value():
    metrics = ood_metrics(np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0]), aupr="trapezoid")
    assert metrics.aupr_out == aupr_out(np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0]), rule="trapezoid")
    assert metrics.aupr_in == aupr_in(np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0]), rule="trapezoid")
    read = json.loads(json.dumps(metrics.to_dict()))
    assert OODMetrics(**read) == metrics
    assert tuple(metrics.fpr95) == CONVENTIONS
    assert pickle.loads(pickle.dumps(metrics)) == metrics
    assert asdict(metrics) == metrics.to_dict()
    metrics.to_dict()["fpr95"].clear()
    assert metrics.fpr95  # what to_dict gave was a copy
