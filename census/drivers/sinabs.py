"""sinabs: spike generation with surrogate gradients, and quantisers."""

from census.package import Package

package = Package(
    "sinabs",
    "3.1.3",
    family="spiking networks",
    group="neurons",
    modules=["sinabs"],
    note="A surrogate is audited as the pair of the integral of its documented shape and the gradient that it supplies. The threshold "
    "gets no gradient. Spikes are "
    "float32 whatever the dtype of the input.",
)


def _pair(spike, shape, plain, threshold=0.8):
    def fn(v):
        spikes = spike.apply(v, threshold, shape)
        return plain(v).detach() + (spikes - spikes.detach())

    return fn


def _potentials():
    import torch

    return torch.randn(3, 5) * 1.2


@package.case("SingleSpike, Gaussian: surrogate of the normal distribution function")
def gaussian():
    import torch
    from sinabs.activation import Gaussian, SingleSpike

    return _pair(SingleSpike, Gaussian(mu=0.1, sigma=0.5), lambda v: torch.special.ndtr((v - 0.9) / 0.5)), _potentials()


@package.case("SingleSpike, MultiGaussian: surrogate of its integral")
def multi_gaussian():
    import torch
    from sinabs.activation import MultiGaussian, SingleSpike

    def integral(v):
        x, h, sigma, s = v - 0.8, 0.15, 0.5, 6.0
        return (1 + h) * torch.special.ndtr(x / sigma) - h * (
            torch.special.ndtr((x - sigma) / (s * sigma)) + torch.special.ndtr((x + sigma) / (s * sigma))
        )

    return _pair(SingleSpike, MultiGaussian(), integral), _potentials()


@package.case("SingleSpike, SingleExponential: surrogate of its integral")
def exponential():
    from sinabs.activation import SingleExponential, SingleSpike

    def integral(v):
        x = v - 0.8
        return x.sign() * (1 - (-x.abs() / 0.4).exp())

    return _pair(SingleSpike, SingleExponential(), integral), _potentials()


@package.case("MultiSpike, Heaviside with the window of the threshold: surrogate of max(v, 0) / threshold")
def multi_spike():
    from sinabs.activation import Heaviside, MultiSpike

    return _pair(MultiSpike, Heaviside(window=0.8), lambda v: v.relu() / 0.8), _potentials()


@package.case("MaxSpike, Heaviside: surrogate of max(v, 0) / threshold")
def max_spike():
    from sinabs.activation import Heaviside, MaxSpike

    return _pair(MaxSpike(max_num_spikes_per_bin=2), Heaviside(window=0.8), lambda v: v.relu() / 0.8), _potentials()


@package.case(intent="straight-through", why_intended="documented as a surrogate gradient: sinabs.activation.PeriodicExponential")
def periodic_exponential():
    from sinabs.activation import MultiSpike, PeriodicExponential

    return lambda v: MultiSpike.apply(v, 0.8, PeriodicExponential()), _potentials()


@package.case(intent="straight-through", why_intended="docstring: surrogate gradient, the identity: sinabs.activation.Quantize")
def quantize():
    import torch
    from sinabs.activation import Quantize

    return Quantize.apply, torch.randn(3, 5, dtype=torch.float64) * 2


@package.case(intent="straight-through", why_intended="docstring: surrogate gradient, the identity: sinabs.activation.StochasticRounding")
def stochastic_rounding():
    from sinabs.activation import StochasticRounding

    return StochasticRounding.apply, _potentials()


@package.case("ExponentialLeak of a leaky integrator: input and time constant", seconds=60.0)
def exp_leak():
    import torch
    from sinabs.layers import ExpLeak

    layer = ExpLeak(tau_mem=torch.full((3,), 8.0), train_alphas=True).double()

    def fn(x, alpha):
        layer.reset_states()
        return torch.func.functional_call(layer, {"alpha_mem": alpha}, (x,))

    return fn, (torch.randn(2, 6, 3, dtype=torch.float64), torch.tensor([0.9, 0.8, 0.7], dtype=torch.float64))


package.finding(
    "sinabs-spike-second-derivative",
    kind="second derivative",
    where="sinabs/activation/spike_generation.py:119",
    what="The spike functions save a clone of the membrane potential, which has no graph, and are not marked once_differentiable: the "
    "derivative of the surrogate gradient with respect to the potential is dropped from a second derivative without an error.",
    size="the whole second derivative",
    cases=[
        "SingleSpike, Gaussian: surrogate of the normal distribution function",
        "SingleSpike, MultiGaussian: surrogate of its integral",
        "SingleSpike, SingleExponential: surrogate of its integral",
    ],
)
