"""norse: threshold functions with surrogate gradients."""

from census.package import Package

package = Package(
    "norse",
    "1.1.0",
    family="spiking networks",
    group="neurons",
    modules=["norse"],
    note="A threshold function is audited as the pair of the function that its docstring or its reference names and the gradient that "
    "it supplies.",
)


def _pair(method, alpha, plain):
    def fn(x):
        from norse.torch.functional.threshold import threshold

        spikes = threshold(x, method, alpha)
        return plain(x).detach() + (spikes - spikes.detach())

    return fn


def _numbers():
    import torch

    return torch.randn(3, 5, dtype=torch.float64)


@package.case("threshold, super: surrogate of x / (1 + alpha |x|)")
def super_spike():
    return _pair("super", 10.0, lambda x: x / (1 + 10.0 * x.abs())), _numbers()


@package.case("threshold, super, alpha of 1: surrogate of x / (1 + |x|)")
def super_spike_one():
    return _pair("super", 1.0, lambda x: x / (1 + x.abs())), _numbers()


@package.case("threshold, triangle: surrogate of the integral of alpha max(1 - |x|, 0)")
def triangle():
    return _pair("triangle", 0.3, lambda x: 0.3 * x.clamp(-1, 1) * (1 - x.clamp(-1, 1).abs() / 2)), _numbers()


@package.case("threshold, tanh: surrogate of 1 / 2 + tanh(k x) / 2")
def tanh():
    return _pair("tanh", 5.0, lambda x: 0.5 + (5.0 * x).tanh() / 2), _numbers()


@package.case("threshold, circ: surrogate of 1 / 2 + x / (2 sqrt(x^2 + alpha^2))")
def circ():
    return _pair("circ", 2.0, lambda x: 0.5 + x / (x.square() + 4.0).sqrt() / 2), _numbers()


@package.case("threshold, heavi_erfc: surrogate of 1 / 2 + erf(k x) / 2")
def erfc():
    return _pair("heavi_erfc", 5.0, lambda x: 0.5 + (5.0 * x).erf() / 2), _numbers()


@package.case(
    intent="straight-through",
    why_intended="documented as a surrogate gradient of a Bernoulli draw: norse.torch.functional.threshold.Logistic",
)
def logistic():
    from norse.torch.functional.threshold import logistic_fn

    return lambda x: logistic_fn(x, 2.0), _numbers()


@package.case(intent="straight-through", why_intended="documented as a surrogate gradient: norse.torch.functional.threshold.Triangle")
def triangle_spiking():
    from norse.torch.functional.threshold import triangle_fn

    return lambda x: triangle_fn(x, 0.3), _numbers()


@package.case("lif_adjoint_step: input, weights", seconds=60.0)
def lif_adjoint():
    import torch
    from norse.torch.functional.adjoint.lif_adjoint import lif_adjoint_step
    from norse.torch.functional.lif import LIFFeedForwardState, LIFParameters, LIFState  # noqa: F401

    state = LIFState(torch.zeros(2, 3).double(), torch.randn(2, 3).double(), torch.randn(2, 3).double())

    def fn(x, w, r):
        _, new = lif_adjoint_step(x, state, w, r, LIFParameters(v_th=torch.tensor(50.0)))
        return new.v, new.i

    return fn, (torch.randn(2, 4).double(), torch.randn(3, 4).double(), torch.randn(3, 3).double())


package.finding(
    "norse-superspike-alpha",
    kind="gradient in a configuration",
    where="norse/torch/functional/superspike.py:28",
    what="The gradient of SuperSpike, norse's default threshold, does not depend on alpha: it is 1 / (1 + |x|)^2, where section 3.3.2 "
    "of the paper that its docstring "
    "cites, and norse 1.0.0, have 1 / (1 + alpha |x|)^2.",
    size="5.5 times the gradient at alpha = 100",
    cases=["threshold, super: surrogate of x / (1 + alpha |x|)"],
)
package.finding(
    "norse-threshold-scale",
    kind="undeclared estimator",
    where="norse/torch/functional/threshold.py:54",
    what="The gradients of the thresholds tanh, circ and heavi_erfc are those of the approximations that their docstrings name, times 2 "
    "/ k, 2 alpha and 2 / k; the "
    "docstring of the last one has erfc, which falls, where erf rises.",
    size="factor 2 / k, 2 alpha and 2 / k",
    cases=[
        "threshold, tanh: surrogate of 1 / 2 + tanh(k x) / 2",
        "threshold, circ: surrogate of 1 / 2 + x / (2 sqrt(x^2 + alpha^2))",
        "threshold, heavi_erfc: surrogate of 1 / 2 + erf(k x) / 2",
    ],
)
package.finding(
    "norse-lif-adjoint-coupling",
    kind="gradient",
    where="norse/torch/functional/adjoint/lif_adjoint.py:66",
    what="Without any spike, the backward of lif_adjoint_step is not the derivative of its step: the voltage's gradient reaches current "
    "and input with the rate of the "
    "synapse instead of the membrane's and does not reach the weights, and that of the current reaches the weights without its decay.",
    size="factor 2 (voltage by current and input), missing (voltage by weights), factor 1.25 (current by weights) with the default "
    "parameters",
    cases=["lif_adjoint_step: input, weights"],
)
