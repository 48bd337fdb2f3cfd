"""What is under audit: which tensors are differentiated, what calls may change, what is put back, and what is refused."""

from __future__ import annotations

import dataclasses
import functools
import random
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.autograd import Function

from pairgrad.coherence import audit
from pairgrad.coherence.subject import Subject, generators_restored, rng_state, same_rng, supplied


def _doubles(*values: float, grad: bool = False) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=grad)


def _ones(subject: Subject) -> tuple[torch.Tensor, ...]:
    return tuple(torch.ones_like(output) for output in subject.outputs)


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad


class Scale:
    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


class Stateful(torch.nn.Module):
    """Writes to everything that a module can hold when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(_doubles(1.0, 2.0))
        self.register_buffer("edited", _doubles(3.0, 4.0))
        self.register_buffer("replaced", _doubles(5.0, 6.0))
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


# Which tensors are differentiated ---------------------------------------------------------------------------------------


def test_all_floating_tensors_are_differentiated_if_none_asks() -> None:
    subject = Subject(lambda x, n, y, flag: x * n * y if flag else x, (_doubles(1.0), torch.tensor(3), _doubles(2.0), True))
    assert subject.names == ("input 0", "input 2")


def test_only_tensors_that_ask_are_differentiated_if_one_does() -> None:
    subject = Subject(lambda x, y: x * y, (_doubles(1.0), _doubles(2.0, grad=True)))
    assert subject.names == ("input 1",)
    evaluation = subject.pull(subject.tensors, _ones(subject))
    assert [gradient.tolist() for gradient in evaluation.gradients] == [[1.0]]


def test_tensors_that_do_not_ask_reach_the_callable_without_asking() -> None:
    seen = []
    Subject(lambda x, y: (seen.append((x.requires_grad, y.requires_grad)), x * y)[1], (_doubles(1.0, grad=True), _doubles(2.0)))
    assert seen == [(True, False)]


def test_keywords_name_their_tensors() -> None:
    subject = Subject(lambda *, scale, x: x * scale, {"x": _doubles(1.0, 2.0), "scale": _doubles(3.0)})
    assert subject.names == ("x", "scale")
    assert [g.tolist() for g in subject.pull(subject.tensors, _ones(subject)).gradients] == [[3.0, 3.0], [3.0]]


class Two(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


def test_containers_are_looked_into_and_given_back_as_they_were() -> None:
    kinds = []

    def fn(pair: Two, options: dict[str, Any]) -> dict[str, Any]:
        kinds.append((type(pair), list(options)))
        return {"sum": pair.first + options["x"][0], "n": 3, "more": [pair.second * 2, torch.tensor(1)]}

    subject = Subject(fn, (Two(_doubles(1.0), _doubles(2.0)), {"x": [_doubles(5.0)], "name": "a"}))
    assert subject.names == ("input 0[0]", "input 0[1]", "input 1[0]")
    assert kinds == [(Two, ["x", "name"])]
    assert subject.output_names == ("output 0", "output 1")
    assert [g.tolist() for g in subject.pull(subject.tensors, _ones(subject)).gradients] == [[1.0], [2.0], [1.0]]


def test_outputs_that_autograd_cannot_reach_are_left_out_unless_all_are_such() -> None:
    subject = Subject(lambda x: (x * 2, x.detach(), x.argmax()), _doubles(1.0, 2.0))
    assert subject.output_names == ("output 0",)
    assert subject.connected
    lost = Subject(lambda x: (x.detach() * 2, x.detach()), _doubles(1.0, 2.0))
    assert lost.output_names == ("output 0", "output 1")
    assert not lost.connected
    assert [g.tolist() for g in lost.pull(lost.tensors, _ones(lost)).gradients] == [[0.0, 0.0]]


@dataclasses.dataclass
class Made:
    value: torch.Tensor
    parts: list[Any]
    note: str = "made"


def test_dataclasses_among_the_outputs_are_looked_into() -> None:
    subject = Subject(lambda x: (Made(x * 2, [Made(x * 3, [])]), Made, 4), _doubles(1.0, 2.0))
    assert [output.tolist() for output in subject.outputs] == [[2.0, 4.0], [3.0, 6.0]]


def test_a_complex_output_is_its_real_and_imaginary_part() -> None:
    subject = Subject(lambda x: torch.complex(2 * x, 3 * x).conj(), _doubles(1.0))
    assert subject.outputs[0].tolist() == [[2.0, -3.0]]
    assert subject.pull(subject.tensors, (torch.tensor([[10.0, 1.0]], dtype=torch.float64),)).gradients[0].tolist() == [17.0]


def test_one_output_has_no_number() -> None:
    assert Subject(torch.sin, _doubles(1.0)).output_names == ("output",)
    assert Subject(lambda x: (x, x * 2), _doubles(1.0)).output_names == ("output 0", "output 1")


def test_a_parameter_that_is_called_like_an_argument_is_told_from_it() -> None:
    module = torch.nn.ParameterDict({"x": _doubles(1.0), "y": _doubles(2.0)})
    assert Subject(lambda *, x: x * module["x"] * module["y"], {"x": _doubles(3.0)}, module=module).names == ("x", "parameter x", "y")


def test_parameters_are_differentiated_except_frozen_ones() -> None:
    layer = torch.nn.Linear(2, 1, dtype=torch.float64)
    layer.bias.requires_grad_(False)
    assert Subject(layer, torch.ones(3, 2, dtype=torch.float64)).names == ("input 0", "weight")


@pytest.mark.parametrize(
    "wrap", [lambda layer: layer, lambda layer: layer.forward, lambda layer: functools.partial(layer)], ids=["module", "method", "partial"]
)
def test_the_module_behind_a_callable_is_found(wrap: Any) -> None:
    layer = torch.nn.Linear(2, 1, dtype=torch.float64)
    assert Subject(wrap(layer), torch.ones(3, 2, dtype=torch.float64)).names == ("input 0", "weight", "bias")


def test_a_module_can_be_named_for_a_function_that_uses_it() -> None:
    layer = torch.nn.Linear(2, 1, dtype=torch.float64)
    x = torch.ones(3, 2, dtype=torch.float64)
    assert Subject(lambda x: layer(x), x).names == ("input 0",)
    assert Subject(lambda x: layer(x), x, module=layer).names == ("input 0", "weight", "bias")


def test_empty_tensors_are_not_differentiated() -> None:
    subject = Subject(lambda x, y: torch.cat([x, y]), (_doubles(1.0, grad=True), torch.zeros(0, dtype=torch.float64, requires_grad=True)))
    assert subject.names == ("input 0",)


def test_the_dtype_of_the_audit_is_that_of_floating_tensors() -> None:
    seen = []
    subject = Subject(lambda x, n: (seen.append((x.dtype, n.dtype)), x * n)[1], (_doubles(1.0), torch.tensor([2])), dtype=torch.float32)
    assert set(seen) == {(torch.float32, torch.int64)}
    assert subject.tensors[0].dtype == torch.float32


# What comes out ---------------------------------------------------------------------------------------------------------


def test_values_and_gradients_are_those_of_the_point_asked_for() -> None:
    subject = Subject(Square.apply, _doubles(1.0, 2.0))
    evaluation = subject.pull((_doubles(3.0, 4.0),), (_doubles(1.0, 10.0),))
    assert evaluation.outputs[0].tolist() == [9.0, 16.0]
    assert evaluation.gradients[0].tolist() == [6.0, 80.0]
    assert not evaluation.outputs[0].requires_grad
    assert not evaluation.gradients[0].requires_grad
    assert evaluation.finite
    assert subject.outputs_at((_doubles(5.0, 6.0),))[0].tolist() == [25.0, 36.0]


def test_the_point_replaces_parameters_too() -> None:
    layer = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
    subject = Subject(layer, torch.ones(1, 2, dtype=torch.float64))
    weight = torch.tensor([[2.0, 5.0]], dtype=torch.float64)
    evaluation = subject.pull((torch.tensor([[1.0, 3.0]], dtype=torch.float64), weight), _ones(subject))
    assert evaluation.outputs[0].tolist() == [[17.0]]
    assert [g.tolist() for g in evaluation.gradients] == [[[2.0, 5.0]], [[1.0, 3.0]]]


def test_the_second_backward_is_that_of_the_weighted_gradient() -> None:
    """<3 u x², w> has the gradient 6 u w x."""
    subject = Subject(lambda x: x**3, _doubles(1.0, 2.0))
    evaluation = subject.pull_twice(subject.tensors, (_doubles(1.0, 10.0),), (_doubles(7.0, -1.0),))
    assert evaluation.outputs[0].item() == 3 * 7 - 3 * 10 * 4
    assert evaluation.gradients[0].tolist() == [42.0, -120.0]


def test_the_graph_is_that_of_the_point_asked_for() -> None:
    subject = Subject(Square.apply, _doubles(1.0, 2.0))
    for point, value in ((None, [1.0, 4.0]), ((_doubles(3.0, 4.0),), [9.0, 16.0])):
        (output,), (leaf,) = subject.graph(point)
        assert output.tolist() == value
        assert torch.autograd.grad(output.sum(), leaf)[0].tolist() == (2 * leaf).tolist()


def test_a_graph_of_the_gradient_is_kept_only_where_it_is_asked_for() -> None:
    x = _doubles(2.0, grad=True)
    (kept,) = supplied((x**3,), (x,), (_doubles(1.0),), create_graph=True)
    assert torch.autograd.grad(kept, x)[0].tolist() == [12.0]
    (plain,) = supplied((x**3,), (x,), (_doubles(1.0),))
    assert not plain.requires_grad


def test_a_backward_that_edits_grad_output_edits_a_copy() -> None:
    class Editing(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad.mul_(2)

    subject, weights = Subject(Editing.apply, _doubles(1.0)), _doubles(1.0)
    subject.pull(subject.tensors, (weights,))
    assert weights.tolist() == [1.0]
    assert subject.calls_edit() == subject.calls_edit((weights,)) == ["grad_output"]
    assert weights.tolist() == [1.0]


def test_infinite_results_are_seen() -> None:
    subject = Subject(torch.log, _doubles(1.0))
    assert not subject.pull((_doubles(0.0),), _ones(subject)).finite


def test_supplied_gives_zeros_where_backward_gives_none() -> None:
    x, y = _doubles(1.0, grad=True), _doubles(2.0, grad=True)
    assert [g.tolist() for g in supplied((x * 3,), (x, y), (_doubles(1.0),))] == [[3.0], [0.0]]
    assert [g.tolist() for g in supplied((x.detach(),), (x,), (_doubles(1.0),))] == [[0.0]]


def test_the_arguments_come_back_with_their_marks() -> None:
    subject = Subject(lambda x, n, y: x * n * y, (_doubles(1.0, grad=True), 3, _doubles(2.0)))
    x, n, y = subject.arguments()
    assert (x.tolist(), n, y.tolist()) == ([1.0], 3, [2.0])
    assert (x.requires_grad, y.requires_grad) == (True, False)
    assert list(Subject(lambda *, a: a, {"a": _doubles(1.0)}).arguments()) == ["a"]
    x.data.zero_()
    assert subject.arguments()[0].tolist() == [1.0]


def test_evaluations_are_counted() -> None:
    calls = []
    subject = Subject(lambda x: (calls.append(1), x * 2)[1], _doubles(1.0))
    subject.pull(subject.tensors, _ones(subject))
    subject.outputs_at(subject.tensors)
    assert subject.evaluations == len(calls) == 3
    watched: list[int] = []
    subject.watch = lambda: watched.append(len(calls))
    subject.outputs_at(subject.tensors)
    assert watched == [3]


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (Square.apply, "Square.apply"),
        (torch.nn.Tanh(), "Tanh"),
        (torch.sin, "sin"),
        (lambda x: x, "<lambda>"),
        ((lambda: lambda x: x)(), "<lambda>"),
        (functools.partial(torch.sin), "partial"),
        (Scale().twice, "Scale.twice"),
    ],
    ids=lambda x: str(x)[:12],
)
def test_reports_call_the_callable_by_its_name(fn: Any, name: str) -> None:
    assert Subject(fn, _doubles(0.5)).name == name


# What is put back -------------------------------------------------------------------------------------------------------


def _state(module: Stateful) -> dict[str, Any]:
    tensors = {name: tensor.tolist() for name, tensor in module.state_dict().items()}
    return tensors | {"calls": module.calls, "label": module.label, "scale": module.scale}


def test_every_call_starts_from_the_same_state_and_leaves_it_in_the_end() -> None:
    module = Stateful()
    before, storage = _state(module), {name: tensor.data_ptr() for name, tensor in module.state_dict().items()}
    with Subject(module, _doubles(1.0, -2.0)) as subject:
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
    with Subject(module, _doubles(1.0)) as subject:
        assert subject.outputs_at(subject.tensors)[0].tolist() == [8.0]
    assert (module.seen, module.table, module.kinds) == ([1], {"a": 1}, {1})
    assert module.seen is seen
    assert not hasattr(module, "later")
    assert list(module.buffers()) == []


def test_state_is_put_back_if_the_audit_is_left_by_an_error() -> None:
    module = Stateful()
    before = _state(module)

    def leave() -> None:
        with Subject(module, _doubles(1.0, -2.0)) as subject:
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
        Subject(module, _doubles(1.0, -2.0))
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
    with Subject(lambda x: x * draw(x), _doubles(1.0, 2.0)) as subject:
        assert subject.random
        first, second = (subject.outputs_at(subject.tensors)[0] for _ in range(2))
        assert torch.equal(first, second)
    assert state() == before


def test_functions_that_draw_nothing_are_not_called_random() -> None:
    assert not Subject(torch.sin, _doubles(1.0)).random


def test_a_backward_may_draw_numbers_too() -> None:
    class Drawing(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * torch.rand_like(grad)

    before = torch.get_rng_state()
    with Subject(Drawing.apply, _doubles(1.0)) as subject:
        assert subject.random
        first, second = (subject.pull(subject.tensors, _ones(subject)).gradients[0] for _ in range(2))
        assert torch.equal(first, second)
        assert subject.calls_edit() == []
    assert torch.equal(before, torch.get_rng_state())


def test_edits_are_looked_for_with_the_random_numbers_of_every_other_call() -> None:
    drawn = []
    with Subject(lambda x: (drawn.append(random.random()), x * 2)[1], _doubles(1.0)) as subject:
        subject.outputs_at(subject.tensors)
        subject.calls_edit()
    assert len(drawn) == 3
    assert len(set(drawn)) == 1


def test_looking_for_edits_leaves_the_arguments_as_they_are() -> None:
    subject = Subject(lambda x, y, n: (y.data.add_(n), x * 2 * y)[1], (_doubles(1.0, grad=True), _doubles(3.0), 4))
    assert subject.calls_edit() == ["input 1"]
    assert subject.arguments()[1].tolist() == [3.0]


def test_generators_are_put_back_if_the_first_call_raises() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        random.random(), torch.rand(2)
        raise KeyError

    before = rng_state()
    with pytest.raises(KeyError):
        Subject(fn, _doubles(1.0))
    assert same_rng(before, rng_state())


def test_generators_are_as_they_were_after_a_block_even_if_it_raises() -> None:
    before = rng_state()

    def draw() -> None:
        with generators_restored():
            torch.rand(3), random.random(), np.random.rand()  # noqa: NPY002
            assert not same_rng(before, rng_state())
            raise KeyError

    with pytest.raises(KeyError):
        draw()
    assert same_rng(before, rng_state())


def test_states_of_generators_are_equal_if_each_of_them_is() -> None:
    """Of the CPU, of two devices, of Python and of NumPy."""

    def state(cpu: int = 1, devices: tuple[int, ...] = (2, 3), python: int = 4, numpy: int = 5) -> tuple[Any, ...]:
        return torch.tensor([cpu]), [torch.tensor([n]) for n in devices], (3, (python, 0), None), ("MT", np.array([numpy]), 1, 0, 0.0)

    assert same_rng(state(), state())
    changed = [{"cpu": 9}, {"devices": (2,)}, {"devices": (9, 3)}, {"devices": (2, 9)}, {"python": 9}, {"numpy": 9}]
    assert [same_rng(state(), state(**change)) for change in changed] == [False] * 6


@pytest.mark.parametrize("training", [True, False])
def test_a_module_is_called_in_the_mode_it_is_in(training: bool) -> None:
    modes = []

    class Watched(torch.nn.Dropout):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            modes.append(self.training)
            return super().forward(x)

    module = Watched(0.5).train(training)
    with Subject(module, _doubles(*range(1, 20))) as subject:
        value = subject.outputs_at(subject.tensors)[0]
    assert set(modes) == {training}
    assert module.training is training
    assert bool((value == 0).any()) is training


def test_arguments_are_never_written_to() -> None:
    x, weights, n = _doubles(1.0, 2.0, grad=True), _doubles(3.0, 4.0), torch.tensor([5, 6])

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

    with Subject(editing, (_doubles(1.0, 2.0, grad=True), _doubles(3.0, 4.0))) as subject:
        for _ in range(3):
            assert subject.outputs_at(subject.tensors)[0].tolist() == [3.0, 8.0]


def test_a_callable_may_edit_a_leaf_where_torch_lets_only_copies_be_edited() -> None:
    """relu_ on an argument that requires a gradient raises for a leaf: then every call gets the result of an operation."""
    with Subject(lambda x: x.relu_() * 3, _doubles(1.0, -2.0)) as subject:
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
        Subject(fn, _doubles(1.0))
    assert len(calls) == 1


def test_an_edit_that_changes_the_shape_is_an_edit() -> None:
    x, y = _doubles(1.0, grad=True), _doubles(2.0, 2.0)
    subject = Subject(lambda x, y: (y.resize_(1), x * 2)[1], (x, y))
    assert subject.calls_edit() == ["input 1"]


def test_nan_for_a_number_is_an_edit_and_nan_for_nan_is_none() -> None:
    x, y, z = _doubles(1.0, grad=True), _doubles(2.0, 3.0), _doubles(float("nan"), 3.0)
    subject = Subject(lambda x, y, z: (y.data[:1].fill_(float("nan")), z.data[:1].fill_(float("nan")), x * 2)[2], (x, y, z))
    assert subject.calls_edit() == ["input 1"]
    subject = Subject(lambda x, y, z: (z.data.nan_to_num_(1.0), x * 2)[1], (x, y, z))
    assert subject.calls_edit() == ["input 2"]


def test_gradients_are_asked_for_even_inside_no_grad() -> None:
    with torch.no_grad():
        subject = Subject(Square.apply, _doubles(1.0, 2.0))
        assert subject.connected
        assert subject.pull(subject.tensors, _ones(subject)).gradients[0].tolist() == [2.0, 4.0]


def test_permuted_arguments_keep_their_layout() -> None:
    strides = []
    x = torch.arange(12.0, dtype=torch.float64).reshape(3, 4).mT
    subject = Subject(lambda x: (strides.append(x.stride()), x * 2)[1], x)
    subject.outputs_at(subject.tensors)
    assert set(strides) == {(1, 4)}


# What is refused --------------------------------------------------------------------------------------------------------


def test_a_thing_that_is_not_callable_is_refused() -> None:
    with pytest.raises(TypeError, match=r"fn must be callable, got 3 \(int\)"):
        Subject(3, _doubles(1.0))  # pyright: ignore[reportArgumentType]


def test_options_go_by_name() -> None:
    assert Subject(fn=torch.sin, inputs=_doubles(1.0)).names == ("input 0",)
    with pytest.raises(TypeError, match="positional argument"):
        Subject(torch.sin, _doubles(1.0), torch.float32)


def test_the_class_of_a_function_is_refused_and_apply_named() -> None:
    with pytest.raises(TypeError, match=r"pass Square\.apply, not the class Square"):
        Subject(Square, _doubles(1.0))


@pytest.mark.parametrize("inputs", [(torch.tensor([1, 2]),), (3.0,), (torch.zeros(0),), ()], ids=["integers", "number", "empty", "nothing"])
def test_inputs_without_a_floating_tensor_are_refused(inputs: Any) -> None:
    with pytest.raises(ValueError, match="at least one floating-point tensor to differentiate by, got"):
        Subject(lambda *x: x, inputs)


@pytest.mark.parametrize(
    ("inputs", "listed"),
    [((), "nothing"), ((1, 2, 3, 4), "1 (int), 2 (int), 3 (int), 4 (int)"), ((1, 2, 3, 4, 5), "1 (int), 2 (int), 3 (int), 4 (int), ...")],
)
def test_up_to_four_of_the_inputs_are_listed(inputs: Any, listed: str) -> None:
    with pytest.raises(ValueError, match=f"got {re.escape(listed)}: pass a tensor"):
        Subject(lambda *x: x, inputs)


def test_tensors_without_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="inputs must hold numbers, got"):
        Subject(torch.sin, torch.ones(2, device="meta"))


@pytest.mark.parametrize("inputs", [3.0, "x", None, np.ones(2)], ids=["number", "string", "none", "numpy"])
def test_inputs_of_another_kind_are_refused(inputs: Any) -> None:
    with pytest.raises(TypeError, match="inputs must be a tensor, a tuple of positional arguments or a dict"):
        Subject(torch.sin, inputs)


def test_complex_tensors_that_ask_for_a_gradient_are_refused() -> None:
    with pytest.raises(TypeError, match="inputs must be real, got a complex128 tensor"):
        Subject(torch.abs, torch.ones(2, dtype=torch.complex128, requires_grad=True))


def test_complex_tensors_that_ask_for_none_pass_through() -> None:
    subject = Subject(lambda x, z: x * z.abs(), (_doubles(2.0), torch.tensor([3 + 4j])))
    assert subject.names == ("input 0",)
    assert subject.outputs[0].tolist() == [10.0]


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, "float32", float])
def test_other_dtypes_are_refused(dtype: Any) -> None:
    with pytest.raises(TypeError, match=r"dtype must be torch\.float64"):
        Subject(torch.sin, _doubles(1.0), dtype=dtype)


@pytest.mark.parametrize("result", [3.0, None, torch.tensor(2), (1, "x")], ids=["number", "none", "integer", "tuple"])
def test_a_callable_without_a_floating_result_is_refused(result: Any) -> None:
    with pytest.raises(TypeError, match="fn must return at least one floating-point tensor, got"):
        Subject(lambda x: result, _doubles(1.0))


def test_what_the_callable_raises_comes_through_with_a_note() -> None:
    with pytest.raises(RuntimeError, match="must match the size") as caught:
        audit(lambda x: x + torch.ones(5), _doubles(1.0, 2.0))
    assert any("pairgrad.audit" in note for note in caught.value.__notes__)
