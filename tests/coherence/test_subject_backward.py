"""Backwards that run another backward inside: reentrant checkpoints and reversible networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from pairgrad.coherence import Subject, Verdict, audit
from tests.coherence.functions import doubles


def _layer(seed: int = 0) -> torch.nn.Linear:
    layer = torch.nn.Linear(2, 2, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    return layer


class Checkpointed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = _layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda x: self.layer(x).tanh(), x.sin(), use_reentrant=True).exp()


class Recomputed(torch.autograd.Function):
    """As reversible networks do it: the backward recomputes the block, and a backward inside accumulates into its parameters."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, block: torch.nn.Module, factor: float) -> torch.Tensor:
        ctx.block, ctx.factor = block, factor
        ctx.save_for_backward(x)
        with torch.no_grad():
            return block(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.block(x)
        torch.autograd.backward(y, ctx.factor * gradients[0])
        return x.grad, None, None


class Reversible(torch.nn.Module):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.block, self.factor = _layer(), factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Recomputed.apply(x, self.block, self.factor).tanh()


@pytest.mark.parametrize("make", [Checkpointed, Reversible])
def test_an_inner_backward_is_audited_with_the_parameters_it_reaches(make: Any) -> None:
    module = make()
    report = audit(module, torch.tensor([[0.3, -0.4], [0.7, 0.1]], dtype=torch.float64), effort="quick")
    assert report.verdict is Verdict.COHERENT, str(report)
    assert all(parameter.grad is None for parameter in module.parameters())


def test_an_inner_backward_that_is_wrong_is_found() -> None:
    report = audit(Reversible(1.01), torch.tensor([[0.3, -0.4]], dtype=torch.float64), effort="quick", consequences=False)
    assert report.verdict is Verdict.INCOHERENT
    assert report.defect == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize("make", [Checkpointed, Reversible])
def test_gradients_of_an_inner_backward_are_those_of_the_plain_module(make: Any) -> None:
    module, x = make(), torch.tensor([[0.3, -0.4]], dtype=torch.float64)
    cotangent = (torch.tensor([[2.0, -1.0]], dtype=torch.float64),)
    with Subject(module, x) as subject:
        for _ in range(2):
            gradients = subject.pull(subject.tensors, cotangent).gradients
    plain = x.clone().requires_grad_()
    layer = _layer()
    value = layer(plain.sin()).tanh().exp() if make is Checkpointed else layer(plain).tanh()
    expected = torch.autograd.grad(value, (plain, *layer.parameters()), cotangent)
    for ours, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-14, atol=0)


@pytest.mark.parametrize("known", [True, False], ids=["module", "closure"])
@pytest.mark.parametrize("make", [Checkpointed, Reversible])
def test_gradients_that_were_there_stay_the_same_objects(make: Any, known: bool) -> None:
    module, other = make(), _layer(1)
    kept = []
    for parameter in (*module.parameters(), other.weight):
        parameter.grad = torch.full_like(parameter, 7.0)
        kept.append(parameter.grad)
    frozen = next(module.parameters()).requires_grad_(False)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return module(x) * other(x)

    with Subject(fn, torch.ones(1, 2, dtype=torch.float64), module=module if known else None) as subject:
        subject.pull(subject.tensors, tuple(torch.ones_like(output) for output in subject.outputs))
        subject.calls_edit()
    assert [p.grad for p in (*module.parameters(), other.weight)] == kept
    assert all(bool((gradient == 7).all()) for gradient in kept)
    assert other.bias.grad is None
    assert frozen.grad is kept[0]


def test_second_derivatives_through_a_reentrant_checkpoint_are_refused_by_torch() -> None:
    report = audit(Checkpointed(), torch.tensor([[0.3, -0.4]], dtype=torch.float64), effort="quick")
    assert any("second derivatives raise" in finding.text and "incompatible with .grad()" in finding.text for finding in report.findings)


def test_the_way_to_the_gradients_is_learned_once() -> None:
    """Two calls: one whose backward is refused, and one whose backward shows whether it draws numbers."""
    calls = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return checkpoint(torch.sin, x, use_reentrant=True)

    subject = Subject(fn, doubles(1.0))
    before = len(calls)
    for _ in range(5):
        assert subject.pull(subject.tensors, (doubles(1.0),)).gradients[0].tolist() == doubles(1.0).cos().tolist()
    assert before == 2
    assert len(calls) - before == 5
    assert subject.evaluations == 7


def test_other_errors_of_a_backward_come_through() -> None:
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *_: torch.Tensor) -> None:
            raise RuntimeError("out of paper")

    with pytest.raises(RuntimeError, match="out of paper"):
        Subject(Failing.apply, doubles(1.0))
