"""GPyTorch: Gaussian processes."""

from census.package import Package

package = Package("gpytorch", "1.15.2", family="Gaussian processes and probability", group="probability", modules=["gpytorch"])


@package.case()
def rbf_covariance():
    """The length scale of a kernel whose points are held fixed."""
    import torch
    from gpytorch.kernels import RBFKernel

    x = torch.randn(4, 2, dtype=torch.float64)
    kernel = RBFKernel().double()

    def covariance(raw):
        return torch.func.functional_call(Dense(kernel), {"kernel.raw_lengthscale": raw}, (x, x[:3] + 0.5))

    return covariance, torch.tensor([[0.3]], dtype=torch.float64)


def Dense(kernel):
    """A kernel as a module that returns a dense matrix."""
    import torch

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = kernel

        def forward(self, a, b):
            return self.kernel(a, b).to_dense()

    return Module()


@package.case()
def rbf_covariance_function():
    import torch
    from gpytorch.functions import RBFCovariance
    from gpytorch.kernels.kernel import sq_dist

    a, b = torch.randn(2, 4, 2, dtype=torch.float64), torch.randn(2, 3, 2, dtype=torch.float64)
    scale = torch.tensor([[[0.7]], [[1.2]]], dtype=torch.float64)
    return lambda s: RBFCovariance.apply(a, b, s, lambda x, y: sq_dist(x, y, x1_eq_x2=False)), scale


def matern(nu):
    """A case of the Matérn kernel."""
    import torch
    from gpytorch.functions import MaternCovariance

    a, b = torch.randn(2, 4, 2, dtype=torch.float64), torch.randn(2, 3, 2, dtype=torch.float64)
    scale = torch.tensor([[[0.7]], [[1.2]]], dtype=torch.float64)
    return lambda s: MaternCovariance.apply(a, b, s, nu, lambda x, y: torch.cdist(x, y)), scale


@package.case()
def matern_covariance_a_half():
    return matern(0.5)


@package.case()
def matern_covariance_three_halves():
    return matern(1.5)


@package.case()
def matern_covariance_five_halves():
    return matern(2.5)


@package.case()
def matern_covariance_with_equal_points():
    import torch
    from gpytorch.functions import MaternCovariance

    a = torch.randn(3, 2, dtype=torch.float64)
    return lambda s: MaternCovariance.apply(a, a, s, 1.5, lambda x, y: torch.cdist(x, y)), torch.tensor([[0.7]], dtype=torch.float64)


@package.case()
def log_normal_cdf():
    import torch
    from gpytorch.functions import log_normal_cdf

    return log_normal_cdf, torch.tensor([0.5, -0.6, 2.3, 4.0], dtype=torch.float64)


@package.case()
def log_normal_cdf_near_zero():
    import torch
    from gpytorch.functions import log_normal_cdf

    return log_normal_cdf, torch.tensor([0.1, -0.15, 0.02], dtype=torch.float64)


@package.case()
def log_normal_cdf_far_below():
    import torch
    from gpytorch.functions import log_normal_cdf

    return log_normal_cdf, torch.tensor([-1.5, -3.0, -8.0], dtype=torch.float64)


@package.case()
def diagonal_of_a_quadratic_form():
    import torch
    from gpytorch.variational.large_batch_variational_strategy import QuadFormDiagonal

    return lambda a, b: QuadFormDiagonal.apply(a + a.mT, b), (
        torch.randn(2, 3, 3, dtype=torch.float64),
        torch.randn(3, 4, dtype=torch.float64),
    )


@package.case()
def predictive_updates():
    """The factor is lower triangular and the middle term symmetric, as in the strategy that calls it."""
    import torch
    from gpytorch.variational.variational_strategy import ComputePredictiveUpdates

    def updates(chol, covariance, middle, values):
        return ComputePredictiveUpdates.apply(chol.tril() + 2 * torch.eye(3, dtype=chol.dtype), covariance, middle + middle.mT, values)

    shapes = (3, 3), (3, 4), (3, 3), (3,)
    return updates, tuple(torch.randn(*shape, dtype=torch.float64) for shape in shapes)


@package.case()
def predictive_updates_batched():
    import torch
    from gpytorch.variational.variational_strategy import ComputePredictiveUpdates

    def updates(chol, covariance, middle, values):
        return ComputePredictiveUpdates.apply(chol.tril() + 2 * torch.eye(3, dtype=chol.dtype), covariance, middle + middle.mT, values)

    shapes = (2, 3, 3), (2, 3, 4), (2, 3, 3), (2, 3)
    return updates, tuple(torch.randn(*shape, dtype=torch.float64) for shape in shapes)


def of_expectations(natural, eta1, eta2):
    """What a function of natural parameters is of expectation parameters: the values go through, and its gradients come back as they are.

    The package documents that these gradients are with respect to the expectation parameters. With this in front, that claim is what is audited.
    """
    import torch

    class Converted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, eta1, eta2):
            precision = torch.linalg.inv(eta2 - eta1.unsqueeze(-1) * eta1.unsqueeze(-2))
            return (precision @ eta1.unsqueeze(-1)).squeeze(-1), -0.5 * precision

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, vector, matrix):
            return vector, matrix

    return natural(*Converted.apply(eta1, eta2))


def moments(eta1, root):
    """Expectation parameters of a normal law, of any vector and any square matrix."""
    import torch

    return eta1, eta1.unsqueeze(-1) * eta1.unsqueeze(-2) + root @ root.mT + torch.eye(root.shape[-1], dtype=root.dtype)


@package.case(second_order=False)
def natural_gradient_of_moments():
    import torch
    from gpytorch.variational.natural_variational_distribution import _NaturalToMuVarSqrt

    def law(mean, root):
        return of_expectations(_NaturalToMuVarSqrt.apply, *moments(mean, root))

    return law, (torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 3, 3, dtype=torch.float64))


@package.case(
    intent="preconditioned",
    why_intended="NaturalVariationalDistribution: 'calculates natural gradients with respect to its parameters', to be used with gpytorch.optim.NGD",
)
def natural_gradient():
    import torch
    from gpytorch.variational.natural_variational_distribution import _NaturalToMuVarSqrt

    def law(vector, root):
        return _NaturalToMuVarSqrt.apply(vector, -0.5 * (root @ root.mT + torch.eye(3, dtype=root.dtype)))[0]

    return law, (torch.randn(3, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64))


@package.case(second_order=False)
def interpolation_terms_of_moments():
    import torch
    from gpytorch import settings
    from gpytorch.variational.ciq_variational_strategy import _NgdInterpTerms

    settings.eval_cg_tolerance._set_value(1e-13)

    def terms(k, mean, root):
        return of_expectations(lambda vector, matrix: _NgdInterpTerms.apply(k, vector, matrix), *moments(mean, root))[:2]

    shapes = (3, 4), (3,), (3, 3)
    return terms, tuple(torch.randn(*shape, dtype=torch.float64) for shape in shapes)


@package.case(second_order=False)
def interpolation_terms_of_batched_moments():
    import torch
    from gpytorch import settings
    from gpytorch.variational.ciq_variational_strategy import _NgdInterpTerms

    settings.eval_cg_tolerance._set_value(1e-13)

    def terms(k, mean, root):
        return of_expectations(lambda vector, matrix: _NgdInterpTerms.apply(k, vector, matrix), *moments(mean, root))[:2]

    shapes = (2, 3, 4), (2, 3), (2, 3, 3)
    return terms, tuple(torch.randn(*shape, dtype=torch.float64) for shape in shapes)


package.finding(
    "gpytorch-rbf-second-derivative",
    kind="second derivative",
    where="gpytorch/functions/rbf_covariance.py:28",
    what="The second derivative with respect to the length scale takes the derivative that was saved in the forward for a constant.",
    size="the whole second derivative of the kernel",
    cases=["rbf covariance", "rbf covariance function"],
)


package.finding(
    "gpytorch-matern-second-derivative",
    kind="second derivative",
    where="gpytorch/functions/matern_covariance.py:55",
    what="The second derivative with respect to the length scale takes the derivative that was saved in the forward for a constant.",
    size="the whole second derivative of the kernel",
    cases=[
        "matern covariance a half",
        "matern covariance three halves",
        "matern covariance five halves",
        "matern covariance with equal points",
    ],
)


package.finding(
    "gpytorch-log-normal-cdf-accuracy",
    kind="accuracy",
    where="gpytorch/functions/_log_normal_cdf.py:111",
    what="Below -1 the value is a rational approximation, good to 1e-4 at -1.5, and the gradient is not its derivative, but "
    "another approximation.",
    size="8e-4 of the gradient at -1.5, 3e-6 at -3",
    cases=["log normal cdf far below"],
)


package.finding(
    "gpytorch-log-normal-cdf-second-derivative",
    kind="second derivative",
    where="gpytorch/functions/_log_normal_cdf.py:111",
    what="The second derivative below -1 is zero: the saved numerator and denominator are constants to the backward.",
    size="the whole second derivative",
    cases=["log normal cdf far below"],
)


package.finding(
    "gpytorch-quad-form-diagonal-second-derivative",
    kind="second derivative",
    where="gpytorch/variational/large_batch_variational_strategy.py:36",
    what="The second derivative takes the saved product of matrix and right-hand side for a constant.",
    size="of the size of the second derivative",
    cases=["diagonal of a quadratic form"],
)


package.finding(
    "gpytorch-predictive-updates-second-derivative",
    kind="second derivative",
    where="gpytorch/variational/variational_strategy.py:101",
    what="The second derivative takes the saved interpolation term for a constant.",
    size="of the size of the second derivative",
    cases=["predictive updates", "predictive updates batched"],
)


package.finding(
    "gpytorch-natural-gradient",
    kind="undeclared estimator",
    where="gpytorch/variational/natural_variational_distribution.py:147",
    what="The gradients of the natural parameters are those with respect to the moments, which are natural gradients. "
    "Taken so, they are right: the cases of moments audit that.",
    size="another quantity",
    cases=["natural gradient"],
    documented="NaturalVariationalDistribution: 'calculates natural gradients with respect to its parameters', to be used with gpytorch.optim.NGD",
)
