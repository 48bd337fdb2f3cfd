"""Outputs that are empty, sparse, or change shape; sparse arguments; inputs in other layouts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pairgrad.coherence import Subject, Verdict, audit
from tests.coherence.functions import doubles

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR|BSC) tensor support is in beta"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]

_MATRIX = [[1.5, 0.0, 2.0, 0.0], [0.0, 3.0, 0.0, 0.5]]
LAYOUTS = {
    "coo": torch.Tensor.to_sparse,
    "csr": torch.Tensor.to_sparse_csr,
    "csc": torch.Tensor.to_sparse_csc,
    "bsr": lambda dense: dense.to_sparse_bsr((1, 2)),
    "bsc": lambda dense: dense.to_sparse_bsc((1, 2)),
}


def _dense() -> torch.Tensor:
    return torch.tensor(_MATRIX, dtype=torch.float64)


def _ones(subject: Subject) -> tuple[torch.Tensor, ...]:
    return tuple(torch.ones_like(output) for output in subject.outputs)


def test_empty_outputs_are_left_out() -> None:
    subject = Subject(lambda x: (x[:0], x * 2), doubles(1.0, 2.0))
    assert subject.output_names == ("output 1",)
    assert audit(lambda x: (x[:0], x.sin()), doubles(1.0, 2.0), effort="quick").verdict is Verdict.COHERENT


def test_a_callable_with_empty_outputs_only_is_refused() -> None:
    with pytest.raises(TypeError, match=r"at least one floating-point tensor with elements, got a float64 tensor of shape \(0,\)"):
        audit(lambda x: x[:0], doubles(1.0, 2.0))


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_sparse_output_is_judged_as_a_dense_one(layout: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return LAYOUTS[layout](torch.diag(x.sin()))

    subject = Subject(fn, doubles(1.0, 2.0))
    assert torch.equal(subject.outputs[0], torch.diag(doubles(1.0, 2.0).sin()))
    assert torch.equal(subject.pull(subject.tensors, _ones(subject)).gradients[0], doubles(1.0, 2.0).cos())
    assert audit(fn, doubles(1.0, 2.0), effort="quick").verdict is Verdict.COHERENT


def test_an_output_that_changes_shape_from_call_to_call_gets_a_sentence() -> None:
    calls = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x.expand(len(calls), 2) * 2

    with pytest.raises(
        ValueError, match=r"output of shape \(1, 2\) in the first call, and output of shape \([23], 2\) in a later call at the same inputs"
    ):
        audit(fn, doubles(1.0, 2.0))


def test_where_an_output_has_another_shape_is_outside_of_what_is_judged() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x[x >= 0].sin()

    assert audit(fn, doubles(1.0, -1.0), effort="quick").verdict is Verdict.COHERENT
    subject = Subject(fn, doubles(1.0, -1.0))
    for point, what in ((doubles(1.0, 1.0), r"output of shape \(2,\)"), (doubles(-1.0, -1.0), "none with elements")):
        with pytest.raises(ValueError, match=rf"got output of shape \(1,\) in the first call, and {what} at a point near the inputs"):
            subject.outputs_at((point,))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sparse_argument_that_requires_no_gradient_passes_through(layout: str) -> None:
    seen = []

    def fn(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        seen.append(matrix.layout)
        return matrix.to_dense() @ x.sin()

    given = LAYOUTS[layout](_dense())
    subject = Subject(fn, (doubles(1.0, 2.0, 3.0, 4.0), given))
    assert subject.names == ("input 0",)
    assert subject.calls_edit() == []
    assert set(seen) == {given.layout}
    assert subject.arguments()[1].layout == given.layout


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_an_audit_takes_a_sparse_argument(layout: str) -> None:
    report = audit(
        lambda x, a: torch.sparse.mm(a, x.sin()), (torch.ones(4, 2, dtype=torch.float64), LAYOUTS[layout](_dense())), effort="quick"
    )
    assert report.verdict is Verdict.COHERENT


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sparse_argument_is_differentiated_by_its_values(layout: str) -> None:
    given = LAYOUTS[layout](_dense()).requires_grad_()
    weights = torch.arange(8.0, dtype=torch.float64).reshape(2, 4)
    subject = Subject(lambda a, w: (a.to_dense() * w).sum(), (given, weights))
    assert subject.names == ("input 0 (values)",)
    (values,) = subject.tensors
    (gradient,) = subject.pull((values * 2,), _ones(subject)).gradients
    assert gradient.shape == values.shape
    assert (gradient * values).sum() == (weights * _dense()).sum()
    assert subject.outputs_at((values * 2,))[0] == 2 * (weights * _dense()).sum()
    assert subject.arguments()[0].requires_grad


def test_a_tensor_whose_indices_repeat_keeps_them() -> None:
    given = torch.sparse_coo_tensor([[0, 0, 1]], doubles(1.0, 2.0, 3.0), (2,), check_invariants=True).requires_grad_()
    subject = Subject(lambda a: a.to_dense() ** 2, given)
    assert subject.tensors[0].tolist() == [1.0, 2.0, 3.0]
    assert subject.pull(subject.tensors, _ones(subject)).gradients[0].tolist() == [6.0, 6.0, 6.0]
    assert subject.calls_edit() == []


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.COHERENT), (1.01, Verdict.INCOHERENT)])
def test_a_wrong_gradient_of_sparse_values_is_found(layout: str, factor: float, verdict: Verdict) -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            return gradients[0] * 2 * factor

    given = LAYOUTS[layout](_dense()).requires_grad_()
    report = audit(lambda a: Scaled.apply(a.to_dense() @ _dense().t()), given, effort="quick", consequences=False)
    assert report.verdict is verdict


def test_an_edited_sparse_argument_is_noticed() -> None:
    def fn(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        y = matrix.to_dense() @ x
        matrix.values().mul_(2)
        return y

    assert Subject(fn, (doubles(1.0, 2.0, 3.0, 4.0), _dense().to_sparse_csr())).calls_edit() == ["input 1"]


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_sparse_buffer_is_put_back(layout: str) -> None:
    class Holding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("matrix", LAYOUTS[layout](_dense()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.matrix.mul_(2)
            return self.matrix.to_dense() @ x

    module, x = Holding(), doubles(1.0, 2.0, 3.0, 4.0)
    held = module.matrix
    with Subject(module, x) as subject:
        for _ in range(2):
            assert torch.equal(subject.outputs_at(subject.tensors)[0], 2 * _dense() @ x)
    assert module.matrix is held
    assert torch.equal(held.to_dense(), _dense())


ARRANGEMENTS = {
    "columns": lambda x: x.t().contiguous().t(),
    "slice": lambda x: torch.stack([x, x + 1], dim=-1)[..., 0],
    "offset": lambda x: torch.cat([x[:1], x])[1:],
}


@pytest.mark.parametrize("edits", [False, True], ids=["plain", "edits"])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_inputs_can_be_given_in_another_layout(arrangement: str, edits: bool) -> None:
    seen = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        seen.append((x.stride(), x.storage_offset(), x.tolist()))
        return x.mul_(2) ** 2 if edits else (2 * x) ** 2

    x = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)
    arranged = ARRANGEMENTS[arrangement](x)
    with Subject(fn, x) as subject:
        seen.clear()
        (output,), (leaf,) = subject.graph(arrange=ARRANGEMENTS[arrangement])
        assert seen == [(arranged.stride(), arranged.storage_offset(), x.tolist())]
        assert leaf.is_leaf
        assert torch.equal(output, 4 * x**2)
        assert torch.equal(torch.autograd.grad(output.sum(), leaf)[0], 8 * x)
        assert torch.equal(subject.tensors[0], x)


def test_parameters_keep_their_layout_and_a_point_is_arranged_too() -> None:
    layer = torch.nn.Linear(3, 2, bias=False, dtype=torch.float64)
    strides = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        strides.append((x.stride(), layer.weight.stride()))
        return layer(x)

    subject = Subject(fn, torch.ones(4, 3, dtype=torch.float64), module=layer)
    point = (torch.full((4, 3), 2.0, dtype=torch.float64), layer.weight.detach().clone())
    (output,), leaves = subject.graph(point, arrange=lambda x: x.t().contiguous().t())
    assert strides[-1] == ((1, 4), (3, 1))
    assert leaves[1] is layer.weight
    torch.testing.assert_close(output, layer(point[0]))


def test_an_arrangement_that_gives_the_tensor_back_shares_nothing_with_the_point() -> None:
    subject = Subject(lambda x: (x.data.zero_(), x * 2)[1], doubles(1.0))
    subject.graph(arrange=lambda x: x)
    assert subject.tensors[0].tolist() == [1.0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_dense_gradient_of_a_sparse_argument_is_read_in_the_order_of_its_values(layout: str) -> None:
    class Filled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(weights)
            return (a.to_dense() * weights).sum()

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
            return gradients[0] * ctx.saved_tensors[0], None

    weights = torch.arange(8.0, dtype=torch.float64).reshape(2, 4)
    subject = Subject(Filled.apply, (LAYOUTS[layout](_dense()).requires_grad_(), weights))
    (gradient,) = subject.pull(subject.tensors, _ones(subject)).gradients
    assert gradient.shape == subject.tensors[0].shape
    expected = {1.5: 0.0, 2.0: 2.0, 3.0: 5.0, 0.5: 7.0}
    stored = zip(subject.tensors[0].flatten().tolist(), gradient.flatten().tolist(), strict=True)
    assert {value: found for value, found in stored if value} == expected


def test_a_sparse_matrix_too_large_to_fill_is_differentiated() -> None:
    n = 10**7
    given = torch.sparse_coo_tensor([[0, n - 1], [5, n - 2]], doubles(2.0, 3.0), (n, n), check_invariants=True).requires_grad_()
    subject = Subject(lambda a: torch.sparse.sum(a * a), given)
    assert subject.pull(subject.tensors, _ones(subject)).gradients[0].tolist() == [4.0, 6.0]
