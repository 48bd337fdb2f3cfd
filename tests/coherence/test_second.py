"""A second backward that is refused is found in the graph; one that raises says so."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.function import once_differentiable

from pairgrad.coherence.second import _search, second_backward_raises
from pairgrad.coherence.subject import Subject


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output


class Refusing(torch.autograd.Function):
    """The identity, whose own backward raises."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        raise NotImplementedError("not twice")


class RaisesTwice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return Refusing.apply(grad_output)


class Detached(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.detach().clone()


def asked(fn) -> str:
    x = torch.tensor([0.5, 2.0], dtype=torch.float64)
    return second_backward_raises(Subject(fn, x), (torch.ones(2, dtype=torch.float64),))


def test_a_backward_marked_once_differentiable_is_found():
    assert asked(Once.apply) == "a backward is marked once_differentiable"
    assert asked(lambda x: Once.apply(x.sin()).exp()) == "a backward is marked once_differentiable"


def test_a_backward_that_can_be_differentiated_is_not_refused():
    assert asked(torch.sin) == ""
    assert asked(Detached.apply) == ""


def test_a_second_backward_that_raises_is_run():
    with pytest.raises(NotImplementedError, match="not twice"):
        asked(RaisesTwice.apply)


def test_the_search_goes_on_behind_what_it_has_seen():
    x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
    (refused,) = torch.autograd.grad(Once.apply(x), x, weight, create_graph=True)
    plain = (x * 2.0).exp()
    assert any(node is None for node, _ in plain.grad_fn.next_functions[0][0].next_functions)
    assert _search((plain, plain, x)) == ""
    assert _search((refused, plain, plain)) == "a backward is marked once_differentiable"
    assert _search((refused, plain)) == "a backward is marked once_differentiable"
