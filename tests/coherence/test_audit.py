"""The audit as its users call it."""

import json
import math
import random

import numpy as np
import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import Box, LogRange, Verdict
from tests.coherence.functions import Round, points, saved_intermediate, sine_with

D = torch.float64


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_coherent_in_every_dtype_with_a_limit_to_match(dtype):
    report = pg.audit(lambda x: (x * x).sin(), points(40, dtype=dtype))
    assert report.verdict == "coherent"
    assert report.passed
    assert report.limit < {torch.float64: 1e-11, torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.25}[dtype]
    assert report.dtype == str(dtype).removeprefix("torch.")


@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 1e-9), (torch.float32, 1e-4), (torch.float16, 0.3), (torch.bfloat16, 0.6)])
def test_smallest_promised_defects_are_found(dtype, size):
    report = pg.audit(sine_with(lambda x: 1 + size).apply, points(40, dtype=dtype))
    assert report.verdict == Verdict.INCOHERENT
    assert not report.passed
    assert report.defect == pytest.approx(size, rel=1.0)


def test_defect_comes_with_its_error():
    report = pg.audit(sine_with(lambda x: 1 + 1e-6).apply, torch.tensor(0.7, dtype=D))
    assert report.defect == pytest.approx(1e-6, rel=1e-4)
    assert 0 < report.defect_error < 1e-11
    (finding,) = [finding for finding in report.findings if finding.kind == "defect"]
    assert finding.numbers["absolute"] == pytest.approx(1e-6 * math.cos(0.7), rel=0, abs=2 * report.defect_error)
    assert finding.numbers["relative"] == pytest.approx(1e-6, rel=1e-3)


def test_kink_jump_straight_through():
    assert pg.audit(torch.relu, torch.zeros(3, dtype=D)).verdict == "kink"
    jump = pg.audit(torch.floor, domain=(0.3, 1.8))
    assert jump.verdict == "jump"
    assert not jump.passed
    assert pg.audit(Round.apply, 3 * points(12)).verdict == "straight-through-like"


def test_second_order_is_looked_at_unless_it_is_not_wanted():
    report = pg.audit(saved_intermediate, points(5))
    assert report.verdict == "second-order"
    assert [finding.kind for finding in report.findings if finding.severity == "alarm"] == ["second-order"]
    assert pg.audit(saved_intermediate, points(5), second_order=False).verdict == "coherent"


def test_second_backward_that_raises_is_safe():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.slope = x.cos()
            return x.sin()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad_output):
            return grad_output * ctx.slope

    report = pg.audit(Once.apply, points(5))
    assert report.verdict == "coherent"
    assert any("once_differentiable" in finding.text for finding in report.findings)


def test_argument_without_a_gradient_is_named():
    report = pg.audit(lambda x, y: x.sin() * y.detach().cos(), (points(4), points(4, seed=1)))
    (finding,) = [finding for finding in report.findings if finding.kind == "no-gradient"]
    assert finding.where == "input 1"
    assert report.verdict == "incoherent"


def test_output_that_is_not_connected():
    report = pg.audit(lambda x: torch.from_numpy(np.sin(x.detach().numpy())), points(4))
    assert report.verdict == "incoherent"
    assert any(finding.kind == "no-gradient" for finding in report.findings)


def test_argument_without_influence_beyond_rounding_does_not_spoil_the_verdict():
    report = pg.audit(lambda x, shift: torch.softmax(x + shift, 0), (points(6), torch.tensor(0.5, dtype=D)))
    assert report.verdict == "coherent"


def test_inconclusive_where_noise_hides_everything():
    def noisy(x):
        return x.sin() + torch.where((x * 1e9).floor() % 2 == 0, 0.3, -0.3) * (x * 12345.678 * 1e7).sin().detach().sign()

    report = pg.audit(noisy, points(3))
    assert report.verdict == "inconclusive"
    assert not report.passed
    assert any(finding.kind == "unresolved" for finding in report.findings)


def test_tolerance_reports_but_passes():
    fn = sine_with(lambda x: 1 + 1e-7).apply
    report = pg.audit(fn, points(4), tolerance=1e-5)
    assert report.passed
    assert any(finding.kind == "defect" for finding in report.findings)
    assert not pg.audit(fn, points(4), tolerance=1e-9).passed


def test_module_in_training_mode_is_left_as_it_was():
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2)
    ).double()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    generators = torch.get_rng_state(), random.getstate()
    report = pg.audit(net, points(6, 4), effort="quick")
    assert report.passed
    assert {state.argument for state in report.states} >= {"input 0", "0.weight", "4.bias"}
    assert all(torch.equal(value, net.state_dict()[key]) for key, value in before.items())
    assert torch.equal(generators[0], torch.get_rng_state())
    assert generators[1] == random.getstate()
    assert all(parameter.grad is None for parameter in net.parameters())


def test_dtype_of_a_module_is_that_of_the_audit():
    net = torch.nn.Linear(3, 2)
    report = pg.audit(net, torch.randn(5, 3), dtype=D)
    assert report.dtype == "float64"
    assert report.limit < 1e-11
    assert net.weight.dtype == torch.float32


def test_module_used_by_a_function():
    net = torch.nn.Linear(3, 1).double()
    report = pg.audit(lambda x: net(x).square().mean(), points(5, 3), module=net)
    assert {"input 0", "weight", "bias"} <= {state.argument for state in report.states}


def test_keyword_arguments_flags_and_integers_pass_through():
    report = pg.audit(torch.nn.functional.cross_entropy, {"input": points(6, 4), "target": torch.arange(6) % 4, "label_smoothing": 0.1})
    assert report.verdict == "coherent"
    assert {state.argument for state in report.states if state.order == 1} == {"input"}


def test_only_tensors_that_ask_are_differentiated():
    x, y = points(4).requires_grad_(), points(4, seed=1)
    report = pg.audit(lambda x, y: x.sin() * y.detach(), (x, y))
    assert report.verdict == "coherent"
    assert x.grad is None


def test_custom_op_and_setup_context_style():
    @torch.library.custom_op("pairgrad_tests::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    cube.register_autograd(lambda ctx, g: g * 3.003 * ctx.saved_tensors[0] ** 2, setup_context=setup)
    report = pg.audit(lambda x: cube(x).sum(), points(5))
    assert report.verdict == "incoherent"
    assert report.defect == pytest.approx(1e-3, rel=0.6)
    assert any(finding.kind == "node" and "pairgrad_tests::cube" in finding.where for finding in report.findings)


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_compiled_function(factor):
    fn = sine_with(lambda x: factor).apply
    compiled = torch.compile(lambda x: fn(x) * 2, backend="eager")
    assert pg.audit(compiled, points(5), second_order=False).passed == (factor == 1.0)


def test_function_transforms_inside():
    def energy(x):
        return torch.func.vmap(torch.func.grad(lambda row: row.sin().prod()))(x)

    assert pg.audit(energy, points(4, 3)).verdict == "coherent"


def test_jax_functions():
    jax = pytest.importorskip("jax")

    @jax.custom_vjp
    def cube(x):
        return x**3

    cube.defvjp(lambda x: (x**3, x), lambda x, g: (3.01 * x**2 * g,))
    assert pg.audit(pg.coherence.from_jax(lambda x: jax.numpy.sin(x)), points(3, dtype=torch.float32)).passed
    report = pg.audit(pg.coherence.from_jax(cube), points(3, dtype=torch.float32))
    assert report.verdict == "incoherent"
    assert report.defect == pytest.approx(3.3e-3, rel=0.6)


def test_domain_alone_is_enough():
    report = pg.audit(torch.special.erfcx, domain=Box(-2, 4), effort="quick")
    assert report.passed
    assert [region.verdict for region in report.regions["input 0"]] == ["coherent"]


def test_domain_finds_what_the_inputs_do_not_show():
    fn = sine_with(lambda x: torch.where(x > 50, 1.001, 1.0)).apply
    x = torch.tensor(1.0, dtype=D)
    assert pg.audit(fn, x).passed
    report = pg.audit(fn, x, domain=LogRange(1, 100))
    assert report.verdict == "incoherent"
    assert report.regions["input 0"][0].high == pytest.approx(50, rel=0.05)


def test_domain_by_name_and_vectors():
    report = pg.audit(
        lambda x, scale: (x * scale).tanh(), {"x": points(5), "scale": torch.tensor(2.0, dtype=D)}, domain={"scale": (0.5, 3.0)}
    )
    assert report.passed
    assert set(report.regions) == {"scale"}


def test_hypothesis_strategy():
    from hypothesis import strategies as st

    fn = sine_with(lambda x: torch.where(x > 2, 1.01, 1.0)).apply
    report = pg.audit(fn, torch.tensor(0.5, dtype=D), domain=st.floats(0.1, 4.0))
    assert report.verdict == "incoherent"


def test_broken_node_is_named_and_the_others_are_cleared():
    bad, good = sine_with(lambda x: 1.01, name="Bad").apply, sine_with(lambda x: 1.0, name="Good").apply
    report = pg.audit(lambda x: (bad(x) + good(2 * x)).square().sum(), points(6))
    nodes = {finding.where.split(" ")[0]: finding for finding in report.findings if finding.kind == "node"}
    assert nodes["Bad"].severity == "warning"
    assert nodes["Bad"].numbers["relative"] == pytest.approx(0.01, rel=0.5)  # from two lines
    assert "functions.py:" in nodes["Bad"].where
    assert nodes["Good"].severity == "note"


def test_magnitude_only_error_is_recognised_by_its_scaling():
    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.square().sum()

        @staticmethod
        def backward(ctx, grad_output):
            return 2.2 * ctx.saved_tensors[0] * grad_output

    found = {finding.kind: finding for finding in pg.audit(Loss.apply, points(5, 4)).findings}
    assert found["scaling"].numbers["factor"] == pytest.approx(1.1)
    assert found["scaling"].numbers["residual"] < 1e-10
    assert found["scaling"].numbers["sample_factor_max"] == pytest.approx(1.1)
    assert found["field"].numbers["significant"] is False
    assert found["fork"].numbers["gradient"] == pytest.approx(0.1)
    assert found["fork"].numbers["rescaled"] < 1e-12


def test_field_that_is_no_gradient_is_recognised():
    class Swirl(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.square().sum() / 2

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output * (x + 1e-3 * torch.stack([-x[1], x[0]]))

    (finding,) = [finding for finding in pg.audit(Swirl.apply, torch.tensor([1.0, 0.5], dtype=D)).findings if finding.kind == "field"]
    assert finding.numbers["antisymmetry"] == pytest.approx(math.sqrt(2) * 2e-3, rel=1e-4)
    assert finding.severity == "warning"


def test_opaque_forward_gets_its_consistent_gradient_by_differences():
    class Opaque(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.from_numpy(np.sin(x.detach().numpy()))

        @staticmethod
        def backward(ctx, grad_output):
            return 1.5 * grad_output * ctx.saved_tensors[0].cos()

    (finding,) = [finding for finding in pg.audit(Opaque.apply, points(4)).findings if finding.kind == "scaling"]
    assert finding.numbers["method"] == "coordinates"
    assert finding.numbers["factor"] == pytest.approx(1.5, rel=1e-6)


def declared(kind, base):
    return pg.intended(kind)(type(base.__name__, (base,), {}))


def test_declared_straight_through_passes_visibly():
    report = pg.audit(declared("straight-through", Round).apply, 3 * points(12))
    assert report.passed
    assert report.verdict == "straight-through-like"
    assert str(report).startswith("PASS (declared: straight-through) ")


def test_declaration_does_not_excuse_another_mistake():
    report = pg.audit(declared("straight-through", sine_with(lambda x: 1.1)).apply, points(5))
    assert not report.passed
    assert any(finding.kind == "intent" and finding.severity == "warning" for finding in report.findings)


def test_gradient_cap():
    class Cap(torch.autograd.Function):
        bound = 0.25

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @classmethod
        def backward(cls, ctx, grad_output):
            return grad_output.clamp(-0.25, 0.25)

    class Boost(Cap):
        @classmethod
        def backward(cls, ctx, grad_output):
            return 4 * grad_output

    assert pg.audit(declared("gradient-cap", Cap).apply, points(5)).passed
    assert not pg.audit(declared("gradient-cap", Boost).apply, points(5)).passed
    assert not pg.audit(Cap.apply, points(5)).passed


def test_implicit_reparameterization():
    def gamma(shape):
        return torch._standard_gamma(shape)

    assert not pg.audit(gamma, points(5).abs() + 1).passed
    assert pg.audit(pg.intended("implicit-reparameterization")(gamma), points(5).abs() + 1).passed
    report = pg.audit(sine_with(lambda x: 1.1).apply, points(5), intent="implicit-reparameterization")
    assert not report.passed


def test_declared_node_inside_a_loss():
    quantise, wrong = declared("straight-through", Round).apply, sine_with(lambda x: 1.1, name="Wrong").apply
    report = pg.audit(lambda x: (quantise(x) * 1.5 - 1).square().mean(), 2 * points(12))
    assert report.passed
    assert report.intent == "straight-through"
    assert not pg.audit(lambda x: (wrong(quantise(x) + x) * 1.5 - 1).square().mean(), 2 * points(12)).passed


def test_unknown_intent():
    with pytest.raises(ValueError, match="kind must be one of 'straight-through'"):
        pg.intended("because")


def test_same_seed_same_report_and_another_seed_other_lines():
    fn = sine_with(lambda x: 1 + 1e-5).apply
    first, second, other = (pg.audit(fn, points(5), seed=seed).to_dict() for seed in (3, 3, 4))
    for data in (first, second, other):
        data.pop("seconds")
    assert first == second
    assert first["states"] != other["states"]


def test_json_has_a_schema_and_no_infinities(tmp_path):
    report = pg.audit(torch.round, points(3), domain=(-2, 2), effort="quick")
    text = report.to_json(tmp_path / "report.json")
    data = json.loads(text)
    assert data["schema"] == "pairgrad.audit/2"
    assert data["verdict"] == report.verdict.value
    assert {"name", "passed", "limit", "typical_limit", "findings", "states", "regions", "tests", "false_alarm_rate"} <= set(data)
    assert json.loads((tmp_path / "report.json").read_text()) == data


def test_words_of_the_report():
    report = pg.audit(sine_with(lambda x: 1.01).apply, points(4))
    assert "Sine.apply: incoherent, by 0.01" in str(report)
    explained = report.explain()
    assert "Likely causes" in " ".join(explained.split())
    assert "What to do" in " ".join(explained.split())
    assert max(map(len, explained.splitlines())) <= 100
    assert repr(report).startswith("Report('Sine.apply'")


def test_assert_coherent_returns_or_raises_with_the_report():
    assert pg.assert_coherent(torch.sin, points(3)).passed
    with pytest.raises(AssertionError, match=r"is 1\.01 x the true one"):
        pg.assert_coherent(sine_with(lambda x: 1.01).apply, torch.tensor(0.5, dtype=D))
    assert pg.assert_coherent(torch.floor, domain=(0.3, 1.8), allow=["jump"]).verdict == "jump"
    with pytest.raises(ValueError, match="allow must be one of"):
        pg.assert_coherent(torch.sin, points(3), allow=["anything"])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pg.audit(3, torch.ones(2)), TypeError, "fn must be callable"),
        (lambda: pg.audit(Round, torch.ones(2)), TypeError, "pass Round.apply"),
        (lambda: pg.audit(torch.sin), TypeError, "inputs must be given unless domain is"),
        (lambda: pg.audit(torch.sin, 2.0), TypeError, "inputs must be a tensor, a tuple"),
        (lambda: pg.audit(torch.sin, torch.arange(3)), ValueError, "at least one floating-point tensor"),
        (lambda: pg.audit(torch.sin, torch.ones(2), effort="hard"), ValueError, "effort must be one of"),
        (lambda: pg.audit(torch.sin, torch.ones(2), dtype=torch.int64), TypeError, "dtype must be"),
        (lambda: pg.audit(torch.sin, torch.ones(2), seed=-1), ValueError, "seed must be an integer >= 0"),
        (lambda: pg.audit(torch.sin, torch.ones(2), tolerance=2), ValueError, "tolerance must be a number from 0 to 1"),
        (lambda: pg.audit(torch.sin, torch.ones(2), domain="wide"), TypeError, "domain must be made of"),
        (lambda: pg.audit(torch.sin, torch.ones(2), domain={"z": (0, 1)}), ValueError, "domain names 'z'"),
        (lambda: pg.audit(torch.argmax, torch.ones(2)), TypeError, "fn must return at least one floating-point tensor"),
    ],
)
def test_bad_arguments_get_a_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_error_of_the_function_keeps_its_type_and_gets_a_note():
    def fails(x):
        raise KeyError("missing")

    with pytest.raises(KeyError) as caught:
        pg.audit(fails, torch.ones(2))
    assert any("pairgrad.audit" in note for note in caught.value.__notes__)


def test_nan_gradient_behind_a_finite_value():
    report = pg.audit(lambda x: torch.where(x > 0, x.sqrt(), torch.zeros_like(x)), torch.tensor([-1.0, 2.0], dtype=D))
    assert report.verdict == "incoherent"
    assert any(finding.kind == "non-finite" for finding in report.findings)
