"""What is under audit: which tensors are differentiated, what comes out, and what is refused."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.autograd import Function

from pairgrad.coherence import Subject, audit
from tests.coherence.functions import Square, doubles


def _ones(subject: Subject) -> tuple[torch.Tensor, ...]:
    return tuple(torch.ones_like(output) for output in subject.outputs)


class Scale:
    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def test_all_floating_tensors_are_differentiated_if_none_asks() -> None:
    subject = Subject(lambda x, n, y, flag: x * n * y if flag else x, (doubles(1.0), torch.tensor(3), doubles(2.0), True))
    assert subject.names == ("input 0", "input 2")


def test_only_tensors_that_ask_are_differentiated_if_one_does() -> None:
    subject = Subject(lambda x, y: x * y, (doubles(1.0), doubles(2.0, grad=True)))
    assert subject.names == ("input 1",)
    evaluation = subject.pull(subject.tensors, _ones(subject))
    assert [gradient.tolist() for gradient in evaluation.gradients] == [[1.0]]


def test_tensors_that_do_not_ask_reach_the_callable_without_asking() -> None:
    seen = []
    Subject(lambda x, y: (seen.append((x.requires_grad, y.requires_grad)), x * y)[1], (doubles(1.0, grad=True), doubles(2.0)))
    assert seen == [(True, False)]


def test_keywords_name_their_tensors() -> None:
    subject = Subject(lambda *, scale, x: x * scale, {"x": doubles(1.0, 2.0), "scale": doubles(3.0)})
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

    subject = Subject(fn, (Two(doubles(1.0), doubles(2.0)), {"x": [doubles(5.0)], "name": "a"}))
    assert subject.names == ("input 0[0]", "input 0[1]", "input 1[0]")
    assert kinds == [(Two, ["x", "name"])]
    assert subject.output_names == ("output 0", "output 1")
    assert [g.tolist() for g in subject.pull(subject.tensors, _ones(subject)).gradients] == [[1.0], [2.0], [1.0]]


def test_outputs_that_autograd_cannot_reach_are_left_out_unless_all_are_such() -> None:
    subject = Subject(lambda x: (x * 2, x.detach(), x.argmax()), doubles(1.0, 2.0))
    assert subject.output_names == ("output 0",)
    assert subject.connected
    lost = Subject(lambda x: (x.detach() * 2, x.detach()), doubles(1.0, 2.0))
    assert lost.output_names == ("output 0", "output 1")
    assert not lost.connected
    assert [g.tolist() for g in lost.pull(lost.tensors, _ones(lost)).gradients] == [[0.0, 0.0]]


@dataclasses.dataclass
class Made:
    value: torch.Tensor
    parts: list[Any]
    note: str = "made"


def test_dataclasses_among_the_outputs_are_looked_into() -> None:
    subject = Subject(lambda x: (Made(x * 2, [Made(x * 3, [])]), Made, 4), doubles(1.0, 2.0))
    assert [output.tolist() for output in subject.outputs] == [[2.0, 4.0], [3.0, 6.0]]


def test_a_complex_output_is_its_real_and_imaginary_part() -> None:
    subject = Subject(lambda x: torch.complex(2 * x, 3 * x).conj(), doubles(1.0))
    assert subject.outputs[0].tolist() == [[2.0, -3.0]]
    assert subject.pull(subject.tensors, (torch.tensor([[10.0, 1.0]], dtype=torch.float64),)).gradients[0].tolist() == [17.0]


def test_one_output_has_no_number() -> None:
    assert Subject(torch.sin, doubles(1.0)).output_names == ("output",)
    assert Subject(lambda x: (x, x * 2), doubles(1.0)).output_names == ("output 0", "output 1")


def test_a_parameter_that_is_called_like_an_argument_is_told_from_it() -> None:
    module = torch.nn.ParameterDict({"x": doubles(1.0), "y": doubles(2.0)})
    assert Subject(lambda *, x: x * module["x"] * module["y"], {"x": doubles(3.0)}, module=module).names == ("x", "parameter x", "y")


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
    subject = Subject(lambda x, y: torch.cat([x, y]), (doubles(1.0, grad=True), torch.zeros(0, dtype=torch.float64, requires_grad=True)))
    assert subject.names == ("input 0",)


def test_the_dtype_of_the_audit_is_that_of_floating_tensors() -> None:
    seen = []
    subject = Subject(lambda x, n: (seen.append((x.dtype, n.dtype)), x * n)[1], (doubles(1.0), torch.tensor([2])), dtype=torch.float32)
    assert set(seen) == {(torch.float32, torch.int64)}
    assert subject.tensors[0].dtype == torch.float32


def test_values_and_gradients_are_those_of_the_point_asked_for() -> None:
    subject = Subject(Square.apply, doubles(1.0, 2.0))
    evaluation = subject.pull((doubles(3.0, 4.0),), (doubles(1.0, 10.0),))
    assert evaluation.outputs[0].tolist() == [9.0, 16.0]
    assert evaluation.gradients[0].tolist() == [6.0, 80.0]
    assert not evaluation.outputs[0].requires_grad
    assert not evaluation.gradients[0].requires_grad
    assert evaluation.finite
    assert subject.outputs_at((doubles(5.0, 6.0),))[0].tolist() == [25.0, 36.0]


def test_the_point_replaces_parameters_too() -> None:
    layer = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
    subject = Subject(layer, torch.ones(1, 2, dtype=torch.float64))
    weight = torch.tensor([[2.0, 5.0]], dtype=torch.float64)
    evaluation = subject.pull((torch.tensor([[1.0, 3.0]], dtype=torch.float64), weight), _ones(subject))
    assert evaluation.outputs[0].tolist() == [[17.0]]
    assert [g.tolist() for g in evaluation.gradients] == [[[2.0, 5.0]], [[1.0, 3.0]]]


def test_the_second_backward_is_that_of_the_weighted_gradient() -> None:
    """<3 u x², w> has the gradient 6 u w x."""
    subject = Subject(lambda x: x**3, doubles(1.0, 2.0))
    evaluation = subject.pull_twice(subject.tensors, (doubles(1.0, 10.0),), (doubles(7.0, -1.0),))
    assert evaluation.outputs[0].item() == 3 * 7 - 3 * 10 * 4
    assert evaluation.gradients[0].tolist() == [42.0, -120.0]


def test_the_graph_is_that_of_the_point_asked_for() -> None:
    subject = Subject(Square.apply, doubles(1.0, 2.0))
    for point, value in ((None, [1.0, 4.0]), ((doubles(3.0, 4.0),), [9.0, 16.0])):
        (output,), (leaf,) = subject.graph(point)
        assert output.tolist() == value
        assert torch.autograd.grad(output.sum(), leaf)[0].tolist() == (2 * leaf).tolist()


def test_a_backward_that_edits_grad_output_edits_a_copy() -> None:
    class Editing(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad.mul_(2)

    subject, weights = Subject(Editing.apply, doubles(1.0)), doubles(1.0)
    subject.pull(subject.tensors, (weights,))
    assert weights.tolist() == [1.0]
    assert subject.calls_edit() == subject.calls_edit((weights,)) == ["grad_output"]
    assert weights.tolist() == [1.0]


def test_infinite_results_are_seen() -> None:
    subject = Subject(torch.log, doubles(1.0))
    assert not subject.pull((doubles(0.0),), _ones(subject)).finite


def test_an_argument_that_backward_gives_nothing_for_has_the_gradient_zero() -> None:
    subject = Subject(lambda x, y: x * 3, (doubles(1.0), doubles(2.0)))
    assert [g.tolist() for g in subject.pull(subject.tensors, _ones(subject)).gradients] == [[3.0], [0.0]]


def test_the_arguments_come_back_with_their_marks() -> None:
    subject = Subject(lambda x, n, y: x * n * y, (doubles(1.0, grad=True), 3, doubles(2.0)))
    x, n, y = subject.arguments()
    assert (x.tolist(), n, y.tolist()) == ([1.0], 3, [2.0])
    assert (x.requires_grad, y.requires_grad) == (True, False)
    assert list(Subject(lambda *, a: a, {"a": doubles(1.0)}).arguments()) == ["a"]
    x.data.zero_()
    assert subject.arguments()[0].tolist() == [1.0]


def test_evaluations_are_counted() -> None:
    calls = []
    subject = Subject(lambda x: (calls.append(1), x * 2)[1], doubles(1.0))
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
    assert Subject(fn, doubles(0.5)).name == name


def test_a_thing_that_is_not_callable_is_refused() -> None:
    with pytest.raises(TypeError, match=r"fn must be callable, got 3 \(int\)"):
        Subject(3, doubles(1.0))  # pyright: ignore[reportArgumentType]


def test_options_go_by_name() -> None:
    assert Subject(fn=torch.sin, inputs=doubles(1.0)).names == ("input 0",)
    with pytest.raises(TypeError, match="positional argument"):
        Subject(torch.sin, doubles(1.0), torch.float32)


def test_the_class_of_a_function_is_refused_and_apply_named() -> None:
    with pytest.raises(TypeError, match=r"pass Square\.apply, not the class Square"):
        Subject(Square, doubles(1.0))


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
    subject = Subject(lambda x, z: x * z.abs(), (doubles(2.0), torch.tensor([3 + 4j])))
    assert subject.names == ("input 0",)
    assert subject.outputs[0].tolist() == [10.0]


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, "float32", float])
def test_other_dtypes_are_refused(dtype: Any) -> None:
    with pytest.raises(TypeError, match=r"dtype must be torch\.float64"):
        Subject(torch.sin, doubles(1.0), dtype=dtype)


@pytest.mark.parametrize("result", [3.0, None, torch.tensor(2), (1, "x")], ids=["number", "none", "integer", "tuple"])
def test_a_callable_without_a_floating_result_is_refused(result: Any) -> None:
    with pytest.raises(TypeError, match="fn must return at least one floating-point tensor with elements, got"):
        Subject(lambda x: result, doubles(1.0))


def test_what_the_callable_raises_comes_through_with_a_note() -> None:
    with pytest.raises(RuntimeError, match="must match the size") as caught:
        audit(lambda x: x + torch.ones(5), doubles(1.0, 2.0))
    assert any("pairgrad.audit" in note for note in caught.value.__notes__)


def test_empty_parameters_and_those_that_are_not_floating_are_no_arguments():
    model = torch.nn.Linear(3, 1, dtype=torch.float64)
    model.register_parameter("empty", torch.nn.Parameter(torch.zeros(0, dtype=torch.float64)))
    model.register_parameter("count", torch.nn.Parameter(torch.ones(2, dtype=torch.int64), requires_grad=False))
    assert Subject(model, torch.ones(3, dtype=torch.float64)).names == ("input 0", "weight", "bias")
