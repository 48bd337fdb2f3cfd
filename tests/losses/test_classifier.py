"""The vMF classifier: its logits are the scores or log densities of its parameters, and its loss their cross-entropy, fused or not."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import pairgrad as pg

DIM, CLASSES = 16, 5


def head(**options: Any) -> pg.VMFClassifier:
    made = pg.VMFClassifier(CLASSES, DIM, **{"dtype": torch.float64, **options})
    with torch.no_grad():  # classes of different concentration, rows of different length
        made.log_concentration.add_(torch.linspace(-2, 2, CLASSES, dtype=made.weight.dtype))
        made.weight.mul_(torch.linspace(0.5, 3, CLASSES, dtype=made.weight.dtype)[:, None])
    return made


def features(count: int = 4, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(count, DIM, dtype=torch.float64).to(dtype)


def test_initial_state() -> None:
    made = pg.VMFClassifier(CLASSES, DIM)
    assert {name: tuple(p.shape) for name, p in made.named_parameters()} == {"weight": (CLASSES, DIM), "log_concentration": (CLASSES,)}
    torch.testing.assert_close(made.weight.norm(dim=1), torch.ones(CLASSES))
    torch.testing.assert_close(made.concentration, torch.full((CLASSES,), float(DIM)))
    assert made.temperature == 0.1
    assert pg.VMFClassifier(CLASSES, DIM, concentration=3.0).concentration[0].item() == pytest.approx(3)
    learned = pg.VMFClassifier(CLASSES, DIM, learn_temperature=True, temperature=0.3, dtype=torch.float64)
    assert isinstance(learned.temperature, torch.Tensor)
    assert learned.temperature.item() == pytest.approx(0.3)
    assert "log_temperature" in dict(learned.named_parameters())


def test_marginal_logits_are_scores() -> None:
    made, inputs = head(temperature=0.2), features()
    want = pg.vmf_scores(inputs, pg.ClassState(made.weight, made.log_concentration.exp()), 0.2)
    assert torch.equal(made(inputs), want)
    assert made(inputs.reshape(2, 1, 2, DIM)).shape == (2, 1, 2, CLASSES)
    assert torch.equal(head(realization="arfr")(inputs[:0]), torch.zeros(0, CLASSES, dtype=torch.float64))


def test_density_logits_are_log_densities() -> None:
    """kappa mu . x - Phi(kappa), whose differences are those of log densities in dimension 3: log(kappa / sinh kappa) + kappa mu . x."""
    made = pg.VMFClassifier(2, 3, score="density", dtype=torch.float64)
    with torch.no_grad():
        made.log_concentration.copy_(torch.tensor([0.3, 1.7], dtype=torch.float64))
    inputs = torch.randn(6, 3, dtype=torch.float64)
    logits = made(inputs)
    kappa = made.concentration.tolist()
    normaliser = torch.tensor([math.log(k / math.sinh(k)) for k in kappa], dtype=torch.float64)
    cosines = F.normalize(inputs, dim=1) @ F.normalize(made.weight, dim=1).t()
    want = normaliser + made.concentration * cosines
    torch.testing.assert_close(logits[:, 0] - logits[:, 1], want[:, 0] - want[:, 1])
    torch.testing.assert_close(made(7 * inputs), logits)
    assert made(inputs.reshape(2, 3, 3)).shape == (2, 3, 2)


@pytest.mark.parametrize("score", ["marginal", "density"])
def test_loss_is_the_cross_entropy_of_the_logits(score: str) -> None:
    made, inputs = head(score=score), features().requires_grad_()
    labels, prior = torch.tensor([0, 4, 1, 1]), torch.log_softmax(torch.arange(5.0, dtype=torch.float64), 0)
    options = {"reduction": "sum", "label_smoothing": 0.1, "weight": torch.linspace(0.5, 2, 5, dtype=torch.float64)}
    parameters = [inputs, *made.parameters()]
    got, want = made.loss(inputs, labels, log_prior=prior, **options), F.cross_entropy(made(inputs) + prior, labels, **options)
    torch.testing.assert_close(got, want)
    for ours, theirs in zip(torch.autograd.grad(got, parameters), torch.autograd.grad(want, parameters), strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(made.loss(inputs, labels), F.cross_entropy(made(inputs), labels))


@pytest.mark.parametrize("score", ["marginal", "density"])
def test_gradcheck_of_every_parameter(score: str) -> None:
    made = pg.VMFClassifier(3, 4, score=score, temperature=0.4, learn_temperature=score == "marginal", dtype=torch.float64)
    names = [name for name, _ in made.named_parameters()]
    labels = torch.tensor([2, 0])

    def loss(inputs: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        call = torch.func.functional_call(_LossOf(made), {f"head.{n}": p for n, p in zip(names, parameters, strict=True)}, (inputs, labels))
        return call

    inputs = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (inputs, *(p.detach().clone().requires_grad_() for p in made.parameters())))


class _LossOf(torch.nn.Module):
    def __init__(self, made: pg.VMFClassifier) -> None:
        super().__init__()
        self.head = made

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.head.loss(inputs, labels, tile=2) if self.head.score == "marginal" else self.head.loss(inputs, labels)


def test_longer_features_are_more_certain() -> None:
    """In the marginal score the length of a feature is its concentration: the entropy of the prediction falls with it."""
    made, inputs = head(), F.normalize(features(1), dim=1)
    entropies = [torch.distributions.Categorical(logits=made(scale * inputs)).entropy().item() for scale in (0.01, 0.3, 3.0)]
    assert entropies[0] > entropies[1] > entropies[2]


@pytest.mark.parametrize("score", ["marginal", "density"])
def test_it_learns(score: str) -> None:
    means = F.normalize(torch.randn(CLASSES, DIM), dim=1)
    labels = torch.arange(50) % CLASSES
    inputs = F.normalize(means[labels] + 0.1 * torch.randn(50, DIM), dim=1)
    made = pg.VMFClassifier(CLASSES, DIM, score=score, learn_temperature=score == "marginal")
    optimizer = torch.optim.Adam(made.parameters(), lr=0.1)
    values = []
    for _ in range(20):
        loss = made.loss(inputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    assert values[-1] < values[0] / 3
    assert (made(inputs).argmax(1) == labels).float().mean() > 0.9


def test_dtypes_and_copies() -> None:
    single = head(dtype=torch.float32)
    inputs = features(dtype=torch.float32)
    assert single(inputs).dtype == torch.float32
    assert single(inputs.half()).dtype == torch.float32
    density = head(score="density", dtype=torch.float32)
    plain = density(inputs)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(density(inputs), plain)
        assert torch.equal(single(inputs), single(inputs))
    other = pg.VMFClassifier(CLASSES, DIM)
    other.load_state_dict(single.state_dict())
    assert torch.equal(other(inputs), single(inputs))
    assert torch.equal(copy.deepcopy(single)(inputs), single(inputs))
    assert repr(single) == "VMFClassifier(num_classes=5, dim=16, score='marginal', realization='paired')"


@pytest.mark.slow
@pytest.mark.parametrize("score", ["marginal", "density"])
def test_compiled(score: str) -> None:
    torch._dynamo.reset()
    made, inputs = head(score=score, dtype=torch.float32), features(dtype=torch.float32)
    labels = torch.tensor([0, 4, 1, 1])
    got, want = pg.compile(lambda x: made.loss(x, labels))(inputs), made.loss(inputs, labels)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(torch.autograd.grad(got, made.parameters()), torch.autograd.grad(want, made.parameters()), strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"score": "joint"}, ValueError, "score must be one of 'marginal', 'density', got 'joint'"),
        ({"temperature": 0.0}, ValueError, "temperature must be a positive finite number"),
        ({"concentration": -1.0}, ValueError, "concentration must be positive and finite, got -1.0"),
        ({"concentration": math.inf}, ValueError, "concentration must be positive and finite, got inf"),
        ({"learn_temperature": True, "score": "density"}, ValueError, "learn_temperature needs score='marginal'"),
        ({"dim": 1}, ValueError, "dim must be an integer >= 2, got 1"),
        ({"num_classes": 0}, ValueError, "num_classes must be an integer >= 1, got 0"),
        ({"realization": "exact"}, ValueError, "realization must be one of"),
    ],
    ids=lambda v: str(v)[:40] if isinstance(v, dict) else "",
)
def test_wrong_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pg.VMFClassifier(**{"num_classes": CLASSES, "dim": DIM, **options})


@pytest.mark.parametrize("score", ["marginal", "density"])
def test_wrong_inputs(score: str) -> None:
    made = head(score=score)
    with pytest.raises(ValueError, match=r"features must have shape \(batch, dim=16\)"):
        made(torch.ones(2, 3, dtype=torch.float64))
    with pytest.raises(ValueError, match="features must be finite"):
        made(torch.full((2, DIM), torch.nan, dtype=torch.float64))
    with pytest.raises(TypeError, match="labels must be a"):
        made.loss(features(), [0, 1, 2, 3])


def test_options_of_the_fused_pass_belong_to_the_marginal_score() -> None:
    head = pg.VMFClassifier(3, 8, score="density")
    with pytest.raises(ValueError, match="belong to score='marginal'"):
        head.loss(torch.randn(2, 8), torch.tensor([0, 1]), tile=2)
