"""The loss with a class bank: several views at once are the hosts' sequence of updates and scores, in value, gradient and state."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import pairgrad as pg
from pairgrad.losses import BankLoss
from tests.losses.bank_losses import BATCH, DIM, FEW, LABELS, LOSS, MANY, TAU, agree, counts, run, same_state, views_of, warm
from tests.losses.sequence import sequence


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("views", "classes", "labels", "normalize", "score"),
    [
        (1, MANY, "distinct", True, "after-update"),
        (2, MANY, "distinct", True, "after-update"),
        (2, MANY, "repeated", False, "after-update"),
        (2, MANY, "equal", True, "after-update"),
        (3, MANY, "repeated", True, "after-update"),
        (1, FEW, "repeated", False, "after-update"),
        (2, FEW, "repeated", True, "after-update"),
        (3, FEW, "distinct", False, "after-update"),
        (2, FEW, "equal", True, "after-update"),
        (1, MANY, "repeated", True, "before-update"),
        (2, MANY, "repeated", True, "before-update"),
        (3, FEW, "distinct", False, "before-update"),
    ],
)
def test_equals_the_sequence(views: int, classes: int, labels: str, normalize: bool, score: str, dtype: torch.dtype) -> None:
    """Two steps, so that the second meets classes the first has seen; among the others some are unseen."""
    loss = warm(BankLoss(classes, DIM, temperature=TAU, class_counts=counts(classes), normalize=normalize, score=score, dtype=dtype))
    bank = copy.deepcopy(loss.bank)
    for step in range(2):
        batch, own = views_of(views, dtype=dtype), (torch.tensor(LABELS[labels]) + step) % classes
        got = run(loss, batch, own)
        want = sequence(bank, batch, own, temperature=TAU, log_prior=loss.log_prior, normalize=normalize, before=score == "before-update")
        agree(got, want, LOSS[dtype] * (1 if normalize else 1.7))
        same_state(loss.bank, bank)


@pytest.mark.parametrize("views", [1, 2, 3])
def test_many_classes_are_visited_in_tiles(views: int) -> None:
    """600 classes and 130 rows per view: the batch's classes are in every tile, and each view still sees the states of its turn."""
    loss = warm(BankLoss(600, DIM, temperature=TAU, class_counts=counts(600), dtype=torch.float64))
    bank = copy.deepcopy(loss.bank)
    batch, labels = views_of(views, batch=130), torch.randint(600, (130,))
    agree(run(loss, batch, labels), sequence(bank, batch, labels, temperature=TAU, log_prior=loss.log_prior), LOSS[torch.float64])
    same_state(loss.bank, bank)


@pytest.mark.parametrize("classes", [MANY, FEW])
@pytest.mark.parametrize(
    "bank_options",
    [
        {"unseen": "uniform"},
        {"decay": 0.5},
        {"memory": "two-epochs"},
        {"estimator": "mle", "cap": 500.0},
        {"small_samples": "unbiased"},
    ],
    ids=str,
)
def test_options_of_the_bank(bank_options: dict[str, Any], classes: int) -> None:
    loss = warm(BankLoss(classes, DIM, temperature=TAU, dtype=torch.float64, **bank_options))
    bank = copy.deepcopy(loss.bank)
    for step in range(2):
        batch, labels = views_of(2), torch.tensor(LABELS["repeated"]) + step
        agree(run(loss, batch, labels), sequence(bank, batch, labels, temperature=TAU), LOSS[torch.float64])
        for name, tensor in loss.bank.state_dict().items():
            torch.testing.assert_close(tensor, bank.state_dict()[name], rtol=1e-14, atol=1e-14)
        if loss.bank.memory == "two-epochs":
            for each in (loss.bank, bank):
                each.start_epoch(generator=torch.Generator().manual_seed(step))


@pytest.mark.parametrize("batch", [2, 4, 40])
@pytest.mark.parametrize("classes", [MANY, 600])
def test_long_features_are_not_taken_for_short_ones(classes: int, batch: int) -> None:
    """PATT's regime: ||f|| = 20 at tau = 0.1, concentrations at the cap, in float32. The bound is the length of a row, not of a column: 20 / 8 sqrt(B)."""
    single, double = (BankLoss(classes, DIM, temperature=TAU, normalize=False, dtype=dtype) for dtype in (torch.float32, torch.float64))
    double.load_state_dict({name: tensor.double() for name, tensor in single.state_dict().items()})
    views = 20 / math.sqrt(DIM) * torch.randn(2, batch, DIM).sign()
    labels = torch.arange(batch) % 7
    got, want = run(single, views, labels), run(double, views.double(), labels)
    tolerance = 16 * 200 * torch.finfo(torch.float32).eps / 2
    torch.testing.assert_close(got[0].double(), want[0], rtol=tolerance, atol=tolerance)
    assert (got[1].double() - want[1]).norm() <= 4 * tolerance * want[1].norm()


@pytest.mark.parametrize("classes", [MANY, FEW])
def test_the_running_maximum_of_an_early_view_may_be_a_class_of_the_batch(classes: int) -> None:
    """Every sample looks like the class of the next one, so the largest logit is neither the label's nor outside the batch; ||f|| / tau = 800."""
    loss = BankLoss(classes, DIM, temperature=TAU, normalize=False, class_counts=counts(classes), dtype=torch.float64, cap=2000.0)
    directions = F.normalize(torch.randn(4, DIM, dtype=torch.float64), dim=1)
    for _ in range(30):  # so that two more samples do not turn a class around
        loss.bank.update(80 * directions, torch.arange(4))
    bank = copy.deepcopy(loss.bank)
    views = 80 * directions.roll(-1, 0) + views_of(2)
    labels = torch.arange(4)
    want = sequence(bank, views, labels, temperature=TAU, log_prior=loss.log_prior, normalize=False)
    assert bool((want[0] > 1).all())
    agree(run(loss, views.detach(), labels), want, 80 * LOSS[torch.float64])


def test_features_of_any_scale_when_normalised() -> None:
    """The loss does not depend on the length, and the gradient is orthogonal to the feature and falls with it."""
    results = []
    for scale in (1e-3, 1.0, 1e4):
        torch.manual_seed(1)
        loss = warm(BankLoss(MANY, DIM, temperature=TAU, dtype=torch.float64))
        views = scale * views_of(2)
        rows, gradient = run(loss, views, torch.tensor(LABELS["repeated"]))
        assert (gradient * views).sum(-1).abs().max() <= 1e-13
        results.append((rows, gradient * scale))
    for other in (results[0], results[2]):
        agree(other, results[1], LOSS[torch.float64])


def test_a_zero_feature_is_no_disaster() -> None:
    loss = warm(BankLoss(MANY, DIM, temperature=TAU))
    views = views_of(2, dtype=torch.float32)
    views[1, 2] = 0
    rows, gradient = run(loss, views, torch.tensor(LABELS["distinct"]))
    assert bool(rows.isfinite().all())
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("classes", [MANY, FEW])
def test_evaluation_does_not_update(classes: int) -> None:
    loss = warm(BankLoss(classes, DIM, temperature=TAU, class_counts=counts(classes), dtype=torch.float64)).eval()
    before = copy.deepcopy(loss.bank)
    views, labels = views_of(2), torch.tensor(LABELS["repeated"])
    got = run(loss, views, labels)
    agree(got, sequence(loss.bank, views, labels, temperature=TAU, log_prior=loss.log_prior, update=False), LOSS[torch.float64])
    same_state(loss.bank, before)
    loss.train()(views, labels)
    assert loss.bank.counts.sum() == before.counts.sum() + 8


def test_without_gradients() -> None:
    """no_grad: the same losses, the same update."""
    torch.manual_seed(3)
    first, second = (warm(BankLoss(MANY, DIM, temperature=TAU, generator=torch.Generator().manual_seed(1))) for _ in range(2))
    second.load_state_dict(first.state_dict())
    views, labels = views_of(2, dtype=torch.float32), torch.tensor(LABELS["repeated"])
    want, _ = run(first, views, labels)
    with torch.no_grad():
        rows = second.rows(views.clone().requires_grad_(), labels)
    assert not rows.requires_grad
    torch.testing.assert_close(rows, want, rtol=1e-6, atol=1e-6)
    same_state(first.bank, second.bank)
    assert not second(views, labels).requires_grad


@pytest.mark.parametrize("classes", [MANY, FEW])
@pytest.mark.parametrize("name", ["arfr", "original", "consistent", "scott", "log-miller"])
def test_every_arm_is_its_sequence(name: str, classes: int) -> None:
    loss = warm(BankLoss(classes, 16, temperature=TAU, realization=name, dtype=torch.float64))
    bank = copy.deepcopy(loss.bank)
    views, labels = F.normalize(torch.randn(2, BATCH, 16, dtype=torch.float64), dim=-1), torch.tensor(LABELS["repeated"])
    got, want = run(loss, views, labels), sequence(bank, views, labels, temperature=TAU, realization=name)
    # capped concentrations: values of size 1e5 are subtracted by most of them
    agree(got, want, 1e4 * LOSS[torch.float64])


@pytest.mark.parametrize("name", ["original", "consistent", "arfr", "scott"])
def test_every_arm_in_float32(name: str) -> None:
    """The recurrences are evaluated in float64 and rounded once: at moderate concentrations all of them have the accuracy of float32."""
    single, double = (
        BankLoss(MANY, 16, temperature=0.5, realization=name, cap=50.0, dtype=dtype) for dtype in (torch.float32, torch.float64)
    )
    double.load_state_dict({key: tensor.double() for key, tensor in single.state_dict().items()})
    views, labels = torch.randn(2, BATCH, 16), torch.tensor(LABELS["repeated"])
    got, want = run(single, views, labels), run(double, views.double(), labels)
    torch.testing.assert_close(got[0].double(), want[0], rtol=1e-5, atol=1e-6)  # a score subtracts radii of 50 in scott
    assert (got[1].double() - want[1]).norm() <= 1e-5 * want[1].norm()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_original_and_consistent_differ_in_their_gradients_alone(dtype: torch.dtype) -> None:
    """p = 128 at radii of 64 nu, where the paper's defect is 1.57e-2: equal bits in scores and losses, one argument apart."""
    cap = 64.0 * 63
    views = F.normalize(torch.randn(2, BATCH, 128, dtype=torch.float64), dim=-1).to(dtype)
    labels = torch.tensor(LABELS["distinct"])
    found = {}
    for name in ("original", "consistent", "paired"):
        loss = BankLoss(MANY, 128, temperature=TAU, realization=name, cap=cap, dtype=dtype, generator=torch.Generator().manual_seed(2))
        scores = loss.scores(views[0])
        rows, gradient = run(loss, views[:1], labels)  # one sample per class: R = 1, and with it the cap
        assert loss.bank.concentration[labels].tolist() == [cap] * 4
        found[name] = scores, rows, gradient
    assert torch.equal(found["original"][0], found["consistent"][0])
    assert torch.equal(found["original"][1], found["consistent"][1])
    # every gradient of this loss is a sum of radial ones; the label's class is capped, and so is its defect
    defect = (found["original"][2] - found["consistent"][2]).norm() / found["consistent"][2].norm()
    assert 1e-3 < defect < 0.1
    # and only the finite recurrence is that far from the potential itself
    assert not torch.equal(found["paired"][1], found["original"][1])


def test_the_gradient_in_the_radius_has_the_published_defect() -> None:
    """A class against one that is uniform: the loss depends on one radius of 64 nu; the supplied slope is 1, the derivative 0.984317."""
    nu, views = 63, F.normalize(torch.randn(1, 1, 128, dtype=torch.float64), dim=-1)
    slopes = []
    for name in ("original", "consistent"):
        loss = BankLoss(
            2, 128, temperature=1.0, realization=name, cap=64.0 * nu - 1, normalize=False, unseen="uniform", dtype=torch.float64
        )
        rows, gradient = run(loss, views, torch.tensor([0]))
        away = -torch.expm1(-rows).item()  # 1 - p_y
        # d loss / d r_0 = -(1 - p) slope(r_0), and of the uniform class (1 - p) slope(1), which both have alike
        small = pg.potential(128, name).slope(torch.ones(1, dtype=torch.float64)).item()
        slopes.append(small - (gradient * views).sum().item() / away)
    assert slopes[0] == pytest.approx(1.0, abs=1e-9)
    assert slopes[1] == pytest.approx(0.984317, abs=1e-6)
    assert slopes[0] - slopes[1] == pytest.approx(1.57e-2, rel=5e-3)


@pytest.mark.parametrize("classes", [MANY, FEW])
@pytest.mark.parametrize("score", ["after-update", "before-update"])
def test_expanded_geometry(classes: int, score: str) -> None:
    options: dict[str, Any] = {"temperature": TAU, "class_counts": counts(classes), "score": score, "dtype": torch.float64, "cap": 1e3}
    factorised = warm(BankLoss(classes, DIM, **options))
    expanded = BankLoss(classes, DIM, geometry="expanded", **options)
    expanded.load_state_dict(factorised.state_dict())
    views, labels = views_of(2), torch.tensor(LABELS["repeated"])
    agree(run(expanded, views, labels), run(factorised, views, labels), 1e3 * LOSS[torch.float64])  # radii of 1e3 are rounded
    same_state(expanded.bank, factorised.bank)


def test_geometry_dtype() -> None:
    """Scores and loss in float64 against a float32 bank: the error of the float32 product is gone."""
    single = warm(BankLoss(MANY, DIM, temperature=TAU))
    wide = BankLoss(MANY, DIM, temperature=TAU, geometry_dtype=torch.float64)
    wide.load_state_dict(single.state_dict())
    double = BankLoss(MANY, DIM, temperature=TAU, dtype=torch.float64)
    double.load_state_dict({name: tensor.double() for name, tensor in single.state_dict().items()})
    views, labels = views_of(2, dtype=torch.float32), torch.tensor(LABELS["repeated"])
    got = run(wide, views, labels)
    assert got[0].dtype == torch.float64
    assert got[1].dtype == torch.float32
    want = run(double, views.double(), labels)
    torch.testing.assert_close(got[0], want[0], rtol=1e-6, atol=1e-6)  # normalised features and sums are still float32
    assert (got[1].double() - want[1]).norm() <= 2e-6 * want[1].norm()
    same_state(wide.bank, BankState(single, views, labels).bank)
    assert wide.scores(views[0]).dtype == torch.float64


class BankState:
    """The bank of a loss after a step, for comparison."""

    def __init__(self, loss: BankLoss, views: torch.Tensor, labels: torch.Tensor) -> None:
        loss.rows(views, labels)
        self.bank = loss.bank


def test_temperature_may_be_annealed() -> None:
    """A plan of an earlier temperature is not used again."""
    loss = warm(BankLoss(MANY, DIM, temperature=0.5, dtype=torch.float64)).eval()
    views, labels = views_of(2), torch.tensor(LABELS["distinct"])
    run(loss, views, labels)
    loss.temperature = 0.07
    agree(run(loss, views, labels), sequence(loss.bank, views, labels, temperature=0.07, update=False), 2 * LOSS[torch.float64])


def test_prior() -> None:
    """strength * log(n / sum n); a class without samples cannot win; set later it replaces the first."""
    sizes = [*range(1, MANY), 0]
    loss = BankLoss(MANY, DIM, temperature=TAU, class_counts=sizes, prior_strength=0.5, dtype=torch.float64)
    want = 0.5 * torch.log(torch.tensor(sizes, dtype=torch.float64) / sum(sizes))
    assert loss.log_prior is not None
    torch.testing.assert_close(loss.log_prior, want)
    views, labels = views_of(2), torch.tensor(LABELS["repeated"])
    bank = copy.deepcopy(loss.bank)
    agree(run(loss, views, labels), sequence(bank, views, labels, temperature=TAU, log_prior=want), LOSS[torch.float64])
    assert BankLoss(MANY, DIM).log_prior is None
    later = BankLoss(MANY, DIM, temperature=TAU, prior_strength=0.5, dtype=torch.float64)
    later(views, labels)
    later.load_state_dict({f"bank.{name}": tensor for name, tensor in bank.state_dict().items()})
    later.set_prior(sizes)
    agree(run(later, views, labels), sequence(bank, views, labels, temperature=TAU, log_prior=want), LOSS[torch.float64])
    with pytest.raises(ValueError, match="class_counts must have one number for each of the 40 classes, got 1"):
        later.set_prior([1.0])
    with pytest.raises(ValueError, match="class_counts must have one number for each of the 40 classes, got 3"):
        BankLoss(MANY, DIM, class_counts=[1, 2, 3])


def test_half_precision_leaves_bank_and_prior_alone() -> None:
    loss = BankLoss(MANY, DIM, temperature=TAU, class_counts=counts(MANY))
    assert loss.log_prior is not None
    before = loss.log_prior.clone(), loss.bank.sums.clone()
    loss.half()
    assert torch.equal(loss.log_prior, before[0])
    assert torch.equal(loss.bank.sums, before[1])
    rows = loss.rows(views_of(1, dtype=torch.float16), torch.tensor(LABELS["distinct"]))
    assert rows.dtype == torch.float32
    loss.double()
    assert loss.log_prior.dtype == loss.bank.sums.dtype == torch.float64
    assert loss.rows(views_of(1), torch.tensor(LABELS["distinct"])).dtype == torch.float64


def test_autocast_changes_nothing() -> None:
    views, labels = views_of(2, dtype=torch.float32), torch.tensor(LABELS["repeated"])
    results = []
    for enabled in (False, True):
        loss = BankLoss(MANY, DIM, temperature=TAU, generator=torch.Generator().manual_seed(4))
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            results.append((loss.rows(views, labels), loss.scores(views[0]), loss.bank.sums.clone()))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
