"""Evaluation by source: which scores stand on which side, and the mean."""

import json

import numpy as np
import pytest
import torch

from pairgrad.ood import mean_metrics, ood_metrics, sc_ood

INSIDE = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
NEAR = torch.tensor([0.25, 0.6, 0.05, 0.45], dtype=torch.float64)
KNOWN = torch.tensor([True, False, True, False])
FAR = np.array([0.35, 0.7, 0.9])


def test_semantically_id_entries_change_sides():
    report = sc_ood(INSIDE, {"near": (NEAR, KNOWN), "far": (FAR, None)})
    near, far = report.sources
    assert (near.source, near.num_id, near.num_ood) == ("near", 7, 2)
    assert near.metrics == ood_metrics(np.array([*INSIDE, 0.25, 0.05]), np.array([0.6, 0.45]))
    assert (far.source, far.num_id, far.num_ood) == ("far", 5, 3)
    assert far.metrics == ood_metrics(INSIDE, FAR)


def test_the_mean_counts_every_source_once():
    report = sc_ood(INSIDE, {"near": (NEAR, KNOWN), "far": (FAR, np.zeros(3, dtype=bool))})
    first, second = (source.metrics for source in report.sources)
    assert report.mean.auroc == (first.auroc + second.auroc) / 2
    assert report.mean.aupr_in == (first.aupr_in + second.aupr_in) / 2
    assert report.mean.aupr_out == (first.aupr_out + second.aupr_out) / 2
    assert report.mean.fpr95 == {name: (first.fpr95[name] + second.fpr95[name]) / 2 for name in first.fpr95}
    assert len({report.mean.auroc, report.mean.aupr_in, report.mean.aupr_out, first.auroc, second.auroc}) == 5
    assert report == sc_ood(INSIDE, {"near": (NEAR, KNOWN), "far": (FAR, None)})


def test_the_rule_for_aupr_is_passed_on():
    sources = {"far": (FAR, None)}
    assert sc_ood(INSIDE, sources, aupr="trapezoid").sources[0].metrics == ood_metrics(INSIDE, FAR, aupr="trapezoid")
    assert sc_ood(INSIDE, sources, aupr="trapezoid") != sc_ood(INSIDE, sources)


def test_rows_text_and_json():
    report = sc_ood(INSIDE, {"near": (NEAR, KNOWN), "far": (FAR, None)})
    rows = report.rows()
    assert [row["source"] for row in rows] == ["near", "far", "mean"]
    assert rows[0]["num_ood"] == 2
    assert rows[1]["fpr95 openood"] == report.sources[1].metrics.fpr95["openood"]
    assert rows[2]["auroc"] == report.mean.auroc
    head, *lines = str(report).splitlines()
    assert head.split("  ")[0] == "source"
    assert [name in head for name in ("auroc", "fpr95 patt", "fpr95 sc-ood", "fpr95 openood")] == [True] * 4
    assert [line.split()[0] for line in lines] == ["near", "far", "mean"]
    assert lines[1].split()[3] == f"{100 * report.sources[1].metrics.auroc:.2f}"
    assert len({len(line) for line in (head, *lines)}) == 1  # aligned to the right
    read = json.loads(json.dumps(report.to_dict()))
    assert read["mean"] == report.mean.to_dict()
    assert read["sources"][0] == {"source": "near", "num_id": 7, "num_ood": 2, **report.sources[0].metrics.to_dict()}


@pytest.mark.parametrize(
    ("sources", "error", "says"),
    [
        ({}, ValueError, "at least one source"),
        ({"tin": (NEAR, torch.ones(4, dtype=torch.bool))}, ValueError, r"sources\['tin'\] must have an OOD entry, but all 4"),
        ({"tin": (NEAR, torch.tensor([0, 1, -1, 2]))}, TypeError, r"sources\['tin'\]\[1\].*labels >= 0"),
        ({"tin": (NEAR, KNOWN[:3])}, ValueError, r"sources\['tin'\]\[1\].*4 scores, got shape \(3,\)"),
        ({"tin": (NEAR * float("nan"), KNOWN)}, ValueError, r"sources\['tin'\]\[0\].*4 of 4"),
        ({"tin": NEAR}, TypeError, r"sources\['tin'\] must be a pair"),
    ],
)
def test_what_is_refused(sources, error, says):
    with pytest.raises(error, match=says):
        sc_ood(INSIDE, sources)


def test_a_mean_of_nothing():
    with pytest.raises(ValueError, match="at least one entry"):
        mean_metrics([])
