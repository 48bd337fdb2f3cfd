"""gradcheck, gradgradcheck and opcheck with an audit beside them: never pass what torch fails, and fail what the audit calls wrong."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd.gradcheck import GradcheckError

import pairgrad as pg
from pairgrad.coherence import Verdict
from tests.coherence.zoo import independent, ours, reported
from tests.coherence.zoo.specimen import Specimen, uniform

ZOO = (*independent.SPECIMENS, *ours.SPECIMENS, *reported.SPECIMENS)
BOTH = [(specimen, make) for specimen in ZOO for make in ("right", "broken") if make == "right" or torch.float64 in specimen.dtypes]
SAMPLE = [case for case in BOTH if "compiled" not in case[0].kind][::11]

Checks = tuple[Callable[..., bool], Callable[..., bool]]
GRADCHECK: Checks = (pg.gradcheck, torch.autograd.gradcheck)
GRADGRADCHECK: Checks = (pg.gradgradcheck, torch.autograd.gradgradcheck)


def scaled(factor: float, offset: float = 0.0) -> Callable[..., torch.Tensor]:
    """x^2 with a gradient that is `factor` times the true one, and larger by `offset`."""

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, *grad_outputs: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return (2 * factor * x + offset) * grad_outputs[0]

    return Square.apply


def leaf(*numbers: Any, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype, requires_grad=True)


def outcome(check: Callable[..., bool], fn: Callable[..., Any], inputs: Any, **options: Any) -> str:
    """True, False or the name of what it raises."""
    torch.compiler.reset()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            return str(check(fn, inputs, **options))
        except Exception as error:
            return type(error).__name__


def prepared(specimen: Specimen, make: str) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """A function of the zoo and its inputs by position; None where they are not tensors that require a gradient."""
    fn, inputs = getattr(specimen, make)(), specimen.inputs(0, torch.float64)
    if isinstance(fn, torch.nn.Module):
        fn = fn.double()
    if isinstance(inputs, dict):
        names, call = list(inputs), fn
        return lambda *given: call(**dict(zip(names, given, strict=True))), tuple(inputs.values())
    return (fn, inputs if isinstance(inputs, tuple) else (inputs,))


def never_passes_what_torch_fails(specimen: Specimen, make: str, ours: Callable[..., bool], theirs: Callable[..., bool]) -> None:
    said = outcome(theirs, *prepared(specimen, make), raise_exception=False)
    found = outcome(ours, *prepared(specimen, make), raise_exception=False)
    assert found in (("True", "False") if said == "True" else (said,))


def fails_what_the_audit_calls_wrong(specimen: Specimen, make: str) -> None:
    """Of the inputs; the parameters of a module are not looked at."""
    fn, inputs = prepared(specimen, make)
    called = (lambda *given: fn(*given)) if isinstance(fn, torch.nn.Module) else fn
    report = pg.audit(called, inputs, effort="quick", second_order=False, transforms=False, consequences=False)
    if not report.passed and report.verdict in (Verdict.INCOHERENT, Verdict.NOT_REENTRANT, Verdict.STRAIGHT_THROUGH):
        assert outcome(pg.gradcheck, *prepared(specimen, make), raise_exception=False) != "True"


# Signatures -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("ours", "theirs"), [GRADCHECK, GRADGRADCHECK, (pg.opcheck, torch.library.opcheck)])
def test_the_arguments_are_those_of_torch(ours: Callable[..., Any], theirs: Callable[..., Any]) -> None:
    mine, torchs = (inspect.signature(check).parameters for check in (ours, theirs))
    extra = {"options"} if ours is pg.opcheck else set()
    assert [(p.name, p.kind) for p in mine.values() if p.name not in extra] == [(p.name, p.kind) for p in torchs.values()]
    changed = {"atol", "rtol", "test_utils"}
    defaults = {p.name: p.default for p in mine.values() if p.name not in changed | extra}
    assert defaults == {p.name: p.default for p in torchs.values() if p.name not in changed}


# The zoo --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("specimen", "make"), SAMPLE, ids=lambda case: getattr(case, "name", case))
def test_a_sample_of_the_zoo(specimen: Specimen, make: str) -> None:
    never_passes_what_torch_fails(specimen, make, *GRADCHECK)
    fails_what_the_audit_calls_wrong(specimen, make)


@pytest.mark.slow
@pytest.mark.parametrize(("specimen", "make"), BOTH, ids=lambda case: getattr(case, "name", case))
def test_all_of_the_zoo(specimen: Specimen, make: str) -> None:
    never_passes_what_torch_fails(specimen, make, *GRADCHECK)
    never_passes_what_torch_fails(specimen, make, *GRADGRADCHECK)
    fails_what_the_audit_calls_wrong(specimen, make)


# Sizes ----------------------------------------------------------------------------------------------------------------
def test_the_defaults_find_a_millionth_that_torch_passes() -> None:
    x = leaf(1.5, -0.5)
    assert torch.autograd.gradcheck(scaled(1 + 1e-6), x)
    assert not pg.gradcheck(scaled(1 + 1e-6), x, raise_exception=False)
    assert pg.gradcheck(scaled(1.0), x)


@pytest.mark.parametrize(
    ("tolerances", "passes"),
    [
        ({"rtol": 1e-5}, True),
        ({"rtol": 1e-7}, False),
        ({"atol": 1e-5}, True),
        ({"atol": 1e-7}, False),
        ({"atol": 0.0, "rtol": 0.9e-6}, False),
    ],
)
def test_tolerances_set_the_size_that_fails(tolerances: dict[str, float], passes: bool) -> None:
    assert pg.gradcheck(scaled(1 + 1e-6), leaf(1.5, -0.5), raise_exception=False, **tolerances) is passes


def test_a_gradient_that_is_truly_zero_has_an_absolute_size_alone() -> None:
    """The derivative of x^2 at 0 is 0; 1e-7 is supplied."""
    zero = leaf(0.0)
    wrong = scaled(1.0, offset=1e-7)
    assert torch.autograd.gradcheck(wrong, zero)
    assert not pg.gradcheck(wrong, zero, raise_exception=False)
    assert not pg.gradcheck(wrong, zero, rtol=0.5, raise_exception=False)
    assert not pg.gradcheck(wrong, zero, atol=1e-8, raise_exception=False)
    assert pg.gradcheck(wrong, zero, atol=1e-6)


def test_what_torch_fails_at_the_tolerances_given_fails() -> None:
    assert not pg.gradcheck(scaled(1.01), leaf(1.5), rtol=1e-3, raise_exception=False)
    assert pg.gradcheck(scaled(1.01), leaf(1.5), rtol=0.1)


# Errors and messages --------------------------------------------------------------------------------------------------
def test_the_message_says_who_what_and_what_torch_says() -> None:
    with pytest.raises(GradcheckError) as raised:
        pg.gradcheck(scaled(1.5), leaf(1.5, -0.5))
    first, second, *_ = str(raised.value).splitlines()
    assert first.startswith("pairgrad.gradcheck: FAIL ")
    assert "Square.backward" in first
    assert "test_checks.py" in first
    assert second == "gradient of input 0 (argument 1) is 1.5 x the true one"
    assert "torch's gradcheck: Jacobian mismatch" in str(raised.value)


def test_the_message_says_that_torch_passes() -> None:
    with pytest.raises(GradcheckError, match=r"gradient of input 0 .* is 1.000001 x the true one(.|\n)*torch's gradcheck passes"):
        pg.gradcheck(scaled(1 + 1e-6), leaf(1.5, -0.5))


def test_a_false_alarm_of_torch_fails_and_is_called_one() -> None:
    """In float32 torch's differences are rounding."""
    x = leaf(0.3, 1.2, dtype=torch.float32)
    with pytest.warns(UserWarning, match="double precision"), pytest.raises(GradcheckError) as raised:
        pg.gradcheck(torch.sin, x)
    assert "The audit of sin finds no wrong gradient there (coherent, to " in str(raised.value)
    assert "pairgrad.assert_coherent" in str(raised.value)
    assert "torch's gradcheck: Jacobian mismatch" in str(raised.value)


def test_an_audit_that_cannot_tell_fails_unless_a_tolerance_is_given() -> None:
    """A value that is finite so near to the input that torch's step of 1e-6 fits, and those of the audit do not."""

    def narrow(x: torch.Tensor) -> torch.Tensor:
        return x.sin() if abs(x.item() - 0.7) < 1.5e-6 else x * torch.nan

    assert torch.autograd.gradcheck(narrow, leaf(0.7))
    with pytest.raises(GradcheckError, match=r"UNDECIDED(.|\n)*give atol or rtol"):
        pg.gradcheck(narrow, leaf(0.7))
    assert pg.gradcheck(narrow, leaf(0.7), rtol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"inputs": torch.ones(2, dtype=torch.float64)}, ValueError),
        ({"inputs": leaf(1.0).expand(3)}, RuntimeError),
        ({"inputs": leaf(1.0), "check_backward_ad": False}, AssertionError),
        ({"inputs": leaf(1.0), "check_batched_forward_grad": True}, AssertionError),
    ],
)
def test_bad_arguments_raise_what_torch_raises(arguments: dict[str, Any], error: type[Exception]) -> None:
    for check in GRADCHECK:
        with pytest.raises(error) as raised:
            check(torch.sin, **arguments)
        assert raised.type is error


def test_what_the_function_raises_is_raised() -> None:
    def raising(x: torch.Tensor) -> torch.Tensor:
        raise ArithmeticError("not today")

    for check in (*GRADCHECK, *GRADGRADCHECK):
        with pytest.raises(ArithmeticError, match="not today"):
            check(raising, leaf(1.0), raise_exception=False)


# What is differentiated -----------------------------------------------------------------------------------------------
def test_only_inputs_that_require_a_gradient_are_looked_at() -> None:
    fn = scaled(2.0)
    assert pg.gradcheck(lambda x, y: x.sin() * fn(y), (leaf(0.3), leaf(1.5).detach()))
    assert not pg.gradcheck(lambda x, y: x.sin() * fn(y), (leaf(0.3), leaf(1.5)), raise_exception=False)


def test_the_parameters_of_a_module_are_not() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(1.5, dtype=torch.float64))
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x * scaled(2.0)(self.weight)

    module = Scaled()
    x = leaf(0.3, 0.4)
    assert pg.gradcheck(module, x)
    assert pg.gradcheck(module.forward, x)
    assert module.weight.grad is None
    assert x.grad is None


def test_buffers_are_left_as_torch_leaves_them() -> None:
    x = uniform(0, torch.float64, (5, 3), -1, 1)
    first, second = torch.nn.BatchNorm1d(3).double(), torch.nn.BatchNorm1d(3).double()
    assert torch.autograd.gradcheck(first, x)
    assert pg.gradcheck(second, x)
    assert torch.equal(first.running_mean, second.running_mean)
    assert first.num_batches_tracked == second.num_batches_tracked


@pytest.mark.parametrize(("ours", "theirs"), [GRADCHECK, GRADGRADCHECK])
def test_random_numbers_go_on_as_after_torch(ours: Callable[..., bool], theirs: Callable[..., bool]) -> None:
    with torch.random.fork_rng(devices=[]):
        states = []
        for check in (ours, theirs):
            torch.manual_seed(1)
            assert check(torch.sin, leaf(0.3), fast_mode=True)
            states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_complex_inputs() -> None:
    class Modulus(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, z: torch.Tensor, factor: float) -> torch.Tensor:
            ctx.save_for_backward(z)
            ctx.factor = factor
            return z.real.square() + z.imag.square()

        @staticmethod
        def backward(ctx: Any, *grad_outputs: torch.Tensor) -> Any:
            (z,) = ctx.saved_tensors
            return grad_outputs[0] * 2 * torch.complex(z.real, ctx.factor * z.imag), None

    z = leaf(0.5 + 1j, -1 + 0.25j, dtype=torch.complex128)
    assert pg.gradcheck(lambda z: (z * z.conj()).exp(), z)
    assert pg.gradcheck(lambda z: Modulus.apply(z, 1.0), z)
    assert torch.autograd.gradcheck(lambda z: Modulus.apply(z, 1 + 1e-6), z)
    assert not pg.gradcheck(lambda z: Modulus.apply(z, 1 + 1e-6), z, raise_exception=False)
    assert pg.gradgradcheck(lambda z: (z * z.conj()).exp(), z)
    assert pg.opcheck(torch.ops.aten.abs.default, (z,), test_utils="test_coherence") == {"test_coherence": "SUCCESS"}


def test_sparse_inputs_and_empty_tensors() -> None:
    sparse = torch.eye(3, dtype=torch.float64).to_sparse().requires_grad_()
    dense = uniform(0, torch.float64, (3, 2), -1, 1)
    assert pg.gradcheck(lambda a, b: torch.sparse.mm(a, b), (sparse, dense), masked=True)
    assert pg.gradcheck(lambda x: x.sum(0), torch.ones(0, 3, dtype=torch.float64, requires_grad=True))
    assert pg.gradcheck(lambda x: x[:0], dense)


def test_kinks_and_jumps_beside_the_inputs_pass() -> None:
    """Within 1e-5 of the input: torch's step of 1e-6 does not reach them, those of the audit do."""
    beside = leaf(1 - 1e-5)
    cases = {"kink": lambda x: x.sin() + (x - 1).relu(), "jump": lambda x: x.sin() + (x.detach() > 1).double()}
    for verdict, fn in cases.items():
        assert pg.audit(fn, beside, effort="quick").verdict == verdict
        assert pg.gradcheck(fn, beside)


def test_constant_values_with_a_gradient_of_zero_pass() -> None:
    x = leaf(-1.0, -2.0)
    assert pg.audit(torch.relu, x).verdict == "inconclusive"
    assert pg.gradcheck(torch.relu, x)


# Further checks of torch's ---------------------------------------------------------------------------------------------
def test_forward_mode_is_audited_if_asked() -> None:
    """A jvp that is off by a millionth."""

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, *grad_outputs: torch.Tensor) -> torch.Tensor:
            return grad_outputs[0] * ctx.saved_tensors[0].cos()

        @staticmethod
        def jvp(ctx: Any, *tangents: torch.Tensor) -> torch.Tensor:
            return tangents[0] * ctx.saved_tensors[0].cos() * (1 + 1e-6)

    x = leaf(0.3, 1.2)
    assert pg.gradcheck(Sine.apply, x)
    assert torch.autograd.gradcheck(Sine.apply, x, check_forward_ad=True)
    assert not pg.gradcheck(Sine.apply, x, check_forward_ad=True, raise_exception=False)
    assert pg.gradcheck(Sine.apply, x, check_forward_ad=True, rtol=1e-5)
    assert pg.gradcheck(torch.sin, x, check_forward_ad=True, check_backward_ad=False)


def test_nondeterminism_is_left_to_torch_within_its_tolerance() -> None:
    noise = itertools.cycle((0.0, 1e-8))

    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, *grad_outputs: torch.Tensor) -> torch.Tensor:
            return grad_outputs[0] * (ctx.saved_tensors[0].cos() + next(noise))

    assert not pg.gradcheck(Noisy.apply, leaf(0.5, 0.7), raise_exception=False)
    assert pg.gradcheck(Noisy.apply, leaf(0.5, 0.7), nondet_tol=1e-6)


def test_a_declared_intent_does_not_count_for_torch() -> None:
    @pg.intended("scaling")
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grad_outputs: torch.Tensor) -> torch.Tensor:
            return grad_outputs[0] * 2

    assert pg.audit(Doubled.apply, leaf(0.5)).passed
    assert not pg.gradcheck(Doubled.apply, leaf(0.5), raise_exception=False)


# Second derivatives ---------------------------------------------------------------------------------------------------
def sine(factor: float) -> Callable[..., torch.Tensor]:
    """sin(x) with the right gradient, whose own derivative has a `factor`."""

    class Slope(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, grad)
            return grad * x.cos()

        @staticmethod
        def backward(ctx: Any, *grad_outputs: torch.Tensor) -> Any:
            x, grad = ctx.saved_tensors
            return -factor * grad_outputs[0] * grad * x.sin(), grad_outputs[0] * x.cos()

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, *grad_outputs: torch.Tensor) -> Any:
            return Slope.apply(ctx.saved_tensors[0], grad_outputs[0])

    return Sine.apply


def test_second_derivatives() -> None:
    x = leaf(0.3, 1.2)
    assert pg.gradgradcheck(sine(1.0), x)
    assert pg.gradgradcheck(sine(1.0), x, leaf(0.5, -1.0), gen_non_contig_grad_outputs=True)
    assert pg.gradcheck(sine(1 + 1e-6), x)
    assert torch.autograd.gradgradcheck(sine(1 + 1e-6), x)
    assert not pg.gradgradcheck(sine(1 + 1e-6), x, raise_exception=False)
    assert pg.gradgradcheck(sine(1 + 1e-6), x, rtol=1e-5)
    with pytest.raises(GradcheckError, match=r"pairgrad\.gradgradcheck: FAIL(.|\n)*Slope|torch's gradgradcheck: Jacobian mismatch"):
        pg.gradgradcheck(sine(2.0), x)
    assert pg.gradgradcheck(torch.sin, x, check_fwd_over_rev=True, check_rev_over_rev=False, check_undefined_grad=False)


# Operators ------------------------------------------------------------------------------------------------------------
def operator(name: str, *, factor: float | None = 2.0, extra: int = 0) -> Any:
    """x^2 with a gradient of `factor` x, none if that is None, and a fake kernel that has `extra` elements too many."""

    @torch.library.custom_op(f"pairgrad_checks::{name}", mutates_args=())
    def op(x: torch.Tensor) -> torch.Tensor:
        return x * x

    op.register_fake(lambda x: x.new_empty(x.numel() + extra))
    if factor is not None:
        op.register_autograd(
            lambda ctx, grad: grad * factor * ctx.saved_tensors[0],
            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
        )
    return op


TORCHS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def test_a_good_operator_passes_both() -> None:
    assert pg.opcheck(operator("good"), (leaf(1.5, -0.5),)) == dict.fromkeys((*TORCHS, "test_coherence"), "SUCCESS")


def test_an_operator_with_a_wrong_gradient() -> None:
    op, x = operator("wrong_gradient", factor=2.0002), leaf(1.5, -0.5)
    assert torch.library.opcheck(op, (x,)) == dict.fromkeys(TORCHS, "SUCCESS")
    results = pg.opcheck(op, (x,), raise_exception=False)
    assert isinstance(results.pop("test_coherence"), AssertionError)
    assert results == dict.fromkeys(TORCHS, "SUCCESS")
    with pytest.raises(
        Exception, match=r"pairgrad\.opcheck\(pairgrad_checks::wrong_gradient\): test_coherence failed(.|\n)*1\.0001 x the true"
    ):
        pg.opcheck(op, (x,))
    assert pg.opcheck(op, (x,), tolerance=1e-3)["test_coherence"] == "SUCCESS"
    assert pg.opcheck(op, (x,), test_utils="test_schema") == {"test_schema": "SUCCESS"}


def test_both_faults_are_in_one_error() -> None:
    op, x = operator("both", factor=3.0, extra=1), leaf(1.5, -0.5)
    with pytest.raises(Exception, match=r"test_faketensor failed(.|\n)*test_coherence failed") as raised:
        pg.opcheck(op, (x,), test_utils=("test_faketensor", "test_coherence"))
    with pytest.raises(type(raised.value)):
        torch.library.opcheck(op, (x,), test_utils="test_faketensor")


def test_a_bad_fake_kernel_alone() -> None:
    results = pg.opcheck(
        operator("fake", extra=1), (leaf(1.5, -0.5),), raise_exception=False, test_utils=("test_faketensor", "test_coherence")
    )
    assert isinstance(results["test_faketensor"], Exception)
    assert results["test_coherence"] == "SUCCESS"


def test_an_operator_without_autograd_is_left_to_torch() -> None:
    op = operator("no_autograd", factor=None)
    results = pg.opcheck(op, (leaf(1.5, -0.5).detach(),))
    assert results.pop("test_coherence").startswith("not audited: ")
    assert results == dict.fromkeys(TORCHS, "SUCCESS")
    whole = pg.opcheck(torch.ops.aten.sgn.default, (torch.tensor([1, 2]),))
    assert whole["test_coherence"] == "not audited: there is no floating-point argument to differentiate by"


def test_unknown_tests_are_refused_as_by_torch() -> None:
    with pytest.raises(ValueError, match="test_utils"):
        pg.opcheck(torch.ops.aten.sin.default, (leaf(1.0),), test_utils="test_nothing")
