"""snntorch: surrogate gradients of the step function, and a quantiser of neuron states."""

from census.package import Package

package = Package(
    "snntorch",
    "1.0.0",
    family="spiking networks",
    group="neurons",
    modules=["snntorch"],
    note="A surrogate is audited as the pair of the function that its docstring names (S approximately ...) and the gradient that it "
    "supplies. Spikes are float32 "
    "whatever the dtype of the input, so the cases are in float32.",
)


def _pair(surrogate, plain):
    """The function that is said to stand for the step, with the gradient that is supplied."""

    def fn(x):
        spikes = surrogate(x)
        return plain(x).detach() + (spikes - spikes.detach())

    return fn


def _numbers(scale=1.0):
    import torch

    return torch.randn(3, 5) * scale


@package.case("fast_sigmoid: surrogate of U / (1 + k |U|)")
def fast_sigmoid():
    from snntorch import surrogate

    return _pair(surrogate.fast_sigmoid(slope=5), lambda x: x / (1 + 5 * x.abs())), _numbers()


@package.case("atan: surrogate of arctan(pi U alpha / 2) / pi")
def atan():
    import torch
    from snntorch import surrogate

    return _pair(surrogate.atan(alpha=2.0), lambda x: (torch.pi * x).atan() / torch.pi), _numbers()


@package.case("LeakyParallel.ATan: surrogate of arctan(pi U alpha / 2) / pi")
def leaky_parallel():
    import snntorch
    import torch

    return _pair(lambda x: snntorch.LeakyParallel.ATan.apply(x, 1.5), lambda x: (torch.pi * 0.75 * x).atan() / torch.pi), _numbers()


@package.case("sigmoid: surrogate of 1 / (1 + exp(-k U))")
def sigmoid():
    from snntorch import surrogate

    return _pair(surrogate.sigmoid(slope=3), lambda x: (3 * x).sigmoid()), _numbers()


@package.case("sigmoid: surrogate of 1 / (1 + exp(-k U)), default slope, membrane potentials down to -6")
def sigmoid_far():
    import torch
    from snntorch import surrogate

    return _pair(surrogate.sigmoid(), lambda x: (25 * x).sigmoid()), torch.tensor([0.03, -0.05, -1.0, -4.0, -6.0])


@package.case("triangular: surrogate of -threshold |U|, whose slope the docstring gives")
def triangular():
    from snntorch import surrogate

    return _pair(surrogate.triangular(threshold=0.7), lambda x: -0.7 * x.abs()), _numbers()


@package.case("heaviside: surrogate of max(U, 0)", second_order=False)
def heaviside():
    from snntorch import surrogate

    return _pair(surrogate.heaviside(), lambda x: x.relu()), _numbers()


@package.case("straight_through_estimator: surrogate of U")
def straight_through():
    from snntorch import surrogate

    return _pair(surrogate.straight_through_estimator(), lambda x: x), _numbers()


@package.case("spike_rate_escape: surrogate of the integral of k exp(-beta |U - 1|)")
def spike_rate_escape():
    from snntorch import surrogate

    def integral(x):
        return (x - 1).sign() * 1.2 * (1 - (-2.0 * (x - 1).abs()).exp()) / 2.0

    return _pair(surrogate.spike_rate_escape(beta=2.0, slope=1.2), integral), _numbers()


@package.case("SFS: surrogate of U / (1 + k |U|) above B")
def sparse_fast_sigmoid():
    from snntorch import surrogate

    return _pair(surrogate.SFS(slope=5, B=0.2), lambda x: (x / (1 + 5 * x.abs()) - 0.1).where(x > 0.2, 0.0)), _numbers()


@package.case("SSO: surrogate with a random gradient below the threshold")
def sso():
    from snntorch import surrogate

    return _pair(surrogate.SSO(), lambda x: x.relu()), _numbers()


@package.case("LeakySpikeOperator: surrogate of the leaky ReLU that its docstring names")
def leaky_spike_operator():
    import torch
    from snntorch import surrogate

    return _pair(lambda x: surrogate.LeakySpikeOperator.apply(x, 0.1), lambda x: torch.nn.functional.leaky_relu(x, 0.1)), _numbers()


@package.case("LSO: surrogate of the leaky ReLU that its docstring names")
def lso():
    import torch
    from snntorch import surrogate

    return _pair(surrogate.LSO(slope=0.1), lambda x: torch.nn.functional.leaky_relu(x, 0.1)), _numbers()


@package.case("custom_surrogate: surrogate of arctan")
def custom():
    from snntorch import surrogate

    return _pair(surrogate.custom_surrogate(lambda x, grad, spikes: grad / (1 + x**2)), lambda x: x.atan()), _numbers()


@package.case(intent="straight-through", why_intended="documented as a surrogate of the step function: snntorch.surrogate.fast_sigmoid")
def fast_sigmoid_spiking():
    from snntorch import surrogate

    return surrogate.fast_sigmoid(), _numbers()


@package.case(
    intent="straight-through", why_intended="quantization-aware training with a straight-through estimator: snntorch.functional.quant"
)
def state_quant():
    from snntorch.functional import quant

    return quant.state_quant(num_bits=3, uniform=True, threshold=1.0), _numbers(0.6)


package.finding(
    "snntorch-sigmoid-nan",
    kind="gradient at special states",
    where="snntorch/surrogate.py:308",
    what="The surrogate gradient of sigmoid is nan for membrane potentials far below the threshold, where the exponential overflows; "
    "the true one is zero there.",
    size="nan for U below -3.4 at the default slope of 25",
    known="https://github.com/jeshraghian/snntorch/issues/427",
    fixed="main",
    cases=["sigmoid: surrogate of 1 / (1 + exp(-k U)), default slope, membrane potentials down to -6"],
)
package.finding(
    "snntorch-lso-raises",
    kind="missing gradient",
    where="snntorch/surrogate.py:507",
    what="The backward of LeakySpikeOperator returns one gradient for two arguments and raises, and surrogate.LSO, its constructor, "
    "applies "
    "StochasticSpikeOperator with an argument missing and raises in the forward.",
    size="an error for every input",
    known="https://github.com/jeshraghian/snntorch/issues/430",
    cases=["LeakySpikeOperator: surrogate of the leaky ReLU that its docstring names"],
)
package.finding(
    "snntorch-sso-random",
    kind="edits or keeps state",
    where="snntorch/surrogate.py:444",
    what="The backward of StochasticSpikeOperator draws the gradient below the threshold at random, anew in each backward.",
    size="uniform in [-0.1, 0.1)",
    cases=["SSO: surrogate with a random gradient below the threshold"],
    documented="docstring of snntorch.surrogate.StochasticSpikeOperator",
)
