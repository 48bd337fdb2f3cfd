"""spikingjelly: spiking neurons, their surrogate gradients, quantisers, and spike times with exact gradients."""

from census.package import Package

package = Package(
    "spikingjelly",
    "2.0.0",
    family="spiking networks",
    group="neurons",
    modules=["spikingjelly"],
    note="A surrogate function with a primitive is audited as the pair of the two: the value is that of spiking=False, the gradient "
    "that of spiking=True. "
    "The operators under _ops run on CUDA tensors alone and were not reached.",
)


def _pair(module, plain=None):
    """The primitive of a surrogate function, with the gradient that its spiking version supplies."""
    primitive = plain or module.__class__(**module._sg_params, spiking=False)

    def fn(x):
        spikes = module(x)
        return primitive(x).detach() + (spikes - spikes.detach())

    return fn


def _numbers(scale=1.5):
    import torch

    return torch.randn(3, 5, dtype=torch.float64) * scale


_PAIRS = {
    "PiecewiseQuadratic": [{}, {"alpha": 0.4}],
    "PiecewiseExp": [{}, {"alpha": 2.5}],
    "Sigmoid": [{}, {"alpha": 1.5}],
    "SoftSign": [{}, {"alpha": 0.7}],
    "ATan": [{}, {"alpha": 3.0}],
    "NonzeroSignLogAbs": [{}, {"alpha": 2.5}],
    "Erf": [{}, {"alpha": 0.6}],
    "PiecewiseLeakyReLU": [{}, {"w": 0.5, "c": 0.2}, {"c": 0.0}],
    "SquarewaveFourierSeries": [{}, {"n": 4, "T_period": 6.0}],
    "S2NN": [{}, {"alpha": 1.2, "beta": 0.5}],
    "QPseudoSpike": [{}, {"alpha": 3.0}],
    "LeakyKReLU": [{}, {"leak": 0.2, "k": 1.5}],
    "LogTailedReLU": [{}, {"alpha": 0.1}],
    "Rect": [{}, {"alpha": 0.4}],
}


def _declare(called, options):
    def make():
        from spikingjelly.activation_based import surrogate

        return _pair(getattr(surrogate, called)(**options)), _numbers()

    told = ", ".join(f"{key}={value}" for key, value in options.items())
    package.case(f"{called}({told}): surrogate of its primitive")(make)


for _called, _choices in _PAIRS.items():
    for _options in _choices:
        _declare(_called, _options)


@package.case("SuperSpike: surrogate of alpha x / (1 + |x|)")
def super_spike():
    from spikingjelly.activation_based import surrogate

    return _pair(surrogate.SuperSpike(alpha=1.7), lambda x: 1.7 * x / (1 + x.abs())), _numbers()


@package.case("FakeNumericalGradient: surrogate of the integral of min(1 / |x|, alpha)")
def fake_numerical():
    from spikingjelly.activation_based import surrogate

    def integral(x):
        return x.sign() * (0.3 * x.abs()).where(x.abs() < 1 / 0.3, 1 + (0.3 * x.abs()).log())

    return _pair(surrogate.FakeNumericalGradient(), integral), _numbers(4.0)


@package.case("FakeNumericalGradient: integral of min(1 / |x|, alpha), negative zero")
def fake_numerical_zero():
    import torch
    from spikingjelly.activation_based import surrogate

    return _pair(surrogate.FakeNumericalGradient(), lambda x: 0.3 * x), torch.tensor([0.5, -0.0, 0.0, -1.2], dtype=torch.float64)


@package.case("DSpike: surrogate of tanh(alpha x) / (2 tanh(alpha / 2)) + 1 / 2, held beyond 1 / 2")
def dspike():
    import math

    from spikingjelly.activation_based.model.spike_dhs import DSpike

    return _pair(DSpike(alpha=2.0), lambda x: (2.0 * x.clamp(-0.5, 0.5)).tanh() / (2 * math.tanh(1.0)) + 0.5), _numbers(0.6)


@package.case("MultiLevelSpikeCount: surrogate of its primitive")
def multi_level():
    from spikingjelly.activation_based import surrogate

    return _pair(surrogate.MultiLevelSpikeCount(3), lambda x: x.clamp(0, 3)), _numbers(2.5)


@package.case("DeterministicPass: surrogate of its primitive")
def deterministic_pass():
    from spikingjelly.activation_based import surrogate

    return _pair(surrogate.DeterministicPass(), lambda x: x), _numbers()


@package.case(intent="straight-through", why_intended="documented as a spiking function with a surrogate gradient: surrogate.Sigmoid")
def sigmoid_spiking():
    from spikingjelly.activation_based import surrogate

    return surrogate.Sigmoid(), _numbers()


@package.case(
    intent="straight-through", why_intended="documented as a Bernoulli sample with the identity as gradient: surrogate.PoissonPass"
)
def poisson_pass():
    import torch
    from spikingjelly.activation_based import surrogate

    return surrogate.PoissonPass(), torch.rand(3, 5, dtype=torch.float64)


_STEPS = {"round": (), "ceil": (), "floor": (), "step_quantize": (0.25,), "k_bit_quantize": (3,)}


def _declare_step(called, more):
    def make():
        from spikingjelly.activation_based import quantize

        return lambda x: getattr(quantize, called)(x, *more), _numbers(2.0)

    package.case(f"quantize.{called}", intent="straight-through", why_intended=f"documented as straight-through: quantize.{called}")(make)


for _called, _more in _STEPS.items():
    _declare_step(_called, _more)


@package.case()
def quantize_clamp():
    from spikingjelly.activation_based import quantize

    return lambda x: quantize.clamp(x, -1.0, 1.5), _numbers()


@package.case(intent="straight-through", why_intended="documented as straight-through within a window: quantize.multi_level_spike_count")
def multi_level_spike_count():
    from spikingjelly.activation_based import quantize

    return lambda x: quantize.multi_level_spike_count(x, 3), _numbers(2.5)


@package.case()
def affine_k_bit_quantize_weights():
    import torch
    from spikingjelly.activation_based import quantize

    x = torch.rand(4, 5, dtype=torch.float64)
    w, b = torch.randn(5, dtype=torch.float64).requires_grad_(), torch.randn(5, dtype=torch.float64).requires_grad_()
    return lambda w, b: quantize.affine_k_bit_quantize(x, 3, w, b), (w, b)


@package.case("DSRIFNode: threshold of saturated neurons")
def dsr_if():
    import torch
    from spikingjelly.activation_based.neuron import DSRIFNode

    x = 2.0 + torch.rand(6, 2, 3)
    return lambda v: DSRIFNode.DSRIFFunction.apply(x, 6, v, 0.5, 1.0).square(), torch.tensor(1.0).requires_grad_()


@package.case("DSRLIFNode: threshold of saturated neurons")
def dsr_lif():
    import torch
    from spikingjelly.activation_based.neuron import DSRLIFNode

    x = 60.0 + torch.rand(6, 2, 3)
    return lambda v: DSRLIFNode.DSRLIFFunction.apply(x, 6, v, 2.0, 0.05, 0.3, 1.0), torch.tensor(1.0).requires_grad_()


def _events(dtype):
    import torch

    times = torch.tensor([0.5, 2.0, 3.5, 6.0, 1.0, 1.5, 4.0, 7.5, 9.0], dtype=dtype)
    indices = torch.tensor([0, 1, 2, 3, 0, 2, 1, 3, 0])
    return times, indices, torch.tensor([0, 4, 9])


@package.case("tempotron: maxima without a spike")
def tempotron_silent():
    import torch
    from spikingjelly.timing_based.functional import tempotron

    times, indices, offsets = _events(torch.float64)
    weight = torch.rand(3, 4, dtype=torch.float64) * 0.3 + 0.05
    return (lambda t, w: tempotron(t, indices, offsets, w, 30.0)[:2]), (times.requires_grad_(), weight.requires_grad_())


@package.case("tempotron: spike times")
def tempotron_spikes():
    import torch
    from spikingjelly.timing_based.functional import tempotron

    times, indices, offsets = _events(torch.float64)
    weight = torch.rand(3, 4, dtype=torch.float64) * 0.5 + 0.9
    return (lambda t, w: tempotron(t, indices, offsets, w, 30.0)), (times.requires_grad_(), weight.requires_grad_())


@package.case("tempotron: weights of both signs")
def tempotron_mixed():
    import torch
    from spikingjelly.timing_based.functional import tempotron

    times, indices, offsets = _events(torch.float64)
    weight = torch.randn(4, 4, dtype=torch.float64) * 0.4
    return (lambda t, w: tempotron(t, indices, offsets, w, 12.0)[:2]), (times.requires_grad_(), weight.requires_grad_())


@package.case("tempotron: maximum where an input arrives")
def tempotron_boundary():
    import torch
    from spikingjelly.timing_based.functional import tempotron

    times, indices, offsets = torch.tensor([1.0, 3.0, 3.4], dtype=torch.float64), torch.tensor([0, 1, 2]), torch.tensor([0, 3])
    weight = torch.tensor([[0.5, 0.4, -2.0]], dtype=torch.float64)
    return (lambda t, w: tempotron(t, indices, offsets, w, 30.0)[:2]), (times.requires_grad_(), weight.requires_grad_())


@package.case("srm: spike times")
def srm():
    import torch
    from spikingjelly.timing_based.functional import srm

    times, indices, offsets = _events(torch.float64)
    weight = torch.rand(3, 4, dtype=torch.float64) * 0.5 + 0.1
    return (lambda t, w: srm(t, indices, offsets, w, 12.0)[0]), (times.requires_grad_(), weight.requires_grad_())


@package.case("cubic_srm: spike times", second_order=False)
def cubic_srm():
    import torch
    from spikingjelly.timing_based.functional import cubic_srm

    times, indices, offsets = _events(torch.float32)
    weight = torch.rand(3, 4) * 0.5 + 1.6
    return (lambda t, w: cubic_srm(t, indices, offsets, w, 12.0)[0]), (times.requires_grad_(), weight.requires_grad_())


package.finding(
    "spikingjelly-s2nn-primitive",
    kind="value",
    where="spikingjelly/activation_based/surrogate.py:2130",
    what="The primitive of S2NN adds 1e-5 within the logarithm, which the documentation does not have, so that the surrogate gradient "
    "beta / (x + 1), which is the "
    "documented one, is not its derivative.",
    size="1e-5 / (x + 1) of the gradient",
    cases=["S2NN(): surrogate of its primitive", "S2NN(alpha=1.2, beta=0.5): surrogate of its primitive"],
)
package.finding(
    "spikingjelly-fake-numerical-negative-zero",
    kind="gradient at special states",
    where="spikingjelly/activation_based/surrogate.py:2530",
    what="The surrogate gradient of FakeNumericalGradient is minus infinity at negative zero, where it is documented as alpha.",
    size="infinite at x = -0.0",
    cases=["FakeNumericalGradient: integral of min(1 / |x|, alpha), negative zero"],
)
package.finding(
    "spikingjelly-dsr-second-derivative",
    kind="second derivative",
    where="spikingjelly/activation_based/neuron/dsr.py:158",
    what="DSRIFNode computes its backward under torch.no_grad without being marked once_differentiable: terms that depend on its "
    "gradient are dropped from a second "
    "derivative without an error.",
    size="the whole second derivative",
    cases=["DSRIFNode: threshold of saturated neurons"],
)
package.finding(
    "spikingjelly-dsrlif-threshold",
    kind="gradient",
    where="spikingjelly/activation_based/neuron/dsr.py:396",
    what="DSRLIFNode multiplies the gradient of its threshold by delta_t, where its output is the threshold divided by delta_t.",
    size="factor delta_t squared, 1/400 at the default delta_t of 0.05",
    cases=["DSRLIFNode: threshold of saturated neurons"],
)
