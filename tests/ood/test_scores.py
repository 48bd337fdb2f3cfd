"""OOD-ness from logits, against double precision and against its own order."""

import pytest
import torch

from pairgrad.ood import energy, max_logit, msp, vmf

LOGITS = torch.tensor([[2.0, 0.5, -1.0], [0.0, 0.1, 0.2], [-3.0, 9.0, 1.0]], dtype=torch.float64)


def test_against_plain_formulas():
    eps = torch.finfo(torch.float64).eps
    torch.testing.assert_close(msp(LOGITS), 1 - LOGITS.softmax(-1).amax(-1), rtol=0, atol=4 * eps)
    torch.testing.assert_close(energy(LOGITS), -LOGITS.exp().sum(-1).log(), rtol=8 * eps, atol=0)
    torch.testing.assert_close(energy(LOGITS, 2.5), -2.5 * (LOGITS / 2.5).exp().sum(-1).log(), rtol=8 * eps, atol=0)
    assert max_logit(LOGITS).tolist() == [-2.0, -0.2, -9.0]
    assert torch.equal(vmf(LOGITS), energy(LOGITS))
    prior = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    torch.testing.assert_close(vmf(LOGITS, prior.log()), -(LOGITS.exp() * prior).sum(-1).log(), rtol=8 * eps, atol=0)


def test_higher_is_more_out_of_distribution():
    sure, unsure = torch.tensor([[9.0, 0.0]]), torch.tensor([[1.0, 0.9]])
    for score in (msp, energy, max_logit, vmf):
        assert score(sure) < score(unsure)


def test_confident_samples_stay_apart():
    """In float32, 1 - max softmax is 0 from a margin of 17 on; the sum of the others tells margins up to 87 apart."""
    logits = torch.stack([torch.arange(18.0, 87.0), torch.zeros(69), torch.zeros(69)], dim=1)
    scores = msp(logits)
    assert (1 - logits.softmax(1).amax(1)).unique().numel() == 1
    assert bool((scores.diff() < 0).all())
    exact = 2 * (-logits[:, 0].double()).exp() / (1 + 2 * (-logits[:, 0].double()).exp())
    torch.testing.assert_close(scores.double(), exact, rtol=1e-6, atol=0)  # a few units of float32's last place


def test_large_logits_and_ties():
    assert msp(torch.tensor([[1e30, 1e30, -1e30]])).tolist() == [0.5]
    assert energy(torch.tensor([[1e4, 0.0]])).tolist() == [-1e4]
    assert energy(torch.tensor([[1e4, 0.0]]), 0.5).tolist() == [-1e4]
    assert msp(torch.zeros(4)).item() == 0.75
    assert msp(torch.ones(2, 1)).tolist() == [0.0, 0.0]
    assert energy(torch.zeros(2, 3, 5)).shape == (2, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    half = LOGITS.to(dtype)
    for score in (msp, energy, max_logit, vmf):
        assert score(half).dtype == torch.float32
        assert torch.equal(score(half), score(half.float()))


def test_gradients():
    assert torch.autograd.gradcheck(msp, LOGITS.clone().requires_grad_())
    assert torch.autograd.gradcheck(lambda z: energy(z, 0.7), LOGITS.clone().requires_grad_())


def test_what_is_refused():
    for score, name in [(msp, "logits"), (energy, "logits"), (max_logit, "logits"), (vmf, "scores")]:
        with pytest.raises(TypeError, match=f"{name} must"):
            score([1.0])
        with pytest.raises(ValueError, match=f"{name} must have the classes along the last dimension"):
            score(torch.zeros(3, 0))
        with pytest.raises(ValueError, match=f"{name} must have the classes along the last dimension"):
            score(torch.tensor(1.0))
    for temperature in (0, -1.0, float("inf"), float("nan"), True, "1"):
        with pytest.raises(ValueError, match="temperature must be a finite number > 0"):
            energy(LOGITS, temperature)
    with pytest.raises(ValueError, match="log_prior must have one entry for each of the 3 classes"):
        vmf(LOGITS, torch.zeros(2))
