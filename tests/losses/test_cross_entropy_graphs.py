"""`vmf_cross_entropy` in graphs: banks that go on, repeated and double backward, `torch.func`, `torch.compile`."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

import pairgrad as pg
from tests.losses.problem import CLASSES, DIM, FLOAT64, TAU, WEIGHT, Problem, compare, hard, soft


def banks(dtype: torch.dtype = torch.float64) -> pg.ClassBank:
    bank = pg.ClassBank(CLASSES, DIM, dtype=dtype, generator=torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(6)
    bank.update(F.normalize(torch.randn(40, DIM, generator=generator), dim=1), torch.arange(40) % (CLASSES - 1))
    return bank


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_bank_as_state(smoothing: float) -> None:
    bank = banks()
    ours, theirs = Problem(learned=False), Problem(learned=False)
    for problem in (ours, theirs):
        problem.temperature = torch.tensor(TAU, dtype=torch.float64, requires_grad=True)
        assert problem.prior is not None
        problem.prior.requires_grad_()
    got = pg.vmf_cross_entropy(ours.features, hard(), bank, ours.temperature, ours.prior, tile=4, label_smoothing=smoothing)
    scores = pg.vmf_scores(theirs.features, bank, theirs.temperature) + theirs.prior
    compare(got, F.cross_entropy(scores, hard(), label_smoothing=smoothing), ours.leaves, theirs.leaves)
    assert torch.equal(bank.counts, banks().counts)


def test_a_bank_may_be_updated_before_backward() -> None:
    """The gradient in the features is known by then. What would evaluate the bank again says that it cannot."""
    bank = banks()
    features = Problem().features
    want = torch.autograd.grad(pg.vmf_cross_entropy(features, hard(), bank, TAU), features)[0]
    loss = pg.vmf_cross_entropy(features, hard(), bank, TAU)
    temperature = torch.tensor(TAU, dtype=torch.float64, requires_grad=True)
    other = pg.vmf_cross_entropy(features, hard(), bank, temperature)
    bank.update(features.detach(), hard())
    assert torch.equal(torch.autograd.grad(loss, features, retain_graph=True)[0], want)
    with pytest.raises(RuntimeError, match=r"the class state was changed between the forward and a backward that evaluates it again"):
        torch.autograd.grad(loss, features, create_graph=True)
    with pytest.raises(RuntimeError, match=r"the class state was changed between the forward and a backward that evaluates it again"):
        torch.autograd.grad(other, temperature)


def test_second_backward_with_retain_graph() -> None:
    problem = Problem()
    loss = problem.loss(hard(), label_smoothing=0.1)
    first = torch.autograd.grad(loss, problem.leaves, retain_graph=True)
    second = torch.autograd.grad(loss, problem.leaves)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_only_what_requires_gradients_gets_them() -> None:
    """Each of the five alone, features with and without."""
    names = ("features", "rows", "concentration", "temperature", "prior")
    whole = Problem()
    want = dict(zip(names, torch.autograd.grad(whole.loss(hard()), whole.leaves), strict=True))
    for name in names:
        problem = Problem(learned=False)
        problem.features.requires_grad_(False)
        getattr(problem, name).requires_grad_()
        (got,) = torch.autograd.grad(problem.loss(hard(), tile=4), problem.leaves)
        assert (got - want[name]).abs().max() <= FLOAT64 * want[name].abs().max(), name
    with torch.no_grad():
        assert not whole.loss(hard()).requires_grad
    fixed = Problem(learned=False)
    fixed.features.requires_grad_(False)
    assert not fixed.loss(hard()).requires_grad


def test_create_graph_gives_the_same_first_derivatives() -> None:
    problem = Problem()
    loss = problem.loss(hard(ignored=True), label_smoothing=0.1, weight=WEIGHT, tile=4)
    plain = torch.autograd.grad(loss, problem.leaves, retain_graph=True)
    graph = torch.autograd.grad(loss, problem.leaves, create_graph=True)
    for got, want in zip(graph, plain, strict=True):
        assert got.requires_grad
        assert (got - want).abs().max() <= FLOAT64 * want.abs().max()


def small(dim: int = 5) -> tuple[torch.Tensor, ...]:
    """features, rows, concentration, temperature, prior"""
    double = {"dtype": torch.float64}
    tensors = (
        torch.randn(2, dim, **double),
        torch.randn(3, dim, **double),
        1 + 20 * torch.rand(3, **double),
        torch.tensor(0.3, **double),
        torch.randn(3, **double),
    )
    return tuple(t.requires_grad_() for t in tensors)


@pytest.mark.parametrize("targets", ["hard", "soft"])
def test_gradcheck_and_gradgradcheck(targets: str) -> None:
    labels = torch.tensor([2, 0]) if targets == "hard" else torch.tensor([[0.2, 0.5, 0.3], [0.0, 0.1, 0.9]], dtype=torch.float64)

    def loss(
        features: torch.Tensor, rows: torch.Tensor, kappa: torch.Tensor, temperature: torch.Tensor, prior: torch.Tensor
    ) -> torch.Tensor:
        return pg.vmf_cross_entropy(features, labels, pg.ClassState(rows, kappa), temperature, prior, tile=2, label_smoothing=0.05)

    assert gradcheck(loss, small(), fast_mode=targets == "soft")
    assert gradgradcheck(loss, small(), fast_mode=True)


def test_torch_func() -> None:
    """grad, vmap and jvp see the same function."""
    problem = Problem(learned=False)
    features, labels, prior = problem.features.detach(), hard(), problem.prior

    def one(feature: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return pg.vmf_cross_entropy(feature[None], label[None], problem.state, TAU, prior)

    leaf = features.clone().requires_grad_()
    rows = pg.vmf_cross_entropy(leaf, labels, problem.state, TAU, prior, reduction="none")
    (want,) = torch.autograd.grad(rows.sum(), leaf)
    label = labels[:1][0]
    torch.testing.assert_close(torch.func.vmap(lambda f: one(f, label))(features[:1]), rows.detach()[:1])
    torch.testing.assert_close(torch.func.grad(one)(features[2], labels[2]), want[2])
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(lambda f: one(f, label)))(features[:1]), want[:1])
    direction = torch.randn_like(features)
    value, tangent = torch.func.jvp(lambda f: pg.vmf_cross_entropy(f, labels, problem.state, TAU, prior, "sum"), (features,), (direction,))
    torch.testing.assert_close(value, rows.detach().sum())
    torch.testing.assert_close(tangent, (want * direction).sum())
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(features, direction)
        loss = pg.vmf_cross_entropy(dual, labels, problem.state, TAU, prior, "sum")
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(loss).tangent, (want * direction).sum())


def test_vmap_over_labels() -> None:
    """Gradients per sample."""
    problem = Problem(learned=False)

    def one(feature: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return pg.vmf_cross_entropy(feature[None], label[None], problem.state, TAU)

    rows = pg.vmf_cross_entropy(problem.features, hard(), problem.state, TAU, reduction="none")
    (want,) = torch.autograd.grad(rows.sum(), problem.features)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(one))(problem.features.detach(), hard()), want)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_in_one_graph(backend: str) -> None:
    torch._dynamo.reset()
    problem = Problem(dtype=torch.float32, learned=False, tensor_temperature=False)
    labels, pot = hard(), pg.potential(DIM)  # the compiler cannot look up a name

    @torch.compile(fullgraph=True, backend=backend)
    def compiled(features: torch.Tensor) -> torch.Tensor:
        return pg.vmf_cross_entropy(features, labels, problem.state, TAU, problem.prior, realization=pot)

    got, want = compiled(problem.features), problem.loss(labels)
    # other roundings of the same formulas, on logits of size 10
    torch.testing.assert_close(got, want, rtol=2e-6, atol=0)
    ours, theirs = (torch.autograd.grad(loss, problem.features)[0] for loss in (got, want))
    assert (ours - theirs).norm() <= 5e-6 * theirs.norm()


@pytest.mark.slow
@pytest.mark.parametrize("targets", ["smoothed", "soft", "learned"])
def test_compiled_with_other_targets(targets: str) -> None:
    torch._dynamo.reset()
    ours, theirs = (Problem(learned=targets == "learned", tensor_temperature=targets == "learned") for _ in range(2))
    labels = soft() if targets == "soft" else hard(ignored=True)
    smoothing = 0.1 if targets == "smoothed" else 0.0
    pot = pg.potential(DIM)
    got = torch.compile(lambda: ours.loss(labels, label_smoothing=smoothing, realization=pot), fullgraph=True)()
    compare(got, theirs.plain(labels, label_smoothing=smoothing), ours.leaves, theirs.leaves, 10 * FLOAT64)
