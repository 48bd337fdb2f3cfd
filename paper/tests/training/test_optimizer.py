"""Learning rates against torch's schedulers and the public code's formulas, and the options that reach the optimizers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from pairgrad_paper.recipes import Optimizer, Schedule, recipe_named
from pairgrad_paper.training.optimizer import make_optimizer, rate

# torch multiplies from epoch to epoch; each step adds a few units in the last place.
RELATIVE, ABSOLUTE = 1e-12, 1e-15


def rates(schedule: Schedule, base: float, epochs: int) -> list[float]:
    return [rate(schedule, base, epoch, epochs) for epoch in range(epochs)]


def weights() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(1))]


def of_torch(scheduler: Any, base: float, epochs: int, **options: Any) -> list[float]:
    optimizer = torch.optim.SGD(weights(), base)
    schedule = scheduler(optimizer, **options)
    found = []
    for _ in range(epochs):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.parametrize("epochs", [1, 7, 100])
def test_cosine_is_torchs(epochs: int) -> None:
    expected = of_torch(torch.optim.lr_scheduler.CosineAnnealingLR, 1e-3, epochs, T_max=epochs)
    assert rates(Schedule("cosine"), 1e-3, epochs) == pytest.approx(expected, rel=RELATIVE, abs=ABSOLUTE)


def test_steps_are_torchs() -> None:
    expected = of_torch(torch.optim.lr_scheduler.MultiStepLR, 0.1, 100, milestones=[60, 80], gamma=0.1)
    assert rates(Schedule("steps", (60, 80)), 0.1, 100) == pytest.approx(expected, rel=RELATIVE)
    expected = of_torch(torch.optim.lr_scheduler.MultiStepLR, 0.1, 10, milestones=[2, 3, 9], gamma=0.5)
    assert rates(Schedule("steps", (2, 3, 9), 0.5), 0.1, 10) == pytest.approx(expected, rel=RELATIVE)


def test_late_cosine() -> None:
    """ProCo on ImageNet-LT: the first epoch is below the base already, the last not yet 0."""
    expected = [0.1 * 0.5 * (1 + math.cos(math.pi * (e + 1) / 181)) for e in range(180)]
    found = rates(recipe_named("proco-imagenet-lt").schedule, 0.1, 180)
    assert found == pytest.approx(expected, rel=RELATIVE)
    assert found[0] < 0.1
    assert found[-1] > 0


def test_warm_up_of_proco_on_cifar() -> None:
    recipe = recipe_named("proco-cifar100-lt-if100")
    found = rates(recipe.schedule, recipe.optimizer.lr, recipe.epochs)
    assert found[:6] == pytest.approx([0.06, 0.12, 0.18, 0.24, 0.3, 0.3], rel=RELATIVE)
    assert [epoch for epoch in range(6, 200) if not math.isclose(found[epoch], found[epoch - 1])] == [160, 180]
    assert found[160] == pytest.approx(0.03)
    assert found[180] == pytest.approx(0.003)


def test_warm_up_comes_before_every_kind() -> None:
    for kind in ("cosine", "late-cosine", "steps", "constant"):
        warm = rates(Schedule(kind, (4,), warmup=3), 1.0, 8)
        assert warm[:3] == pytest.approx([1 / 3, 2 / 3, 1.0])
        assert warm[3:] == rates(Schedule(kind, (4,)), 1.0, 8)[3:]


def test_constant() -> None:
    assert rates(Schedule("constant", (2,)), 0.25, 5) == [0.25] * 5


def test_an_unknown_kind_is_not_constant() -> None:
    with pytest.raises(ValueError, match=r"schedule\.kind must be one of .*, got 'linear'"):
        rate(Schedule("linear"), 0.1, 0, 5)


def test_adam() -> None:
    made = make_optimizer(Optimizer("adam", 1e-3, 5e-4), weights())
    assert type(made) is torch.optim.Adam  # decay in the gradient, not AdamW's
    options = made.param_groups[0]
    assert (options["lr"], options["weight_decay"], options["betas"], options["eps"]) == (1e-3, 5e-4, (0.9, 0.999), 1e-8)
    assert not options["amsgrad"]


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd(nesterov: bool) -> None:
    made = make_optimizer(Optimizer("sgd", 0.1, 5e-5, momentum=0.8, nesterov=nesterov), weights())
    assert type(made) is torch.optim.SGD
    options = made.param_groups[0]
    assert (options["lr"], options["weight_decay"], options["momentum"], options["nesterov"]) == (0.1, 5e-5, 0.8, nesterov)
    assert options["dampening"] == 0


def test_an_unknown_optimizer_is_not_sgd() -> None:
    with pytest.raises(ValueError, match=r"optimizer\.name must be one of 'adam', 'sgd', got 'lion'"):
        make_optimizer(Optimizer("lion", 0.1), weights())


def test_a_step_of_each_by_hand() -> None:
    """Both add weight_decay * parameter to the gradient; the first step of Adam is lr in the direction of its sign."""
    for settings, expected in ((Optimizer("sgd", 0.1, 0.5), 2.0 - 0.1 * (3.0 + 0.5 * 2.0)), (Optimizer("adam", 0.1, 0.5), 2.0 - 0.1)):
        parameter = torch.nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
        made = make_optimizer(settings, [parameter])
        (3.0 * parameter).sum().backward()
        made.step()
        assert parameter.item() == pytest.approx(expected, abs=1e-8)
