"""The comparison with scipy and TFP: that its judges see what is wrong, and that its table says so."""

from __future__ import annotations

import math

import numpy as np
import torch
from benchmarks import distribution
from benchmarks.distribution import FIT, LOG_PROB, PAIRGRAD, SCIPY, TFP, Cell, Row
from benchmarks.timing import Samples

import pairgrad as pg


def test_judges() -> None:
    mu, x = distribution.data(8, 4.0, 400)
    vmf = pg.VonMisesFisher(torch.from_numpy(mu), 4.0)
    right = vmf.log_prob(torch.from_numpy(x)).numpy()
    assert float(distribution.judge_log_prob(8, 4.0, mu, x, right).removesuffix(" eps")) <= 16
    assert float(distribution.judge_log_prob(8, 4.0, mu, x, right + 1e-12).removesuffix(" eps")) > 100
    assert distribution.judge_log_prob(8, 4.0, mu, x, np.where(np.arange(400) < 100, np.inf, right)) == "**inf** in 25%"
    assert float(distribution.judge_entropy(8, 4.0, vmf.entropy().item()).removesuffix(" eps")) <= 16
    assert distribution.judge_entropy(8, 4.0, math.nan) == "**nan**"
    assert abs(float(distribution.judge_sample(8, 4.0, mu, x).removesuffix(" s.e."))) < 5
    assert abs(float(distribution.judge_sample(8, 4.0, mu, -x).removesuffix(" s.e."))) > 50
    fitted = pg.VonMisesFisher.fit(torch.from_numpy(x)).concentration.item()
    assert "off by" in distribution.judge_fit(8, x, fitted)
    assert distribution.judge_fit(8, x, 1e-8).startswith("**1e-08** for ")


def test_a_row_is_measured_and_shown() -> None:
    row = distribution.measure(FIT, 8, 4.0, 50, 2, patient=False)
    assert len(row.cells[PAIRGRAD].samples.seconds) == 2
    assert "off by" in row.cells[PAIRGRAD].verdict
    assert row.cells[TFP].note == "has no fit"
    cells = {
        PAIRGRAD: Cell(Samples([0.001, 0.002, 0.003]), "1.0 eps"),
        SCIPY: Cell(Samples([0.004]), "**inf** in 100%", "one call"),
        TFP: Cell(),
    }
    cells[TFP].note = "not installed"
    line = distribution.table([Row(LOG_PROB, 512, 11.0, 1000, cells)]).splitlines()[-1]
    assert line == "| log_prob | 512 | 11 | 1000 | 2 ms | 4 ms, 2× (one call) | not installed | 1.0 eps | **inf** in 100% | – |"
