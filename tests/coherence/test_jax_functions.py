"""The bridge from JAX: the numbers are JAX's own, bit for bit, to every order, and nothing is shared or rounded on the way."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

import pairgrad
from pairgrad.coherence import Subject, Verdict, audit, from_jax

jax = pytest.importorskip("jax")
jnp = jax.numpy

F32, F64 = torch.float32, torch.float64


@pytest.fixture
def _x64():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def _x32():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", before)


x64, x32 = pytest.mark.usefixtures("_x64"), pytest.mark.usefixtures("_x32")


def smooth(x):
    return jnp.sum(jnp.sin(x) * jnp.exp(0.3 * x) / (1 + x**2))


@jax.custom_vjp
def wrong(x):
    """x^3 / 3 with twice its derivative for a backward."""
    return x**3 / 3


wrong.defvjp(lambda x: (x**3 / 3, x), lambda x, u: (2 * u * x**2,))


@jax.custom_vjp
def two_faced(x):
    """A forward rule whose value is not that of the function."""
    return x


two_faced.defvjp(lambda x: (x + 1, None), lambda _, u: (u,))


def numbers(*shape, dtype=F64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def asking(*shape, **options):
    return numbers(*shape, **options).requires_grad_()


def array(tensor):
    """The tensor as an array of JAX, by a way that is not the bridge's."""
    if tensor.dtype == torch.bfloat16:
        return jnp.asarray(tensor.detach().float().numpy()).astype(jnp.bfloat16)
    return jnp.array(tensor.detach().numpy())


def same(tensor, expected):
    """Equal bits, dtype and shape."""
    ours = array(tensor)
    assert ours.dtype == expected.dtype, (ours.dtype, expected.dtype)
    assert ours.shape == expected.shape, (ours.shape, expected.shape)
    assert np.asarray(ours).tobytes() == np.asarray(expected).tobytes(), (ours, expected)


@x64
@pytest.mark.parametrize("dtype", [F64, F32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
def test_value_and_gradient_are_those_of_jax(dtype, shape):
    x = asking(*shape, dtype=dtype)
    value = from_jax(smooth)(x)
    (gradient,) = torch.autograd.grad(value, x)
    same(value, smooth(array(x)))
    same(gradient, jax.grad(smooth)(array(x)))
    assert value.dtype == gradient.dtype == dtype


@x64
def test_jitted():
    x = asking(7)
    fn = jax.jit(smooth)
    value = from_jax(fn)(x)
    same(value, fn(array(x)))
    (gradient,) = torch.autograd.grad(value, x, create_graph=True)
    same(gradient, jax.grad(fn)(array(x)))
    (second,) = torch.autograd.grad(gradient.sum(), x)
    same(second, jax.grad(lambda a: jax.grad(fn)(a).sum())(array(x)))


@x64
def test_jit_of_static_arguments():
    fn = jax.jit(lambda x, n: sum(x**k for k in range(n)), static_argnums=1)
    x = asking(4)
    (gradient,) = torch.autograd.grad(from_jax(fn)(x, 3).sum(), x)
    torch.testing.assert_close(gradient, 1 + 2 * x.detach(), rtol=1e-15, atol=0)


@x64
def test_a_wrong_backward_is_handed_on():
    x = asking(5)
    value = from_jax(wrong)(x)
    (gradient,) = torch.autograd.grad(value, x, torch.ones_like(value))
    same(value, array(x) ** 3 / 3)
    assert torch.equal(gradient, 2 * x.detach() ** 2)


@x64
@pytest.mark.parametrize("fn", [jnp.tanh, wrong, lambda x: wrong(jnp.sin(x)), jax.jit(wrong)], ids=["tanh", "wrong", "inside", "jitted"])
def test_second_and_third_derivatives_are_those_of_jax(fn):
    """For a custom rule these are derivatives of the rule, not of the function."""
    x = asking(dtype=F64)
    orders, expected = [from_jax(fn)(x)], [fn]
    for _ in range(3):
        orders += torch.autograd.grad(orders[-1], x, create_graph=True)
        expected.append(jax.grad(expected[-1]))
    for ours, theirs in zip(orders, expected, strict=True):
        same(ours, theirs(array(x)))


@x64
def test_a_backward_with_a_graph_gives_the_same_bits():
    x, weight = asking(6), numbers(6, seed=1)
    fn = from_jax(lambda x: jnp.cumsum(jnp.log1p(x**2)))
    (plain,) = torch.autograd.grad(fn(x), x, weight)
    (graphed,) = torch.autograd.grad(fn(x), x, weight, create_graph=True)
    assert graphed.requires_grad
    assert not plain.requires_grad
    assert torch.equal(plain, graphed)


@x64
def test_gradcheck():
    fn = from_jax(lambda x, y: (jnp.tanh(x) @ y, jnp.sum(jnp.cos(x))))
    arguments = (asking(2, 3), asking(3, 2, seed=1))
    assert torch.autograd.gradcheck(fn, arguments)
    assert torch.autograd.gradgradcheck(fn, arguments)


@x64
def test_gradcheck_of_complex_numbers():
    """The two libraries disagree by a conjugate about what a complex gradient is."""
    z = torch.complex(numbers(3), numbers(3, seed=1)).requires_grad_()
    assert torch.autograd.gradcheck(from_jax(lambda z: jnp.sin(z) * jnp.conj(z) * (1 + 2j)), z)
    assert torch.autograd.gradgradcheck(from_jax(lambda z: z**3), z)
    assert torch.autograd.gradcheck(from_jax(lambda x: jnp.exp(1j * x)), asking(3))


@x64
def test_the_value_is_the_one_that_belongs_to_the_gradient():
    x = asking(3)
    same(from_jax(two_faced)(x), jax.vjp(two_faced, array(x))[0])
    with torch.no_grad():
        same(from_jax(two_faced)(x), two_faced(array(x)))
    same(from_jax(two_faced)(x.detach()), two_faced(array(x)))


class Pair(NamedTuple):
    left: object
    right: object


def of_trees(tree, scale, *, shift):
    a, (b, c) = tree["a"], tree["rest"]
    return {"sum": a * scale + b, "more": [jnp.sin(c), Pair(shift * a * c, None)]}


@x64
def test_trees_in_and_out():
    tree = {"a": asking(3), "rest": (asking(3, seed=1), asking(3, seed=2))}
    scale, shift = asking(seed=3), asking(3, seed=4)
    result = from_jax(of_trees)(tree, scale, shift=shift)
    assert list(result) == ["more", "sum"]
    assert isinstance(result["more"], list)
    assert isinstance(result["more"][1], Pair)
    assert result["more"][1].right is None
    outputs = (result["sum"], result["more"][0], result["more"][1].left)
    cotangents = tuple(numbers(3, seed=5 + i) for i in range(3))
    leaves = (tree["a"], *tree["rest"], scale, shift)
    gradients = torch.autograd.grad(outputs, leaves, cotangents, create_graph=True)

    def flat(a, b, c, scale, shift):
        result = of_trees({"a": a, "rest": (b, c)}, scale, shift=shift)
        return result["sum"], result["more"][0], result["more"][1].left

    values, pull = jax.vjp(flat, *map(array, leaves))
    for ours, theirs in zip((*outputs, *gradients), (*values, *pull(tuple(map(array, cotangents)))), strict=True):
        same(ours, theirs)
    # d2/da dc of shift a c, weighted by the cotangent: the gradient by a, summed, depends on c through shift.
    (mixed,) = torch.autograd.grad(gradients[0].sum(), tree["rest"][1])
    torch.testing.assert_close(mixed, (shift * cotangents[2]).detach(), rtol=1e-15, atol=0)


@x64
def test_an_output_that_is_not_used_has_no_cotangent():
    x = asking(3)
    first, second = from_jax(lambda x: (x**2, jnp.exp(x)))(x)
    (gradient,) = torch.autograd.grad(second.sum(), x)
    same(gradient, jnp.exp(array(x)))
    assert first.requires_grad


@x64
def test_what_has_no_gradient_is_passed_on():
    seen = {}

    def fn(x, power, flag, name, indices, mask, fixed, key, nothing=None):
        seen.update(power=power, flag=flag, name=name, nothing=nothing, key=key, indices=indices.dtype, mask=mask.dtype)
        return x > 0, jnp.where(mask, x, 0)[indices] ** power * fixed, jnp.argsort(x), "label", 7, 2.5

    x, fixed, key = asking(4), numbers(3, seed=1), jax.random.key(0)
    indices, mask = torch.tensor([2, 0, 2]), torch.tensor([True, True, True, False])
    positive, value, order, label, seven, number = from_jax(fn)(x, 2, True, "name", indices, mask, fixed, key)
    assert seen.pop("key") is key
    assert seen == {"power": 2, "flag": True, "name": "name", "nothing": None, "indices": np.dtype("int64"), "mask": np.dtype("bool")}
    assert type(seen["power"]) is int
    assert type(seven) is int
    assert (label, seven, number) == ("label", 7, 2.5)
    assert torch.equal(order, torch.argsort(x.detach()))
    assert torch.equal(positive, x.detach() > 0)
    assert not order.requires_grad
    assert not positive.requires_grad
    (gradient,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    expected = torch.zeros(4, dtype=F64).index_add(0, indices, 2 * x.detach()[indices] * fixed)
    torch.testing.assert_close(gradient.detach(), expected, rtol=1e-15, atol=0)
    (second,) = torch.autograd.grad(gradient.sum(), x)
    assert torch.equal(second, torch.zeros(4, dtype=F64).index_add(0, indices, 2 * fixed))


@x64
def test_rules_with_arguments_that_are_not_differentiated():
    @functools.partial(jax.custom_vjp, nondiff_argnums=(0, 2))
    def apply(inner, x, n):
        return inner(x) * n

    apply.defvjp(lambda inner, x, n: (inner(x) * n, x), lambda inner, n, x, u: (u * n * 10,))
    x = asking(3)
    value = from_jax(apply)(jnp.sin, x, 3)
    same(value, jnp.sin(array(x)) * 3)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert torch.equal(gradient, torch.full((3,), 30.0, dtype=F64))


@x64
def test_gradients_only_where_asked():
    """JAX refuses the reverse derivative of a while loop; by an argument that does not ask for one it is not needed."""

    def fn(x, y):
        return x * jax.lax.while_loop(lambda v: v[0] < 100, lambda v: v * 2, y)

    x, fixed = asking(3), torch.tensor([1.0, 2.0, 3.0], dtype=F64)
    from_jax(fn)(x, fixed).sum().backward()
    assert torch.equal(x.grad, 128 * fixed)
    assert fixed.grad is None
    assert not from_jax(fn)(x.detach(), fixed).requires_grad
    with pytest.raises(ValueError, match="while_loop"):
        from_jax(fn)(x, fixed.requires_grad_()).sum().backward()


@x64
@pytest.mark.parametrize("dtype", [F64, F32, torch.bfloat16])
def test_layouts(dtype):
    """Strides, expansion and offsets are the caller's business; bfloat16 goes by a view of its bits."""
    base = numbers(4, 6, dtype=dtype)
    for x in (base.t(), base[1:, ::2], base[:, :1].expand(4, 5), base[2, 3], base[:0]):
        x = x.detach().requires_grad_()
        value = from_jax(lambda x: x * 3)(x)
        (gradient,) = torch.autograd.grad(value.sum(), x)
        assert torch.equal(value.detach(), x.detach() * 3)
        assert torch.equal(gradient, torch.full(x.shape, 3, dtype=dtype))


@x64
def test_mixed_dtypes_keep_theirs():
    x, y = asking(3, dtype=F32), asking(3)
    value = from_jax(lambda x, y: x * y)(x, y)
    gradients = torch.autograd.grad(value.sum(), (x, y))
    assert value.dtype == F64
    assert [g.dtype for g in gradients] == [F32, F64]
    assert torch.equal(gradients[0], y.detach().to(F32))


def test_special_values_keep_their_bits():
    x = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-42, 3.4e38], dtype=F32)
    assert from_jax(lambda x: x)(x).view(torch.int32).tolist() == x.view(torch.int32).tolist()


@x32
@pytest.mark.parametrize("dtype", [F64, torch.complex128])
def test_sixty_four_bits_are_not_cut_in_silence(dtype):
    with pytest.raises(
        RuntimeError, match=r'jax_enable_x64 is off: call jax\.config\.update\("jax_enable_x64", True\), or pass (float32|complex64)'
    ):
        from_jax(jnp.sin)(torch.ones(3, dtype=dtype))
    x = asking(3, dtype=F32)
    assert from_jax(jnp.sin)(x).dtype == F32


@x32
def test_integers_that_thirty_two_bits_hold_are_welcome():
    x = asking(3, dtype=F32)
    assert torch.equal(from_jax(lambda x, i: x[i])(x, torch.tensor([2, 1])), x[[2, 1]])
    with pytest.raises(RuntimeError, match=r"int32, because jax_enable_x64 is off.* or pass integers that 32 bits hold"):
        from_jax(lambda i: i)(torch.tensor([2**31]))


@x64
def test_integers_keep_sixty_four_bits():
    assert from_jax(lambda i: i + 1)(torch.tensor([2**40])).tolist() == [2**40 + 1]


@x64
def test_a_backward_after_the_switch_was_turned_off_raises():
    x = asking(3)
    value = from_jax(jnp.sin)(x)
    jax.config.update("jax_enable_x64", False)
    with pytest.raises(RuntimeError, match="jax_enable_x64 is off"):
        value.sum().backward()


def test_nothing_is_shared():
    """Torch allocates on 64-byte boundaries, where JAX would take the memory over as it stands."""
    held = []

    def fn(x):
        held.append(x)
        return x

    x = torch.arange(1024, dtype=F32)
    value = from_jax(fn)(x)
    x.zero_()
    assert held[0][5] == 5
    assert value[5] == 5
    value.fill_(-1)
    assert held[0][5] == 5
    assert x[5] == 0


def test_gradients_share_nothing():
    kept = []

    @jax.custom_vjp
    def fn(x):
        return x

    def backward(_, u):
        kept.append(u)
        return (u,)

    fn.defvjp(lambda x: (x, None), backward)
    x, u = asking(1024, dtype=F32), torch.ones(1024)
    (gradient,) = torch.autograd.grad(from_jax(fn)(x), x, u)
    gradient.zero_()
    u.fill_(7)
    assert bool((kept[0] == 1).all())
    assert gradient[0] == 0


def test_an_argument_edited_before_the_backward_is_noticed():
    x = asking(3, dtype=F32)
    y = x * 1
    value = from_jax(jnp.sin)(y)
    y.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.sum().backward()


def test_a_graph_is_used_once_unless_retained():
    x = asking(3, dtype=F32)
    value = from_jax(jnp.sin)(x).sum()
    first = torch.autograd.grad(value, x, retain_graph=True)
    assert torch.equal(first[0], torch.autograd.grad(value, x)[0])
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(value, x)


@pytest.mark.gpu
def test_results_go_back_to_the_device(device):
    x, y = asking(3, dtype=F32).detach().to(device).requires_grad_(), asking(dtype=F32, seed=1)
    value = from_jax(lambda x, y: jnp.sin(x) * y)(x, y)
    gradients = torch.autograd.grad(value.sum(), (x, y), create_graph=True)
    assert value.device == gradients[0].device == x.device
    assert gradients[1].device == y.device
    torch.testing.assert_close(gradients[0], x.cos() * y.to(device))
    (second,) = torch.autograd.grad(gradients[0].sum(), x)
    torch.testing.assert_close(second, -x.sin() * y.to(device))


@x64
@pytest.mark.parametrize("fn", [jnp.sin, wrong, jax.jit(wrong)], ids=["sin", "wrong", "jitted"])
def test_as_a_subject(fn):
    x, u, w = numbers(4), numbers(4, seed=1), numbers(4, seed=2)
    subject = Subject(from_jax(fn), (x,))
    once = subject.pull((x,), (u,))
    value, pull = jax.vjp(fn, array(x))
    same(once.outputs[0], value)
    same(once.gradients[0], pull(array(u))[0])
    twice = subject.pull_twice((x,), (u,), (w,))

    def first(a):
        return jax.vjp(fn, a)[1](array(u))[0]

    same(twice.gradients[0], jax.vjp(first, array(x))[1](array(w))[0])
    torch.testing.assert_close(twice.outputs[0], (once.gradients[0] * w).sum(), rtol=1e-15, atol=0)
    assert subject.connected
    assert not subject.random
    assert not subject.calls_edit()


@x64
def test_an_audit_traces_a_function_once_and_repeats_what_it_saw():
    runs = []

    def fn(x):
        runs.append(1)
        return smooth(x)

    report = audit(from_jax(fn), numbers(6))
    assert report.verdict is Verdict.COHERENT
    assert report.evaluations > 200
    assert len(runs) < report.evaluations / 4
    before = len(runs)
    from_jax(fn)(numbers(6))
    assert len(runs) == before + 1


@x64
def test_repeated_calls_of_a_subject_keep_the_bits():
    with Subject(from_jax(smooth), (numbers(5),)) as subject:
        for seed in range(12):
            x, u = numbers(5, seed=seed), numbers(seed=seed + 50)
            found = subject.pull((x,), (u,))
            value, pull = jax.vjp(smooth, array(x))
            same(found.outputs[0], value)
            same(found.gradients[0], pull(array(u))[0])


@x64
def test_a_function_that_keeps_something_from_call_to_call_is_seen():
    calls = []

    def fn(x):
        calls.append(1)
        return jnp.sin(x) * (1 + 0.1 * len(calls))

    assert audit(from_jax(fn), numbers(3), effort="glance", second_order=False).verdict is Verdict.NOT_REENTRANT


@x64
def test_a_function_that_begins_to_change_later_is_called_again():
    values, scale = [], [1.0]
    with Subject(from_jax(lambda x: jnp.sin(x) * scale[0]), (numbers(3),)) as subject:
        values += [subject.outputs_at(subject.tensors)[0] for _ in range(10)]
        scale[0] = 2.0
        values += [subject.outputs_at(subject.tensors)[0] for _ in range(10)]
    assert torch.equal(values[-1], 2 * values[0])


@x64
def test_a_function_that_looks_at_its_numbers_is_audited():
    def fn(x):
        return jnp.sin(x) if x[0] > 0 else jnp.cos(x)

    subject = Subject(from_jax(fn), (torch.ones(2, dtype=F64),))
    for _ in range(4):
        same(subject.outputs_at((torch.ones(2, dtype=F64),))[0], jnp.sin(jnp.ones(2)))
        same(subject.outputs_at((-torch.ones(2, dtype=F64),))[0], jnp.cos(-jnp.ones(2)))


@x64
def test_constants_of_one_value_and_another_kind_are_not_confused():
    def fn(x, n):
        return x * 2 if isinstance(n, bool) else x * 3 if isinstance(n, int) else x * (4 if str(n) == "0.0" else 5)

    bridged = from_jax(fn)

    def all_of_them(x):
        return tuple(bridged(x, n) for n in (True, 1, 0.0, -0.0))

    with Subject(all_of_them, (torch.ones(1, dtype=F64),)) as subject:
        for _ in range(4):
            assert [output.item() for output in subject.outputs_at(subject.tensors)] == [2, 3, 4, 5]


@x64
def test_a_wrong_rule_is_found_to_the_second_order():
    assert audit(from_jax(wrong), numbers(3), effort="quick").verdict is Verdict.INCOHERENT

    @jax.custom_vjp
    def inner(x, u):
        return u * jnp.cos(x)

    inner.defvjp(lambda x, u: (u * jnp.cos(x), (x, u)), lambda kept, w: (-1.1 * w * kept[1] * jnp.sin(kept[0]), w * jnp.cos(kept[0])))

    @jax.custom_vjp
    def fn(x):
        return jnp.sin(x)

    fn.defvjp(lambda x: (jnp.sin(x), x), lambda x, u: (inner(x, u),))
    report = audit(from_jax(fn), numbers(3), effort="quick", consequences=False)
    assert not report.passed
    assert any("the second derivative is off" in finding.text for finding in report.findings)


def test_the_name_is_that_of_the_function():
    assert Subject(from_jax(wrong), (torch.ones(2),)).name == "wrong"
    assert from_jax(smooth).__doc__ == smooth.__doc__
    assert Subject(from_jax(functools.partial(jnp.multiply, 2)), (torch.ones(2),)).outputs[0].tolist() == [2, 2]


def test_what_cannot_be_called():
    with pytest.raises(TypeError, match=r"fn must be a function of JAX arrays, got 3 \(int\)"):
        from_jax(3)  # pyright: ignore[reportArgumentType]


def test_without_jax_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ImportError, match=r"pip install 'pairgrad\[jax\]'"):
        from_jax(smooth)


def test_jax_is_not_loaded_before_it_is_needed():
    source = Path(pairgrad.__file__).parents[1]
    code = "import sys; from pairgrad.coherence import from_jax; print('jax' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(source)}
    )
    assert result.stdout == "False\n", result.stderr
