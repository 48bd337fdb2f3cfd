"""Forward bodies differentiated in place of what custom backwards say: in every style, without touching a value or a class."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import Function

from pairgrad.coherence import differentiated_forward


class Wrong(Function):
    """x^2 w with a backward that is off by a factor of 10 in x and by 3 in w."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * x * w

    @staticmethod
    def backward(ctx, u):
        x, w = ctx.saved_tensors
        return 20 * u * x * w, 3 * u * x * x


captured = Wrong.apply


class SplitWrong(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, w):
        return x * x * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, u):
        x, w = ctx.saved_tensors
        return 20 * u * x * w, 3 * u * x * x


class ClassWrong(Function):
    power = 2

    @classmethod
    def forward(cls, ctx, x, w):
        ctx.save_for_backward(x, w)
        return x**cls.power * w

    @classmethod
    def backward(cls, ctx, u):
        return u, u


class Child(Wrong):
    @staticmethod
    def backward(ctx, u):
        return None, u


class Delegating(ClassWrong):
    @classmethod
    def forward(cls, ctx, x, w):
        return super().forward(ctx, x, w)


class SplitChild(SplitWrong):
    @staticmethod
    def forward(x, w):
        return SplitWrong.forward(x, w)


class VjpWrong(Function):
    @staticmethod
    def forward(ctx, x, w):
        return x * x * w

    @staticmethod
    def vjp(ctx, u):
        return u, u


class Nesting(Function):
    """x^2 w through another wrong node."""

    @staticmethod
    def forward(ctx, x, w):
        return Wrong.apply(x, w) * 1.0

    @staticmethod
    def backward(ctx, u):
        return u, u


class Reading(Function):
    """A forward that reads its context back."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.set_materialize_grads(True)
        ctx.save_for_backward(x, w)
        ctx.note = 2
        assert len(ctx.needs_input_grad) == 2
        a, b = x, w
        if ctx.needs_input_grad[0]:
            a = x**ctx.note
        return a * b

    @staticmethod
    def backward(ctx, u):
        return u, u


class InPlace(Function):
    """x^2 w, written into x."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.mark_dirty(x)
        return x.mul_(x.clone()).mul_(w)

    @staticmethod
    def backward(ctx, u):
        return u, u


class Boxed(Function):
    boxed_grads_call = True

    @staticmethod
    def forward(ctx, x, w):
        return x * x * w

    @staticmethod
    def backward(ctx, us):
        return us[0], us[0]


STYLES = (Wrong, SplitWrong, ClassWrong, Child, Delegating, SplitChild, VjpWrong, Nesting, Reading, InPlace)
STYLES = (*STYLES, Boxed) if torch.__version__ >= (2, 13) else STYLES  # before, torch hands over no gradients in one list


def point() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x, w, u = torch.randn(3, 6, dtype=torch.float64)
    return x.clone().requires_grad_(), w.clone().requires_grad_(), u


def pulled(fn: Any, x: torch.Tensor, w: torch.Tensor, u: torch.Tensor, **options: Any) -> tuple[torch.Tensor, ...]:
    y = fn(x * 1.0, w)  # x is not a leaf, so that it may be edited
    return y.detach().clone(), *torch.autograd.grad(y, [x, w], u, allow_unused=True, **options)


@pytest.mark.parametrize("function", STYLES)
def test_gradient_is_that_of_the_body_and_the_value_keeps_its_bits(function: Any) -> None:
    x, w, u = point()
    value, *supplied = pulled(function.apply, x, w, u)
    right = torch.autograd.grad(x**2 * w, [x, w], u)
    with differentiated_forward():
        same, *got = pulled(function.apply, x, w, u)
    assert torch.equal(same, value)
    assert all(torch.allclose(g, r, rtol=1e-14, atol=0) for g, r in zip(got, right, strict=True))
    assert not all(s is not None and torch.allclose(s, r, rtol=1e-3) for s, r in zip(supplied, right, strict=True))
    _, *after = pulled(function.apply, x, w, u)
    assert all(a is s is None or torch.equal(a, s) for a, s in zip(after, supplied, strict=True))


def test_captured_apply_is_differentiated() -> None:
    x, w, u = point()
    with differentiated_forward():
        _, gx, gw = pulled(captured, x, w, u)
    assert torch.allclose(gw, u * x * x, rtol=1e-14)
    assert torch.allclose(gx, 2 * u * x * w, rtol=1e-14)


def test_only_the_given_functions_are_differentiated() -> None:
    x, w, u = point()
    with differentiated_forward([Child]):
        _, *child = pulled(Child.apply, x, w, u)
        _, *parent = pulled(Wrong.apply, x, w, u)
    assert torch.allclose(child[1], u * x * x, rtol=1e-14)
    assert torch.equal(parent[1], 3 * u * x * x)


def test_a_node_inside_a_body_is_left_as_it_is_unless_given() -> None:
    x, w, u = point()
    with differentiated_forward([Nesting]):
        _, _, gw = pulled(Nesting.apply, x, w, u)
    assert torch.equal(gw, 3 * u * x * x)


def test_arguments_that_need_no_gradient_get_none_and_unused_ones_zeros() -> None:
    got: list[Any] = []

    class Partial(Function):
        @staticmethod
        def forward(ctx, x, scale, w, unused):
            return x.sin() * scale * w

        @staticmethod
        def backward(ctx, u):
            raise AssertionError("must not run")

    x, w, u = point()
    unused = torch.randn(2, dtype=torch.float64, requires_grad=True)
    with differentiated_forward():
        y = Partial.apply(x, 2, w.detach(), unused)
        y.grad_fn.register_hook(lambda gradients, _: got.extend(gradients))
        torch.autograd.grad(y, [x, unused], u)
    assert [g is None for g in got] == [False, True, False]  # of the tensors
    assert torch.allclose(got[0], 2 * u * x.cos() * w, rtol=1e-14)
    assert torch.equal(got[2], torch.zeros_like(unused))


def test_several_outputs_and_missing_cotangents() -> None:
    class Several(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.set_materialize_grads(False)
            order = x.argsort()
            ctx.mark_non_differentiable(order)
            return x * w, None, order, x.exp()

        @staticmethod
        def backward(ctx, *_):
            return None, None

    x, w, u = point()
    with differentiated_forward():
        product, _, order, power = Several.apply(x, w)
        first = torch.autograd.grad(product, [x, w], u, retain_graph=True)
        both = torch.autograd.grad([product, power], [x, w], [u, u])
    assert torch.equal(order, x.argsort())
    assert torch.equal(first[0], u * w)
    assert torch.allclose(both[0], u * w + u * x.exp(), rtol=1e-14)
    assert torch.equal(both[1], u * x)


def test_arguments_are_those_from_before_edits_in_place() -> None:
    x, w, u = point()
    shared = x.detach().clone()
    with differentiated_forward():
        y = Wrong.apply(shared, w)
        shared.zero_()
        (gw,) = torch.autograd.grad(y, w, u, retain_graph=True)
        (again,) = torch.autograd.grad(y, w, u)
    assert torch.equal(gw, u * x.detach() ** 2)
    assert torch.equal(again, gw)


def test_a_body_that_edits_a_buffer_does_so_once() -> None:
    class Counting(Function):
        @staticmethod
        def forward(ctx, x, count):
            count.add_(1)
            return x * count

        @staticmethod
        def backward(ctx, u):
            return u, None

    x, _, u = point()
    count = torch.ones((), dtype=torch.float64)
    with differentiated_forward():
        y = Counting.apply(x, count)
        (g,) = torch.autograd.grad(y, x, u, retain_graph=True)
        (again,) = torch.autograd.grad(y, x, u)
    assert count.item() == 2
    assert torch.equal(g, 2 * u)
    assert torch.equal(again, g)


@pytest.mark.parametrize("source", ["torch", "numpy", "random"])
def test_random_numbers_are_drawn_again_and_the_generators_go_on_as_before(source: str) -> None:
    class Noisy(Function):
        @staticmethod
        def forward(ctx, x):
            if source == "torch":
                mask = torch.rand_like(x)
            else:
                mask = torch.tensor([np.random.rand() if source == "numpy" else random.random() for _ in x], dtype=x.dtype)  # noqa: NPY002
            return x * mask

        @staticmethod
        def backward(ctx, u):
            return torch.zeros_like(u)

    def run() -> tuple[Any, ...]:
        torch.manual_seed(1), np.random.seed(1), random.seed(1)  # noqa: NPY002
        y = Noisy.apply(x)
        torch.rand(3), np.random.rand(), random.random()  # noqa: NPY002
        (g,) = torch.autograd.grad(y, x, u)
        return y.detach(), g, (torch.rand(1).item(), np.random.rand(), random.random())  # noqa: NPY002

    x, _, u = point()
    plain = run()
    with differentiated_forward():
        value, g, after = run()
    assert torch.equal(value, plain[0])
    assert torch.allclose(g, u * value / x.detach(), rtol=1e-14)
    assert after == plain[2]


def test_autocast_of_the_forward_holds_in_the_second_run() -> None:
    seen: list[torch.dtype] = []

    class Product(Function):
        @staticmethod
        def forward(ctx, x):
            y = x @ x
            seen.append(y.dtype)
            return y

        @staticmethod
        def backward(ctx, u):
            return u.float()

    x = torch.randn(3, 3, requires_grad=True)
    with differentiated_forward():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = Product.apply(x)
        y.float().sum().backward()
    assert seen == [torch.bfloat16, torch.bfloat16]
    assert x.grad.dtype == torch.float32


@pytest.mark.parametrize("function", [Wrong, SplitWrong, Nesting, Reading])
def test_second_derivatives_are_those_of_the_body(function: Any) -> None:
    x, w, u = point()
    with differentiated_forward():
        _, gx, _ = pulled(function.apply, x, w, u, create_graph=True)
        second = torch.autograd.grad(gx.sum(), [x, w])
    assert torch.allclose(second[0], 2 * u * w, rtol=1e-14)
    assert torch.allclose(second[1], 2 * u * x, rtol=1e-14)


def test_torch_func_gives_the_derivative_of_the_body() -> None:
    x, w, _ = point()
    with differentiated_forward():
        gx, gw = torch.func.grad(lambda x, w: SplitWrong.apply(x, w).sum(), argnums=(0, 1))(x.detach(), w.detach())
        each = torch.func.vmap(torch.func.grad(SplitWrong.apply))(x.detach(), w.detach())
        twice = torch.func.grad(lambda x: torch.func.grad(lambda x: SplitWrong.apply(x, w[0].detach()))(x) ** 2)(x[0].detach())
    assert torch.allclose(gx, 2 * x * w, rtol=1e-14)
    assert torch.allclose(gw, x * x, rtol=1e-14)
    assert torch.allclose(each, 2 * x * w, rtol=1e-14)
    assert torch.allclose(twice, 8 * w[0] ** 2 * x[0], rtol=1e-14)


def test_torch_func_with_a_missing_cotangent() -> None:
    class Pair(Function):
        @staticmethod
        def forward(x):
            return x.sin(), x.exp()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx, u, v):
            return torch.zeros_like(u)

    x = point()[0].detach()
    with differentiated_forward():
        got = torch.func.grad(lambda x: Pair.apply(x)[0].sum())(x)
    assert torch.allclose(got, x.cos(), rtol=1e-14)


def test_operators_are_left_alone() -> None:
    @torch.library.custom_op("pairgrad_tests::tripled", mutates_args=())
    def tripled(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    tripled.register_autograd(lambda ctx, u: 7 * u)
    x, _, u = point()
    with differentiated_forward():
        (g,) = torch.autograd.grad(tripled(x), x, u)
    assert torch.equal(g, 7 * u)


@pytest.mark.parametrize("fail", [False, True])
def test_classes_hold_what_they_held(fail: bool) -> None:
    before = [dict(vars(function)) for function in STYLES]
    try:
        with differentiated_forward():
            assert vars(Wrong)["backward"] is not before[0]["backward"]
            if fail:
                raise KeyError
    except KeyError:
        pass
    for function, old in zip(STYLES, before, strict=True):
        assert list(vars(function)) == list(old)
        assert all(vars(function)[name] is old[name] for name in old)


def test_entering_twice_changes_nothing() -> None:
    x, w, u = point()
    with differentiated_forward(), differentiated_forward([Wrong]):
        _, gx, _ = pulled(Wrong.apply, x, w, u)
    assert torch.allclose(gx, 2 * u * x * w, rtol=1e-14)
    assert isinstance(vars(Wrong)["forward"], staticmethod)


class ThroughNumpy(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.from_numpy(np.sin(x.numpy()))

    @staticmethod
    def backward(ctx, u):
        return u


class ThroughData(Function):
    @staticmethod
    def forward(ctx, x):
        return x.data.sin()

    @staticmethod
    def backward(ctx, u):
        return u


class Around(Function):
    @staticmethod
    def forward(ctx, x):
        return ThroughData.apply(x) * 2

    @staticmethod
    def backward(ctx, u):
        return u


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (ThroughNumpy, r"ThroughNumpy \(.*test_consistent.py:\d+\).*numpy"),
        (ThroughData, "ThroughData .*without a graph"),
        (Around, "ThroughData "),
    ],
)
def test_an_opaque_body_is_named(function: Any, named: str) -> None:
    x, _, u = point()
    with differentiated_forward(), pytest.raises(RuntimeError, match=named):
        torch.autograd.grad(function.apply(x), x, u)


def test_a_forward_from_outside_is_refused() -> None:
    x, w, u = point()
    y = Wrong.apply(x, w)
    with differentiated_forward(), pytest.raises(RuntimeError, match="must see the forward of Wrong"):
        torch.autograd.grad(y, x, u)


def test_vmap_inside_is_refused() -> None:
    x, w, _ = point()
    with differentiated_forward(), pytest.raises(RuntimeError, match="must see the forward of SplitWrong"):
        torch.func.grad(lambda x: torch.func.vmap(SplitWrong.apply)(x, w.detach()).sum())(x.detach())


def test_second_derivative_after_an_edit_in_place_is_refused() -> None:
    x, w, u = point()
    with differentiated_forward(), pytest.raises(RuntimeError, match="argument 0 was edited in place"):
        pulled(InPlace.apply, x, w, u, create_graph=True)


def test_second_derivative_after_a_later_edit_is_refused() -> None:
    x, w, u = point()
    middle = x * 1.0
    with differentiated_forward():
        y = Wrong.apply(middle, w)
        middle.mul_(2)
        with pytest.raises(RuntimeError, match="argument 0 was edited in place"):
            torch.autograd.grad(y, x, u, create_graph=True)


def test_a_node_that_edits_its_argument_is_freed_at_once() -> None:
    """Its argument is its output: held by the node, it would hold the node until the garbage collector comes."""

    class Token:
        pass

    class Holding(Function):
        @staticmethod
        def forward(ctx, x, token):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, u):
            return u, None

    token = Token()
    alive = weakref.ref(token)
    gc.disable()
    try:
        with differentiated_forward([Holding]):
            y = Holding.apply(point()[0] * 1.0, token)
        del y, token
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("given", [Wrong, [Wrong.apply], [int], 3])
def test_functions_must_be_functions(given: Any) -> None:
    with pytest.raises(TypeError, match=r"functions must (be a collection|hold subclasses)"), differentiated_forward(given):
        pass
