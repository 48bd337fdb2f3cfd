"""Pyro: probabilistic programming, with distributions whose samples have pathwise derivatives."""

from census.package import Package

package = Package("pyro-ppl", "1.9.2", family="Gaussian processes and probability", group="probability", modules=["pyro"])

PATHWISE = "its docstring: 'This distribution implements pathwise derivatives for samples from the distribution'"


@package.case()
def safe_log():
    import torch
    from pyro.ops.special import safe_log

    return safe_log, torch.tensor([0.3, 1.7, 1e-8, 40.0], dtype=torch.float64)


@package.case(
    intent="gradient-cap", why_intended="safe_log: 'avoids infinite gradients at log(0) by clamping them to at most 1 / finfo.eps'"
)
def safe_log_of_tiny_numbers():
    import torch
    from pyro.ops.special import safe_log

    return safe_log, torch.tensor([1e-17, 3e-18, 0.5], dtype=torch.float64)


@package.case(
    intent="preconditioned",
    why_intended="EwmaLog: 'Logarithm function with exponentially weighted moving average for gradients'; the weights of a state are positive",
)
def log_with_a_moving_average():
    import torch
    from pyro.contrib.oed.eig import _ewma_log_fn

    average = torch.tensor([0.4, 1.5, 2.0], dtype=torch.float64)
    return lambda x: _ewma_log_fn(x, average), torch.tensor([0.5, 1.3, 2.2], dtype=torch.float64).requires_grad_()


@package.case(
    intent="straight-through",
    why_intended="RelaxedOneHotCategoricalStraightThrough: 'with a straight-through gradient estimator'",
    second_order=False,
)
def quantised_categories():
    import torch
    from pyro.distributions.relaxed_straight_through import QuantizeCategorical

    return lambda x: QuantizeCategorical.apply(x.softmax(-1)), torch.randn(3, 4, dtype=torch.float64)


@package.case(
    intent="straight-through",
    why_intended="RelaxedBernoulliStraightThrough: 'with a straight-through gradient estimator'",
    second_order=False,
)
def quantised_bits():
    import torch
    from pyro.distributions.relaxed_straight_through import QuantizeBernoulli

    return lambda x: QuantizeBernoulli.apply(x.sigmoid()), torch.randn(3, 4, dtype=torch.float64)


@package.case(intent="implicit-reparameterization", why_intended=PATHWISE)
def mixture_with_a_shared_covariance():
    import torch
    from pyro.distributions import MixtureOfDiagNormalsSharedCovariance

    def sample(locs, scale, logits):
        return MixtureOfDiagNormalsSharedCovariance(locs, scale.exp(), logits).rsample((8,))

    return sample, (
        torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64),
        torch.zeros(2, dtype=torch.float64),
        torch.tensor([0.3, -0.3]).double(),
    )


@package.case(intent="implicit-reparameterization", why_intended=PATHWISE)
def mixture_of_normals():
    import torch
    from pyro.distributions import MixtureOfDiagNormals

    def sample(locs, scale, logits):
        return MixtureOfDiagNormals(locs, scale.exp(), logits).rsample((8,))

    return sample, (
        torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64),
        torch.zeros(2, 2, dtype=torch.float64),
        torch.tensor([0.3, -0.3]).double(),
    )


@package.case(intent="implicit-reparameterization", why_intended=PATHWISE)
def scale_mixture_of_normals():
    import torch
    from pyro.distributions import GaussianScaleMixture

    def sample(scale, logits, component):
        return GaussianScaleMixture(scale.exp(), logits, component.exp()).rsample((8,))

    return sample, tuple(torch.randn(n, dtype=torch.float64) * 0.3 for n in (3, 2, 2))


@package.case(
    intent="implicit-reparameterization",
    why_intended="OMTMultivariateNormal: 'OMT gradients w.r.t. both parameters', another path derivative with less variance",
)
def normal_with_optimal_transport():
    import torch
    from pyro.distributions import OMTMultivariateNormal

    def sample(loc, root):
        return OMTMultivariateNormal(loc, root.tril() + 2 * torch.eye(3, dtype=root.dtype)).rsample((8,))

    return sample, (torch.randn(3, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64) * 0.3)


@package.case(
    intent="implicit-reparameterization",
    why_intended="AVFMultivariateNormal: 'transport equation inspired control variates (adaptive velocity fields)'; control_var is adapted for less variance",
)
def normal_with_adaptive_velocity_fields():
    import torch
    from pyro.distributions import AVFMultivariateNormal

    def sample(loc, root, control):
        return AVFMultivariateNormal(loc, root.tril() + 2 * torch.eye(3, dtype=root.dtype), control).rsample((8,))

    return sample, (
        torch.randn(3, dtype=torch.float64),
        torch.randn(3, 3, dtype=torch.float64) * 0.3,
        torch.randn(2, 2, 3, dtype=torch.float64) * 0.1,
    )


package.finding(
    "pyro-ppl-mixture-shared-covariance-logits",
    kind="gradient",
    where="pyro/distributions/diag_normal_mixture_shared_cov.py:169",
    what="The expectation of the pathwise gradient of the logits is not the derivative of the expectation unless the line through "
    "the means goes through the origin: the distance across it is measured from the origin.",
    size="the whole gradient in the example, 0 for 0.69",
    cases=["mixture with a shared covariance"],
    missed=True,
)


package.finding(
    "pyro-ppl-mixture-of-normals-logits",
    kind="gradient",
    where="pyro/distributions/diag_normal_mixture.py:173",
    what="The expectation of the pathwise gradient of the logits is not the derivative of the expectation unless the line through "
    "the means goes through the origin: the distance across it is measured from the origin.",
    size="the whole gradient in the example, 0 for 0.69",
    cases=["mixture of normals"],
    missed=True,
)
