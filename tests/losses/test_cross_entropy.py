"""`vmf_cross_entropy` is torch's cross-entropy of `vmf_scores` plus a prior: in value and in every gradient, with every option, and without the matrix."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import pairgrad as pg
from tests.losses.largest import Largest
from tests.losses.problem import BATCH, CLASSES, DIM, FLOAT64, TAU, WEIGHT, Problem, careful, compare, hard, soft

# Every value of an option meets every value of every other one in some row.
CASES = [
    # targets, reduction, weight, smoothing, tile, max_norm, prior, temperature as a tensor
    ("hard", "mean", None, 0.0, None, None, True, True),
    ("hard", "sum", WEIGHT, 0.1, 1, 1.5, False, False),
    ("hard", "none", None, 0.1, 3, None, True, False),
    ("hard", "none", WEIGHT, 0.0, 7, 1.5, True, True),
    ("hard", "mean", WEIGHT, 1.0, 11, None, False, True),
    ("ignored", "mean", WEIGHT, 0.0, 1, None, True, False),
    ("ignored", "mean", None, 0.1, 7, 1.5, False, True),
    ("ignored", "sum", None, 0.0, 3, 1.5, True, True),
    ("ignored", "none", WEIGHT, 0.1, 11, 1.5, True, False),
    ("ignored", "sum", WEIGHT, 1.0, None, None, True, False),
    ("soft", "mean", WEIGHT, 0.1, 3, 1.5, True, True),
    ("soft", "mean", None, 0.0, 1, None, False, False),
    ("soft", "sum", None, 0.0, 11, 1.5, True, False),
    ("soft", "none", WEIGHT, 0.0, 7, None, False, True),
    ("soft", "none", None, 0.1, None, 1.5, True, True),
]


@pytest.mark.parametrize(
    ("targets", "reduction", "weight", "smoothing", "tile", "max_norm", "prior", "tensor"),
    CASES,
    ids=lambda v: "w" if isinstance(v, torch.Tensor) else str(v),
)
def test_equals_torch_on_the_scores(
    targets: str,
    reduction: str,
    weight: torch.Tensor | None,
    smoothing: float,
    tile: int | None,
    max_norm: float | None,
    prior: bool,
    tensor: bool,
) -> None:
    labels = soft() if targets == "soft" else hard(ignored=targets == "ignored")
    ours, theirs = (Problem(prior=prior, tensor_temperature=tensor) for _ in range(2))
    options: dict[str, Any] = {"reduction": reduction, "weight": weight, "label_smoothing": smoothing}
    got = ours.loss(labels, tile=tile, max_norm=max_norm, **options)
    want = theirs.plain(labels, **options)
    compare(got, want, ours.leaves, theirs.leaves)


@pytest.mark.parametrize("name", ["arfr", "scott", "log-bessel", "original", "consistent"])
def test_every_realization(name: str) -> None:
    """With the gradients it supplies, whether or not they are those of its value."""
    ours, theirs = Problem(), Problem()
    # log-bessel, scott and the recurrences subtract values of size 1e4, and divide by a radius where the plain path differentiates b
    compare(ours.loss(hard(), realization=name, tile=3), theirs.plain(hard(), name), ours.leaves, theirs.leaves, 1e4 * FLOAT64)


def test_a_positive_ignore_index() -> None:
    labels = hard()
    ours, theirs = Problem(), Problem()
    compare(ours.loss(labels, ignore_index=3), theirs.plain(labels, ignore_index=3), ours.leaves, theirs.leaves)
    outside = torch.tensor([0, 255, 10, 3, 255])
    ours, theirs = Problem(), Problem()
    compare(
        ours.loss(outside, ignore_index=255, label_smoothing=0.2),
        theirs.plain(outside, ignore_index=255, label_smoothing=0.2),
        ours.leaves,
        theirs.leaves,
    )


@pytest.mark.parametrize("options", [{}, {"tile": 4}, {"geometry": "expanded"}], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_all_rows_ignored(options: dict[str, Any], smoothing: float) -> None:
    """0, connected to the graph, where torch gives NaN: an empty batch adds nothing."""
    problem = Problem()
    labels = torch.full((BATCH,), -100)
    loss = problem.loss(labels, label_smoothing=smoothing, **options)
    assert loss.item() == 0
    for gradient in torch.autograd.grad(loss, problem.leaves):
        assert torch.equal(gradient, torch.zeros_like(gradient))
    assert torch.func.vmap(lambda f: pg.vmf_cross_entropy(f[None], labels[:1], problem.state, TAU))(problem.features.detach()).eq(0).all()


def test_no_rows() -> None:
    problem = Problem(batch=1)
    features = torch.zeros(0, DIM, dtype=torch.float64, requires_grad=True)
    for labels in (torch.zeros(0, dtype=torch.int64), torch.zeros(0, CLASSES, dtype=torch.float64)):
        loss = pg.vmf_cross_entropy(features, labels, problem.state, TAU)
        assert loss.item() == 0
        assert torch.autograd.grad(loss, features)[0].shape == (0, DIM)
        assert pg.vmf_cross_entropy(features, labels, problem.state, TAU, reduction="none").shape == (0,)


def test_one_class() -> None:
    """There is nothing to lose."""
    problem = Problem(classes=1, prior=False)
    loss = problem.loss(torch.zeros(BATCH, dtype=torch.int64))
    assert loss.item() == 0
    for gradient in torch.autograd.grad(loss, problem.leaves):
        assert gradient.abs().max() <= 1e-15


def with_impossible(problem: Problem, classes: list[int]) -> Problem:
    assert problem.prior is not None
    prior = problem.prior.detach().clone()
    prior[classes] = -torch.inf
    problem.prior = prior.requires_grad_()
    return problem


@pytest.mark.parametrize("tile", [1, 4, 11])
@pytest.mark.parametrize("max_norm", [None, 1.5])
def test_classes_that_cannot_occur(tile: int, max_norm: float | None) -> None:
    """Also when the first tile has no other class, and as class 0, which stands in for the labels of ignored rows."""
    for impossible, labels in (([1, 2, 4, 5], hard()), ([0, 1, 2], torch.tensor([-100, 3, 10, 3, 7]))):
        ours, theirs = (with_impossible(Problem(), impossible) for _ in range(2))
        got, want = ours.loss(labels, tile=tile, max_norm=max_norm), theirs.plain(labels)
        compare(got, want, ours.leaves, theirs.leaves)
        torch.testing.assert_close(ours.loss(labels, geometry="expanded"), want, rtol=1e4 * FLOAT64, atol=0)


@pytest.mark.parametrize("tile", [1, 11])
def test_probabilities_of_classes_that_cannot_occur(tile: int) -> None:
    """0 times infinity is 0 here, as everywhere in entropy; torch gives NaN. So the truth is torch's on the other classes."""
    impossible, kept = [0, 1, 6], [2, 3, 4, 5, 7, 8, 9, 10]
    targets = torch.zeros(BATCH, CLASSES, dtype=torch.float64)
    targets[:, kept] = soft()[:, kept]
    ours, theirs = with_impossible(Problem(), impossible), Problem()
    got = ours.loss(targets, tile=tile)
    scores = pg.vmf_scores(theirs.features, theirs.state, theirs.temperature) + theirs.prior
    want = F.cross_entropy(scores[:, kept], targets[:, kept])
    compare(got, want, ours.leaves, theirs.leaves)
    torch.testing.assert_close(ours.loss(targets, geometry="expanded"), want)
    graph = torch.autograd.grad(ours.loss(targets, tile=tile), ours.leaves, create_graph=True)
    for first, second in zip(graph, torch.autograd.grad(ours.loss(targets, tile=tile), ours.leaves), strict=True):
        torch.testing.assert_close(first, second)


def test_a_label_that_cannot_occur_has_infinite_loss_and_the_gradient_of_torch() -> None:
    ours, theirs = (with_impossible(Problem(), [3]) for _ in range(2))
    got, want = ours.loss(hard(), reduction="none", tile=4), theirs.plain(hard(), reduction="none")
    assert got.isinf().tolist() == [False, True, False, True, False]
    compare(got, want, ours.leaves, theirs.leaves)


@pytest.mark.parametrize("tile", [None, 3, 11])
@pytest.mark.parametrize("reach", [1.0, 31.9, 32.1, 63.9, 64.1, 100.0, 400.0])
def test_long_features_in_float32(reach: float, tile: int | None) -> None:
    """||f|| / tau on both sides of where the running maximum sets in, up to 400: no overflow, and the accuracy that logits of that size leave.

    Of the five rows, one is labelled with its own class and one points away from all classes.
    """
    single, double = (
        Problem(dtype=dtype, length=reach * TAU, learned=False, tensor_temperature=False) for dtype in (torch.float32, torch.float64)
    )
    with torch.no_grad():
        away = -double.rows.mean(0)
        double.features[4] = away / away.norm() * reach * TAU
        for name in ("features", "rows", "concentration", "prior"):  # the float32 numbers are the exact ones
            getattr(single, name).copy_(getattr(double, name))
            getattr(double, name).copy_(getattr(single, name))
    got = single.loss(hard(), reduction="none", tile=tile)
    want = careful(pg.vmf_scores(double.features, double.state, TAU) + double.prior, hard())
    gradients = [torch.autograd.grad(loss.sum(), problem.features)[0] for loss, problem in ((got, single), (want, double))]
    # an error of a logit, SCORE_ROUNDINGS u ||f|| / tau, is a relative error of a probability
    tolerance = 2 * 16 * torch.finfo(torch.float32).eps / 2 * (1 + reach)
    torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=0)
    error = (gradients[0].double() - gradients[1]).norm(dim=1) / gradients[1].norm(dim=1)
    assert error.max() <= 2 * tolerance + 2e-6, error


@pytest.mark.parametrize("tile", [1000, None])
@pytest.mark.parametrize("reach", [63.9, 79.9])
def test_many_classes_at_the_far_end(reach: float, tile: int | None) -> None:
    """30,000 classes as close as can be and a label on the other side, or all of them on the other side: sums and products of weights stay in range."""
    features = F.normalize(torch.randn(1, 32), dim=1)
    labels, concentration = torch.zeros(1, dtype=torch.int64), torch.full((30_000,), 1e5)
    for side in (1.0, -1.0):
        rows = side * features + 1e-3 * torch.randn(30_000, 32)
        rows[0] = -features[0]
        results = []
        for dtype in (torch.float32, torch.float64):
            leaf = features.to(dtype).requires_grad_()
            loss = pg.vmf_cross_entropy(leaf, labels, pg.ClassState(rows.to(dtype), concentration.to(dtype)), 1 / reach, tile=tile)
            results.append((loss.item(), torch.autograd.grad(loss, leaf)[0].double()))
        (got, gradient), (want, truth) = results
        # logits near +-reach, with 16 roundings each
        tolerance = 2 * 16 * reach * torch.finfo(torch.float32).eps / 2
        assert got == pytest.approx(want, abs=tolerance)
        # the classes and the label each pull with 1 / tau = reach; on the same side they cancel
        assert (gradient - truth).norm() <= 2 * tolerance * reach


@pytest.mark.parametrize("tile", [3, 11])
def test_wide_priors_in_float32(tile: int) -> None:
    """Log priors from 0 to -100: a label that is all but impossible, weights of e^100 against it, and the top still fixed in advance."""
    single, double = (Problem(dtype=dtype, learned=False, tensor_temperature=False) for dtype in (torch.float32, torch.float64))
    for problem in (single, double):
        problem.prior = torch.linspace(-100, 0, CLASSES, dtype=problem.features.dtype)
    got, want = single.loss(hard(), reduction="none", tile=tile), double.loss(hard(), reduction="none", tile=11)
    assert want[0] > 80
    torch.testing.assert_close(got.double(), want, rtol=2e-6, atol=2 * 16 * (1 / TAU) * torch.finfo(torch.float32).eps / 2)
    ours, theirs = (torch.autograd.grad(loss.sum(), problem.features)[0] for loss, problem in ((got, single), (want, double)))
    # logits of size 100 are rounded to 4e-6
    assert ((ours.double() - theirs).norm(dim=1) / theirs.norm(dim=1)).max() <= 4e-5


@pytest.mark.parametrize("tile", [3, None])
def test_small_losses_keep_their_digits(tile: int | None) -> None:
    """p_y -> 1: loss and gradient fall to 1e-12, and float32 keeps them to a relative accuracy that torch, by subtraction, does not have."""
    lengths = torch.tensor([1.0, 4.0, 7.0, 11.0])
    rows = F.normalize(torch.randn(CLASSES, DIM), dim=1)
    features = lengths[:, None] * rows[:4]
    state = {dtype: pg.ClassState(rows.to(dtype), torch.full((CLASSES,), 2000.0, dtype=dtype)) for dtype in (torch.float32, torch.float64)}
    leaf, double = features.clone().requires_grad_(), features.double().requires_grad_()
    losses = pg.vmf_cross_entropy(leaf, torch.arange(4), state[torch.float32], 0.3, reduction="none", tile=tile)
    exact = careful(pg.vmf_scores(double, state[torch.float64], 0.3), torch.arange(4))
    got, gradient = losses.detach().double(), torch.autograd.grad(losses.sum(), leaf)[0].double()
    want, truth = exact.detach(), torch.autograd.grad(exact.sum(), double)[0]
    assert want[-1] < 1e-12
    tolerance = 2 * 16 * (11 / 0.3) * torch.finfo(torch.float32).eps / 2
    torch.testing.assert_close(got, want, rtol=tolerance, atol=0)
    assert ((gradient - truth).norm(dim=1) / truth.norm(dim=1)).max() <= 2 * tolerance + 2e-6
    torch_loss = F.cross_entropy(pg.vmf_scores(features, state[torch.float32], 0.3), torch.arange(4), reduction="none")
    assert torch_loss[-1] == 0


def test_max_norm_and_what_is_found_are_the_same() -> None:
    """A bound that is not sharp changes the series and the maximum, not the result."""
    results = []
    for bound in (None, 1.0001, 3.0, 1e4):
        problem = Problem(tensor_temperature=False)
        loss = problem.loss(hard(), max_norm=bound, tile=4)
        results.append((loss, torch.autograd.grad(loss, problem.leaves)))
    for loss, gradients in results[1:]:
        torch.testing.assert_close(loss, results[0][0], rtol=FLOAT64, atol=0)
        for got, want in zip(gradients, results[0][1], strict=True):
            assert (got - want).abs().max() <= FLOAT64 * want.abs().max()


@pytest.mark.parametrize("targets", ["hard", "smoothed"])
@pytest.mark.parametrize("learned", [False, True])
def test_never_holds_the_scores_of_all_classes(learned: bool, targets: str) -> None:
    """With a tile of 64 of 512 classes, forward and backward make nothing larger than the class rows that are there anyway."""
    batch, classes, dim = 96, 512, 32
    features = torch.randn(batch, dim, requires_grad=True)
    rows = torch.randn(classes, dim, requires_grad=learned)
    concentration = (1 + torch.rand(classes)).requires_grad_(learned)
    labels = torch.arange(batch)
    state = pg.ClassState(rows, concentration)
    with Largest() as seen:
        loss = pg.vmf_cross_entropy(features, labels, state, tile=64, label_smoothing=0.1 if targets == "smoothed" else 0.0)
        loss.backward()
    assert seen.elements <= classes * dim  # the rows themselves, converted or their gradient
    assert (batch, classes) not in seen.shapes
    assert not any(classes in shape and len(shape) > 1 and shape[-1] == classes and shape[-2] > 1 for shape in seen.shapes)
    assert any(shape[-2:] == (batch, 64) for shape in seen.shapes)
    assert features.grad is not None
    assert rows.grad is None or rows.grad.shape == rows.shape


def test_float32_and_half() -> None:
    single, double = Problem(dtype=torch.float32, learned=False, tensor_temperature=False), Problem(learned=False)
    loss = single.loss(hard())
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), double.loss(hard()), rtol=1e-5, atol=0)
    half = single.features.detach().to(torch.bfloat16).requires_grad_()
    low = pg.vmf_cross_entropy(half, hard(), single.state, TAU, single.prior)
    assert low.dtype == torch.float32
    assert torch.equal(low, pg.vmf_cross_entropy(half.detach().float(), hard(), single.state, TAU, single.prior))
    (gradient,) = torch.autograd.grad(low, half)
    assert gradient.dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(single.loss(hard()), loss)
    wide = pg.vmf_cross_entropy(single.features, hard(), single.state, TAU, single.prior, geometry_dtype=torch.float64)
    assert wide.dtype == torch.float64
    assert torch.autograd.grad(wide, single.features)[0].dtype == torch.float32


def test_expanded_geometry() -> None:
    ours, theirs = Problem(), Problem()
    options: dict[str, Any] = {"label_smoothing": 0.1, "weight": WEIGHT}
    got, want = ours.loss(hard(ignored=True), geometry="expanded", **options), theirs.plain(hard(ignored=True), **options)
    compare(got, want, ours.leaves, theirs.leaves, 1e4 * FLOAT64)  # radii of 1e4 are rounded before they are subtracted


def test_label_dtypes() -> None:
    problem = Problem()
    want = problem.loss(hard())
    for dtype in (torch.int32, torch.int16, torch.uint8):
        assert torch.equal(problem.loss(hard().to(dtype)), want)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"reduction": "avg"}, ValueError, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
        ({"geometry": "dense"}, ValueError, "geometry must be one of 'factorised', 'expanded', got 'dense'"),
        ({"temperature": 0.0}, ValueError, "temperature must be a positive finite number, got 0.0"),
        ({"label_smoothing": 1.5}, ValueError, r"label_smoothing must be a number in \[0, 1\], got 1.5"),
        ({"label_smoothing": -0.1}, ValueError, r"label_smoothing must be a number in \[0, 1\], got -0.1"),
        ({"state": None}, TypeError, "state must be a pairgrad.ClassBank or a pairgrad.ClassState, got None"),
        (
            {"features": torch.ones(2, 1, 8)},
            ValueError,
            r"features must have shape \(batch, dim=8\), got a float32 tensor of shape \(2, 1, 8\)",
        ),
        ({"features": torch.full((2, 8), torch.nan)}, ValueError, "features must be finite"),
        ({"labels": torch.tensor([0, 3])}, ValueError, r"labels must lie in \[0, 2\], got values from 0 to 3"),
        ({"labels": torch.tensor([0, -1])}, ValueError, r"labels must lie in \[0, 2\], got values from -1 to 0"),
        ({"labels": torch.tensor([0])}, ValueError, r"labels must have shape \(2,\), one per row of features"),
        ({"labels": [0, 1]}, TypeError, "labels must be an integer torch tensor"),
        ({"labels": torch.ones(2, 4)}, ValueError, r"labels as probabilities must have shape \(2, 3\)"),
        ({"labels": torch.full((2, 3), torch.nan)}, ValueError, "labels as probabilities must be finite"),
        ({"log_prior": torch.zeros(4)}, ValueError, r"log_prior must have shape \(3,\), one number per class, on cpu"),
        ({"log_prior": torch.tensor([0.0, torch.inf, 0.0])}, ValueError, r"log_prior must not contain NaN or \+inf"),
        ({"log_prior": torch.tensor([0.0, torch.nan, 0.0])}, ValueError, r"log_prior must not contain NaN or \+inf"),
        ({"log_prior": [0.0, 0.0, 0.0]}, TypeError, "log_prior must be a floating-point torch tensor"),
        ({"weight": torch.zeros(4)}, ValueError, r"weight must have shape \(3,\)"),
        ({"max_norm": 0.0}, ValueError, "max_norm must be a positive number, a bound on the length of the features, got 0.0"),
        ({"max_norm": math.inf}, ValueError, "max_norm must be a positive number, a bound on the length of the features, got inf"),
        ({"realization": "exact"}, ValueError, "realization must be one of"),
        ({"geometry_dtype": torch.bfloat16}, TypeError, "geometry_dtype must be torch.float32 or torch.float64"),
    ],
    ids=lambda v: str(v)[:50] if isinstance(v, dict) else "",
)
def test_errors(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {
        "features": torch.ones(2, 8),
        "labels": torch.tensor([0, 1]),
        "state": pg.ClassState(torch.ones(3, 8), torch.ones(3)),
        **change,
    }
    with pytest.raises(error, match=message):
        pg.vmf_cross_entropy(**arguments)
