"""What an audit puts back: state of modules, random generators, arguments and what calls edit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import Function

from pairgrad.coherence import Subject, audit
from tests.coherence.functions import Square, doubles


def _ones(subject: Subject) -> tuple[torch.Tensor, ...]:
    return tuple(torch.ones_like(output) for output in subject.outputs)


def drawn_next() -> tuple[float, ...]:
    """What the global generators draw next, without moving them."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    drawn = torch.rand(()).item(), random.random(), np.random.rand()  # noqa: NPY002
    torch.set_rng_state(states[0]), random.setstate(states[1]), np.random.set_state(states[2])  # noqa: NPY002
    return drawn


class Stateful(torch.nn.Module):
    """Writes to everything that a module can hold when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(doubles(1.0, 2.0))
        self.register_buffer("edited", doubles(3.0, 4.0))
        self.register_buffer("replaced", doubles(5.0, 6.0))
        self.register_buffer("counter", torch.tensor(0))
        self.calls = 0
        self.label = "new"
        self.scale: float | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.edited.add_(1)
            self.replaced = self.replaced * 2
            self.counter += 1
            y = x * self.weight.detach().clone()
            self.weight.mul_(1.5)
        self.calls += 1
        self.label = "used"
        self.scale = 0.5 * self.calls
        return y + x * x * self.calls + self.edited.sum() + self.replaced.sum()


def _state(module: Stateful) -> dict[str, Any]:
    tensors = {name: tensor.tolist() for name, tensor in module.state_dict().items()}
    return tensors | {"calls": module.calls, "label": module.label, "scale": module.scale}


def test_every_call_starts_from_the_same_state_and_leaves_it_in_the_end() -> None:
    module = Stateful()
    before, storage = _state(module), {name: tensor.data_ptr() for name, tensor in module.state_dict().items()}
    with Subject(module, doubles(1.0, -2.0)) as subject:
        first, second = (subject.pull(subject.tensors, _ones(subject)) for _ in range(2))
        assert torch.equal(first.outputs[0], second.outputs[0])
        # 1 * x + x² with the weights (1, 2), one call, and buffers of 4 + 5 and 10 + 12.
        assert first.outputs[0].tolist() == [1 + 1 + 9 + 22, -4 + 4 + 9 + 22]
    assert _state(module) == before
    assert {name: tensor.data_ptr() for name, tensor in module.state_dict().items()} == storage


class Collecting(torch.nn.Module):
    """Writes to containers, and to attributes and buffers that it did not have."""

    def __init__(self) -> None:
        super().__init__()
        self.seen, self.table, self.kinds = [1], {"a": 1}, {1}
        self.inner = torch.nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(2)
        self.table["b"] = 2
        self.kinds.add(2)
        self.later = True
        self.inner.register_buffer("extra", x.detach())
        return x * len(self.seen) * len(self.table) * len(self.kinds)


def test_containers_are_put_back_and_what_a_call_adds_is_taken_away() -> None:
    module = Collecting()
    seen = module.seen
    with Subject(module, doubles(1.0)) as subject:
        assert subject.outputs_at(subject.tensors)[0].tolist() == [8.0]
    assert (module.seen, module.table, module.kinds) == ([1], {"a": 1}, {1})
    assert module.seen is seen
    assert not hasattr(module, "later")
    assert list(module.buffers()) == []


def test_state_is_put_back_if_the_audit_is_left_by_an_error() -> None:
    module = Stateful()
    before = _state(module)

    def leave() -> None:
        with Subject(module, doubles(1.0, -2.0)) as subject:
            subject.outputs_at(subject.tensors)
            raise KeyError

    with pytest.raises(KeyError):
        leave()
    assert _state(module) == before


def test_state_is_put_back_if_the_first_call_raises() -> None:
    class Failing(Stateful):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            super().forward(x)
            raise ZeroDivisionError

    module = Failing()
    before = _state(module)
    with pytest.raises(ZeroDivisionError):
        Subject(module, doubles(1.0, -2.0))
    assert _state(module) == before


@pytest.mark.slow
def test_a_whole_audit_leaves_a_module_as_it_was() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Dropout(0.3)).double()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    generator = torch.get_rng_state()
    audit(module, torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), effort="quick", consequences=False)
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(generator, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_gradients_that_were_accumulated_before_stay() -> None:
    layer = torch.nn.Linear(2, 1, dtype=torch.float64)
    layer.weight.grad = torch.full_like(layer.weight, 7.0)
    audit(layer, torch.ones(3, 2, dtype=torch.float64), effort="quick", consequences=False)
    assert layer.weight.grad.tolist() == [[7.0, 7.0]]


@pytest.mark.parametrize(
    ("draw", "state"),
    [
        (lambda x: torch.rand_like(x), lambda: torch.get_rng_state().tolist()),
        (lambda x: random.random(), random.getstate),
        (lambda x: np.random.rand(), lambda: [*np.random.get_state()[1].tolist(), np.random.get_state()[2]]),  # noqa: NPY002
    ],
    ids=["torch", "python", "numpy"],
)
def test_generators_are_put_back_before_each_call_and_at_the_end(draw: Any, state: Any) -> None:
    before = state()
    with Subject(lambda x: x * draw(x), doubles(1.0, 2.0)) as subject:
        assert subject.random
        first, second = (subject.outputs_at(subject.tensors)[0] for _ in range(2))
        assert torch.equal(first, second)
    assert state() == before


def test_functions_that_draw_nothing_are_not_called_random() -> None:
    assert not Subject(torch.sin, doubles(1.0)).random


def test_a_backward_may_draw_numbers_too() -> None:
    class Drawing(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * torch.rand_like(grad)

    before = torch.get_rng_state()
    with Subject(Drawing.apply, doubles(1.0)) as subject:
        assert subject.random
        first, second = (subject.pull(subject.tensors, _ones(subject)).gradients[0] for _ in range(2))
        assert torch.equal(first, second)
        assert subject.calls_edit() == []
    assert torch.equal(before, torch.get_rng_state())


def test_edits_are_looked_for_with_the_random_numbers_of_every_other_call() -> None:
    drawn = []
    with Subject(lambda x: (drawn.append(random.random()), x * 2)[1], doubles(1.0)) as subject:
        subject.outputs_at(subject.tensors)
        subject.calls_edit()
    assert len(drawn) == 3
    assert len(set(drawn)) == 1


def test_looking_for_edits_leaves_the_arguments_as_they_are() -> None:
    subject = Subject(lambda x, y, n: (y.data.add_(n), x * 2 * y)[1], (doubles(1.0, grad=True), doubles(3.0), 4))
    assert subject.calls_edit() == ["input 1"]
    assert subject.arguments()[1].tolist() == [3.0]


def test_generators_are_put_back_if_the_first_call_raises() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        random.random(), torch.rand(2), np.random.rand()  # noqa: NPY002
        raise KeyError

    before = drawn_next()
    with pytest.raises(KeyError):
        Subject(fn, doubles(1.0))
    assert drawn_next() == before


@pytest.mark.parametrize("training", [True, False])
def test_a_module_is_called_in_the_mode_it_is_in(training: bool) -> None:
    modes = []

    class Watched(torch.nn.Dropout):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            modes.append(self.training)
            return super().forward(x)

    module = Watched(0.5).train(training)
    with Subject(module, doubles(*range(1, 20))) as subject:
        value = subject.outputs_at(subject.tensors)[0]
    assert set(modes) == {training}
    assert module.training is training
    assert bool((value == 0).any()) is training


def test_arguments_are_never_written_to() -> None:
    x, weights, n = doubles(1.0, 2.0, grad=True), doubles(3.0, 4.0), torch.tensor([5, 6])

    def editing(x: torch.Tensor, weights: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        y = x * weights * n
        x.data.zero_()
        weights.data.zero_()
        n.data.zero_()
        return y

    audit(editing, (x, weights, n), effort="quick", consequences=False)
    assert (x.tolist(), weights.tolist(), n.tolist()) == ([1.0, 2.0], [3.0, 4.0], [5, 6])
    assert x.grad is None
    assert x.requires_grad
    assert not weights.requires_grad


def test_edits_of_one_call_are_not_seen_by_the_next() -> None:
    def editing(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        y = x * weights.clone()
        x.data.add_(1)
        weights.data.add_(1)
        return y

    with Subject(editing, (doubles(1.0, 2.0, grad=True), doubles(3.0, 4.0))) as subject:
        for _ in range(3):
            assert subject.outputs_at(subject.tensors)[0].tolist() == [3.0, 8.0]


def test_a_callable_may_edit_a_leaf_where_torch_lets_only_copies_be_edited() -> None:
    """relu_ on an argument that requires a gradient raises for a leaf: then every call gets the result of an operation."""
    with Subject(lambda x: x.relu_() * 3, doubles(1.0, -2.0)) as subject:
        evaluation = subject.pull(subject.tensors, _ones(subject))
        assert evaluation.outputs[0].tolist() == [3.0, 0.0]
        assert evaluation.gradients[0].tolist() == [3.0, 0.0]
        assert subject.calls_edit() == ["input 0"]


@pytest.mark.parametrize("text", ["a leaf of the tree", "in-place", "other"])
def test_other_errors_of_the_first_call_are_not_taken_for_an_edit(text: str) -> None:
    calls = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        raise RuntimeError(text)

    with pytest.raises(RuntimeError, match=text):
        Subject(fn, doubles(1.0))
    assert len(calls) == 1


def test_an_edit_that_changes_the_shape_is_an_edit() -> None:
    x, y = doubles(1.0, grad=True), doubles(2.0, 2.0)
    subject = Subject(lambda x, y: (y.resize_(1), x * 2)[1], (x, y))
    assert subject.calls_edit() == ["input 1"]


def test_nan_for_a_number_is_an_edit_and_nan_for_nan_is_none() -> None:
    x, y, z = doubles(1.0, grad=True), doubles(2.0, 3.0), doubles(float("nan"), 3.0)
    subject = Subject(lambda x, y, z: (y.data[:1].fill_(float("nan")), z.data[:1].fill_(float("nan")), x * 2)[2], (x, y, z))
    assert subject.calls_edit() == ["input 1"]
    subject = Subject(lambda x, y, z: (z.data.nan_to_num_(1.0), x * 2)[1], (x, y, z))
    assert subject.calls_edit() == ["input 2"]


def test_gradients_are_asked_for_even_inside_no_grad() -> None:
    with torch.no_grad():
        subject = Subject(Square.apply, doubles(1.0, 2.0))
        assert subject.connected
        assert subject.pull(subject.tensors, _ones(subject)).gradients[0].tolist() == [2.0, 4.0]


def test_permuted_arguments_keep_their_layout() -> None:
    strides = []
    x = torch.arange(12.0, dtype=torch.float64).reshape(3, 4).mT
    subject = Subject(lambda x: (strides.append(x.stride()), x * 2)[1], x)
    subject.outputs_at(subject.tensors)
    assert set(strides) == {(1, 4)}
