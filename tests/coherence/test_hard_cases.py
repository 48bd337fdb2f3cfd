"""Coherent functions that look suspicious, and mistakes that hide well."""

import pytest
import torch
from torch.nn import functional as F

import pairgrad as pg
from tests.coherence.functions import points

D = torch.float64


def identity_with(backward):
    """x, with backward(x, grad_output)."""

    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx, grad_output):
            return backward(ctx.saved_tensors[0], grad_output)

    return Identity.apply


def accused(report):
    return report.verdict not in ("coherent", "kink", "inconclusive")


# Gradients that cancel: their rounding is not proportional to grad_output.
CANCELLING = {
    "layer norm, summed": lambda x: F.layer_norm(x, (4,)).sum(),
    "softmax, summed": lambda x: torch.softmax(x, -1).sum(),
    "sin^2 + cos^2": lambda x: (x.sin() ** 2 + x.cos() ** 2).sum(),
    "length of a unit vector": lambda x: (x / x.norm()).square().sum(),
}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CANCELLING)
def test_gradient_that_cancels_to_rounding_is_not_accused(name, seed):
    assert not accused(pg.audit(CANCELLING[name], points(4, seed=seed), seed=seed))


@pytest.mark.parametrize("seed", range(2))
def test_layer_norm_of_numbers_with_a_large_mean(seed):
    assert pg.audit(lambda x: F.layer_norm(x, (6,)), 1e6 + points(3, 6, seed=seed), seed=seed).passed


@pytest.mark.parametrize("seed", range(2))
def test_lower_precision_inside_is_not_accused(seed):
    assert pg.audit(lambda x: x.float().sin().double() * x, points(5, seed=seed), seed=seed).passed
    assert pg.audit(lambda x: (x.half().sin().float() * 300).sum(), points(5, seed=seed, dtype=torch.float32), seed=seed).passed


@pytest.mark.slow
def test_autocast_is_not_accused():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))

    def loss(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net(x).float().square().mean()

    assert not accused(pg.audit(loss, points(5, 6, dtype=torch.float32), module=net))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("gap", [7.0, 15.0, 30.0, 50.0])
def test_saturated_cross_entropy_is_not_accused(gap, dtype):
    logits = torch.tensor([[gap, 0.3, -0.7, 0.1]], dtype=dtype)
    report = pg.audit(lambda x: F.cross_entropy(x, torch.tensor([0])), logits)
    assert not accused(report), str(report)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_value_too_coarse_to_tell_is_inconclusive_not_coherent(dtype):
    wrong = identity_with(lambda x, grad: -7 * grad)
    offset = 1e17 if dtype == D else 1e12
    report = pg.audit(lambda x: offset + (wrong(x) * 2).sum(), points(2, dtype=dtype))
    assert report.verdict == "inconclusive"
    assert not report.passed


def test_argument_that_cannot_be_judged_is_named():
    report = pg.audit(lambda x, y: x.sin().sum() + 1e-20 * y.sin().sum(), (points(3), points(3, seed=1)))
    assert any(finding.kind == "unresolved" and finding.where == "input 1" for finding in report.findings)


def test_defect_of_two_opposite_coordinates_does_not_hide_from_signs():
    opposite = torch.tensor([1.0, -1.0, 0, 0, 0, 0], dtype=D)
    wrong = identity_with(lambda x, grad: grad + 1e-3 * grad.sum() * opposite)
    x = torch.tensor([1.1, 1.3, 1.2, 1.5, 1.4, 1.6], dtype=D)
    for seed in range(8):
        assert not pg.audit(lambda x: wrong(x).sin().sum(), x, seed=seed, effort="quick", second_order=False, consequences=False).passed


class _HalfDetached(torch.autograd.Function):
    """x^3, whose second derivative misses a part."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 3 * x * x.detach()


def test_second_derivative_at_equal_numbers():
    for seed in range(4):
        assert not pg.audit(lambda x: _HalfDetached.apply(x).sum(), torch.ones(2, dtype=D), seed=seed, consequences=False).passed


def test_backward_that_detaches_grad_output_is_wrong_in_the_second_order():
    class Detached(_HalfDetached):
        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.detach() * 3 * ctx.saved_tensors[0] ** 2

    report = pg.audit(Detached.apply, points(3))
    assert [(finding.kind, finding.where) for finding in report.findings if finding.severity == "alarm"] == [
        ("second-order", "grad_output")
    ]


def test_last_of_many_outputs_and_complex_and_dataclass_outputs():
    import dataclasses

    @dataclasses.dataclass
    class Result:
        value: torch.Tensor

    wrong = identity_with(lambda x, grad: 3 * grad)
    many = pg.audit(lambda x: (*(x.sin() * (i + 1) for i in range(15)), 1e-3 * wrong(x).cos()), points(3), second_order=False)
    assert many.verdict == "incoherent"
    assert pg.audit(lambda x: (x.sin(), torch.fft.fft(wrong(x))), points(4), second_order=False).verdict == "incoherent"
    assert pg.audit(lambda x: (x.sin(), Result(wrong(x))), points(4), second_order=False).verdict == "incoherent"


def test_outputs_with_one_and_with_three_dimensions():
    """Each gets only the layouts that it can have: a vector has no columns."""
    x = torch.rand(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert pg.audit(lambda x: (x.sin(), x.sum((0, 1)).cos(), x.sum().cos()), x, effort="glance").passed


def test_graph_that_is_still_pending_survives():
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()
    loss = net(points(2, 3)).sum()
    pg.audit(net, points(2, 3), consequences=False)
    loss.backward()


def test_generators_are_as_before_when_only_the_backward_draws():
    draws = identity_with(lambda x, grad: grad * (torch.rand(1, dtype=D) < 2))
    before = torch.get_rng_state()
    assert pg.audit(draws, points(3)).passed
    assert torch.equal(before, torch.get_rng_state())


def test_lazy_buffers_lists_and_new_attributes_are_put_back():
    class Keeps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", None)
            self.history = []
            self.mean = torch.zeros((), dtype=D)

        def forward(self, x):
            self.mask = torch.ones(1) if self.mask is None else self.mask + 1
            self.history.append(1)
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
            self.latest = x
            return x.sin() * self.mask

    module = Keeps()
    assert pg.audit(module, points(3)).passed
    assert module.mask is None
    assert module.history == []
    assert module.mean == 0
    assert not hasattr(module, "latest")


def test_inference_mode_of_the_caller():
    with torch.inference_mode():
        assert pg.audit(torch.sin, points(3)).passed
        assert torch.is_inference_mode_enabled()


def test_dtype_that_a_module_given_beside_the_function_does_not_have():
    net = torch.nn.Linear(3, 1)
    with pytest.raises(ValueError, match="dtype must be that of the parameters of module"):
        pg.audit(lambda x: net(x), torch.randn(2, 3), module=net, dtype=D)


def test_module_is_found_behind_a_partial_application():
    import functools

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(3, 3).double()

        def encode(self, x, power):
            return self.inner(x) ** power

    report = pg.audit(functools.partial(Net().encode, power=2), points(4, 3), consequences=False)
    assert {"inner.weight", "inner.bias"} <= {state.argument for state in report.states}


@pytest.mark.parametrize("margin", [20.0, 40.0, 90.0])
@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5])
def test_a_loss_that_is_zero_by_rounding_is_not_accused(margin, noise):
    """Fitted samples: the value is 0, the gradient 1e-10 and less, and right."""
    logits = torch.eye(8) * margin + torch.randn(8, 8) * noise
    report = pg.audit(lambda x: torch.nn.functional.cross_entropy(x, torch.arange(8)), logits, second_order=False, consequences=False)
    assert report.verdict == "inconclusive"


def test_a_value_that_overflows_is_not_accused():
    report = pg.audit(lambda x: x.exp().sum(), torch.tensor([90.0, 1.0]), second_order=False)
    assert report.verdict == "inconclusive"
    assert not any(finding.severity == "alarm" for finding in report.findings)
