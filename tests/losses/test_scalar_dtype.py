"""Geometry in float32 and the potential in float64, the arithmetic of the paper's training."""

import pytest
import torch

import pairgrad as pg
from pairgrad.certificates import certify_step

DIM, CLASSES = 64, 5


@pytest.fixture
def state():
    source = torch.Generator().manual_seed(5)
    directions = torch.nn.functional.normalize(torch.randn(CLASSES, DIM, generator=source), dim=1)
    return pg.ClassState(directions, torch.full((CLASSES,), 1e5))


@pytest.fixture
def features():
    return 3 * torch.randn(7, DIM, generator=torch.Generator().manual_seed(6))


@pytest.mark.parametrize("realization", ["paired", "arfr", "original", "consistent"])
def test_the_potential_alone_is_in_float64(realization, state, features):
    scores = pg.vmf_scores(features, state, realization=realization, geometry="expanded", scalar_dtype=torch.float64)
    rates = state.concentration / state.mean_direction.norm(dim=1)
    resultants = rates[:, None] * state.mean_direction + (features / 0.1)[:, None, :]  # eq. realized-vmf-score, in float32
    radius = torch.linalg.vector_norm(resultants, dim=-1)
    expected = pg.potential(DIM, realization).difference(state.concentration.double(), radius.double())
    assert scores.dtype == radius.dtype == torch.float32
    assert torch.equal(scores, expected.float())


def test_float32_scalars_give_other_scores(state, features):
    both = [pg.vmf_scores(features, state, geometry="expanded", scalar_dtype=dtype) for dtype in (None, torch.float64)]
    assert not torch.equal(*both)


@pytest.mark.parametrize("geometry", ["expanded", "factorised"])
def test_losses_and_their_gradients_are_those_of_the_scores(geometry, state, features):
    labels = torch.arange(7) % CLASSES
    options = {"geometry": geometry, "scalar_dtype": torch.float64}
    first, second = features.clone().requires_grad_(), features.clone().requires_grad_()
    loss = pg.vmf_cross_entropy(first, labels, state, **options)
    expected = torch.nn.functional.cross_entropy(pg.vmf_scores(second, state, **options), labels)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(*(torch.autograd.grad(value, at)[0] for value, at in ((loss, first), (expected, second))))


def test_a_loss_with_a_bank_passes_it_on(features):
    features, labels = features / 10, torch.tensor([0, 0, 1, 1, 2, 3, 4])
    losses = [pg.ProCoLoss(CLASSES, DIM, normalize=False, scalar_dtype=dtype) for dtype in (None, torch.float64)]
    losses[1].bank.load_state_dict(losses[0].bank.state_dict())
    plain, mixed = (loss(features, labels) for loss in losses)
    assert mixed.dtype == torch.float32
    assert not torch.equal(plain, mixed)
    torch.testing.assert_close(plain, mixed, rtol=1e-5, atol=1e-5)
    scores = losses[1].scores(features)
    expected = pg.vmf_scores(features, losses[1].bank, scalar_dtype=torch.float64)
    assert torch.equal(scores, expected)
    assert not torch.equal(scores, losses[0].scores(features))
    soft = torch.nn.functional.one_hot(labels, CLASSES).float()
    torch.testing.assert_close(losses[1].soft(features, soft), torch.nn.functional.cross_entropy(scores, soft), rtol=1e-6, atol=0)


def test_what_is_no_such_dtype_is_refused(state, features):
    for make in (lambda: pg.vmf_scores(features, state, scalar_dtype=torch.float16), lambda: pg.ProCoLoss(3, 8, scalar_dtype="float64")):
        with pytest.raises(TypeError, match=r"scalar_dtype must be None, torch\.float32 or torch\.float64, got"):
            make()


def test_certificates_say_that_they_do_not_cover_it(features):
    loss = pg.ProCoLoss(CLASSES, DIM, scalar_dtype=torch.float64)
    with pytest.raises(ValueError, match="scalar_dtype"):
        certify_step(loss, features, torch.arange(7) % CLASSES)
