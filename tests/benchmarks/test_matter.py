"""What a wrong backward costs: the arms are what the page says, the experiments run, and the page is that of the results."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from benchmarks.matter import page
from benchmarks.matter.__main__ import EXPERIMENTS, PAGE, RESULTS, key, main
from benchmarks.matter.arms import ARMS, FLOORED, ORIGINAL, PAIRED, SWITCHED, Arm, exact_potential
from benchmarks.matter.one import by_adam, mean_cosine
from benchmarks.matter.regression import beyond
from benchmarks.matter.seeds import change

import pairgrad as pg


def slope(arm: Arm, dim: int, kappa: float) -> float:
    point = torch.tensor(kappa, dtype=torch.float64, requires_grad=True)
    arm.of(dim)(point).backward()
    assert point.grad is not None
    return point.grad.item()


def test_the_switched_pair_meets_in_value_and_not_in_slope() -> None:
    below, above = (torch.tensor(100.0 + each, dtype=torch.float64) for each in (-1e-9, 1e-9))
    value = SWITCHED.of(3)
    assert abs(value(above) - value(below)) < 1e-8
    assert slope(SWITCHED, 3, 99.999) == pytest.approx(0.99, abs=1e-6)  # coth(kappa) - 1 / kappa
    assert slope(SWITCHED, 3, 100.001) == pytest.approx(100 / 10_004**0.5, abs=1e-6)


def test_a_small_number_in_the_logarithm_leaves_a_slope_of_1() -> None:
    """Of log I at nu = 31, kappa = 6, where the truth is 5.26; the potential is less by nu / kappa."""
    assert slope(FLOORED, 64, 6.0) + 31 / 6 == pytest.approx(1, abs=1e-6)
    assert slope(PAIRED, 64, 6.0) + 31 / 6 == pytest.approx(5.26, abs=0.01)
    assert slope(FLOORED, 64, 2000.0) == pytest.approx(slope(PAIRED, 64, 2000.0), rel=1e-3)


@pytest.mark.parametrize("arm", [arm for arm in ARMS if arm not in (SWITCHED, FLOORED)])
def test_other_arms_are_right_where_the_page_says_so(arm: Arm) -> None:
    assert slope(arm, 128, 300.0) == pytest.approx(pg.potential(128).slope(torch.tensor(300.0, dtype=torch.float64)).item(), rel=1e-6)


def test_a_concentration_is_learned_as_the_supplied_slope_says() -> None:
    cosine = torch.tensor([mean_cosine(16, 1000.0, 0)], dtype=torch.float64)
    right, wrong = (by_adam(arm.of(16), 16, cosine, steps=400).item() for arm in (PAIRED, ORIGINAL))
    assert right == pytest.approx(pg.potential(16).concentration(cosine).item(), rel=1e-4)
    assert wrong < right / 2


def test_caps_hold_what_they_should() -> None:
    """p = 3 has a closed form: the probability of a smaller cosine."""
    kappa, cosine = torch.tensor([0.5, 20.0, 3000.0], dtype=torch.float64), torch.tensor([0.3, 0.9, 0.9995], dtype=torch.float64)
    expected = (torch.exp(kappa * (cosine - 1)) - torch.exp(-2 * kappa)) / (1 - torch.exp(-2 * kappa))
    assert torch.allclose(beyond(3, kappa, cosine), expected, atol=2e-3)


def test_arms_are_judged_by_the_exact_density() -> None:
    mean = torch.nn.functional.normalize(torch.ones(128, dtype=torch.float64), dim=0)
    kappa = torch.tensor(700.0, dtype=torch.float64)
    assert (exact_potential(128)(kappa) - kappa).item() == pytest.approx(-pg.VonMisesFisher(mean, kappa).log_prob(mean).item(), rel=1e-12)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_run(name: str) -> None:
    for trial in list(EXPERIMENTS[name](1, True, None))[-2:]:
        assert trial.measure()


def test_differences_have_intervals() -> None:
    assert change([1.0, 1.1, 0.9], 2) == "**+1.00 ± 0.25**"  # 4.303 * 0.1 / sqrt(3)
    assert change([1.0, -1.0, 0.5], 1) == "+0.2 ± 2.6"
    assert change([0.0, 0.0], 3) == "0"
    assert change([0.0, float("nan")], 3) == "diverged (1 of 2)"


def test_the_page_is_that_of_the_results() -> None:
    assert PAGE.read_text() == page.text(page.load(RESULTS))


def test_every_result_is_of_a_trial() -> None:
    trials = {key(trial) for experiment in EXPERIMENTS.values() for trial in experiment(5, False, Path("data"))}
    assert trials == set(page.load(RESULTS)["trials"])


def test_an_unknown_experiment_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["gravity"])
    assert "EXPERIMENT must be one of one, optimizers" in capsys.readouterr().err
