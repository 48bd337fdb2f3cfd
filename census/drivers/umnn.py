"""UMNN: unconstrained monotonic neural networks, which integrate a positive network by quadrature."""

from census.package import Package

package = Package("UMNN", "1.71", family="normalizing flows and invertible networks", group="signals", modules=["UMNN"])


def noise(*shape):
    """Ordinary numbers in float64."""
    import torch

    return torch.randn(*shape, dtype=torch.float64)


def integral(function, smooth=True, **options):
    """A module that integrates a positive network of one variable and two conditions from x0 to x."""
    import torch
    from torch import nn
    from UMNN import IntegrandNN

    class Smooth(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Linear(3, 1).double()

        def forward(self, x, h):
            return 1.5 + torch.tanh(self.mix(torch.cat((x, h), 1)))

    class Integral(nn.Module):
        def __init__(self):
            super().__init__()
            self.integrand = Smooth() if smooth else IntegrandNN(3, [5]).double()

        def forward(self, x0, x, h):
            flat = torch.cat([p.reshape(-1) for p in self.integrand.parameters()])
            return function.apply(x0, x, self.integrand, flat, h, *options.values())

    return Integral()


@package.case()
def neural_integral_from_zero():
    import torch
    from UMNN import NeuralIntegral

    module, x0 = integral(NeuralIntegral, nb_steps=20), torch.zeros(3, 1, dtype=torch.float64)
    return lambda x, h: module(x0, x, h), (noise(3, 1), noise(3, 2))


@package.case()
def parallel_neural_integral_from_zero():
    import torch
    from UMNN import ParallelNeuralIntegral

    module, x0 = integral(ParallelNeuralIntegral, nb_steps=20), torch.zeros(3, 1, dtype=torch.float64)
    return lambda x, h: module(x0, x, h), (noise(3, 1), noise(3, 2))


@package.case()
def parallel_neural_integral_with_parameters():
    import torch
    from UMNN import ParallelNeuralIntegral

    module = integral(ParallelNeuralIntegral, nb_steps=20)
    return module, (torch.zeros(3, 1, dtype=torch.float64), noise(3, 1).requires_grad_(), noise(3, 2).requires_grad_())


@package.case()
def parallel_neural_integral_from_elsewhere():
    from UMNN import ParallelNeuralIntegral

    return integral(ParallelNeuralIntegral, nb_steps=20), (noise(3, 1), noise(3, 1), noise(3, 2))


@package.case()
def neural_integral_from_elsewhere():
    from UMNN import NeuralIntegral

    return integral(NeuralIntegral, nb_steps=20), (noise(3, 1), noise(3, 1), noise(3, 2))


@package.case()
def parallel_neural_integral_of_the_inverse():
    import torch
    from UMNN import ParallelNeuralIntegral

    module, x0 = integral(ParallelNeuralIntegral, nb_steps=20, inv_f=True), torch.zeros(3, 1, dtype=torch.float64)
    return lambda x: module(x0, x, torch.ones(3, 2, dtype=torch.float64)), noise(3, 1)


@package.case()
def parallel_neural_integral_with_few_steps():
    import torch
    from UMNN import ParallelNeuralIntegral

    module, x0 = integral(ParallelNeuralIntegral, nb_steps=4), torch.zeros(3, 1, dtype=torch.float64)
    return lambda x, h: module(x0, x, h), (2 * noise(3, 1), noise(3, 2))


@package.case(second_order=False)
def monotonic_network_in_float32():
    from UMNN import MonotonicNN

    module = MonotonicNN(3, [6], nb_steps=50)
    return module, (noise(4, 1).float(), noise(4, 2).float())


package.finding(
    "umnn-lower-limit",
    kind="gradient in a configuration",
    where="UMNN/ParallelNeuralIntegral.py:105",
    what="The gradients of the parameters and of the condition are integrated from x0 to x0 + x instead of from x0 to x, as the step is x / nb_steps "
    "where the forward has (x - x0) / nb_steps; they are right only for x0 = 0.",
    size="factors -9 to 3 at x0 and x of ordinary size",
    cases=["parallel neural integral from elsewhere", "neural integral from elsewhere"],
)
package.finding(
    "umnn-inverse-integrand",
    kind="missing gradient",
    where="UMNN/ParallelNeuralIntegral.py:110",
    what="With inv_f given, the backward raises, because it returns six gradients for seven arguments; the gradients that it would return for the limits "
    "are those of the integrand and not of its reciprocal.",
    size="an error in place of the gradient",
    cases=["parallel neural integral of the inverse"],
)
package.finding(
    "umnn-float32-quadrature",
    kind="accuracy",
    where="UMNN/ParallelNeuralIntegral.py:22",
    what="Nodes and weights of the quadrature are rounded to float32 whatever the dtype of the arguments, so that in float64 the value is not the integral "
    "whose exact derivative the backward supplies for the limits.",
    size="2e-8 of the gradient in float64",
    cases=[
        "neural integral from zero",
        "parallel neural integral from zero",
        "parallel neural integral with parameters",
        "parallel neural integral with few steps",
    ],
)

package.finding(
    "umnn-quadrature-of-kinks",
    kind="undeclared estimator",
    where="UMNN/ParallelNeuralIntegral.py:109",
    what="The gradient of the limits is the integrand at them, that of the exact integral; the value is a quadrature, which moves otherwise where the "
    "integrand has kinks, as the package's own network does.",
    size="1e-3 of the gradient with 50 steps",
    cases=["monotonic network in float32"],
    documented="the comment in the backward names Leibniz' formula",
)
