"""Frozen states: only the backward rule changes, and the discrepancies from exact scores."""

from __future__ import annotations

import mpmath
import pytest
import torch

import pairgrad as pg
from pairgrad.experiments import counterfactual
from pairgrad.experiments.frozen.view import Backward
from pairgrad.experiments.frozen_state import frozen_state, in_printed_range
from pairgrad.experiments.table import Table

from .finite import finite_start
from .made import counted


@pytest.fixture(scope="module")
def changed() -> Table:
    return counted("synthetic-counterfactual")


@pytest.fixture(scope="module")
def audit() -> Table:
    return counted("synthetic-audit")


@pytest.fixture(scope="module")
def precision() -> Table:
    return counted("synthetic-precision")


def test_the_frozen_state_is_what_it_says() -> None:
    frozen, again = frozen_state(), frozen_state()
    assert torch.equal(frozen.features, again.features)
    assert frozen.features.shape == (2, 128, 512)
    assert (frozen.features >= 0).all()
    assert torch.equal(frozen.state.concentration, torch.full((100,), 1e5, dtype=torch.float64))
    assert frozen.seen.all()
    assert torch.linalg.vector_norm(frozen.state.mean_direction, dim=1).sub(1).abs().max() < 1e-15
    assert frozen.log_prior.exp().sum().item() == pytest.approx(1, rel=1e-14)
    assert frozen.log_prior[0] - frozen.log_prior[-1] == pytest.approx(torch.tensor(100.0).log().item(), rel=1e-6)
    direct = torch.linalg.vector_norm(1e5 * frozen.state.mean_direction + frozen.features[:, :2, None] / 0.1, dim=-1)
    assert in_printed_range(direct)
    assert not in_printed_range(direct * 1.002)
    assert not in_printed_range(direct * 0.998)
    early = frozen_state(unseen=5, stretch=2.0)
    assert early.seen.sum() == 95
    assert early.state.concentration[-1].item() == pytest.approx(512 * 90 / 19, rel=1e-14)
    assert int(early.labels.max()) < 95
    ratio = torch.linalg.vector_norm(early.features, dim=-1).max() / torch.linalg.vector_norm(frozen.features, dim=-1).max()
    assert 1.8 < ratio < 2.2


def test_only_the_gradient_changes(changed: Table) -> None:
    assert changed.column("view") == [2, 3]
    assert changed.numbers("score") == changed.numbers("loss") == [0.0, 0.0]
    assert changed.column("defect_published") == ["2.55e-03", "2.55e-03"]
    assert changed.column("relative_published") == ["2.56e-03", "2.56e-03"]
    assert changed.column("largest_published") == ["1.40e-05", "1.35e-05"]
    assert changed.numbers("defect") == pytest.approx([2.55e-3] * 2, rel=0.01)
    assert changed.numbers("relative") == pytest.approx([2.56e-3] * 2, rel=0.01)
    for ours, printed in zip(changed.numbers("largest"), changed.numbers("largest_published"), strict=True):
        assert 1 / 3 < ours / printed < 3  # it depends on the features
    assert all(0.1 < loss < 10 for loss in changed.numbers("mean_loss"))  # neither solved nor hopeless
    # the change is a matter of length: what is left after rescaling is a thousand times smaller, and still there
    for residual, relative in zip(changed.numbers("residual"), changed.numbers("relative"), strict=True):
        assert 1e-9 < residual < 1e-3 * relative
    assert min(changed.numbers("smallest_radius")) >= 392.345
    assert max(changed.numbers("largest_radius")) <= 393.115
    assert len(changed.checks) == 3
    assert all(check.held for check in changed.checks)


def test_the_largest_defect_against_mpmath(changed: Table) -> None:
    """It falls with the radius, so it is at the smallest one."""
    for smallest, defect in zip(changed.numbers("smallest_radius"), changed.numbers("defect"), strict=True):
        with mpmath.workdps(40):
            finite = finite_start(255, 510, mpmath.mpf(smallest * 255))
            assert finite.raw_ratio > 1
            assert defect == pytest.approx(float(1 - finite.derivative), rel=1e-10)


def test_audit_sizes(audit: Table) -> None:
    assert audit.column("largest_published") == ["3.32e-03", "1.17e-09", "2.55e-03", "2.56e-03"]
    finite, arfr, clipped, defect = audit.numbers("largest")
    assert 0.5 < finite / 3.32e-3 < 2
    assert 0.5 < arfr / 1.17e-9 < 2
    assert clipped == pytest.approx(2.55e-3, rel=0.01)
    assert defect == pytest.approx(2.56e-3, rel=0.01)
    assert len(audit.checks) == 3
    assert all(check.held for check in audit.checks)


def test_audit_against_mpmath(audit: Table) -> None:
    """Every discrepancy anew at the place where it is said to be; the places are given in r / nu, right to a rounding of r."""
    with mpmath.workdps(40):

        def phi(x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.log(mpmath.besseli(255, x)) - 255 * mpmath.log(x)

        for row, slack in zip(audit.rows, (1e-6, 1e-4, 1e-12, 1e-10), strict=True):
            kappa, radius = (mpmath.mpf(float(str(row[key]))) for key in ("concentration", "radius"))
            radius *= 255
            ratio = mpmath.besseli(256, radius) / mpmath.besseli(255, radius)
            finite = finite_start(255, 510, radius)
            if row["comparison"] == "finite-potential score":
                wanted = finite.value - finite_start(255, 510, kappa).value - (phi(radius) - phi(kappa))
            elif row["comparison"] == "AR/FR score":
                a, b = (torch.tensor([float(x)], dtype=torch.float64) for x in (kappa, radius))
                wanted = mpmath.mpf(pg.potential(512, "arfr").difference(a, b).item()) - (phi(radius) - phi(kappa))
            elif row["comparison"] == "clipped slope":
                wanted = min(finite.raw_ratio, 1) - ratio
            else:
                wanted = min(finite.raw_ratio, 1) - finite.derivative
            assert float(str(row["largest"])) == pytest.approx(float(abs(wanted)), rel=slack), row["comparison"]


def test_audit_says_what_the_printed_radii_give(audit: Table) -> None:
    finite, arfr, clipped, defect = audit.numbers("at_printed_radii")
    assert finite < 1.3e-3  # 5e-6 times an r - kappa of at most 243
    assert clipped == audit.numbers("largest")[2]
    assert defect == audit.numbers("largest")[3]
    assert arfr < audit.numbers("largest")[1]
    assert audit.numbers("concentration") == pytest.approx([1e5, 512 * 90 / 19, 1e5, 1e5], rel=1e-14)


def test_audit_notices_a_wrong_yardstick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counterfactual, "STRETCHES", (1.0,))
    plain = pg.vmf_scores

    def shifted(features, state, temperature, realization="paired", *others):
        return plain(features, state, temperature, realization, *others) + (1e-12 if realization == "paired" else 0)

    assert counterfactual.Audit().yardstick < 1e-12
    monkeypatch.setattr(counterfactual.pg, "vmf_scores", shifted)
    assert counterfactual.Audit().yardstick > 0.9e-12


def test_precision_and_geometry(precision: Table) -> None:
    cells = {(row["precision"], row["geometry"]) for row in precision.rows}
    assert cells == {(p, g) for p in ("float32", "float64") for g in ("factorised", "expanded")}
    assert precision.numbers("score") == precision.numbers("loss") == [0.0] * 4
    assert precision.numbers("relative") == pytest.approx([2.56e-3] * 4, rel=0.01)
    by_cell = {(row["precision"], row["geometry"]): float(str(row["relative"])) for row in precision.rows}
    assert by_cell["float64", "expanded"] == pytest.approx(by_cell["float64", "factorised"], rel=1e-8)
    assert len(precision.checks) == 2
    assert all(check.held for check in precision.checks)


def test_float32_cells_really_ran_in_float32() -> None:
    frozen = frozen_state().to(torch.float32)
    run = Backward.of(frozen.view(0), "original", "expanded")
    assert run.scores.dtype == run.gradient.dtype == run.loss.dtype == torch.float32
