"""Recording at the node: what is seen, in which style a Function may be written, and that nothing changes by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import FunctionMeta, once_differentiable

from pairgrad.coherence import Subject, Visit, audit, replay, visits
from pairgrad.coherence.causes.nodes import reproduced


class Cube(Function):
    """The plain style."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return factor * x**3

    @staticmethod
    def backward(ctx, u):
        (x,) = ctx.saved_tensors
        return 3 * ctx.factor * u * x * x, None


captured = Cube.apply  # as a module does at import


class SplitCube(Function):
    """forward without a context."""

    @staticmethod
    def forward(x, factor=2.0):
        return factor * x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, u):
        return 3 * ctx.factor * u * ctx.saved_tensors[0] ** 2, None


class ClassCube(Function):
    """Methods that get the class, and read an attribute of it."""

    power = 3

    @classmethod
    def forward(cls, ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return factor * x**cls.power

    @classmethod
    def backward(cls, ctx, u):
        return cls.power * ctx.factor * u * ctx.saved_tensors[0] ** (cls.power - 1), None


class Inheriting(Cube):
    """Own backward, inherited forward."""

    @staticmethod
    def backward(ctx, u):
        return tuple(None if g is None else 2 * g for g in Cube.backward(ctx, u))


class Calling(ClassCube):
    """A forward that calls the one of its parent, with other arguments."""

    power = 5

    @classmethod
    def forward(cls, ctx, x, factor):
        return super().forward(ctx, x + 0.0, factor)


class SplitCalling(SplitCube):
    @staticmethod
    def forward(x, factor=2.0):
        return SplitCube.forward(x + 0.0, factor)


class Once(Cube):
    @staticmethod
    @once_differentiable
    def backward(ctx, u):
        return Cube.backward(ctx, u)


class Vjp(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return factor * x**3

    @staticmethod
    def vjp(ctx, u):
        return 3 * ctx.factor * u * ctx.saved_tensors[0] ** 2, None


class Mixin:
    @staticmethod
    def forward(ctx, x, factor):
        return Cube.forward(ctx, x, factor)


class Mixed(Mixin, Function):
    @staticmethod
    def backward(ctx, u):
        return Cube.backward(ctx, u)


STYLES = (Cube, SplitCube, ClassCube, Inheriting, Calling, SplitCalling, Once, Vjp, Mixed)


class Outer(Function):
    """A node inside the forward and the backward of a node."""

    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = Cube.apply(ctx.x, 1.0)
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, u):
        return torch.autograd.grad(ctx.y, ctx.x, u)[0]


class Destructive(Function):
    """Edits what it saved, the cotangent and, in the forward, the argument."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x.clone())
        return x

    @staticmethod
    def backward(ctx, u):
        ctx.saved_tensors[0].zero_()
        return u.mul_(2)


class Several(Function):
    """Several outputs, one of them not a tensor and one not differentiable; no zeros made for missing cotangents."""

    @staticmethod
    def forward(ctx, x, index, y):
        ctx.set_materialize_grads(False)
        order = x.argsort()
        ctx.mark_non_differentiable(order)
        ctx.index = index
        return x * 2, None, order, y[index] * 3

    @staticmethod
    def backward(ctx, u, _none, _order, v):
        gy = None
        if v is not None:
            gy = torch.zeros(4, dtype=v.dtype)
            gy[ctx.index] = 3 * v
        return None if u is None else 2 * u, None, gy


def leaf(n: int = 5) -> torch.Tensor:
    return torch.randn(n, dtype=torch.float64, requires_grad=True)


def entries(functions: tuple[type, ...]) -> list[dict[str, Any]]:
    return [dict(vars(function)) for function in functions]


@pytest.mark.parametrize("function", STYLES)
def test_each_style_is_seen_once_with_its_arguments_cotangents_and_gradients(function: Any) -> None:
    x, u = leaf(), torch.randn(5, dtype=torch.float64)
    power, wrong = (5, 1) if function is Calling else (3, 2 if function is Inheriting else 1)
    (visit,) = visits(lambda: function.apply(x, 1.5).backward(u))
    assert visit.function is function
    assert visit.name == function.__name__
    assert torch.equal(visit.arguments[0], x)
    assert visit.arguments[0].requires_grad
    assert visit.arguments[0].is_leaf
    assert visit.arguments[1] == 1.5
    assert torch.equal(visit.cotangents[0], u)
    assert torch.equal(visit.gradients[0], x.grad)
    assert torch.allclose(visit.gradients[0], wrong * power * 1.5 * u * x.detach() ** (power - 1), rtol=1e-14)
    assert visit.gradients[1] is None
    assert visit.edited == ()


def test_captured_apply_and_default_arguments_are_seen() -> None:
    x = leaf()
    first, second = visits(lambda: (captured(x, 2.0) + SplitCube.apply(x)).sum().backward())
    assert {first.function, second.function} == {Cube, SplitCube}
    assert first.arguments[1] == second.arguments[1] == 2.0


def test_visits_come_in_the_order_of_the_backwards_with_the_values_of_each() -> None:
    x = leaf()
    seen = visits(lambda: SplitCube.apply(Cube.apply(x, 2.0), 0.5).sum().backward())
    assert [visit.name for visit in seen] == ["SplitCube", "Cube"]
    assert torch.equal(seen[0].arguments[0], 2 * x.detach() ** 3)
    assert torch.equal(seen[1].arguments[0], x)


def test_nodes_inside_a_node_are_seen() -> None:
    x = leaf()
    assert sorted(visit.name for visit in visits(lambda: Outer.apply(x).sum().backward())) == ["Cube", "Outer"]


def test_only_nodes_whose_backward_ran_are_seen() -> None:
    x = leaf()

    def run() -> None:
        Cube.apply(x, 7.0)  # no backward
        with torch.no_grad():
            SplitCube.apply(x, 7.0)
        SplitCube.forward(x, 7.0)  # not a node
        captured(x, 1.0).sum().backward()

    (visit,) = visits(run)
    assert visit.arguments[1] == 1.0


def test_values_are_those_from_before_edits_in_place() -> None:
    x, u = leaf(), torch.randn(5, dtype=torch.float64)
    sent = u.clone()
    (visit,) = visits(lambda: torch.autograd.grad(Destructive.apply(x.clone()), x, sent))
    assert not torch.equal(sent, u)  # the node did edit it
    assert torch.equal(visit.cotangents[0], u)
    assert torch.equal(visit.arguments[0], x)
    assert torch.equal(visit.gradients[0], 2 * u)
    assert visit.edited == (0,)


def test_missing_cotangents_and_non_tensor_outputs() -> None:
    x, y = leaf(3), leaf(4)
    (visit,) = visits(lambda: Several.apply(x, 2, y)[3].backward())
    assert visit.cotangents[:3] == (None, None, None)
    assert torch.equal(visit.cotangents[3], torch.tensor(1.0, dtype=torch.float64))
    assert visit.gradients[:2] == (None, None)
    assert torch.equal(visit.gradients[2], torch.tensor([0.0, 0, 3, 0], dtype=torch.float64))
    assert visit.arguments[1] == 2


def test_location_is_that_of_the_backward() -> None:
    x = leaf()
    (visit,) = visits(lambda: Inheriting.apply(x, 1.0).sum().backward())
    path, _, line = str(visit.location).rpartition(":")
    assert path.endswith("tests/coherence/test_nodes.py")
    assert Inheriting.backward.__code__.co_firstlineno == int(line)  # its own, not that of the forward it inherits
    assert "Inheriting (" in str(visit)


def test_location_is_relative_inside_the_working_directory_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    x = leaf()
    monkeypatch.chdir(__file__.rpartition("/")[0])
    (inside,) = visits(lambda: Cube.apply(x, 1.0).sum().backward())
    monkeypatch.chdir(tmp_path)
    (outside,) = visits(lambda: Cube.apply(x, 1.0).sum().backward())
    assert str(inside.location).startswith("test_nodes.py:")
    assert str(outside.location).startswith(__file__)


def test_torch_itself_is_left_out() -> None:
    x = leaf()

    def run() -> None:
        torch.utils.checkpoint.checkpoint(lambda x: Cube.apply(x, 1.0), x, use_reentrant=True).sum().backward()

    assert [visit.name for visit in visits(run)] == ["Cube"]


def test_a_class_defined_during_the_run_is_seen() -> None:
    x = leaf()
    made: list[type] = []

    def run() -> None:
        class Late(Cube):
            @staticmethod
            def forward(ctx, x, factor):
                return Cube.forward(ctx, x, factor)

        made.append(Late)
        Late.apply(x, 1.0).sum().backward()

    (visit,) = visits(run)
    assert visit.name == "Late"
    assert isinstance(vars(made[0])["forward"], staticmethod)


@torch.library.custom_op("pairgrad_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float = 2.0, *, shift: float = 0.0) -> torch.Tensor:
    return x * factor + shift


def _keep(ctx, inputs, keyword_only_inputs, output):
    ctx.factor = inputs[1]


scaled.register_autograd(lambda ctx, u: (7 * u * ctx.factor, None), setup_context=_keep)


@torch.library.custom_op("pairgrad_tests::added", mutates_args=())
def added(terms: list[torch.Tensor], factor: float) -> torch.Tensor:
    return sum(terms[1:], terms[0]) * factor


def _count(ctx, inputs, output):
    ctx.count, ctx.factor = len(inputs[0]), inputs[1]


added.register_autograd(lambda ctx, u: ([u * ctx.factor] * ctx.count, None), setup_context=_count)


def test_an_operator_is_seen_under_its_name_and_replayed_with_its_keywords() -> None:
    x = leaf()
    (visit,) = visits(lambda: scaled(x, 3.0, shift=1.0).sum().backward())
    assert visit.name == "pairgrad_tests::scaled"
    assert str(visit.location).rpartition(":")[0].endswith("tests/coherence/test_nodes.py")
    assert len(visit.arguments) == 2
    assert visit.arguments[1] == 3.0
    assert torch.equal(visit.gradients[0], torch.full_like(x, 21))
    fn, arguments = replay(visit)
    assert torch.equal(fn(*arguments), x * 3 + 1)


def test_an_operator_on_a_list_keeps_the_list() -> None:
    x, y = leaf(), leaf()
    (visit,) = visits(lambda: added([x, y], 2.0).sum().backward())
    assert visit.name == "pairgrad_tests::added"
    assert [torch.equal(a, b) for a, b in zip(visit.arguments[0], (x, y), strict=True)] == [True, True]
    assert [torch.equal(g, torch.full_like(x, 2)) for g in visit.gradients[0]] == [True, True]
    fn, arguments = replay(visit)
    assert torch.equal(fn(*arguments), (x + y) * 2)


def test_an_operator_on_a_list_defined_during_the_run_is_seen() -> None:
    x, y = leaf(), leaf()

    def run() -> None:
        @torch.library.custom_op("pairgrad_tests::late", mutates_args=())
        def late(terms: list[torch.Tensor]) -> torch.Tensor:
            return terms[0] * terms[1]

        late.register_autograd(lambda ctx, u: [u, 2 * u])
        late([x, y]).sum().backward()

    (visit,) = visits(run)
    assert visit.name == "pairgrad_tests::late"
    assert torch.equal(visit.gradients[0][1], torch.full_like(x, 2))
    x.grad = None
    torch.ops.pairgrad_tests.late([x, y]).sum().backward()  # works on afterwards
    assert torch.equal(x.grad, torch.ones_like(x))


def many(x: torch.Tensor, count: int) -> Callable[[], None]:
    def run() -> None:
        for k in range(count):
            Cube.apply(x, float(k)).sum().backward()
        SplitCube.apply(x, -1.0).sum().backward()

    return run


def test_limit_is_per_function_and_keeps_the_first_and_some_of_the_rest() -> None:
    x = leaf()
    seen = visits(many(x, 200), limit=6)
    factors = [visit.arguments[1] for visit in seen if visit.function is Cube]
    assert len(factors) == 6
    assert factors[:3] == [0.0, 1.0, 2.0]
    assert factors == sorted(factors)
    assert factors[-1] > 6  # late ones have a chance
    assert [visit.arguments[1] for visit in seen if visit.function is SplitCube] == [-1.0]
    assert [visit.arguments[1] for visit in visits(many(x, 200), limit=6)] == [*factors, -1.0]  # the same ones again


def test_a_limit_of_one_keeps_one_visit_of_each_function() -> None:
    assert [visit.name for visit in visits(many(leaf(1), 3), limit=1)] == ["Cube", "SplitCube"]


def test_results_keep_their_bits() -> None:
    def run() -> list[torch.Tensor]:
        torch.manual_seed(7)
        x, y = torch.randn(50, dtype=torch.float32, requires_grad=True), torch.randn(4, dtype=torch.float32, requires_grad=True)
        out = sum(function.apply(x, 1.5).sum() for function in STYLES)
        out = (
            out
            + Outer.apply(x).sum()
            + (Destructive.apply(x.clone()) * torch.ones(50)).sum()
            + Several.apply(x, 1, y)[3]
            + scaled(x * torch.rand(50)).sum()
        )
        gradients = torch.autograd.grad(out, [x, y], create_graph=False)
        return [out.detach(), *gradients, torch.rand(3)]

    plain, recorded = run(), []
    seen = visits(lambda: recorded.extend(run()))
    assert len(seen) == len(STYLES) + 5  # Outer's inner Cube is a second visit of Cube
    assert all(torch.equal(a, b) for a, b in zip(plain, recorded, strict=True))


def test_double_backward_goes_through() -> None:
    x = leaf()
    second: list[torch.Tensor] = []

    def run() -> None:
        (first,) = torch.autograd.grad(Cube.apply(x, 2.0).sum(), x, create_graph=True)
        second.extend(torch.autograd.grad(first.sum(), x))

    (visit,) = visits(run)
    assert torch.allclose(second[0], 12 * x, rtol=1e-14)
    assert not visit.gradients[0].requires_grad


@pytest.mark.parametrize("fail", [False, True])
def test_classes_hold_what_they_held(fail: bool) -> None:
    functions = (*STYLES, Outer, Mixin, Function, FunctionMeta)
    before, x = entries(functions), leaf()

    def run() -> None:
        assert vars(Cube)["forward"] is not before[0]["forward"]
        Inheriting.apply(x, 1.0).sum().backward()
        if fail:
            raise KeyError("from the run")

    if fail:
        with pytest.raises(KeyError, match="from the run"):
            visits(run)
    else:
        visits(run)
    for function, old in zip(functions, before, strict=True):
        new = dict(vars(function))
        assert list(new) == list(old), function
        assert all(new[name] is old[name] for name in old), function
    assert "forward" not in vars(Inheriting)


class Copied(torch.nn.Module):
    """Counts the copies that are made of it: a recording copies the modules among the arguments."""

    copies = 0

    def __deepcopy__(self, memo: Any) -> Copied:
        Copied.copies += 1
        return self

    def __mul__(self, other: Any) -> Any:
        return 2 * other


def test_a_method_taken_during_the_run_does_not_record_afterwards() -> None:
    x, taken = leaf(), []
    Copied.copies = 0
    visits(lambda: (taken.append(SplitCube.forward), taken[0](x, Copied())))
    assert Copied.copies == 1
    assert torch.equal(taken[0](x, Copied()), 2 * x**3)
    assert Copied.copies == 1


def test_a_compiled_region_gives_the_same() -> None:
    x = leaf()
    compiled = torch.compile(lambda x: SplitCube.apply(x, 2.0).sum(), backend="eager", fullgraph=True)
    seen = visits(lambda: compiled(x).backward())
    assert all(visit.name != "Generated" for visit in seen)
    assert torch.allclose(x.grad, 6 * x.detach() ** 2, rtol=1e-14)


def test_torch_func_gives_the_same() -> None:
    class Rule(SplitCube):
        generate_vmap_rule = True

    x, got = leaf().detach(), []
    visits(lambda: got.append(torch.func.vmap(torch.func.grad(lambda v: Rule.apply(v, 2.0)))(x)))
    assert torch.allclose(got[0], 6 * x**2, rtol=1e-14)


@pytest.mark.parametrize("function", [*STYLES, Destructive])
def test_replay_is_a_subject_with_the_values_and_gradients_of_the_visit(function: Any) -> None:
    x, u = leaf(), torch.randn(5, dtype=torch.float64)
    rest = () if function is Destructive else (1.5,)
    (visit,) = visits(lambda: torch.autograd.grad(function.apply(x.clone(), *rest), x, u.clone()))
    fn, arguments = replay(visit)
    with Subject(fn, arguments) as subject:
        assert len(subject.tensors) == 1
        evaluation = subject.pull(subject.tensors, (visit.cotangents[0].clone(),))
    assert torch.equal(evaluation.gradients[0], visit.gradients[0])
    assert torch.equal(evaluation.outputs[0], function.apply(x.detach().clone(), *rest))
    assert torch.equal(arguments[0], x)


def test_replay_of_a_node_that_edits_its_argument_takes_leaves_and_keeps_them() -> None:
    x = leaf()
    (visit,) = visits(lambda: (Destructive.apply(x.clone()) * torch.ones(5)).sum().backward())
    fn, _ = replay(visit)
    y = leaf()
    before = y.detach().clone()
    assert torch.equal(fn(y), 2 * before)
    assert torch.equal(y, before)


def test_replay_keeps_arguments_that_are_not_differentiated() -> None:
    x, y = leaf(3), torch.randn(4, dtype=torch.float64)
    (visit,) = visits(lambda: Several.apply(x, 2, y)[0].sum().backward())
    fn, arguments = replay(visit)
    with Subject(fn, arguments) as subject:
        assert subject.names == ("input 0",)
        assert torch.equal(subject.outputs[0], 2 * x)


class Misreading(Function):
    """Right for a contiguous grad_output alone: the backward reads the memory that it lies in from the beginning."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, u):
        memory = u.as_strided((u.untyped_storage().nbytes() // u.element_size(),), (1,), 0)
        return memory[torch.arange(u.numel()) % len(memory)].reshape(u.shape) * ctx.saved_tensors[0].cos()


LOSSES = {
    "transposed": lambda y: (y.t() * torch.arange(12.0).reshape(4, 3)).sum(),
    "expanded": lambda y: y.sum(),
    "part of a larger tensor": lambda y: torch.cat([torch.zeros(2, 4), y]).square().sum(),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_cotangents_lie_in_memory_as_they_did(loss: Any) -> None:
    x, got = torch.randn(3, 4, requires_grad=True), []

    class Noting(Misreading):
        @staticmethod
        def backward(ctx, u):
            got.append((u.stride(), u.storage_offset()))
            return Misreading.backward(ctx, u)

    (visit,) = visits(lambda: loss(Noting.apply(x)).backward())
    (cotangent,) = visit.cotangents
    assert [(cotangent.stride(), cotangent.storage_offset())] == got
    assert reproduced(visit) == 0
    assert torch.equal(visit.gradients[0], x.grad)


def test_arguments_lie_in_memory_as_they_did() -> None:
    rows = torch.randn(5, 3)
    for x in (rows.t(), rows[1:, ::2], rows[:1].expand(4, 3), rows[3]):
        x = x.detach().requires_grad_()
        (visit,) = visits(lambda x=x: Cube.apply(x, 2.0).sum().backward())
        copy = visit.arguments[0]
        assert (copy.shape, copy.stride(), copy.storage_offset()) == (x.shape, x.stride(), x.storage_offset())
        assert torch.equal(copy, x)
        assert copy.data_ptr() != x.data_ptr()


def test_a_column_of_a_large_table_is_not_kept_with_the_table() -> None:
    table = torch.zeros(2000, 1000)
    (visit,) = visits(lambda: Cube.apply(table[:, 0].requires_grad_(), 2.0).sum().backward())
    assert visit.arguments[0].untyped_storage().nbytes() == 2000 * 4


class Detaching(Function):
    """Wrong by a factor of 2 in w, which it takes out of the graph."""

    @staticmethod
    def forward(ctx, x, w):
        w.detach_()
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, u):
        x, w = ctx.saved_tensors
        return u * w, 2 * u * x


def test_what_a_forward_detaches_is_differentiated_in_a_replay() -> None:
    (visit,) = visits(lambda: Detaching.apply(torch.randn(3), torch.randn(3, requires_grad=True)).square().sum().backward())
    assert [argument.requires_grad for argument in visit.arguments] == [False, True]
    assert reproduced(visit) == 0
    fn, arguments = replay(visit)
    report = audit(fn, arguments, effort="quick", consequences=False)
    assert report.verdict == "incoherent"


def test_a_replay_that_does_something_else_is_off_by_as_much() -> None:
    class Counting(Cube):
        calls = 0

        @staticmethod
        def forward(ctx, x, factor):
            Counting.calls += 1
            return Cube.forward(ctx, x, factor * Counting.calls)

    (visit,) = visits(lambda: Counting.apply(torch.randn(3, requires_grad=True), 2.0).sum().backward())
    assert reproduced(visit) == pytest.approx(1.0)  # the second call has twice the gradient
    assert reproduced(replace(visit, gradients=())) is None


@pytest.mark.parametrize("drawing", ["forward", "backward"])
def test_random_numbers_of_a_visit_are_drawn_again(drawing: str) -> None:
    class Noisy(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.noise = torch.rand(3) if drawing == "forward" else None
            return x * 1

        @staticmethod
        def backward(ctx, u):
            return u * (torch.rand(3) if ctx.noise is None else ctx.noise)

    (visit,) = visits(lambda: Noisy.apply(torch.randn(3, requires_grad=True)).sum().backward())
    torch.rand(5)
    assert reproduced(visit) == 0


class Product(Function):
    """A sparse matrix times a dense one; `wrong` is the factor of the gradient of the matrix."""

    @staticmethod
    def forward(ctx, a, x, wrong):
        ctx.save_for_backward(a, x)
        ctx.wrong = wrong
        return a @ x

    @staticmethod
    def backward(ctx, u):
        a, x = ctx.saved_tensors
        of_a = (ctx.wrong * u @ x.t()).sparse_mask(a) if ctx.needs_input_grad[0] else None
        return of_a, a.t() @ u, None


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    ("layout", "wrong"), [(torch.sparse_coo, 1.0), (torch.sparse_coo, 1.5), (torch.sparse_coo, None), (torch.sparse_csr, None)]
)
def test_sparse_arguments_are_replayed(layout: torch.layout, wrong: float | None) -> None:
    a = torch.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0]]).to_sparse(layout=layout)
    a = a.coalesce() if layout == torch.sparse_coo else a
    if wrong is not None:
        a = a.requires_grad_()
    x = torch.randn(3, 2, requires_grad=True)
    (visit,) = visits(lambda: Product.apply(a, x, wrong).square().sum().backward())
    assert reproduced(visit) == 0
    fn, arguments = replay(visit)
    report = audit(fn, arguments, effort="quick", second_order=False, consequences=False)  # torch has no second derivative of sparse_mask
    assert report.verdict == ("incoherent" if wrong == 1.5 else "coherent"), str(report)


def test_errors_name_the_argument() -> None:
    with pytest.raises(TypeError, match="run must be a callable"):
        visits(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="limit must be an integer >= 1, got 0"):
        visits(lambda: None, limit=0)
    with pytest.raises(TypeError, match="visit must be a Visit"):
        replay(Cube)  # type: ignore[arg-type]
    assert Visit.__name__ in repr(visits(lambda: captured(leaf(), 1.0).sum().backward())[0])
