"""roma: rotations in PyTorch, and orthogonal Procrustes problems."""

from census.package import Package

package = Package(
    "roma",
    "1.8.0",
    family="geometry and pose",
    group="geometry",
    modules=["roma"],
    note="Derivatives of Procrustes problems are damped by the documented option gradient_eps; "
    "most cases set it to 1e-8, which is below the limit of the audit.",
)


def randn(*shape):
    """Ordinary numbers in float64."""
    import torch

    return torch.randn(*shape, dtype=torch.float64)


@package.case("procrustes of 4x4", seconds=20)
def _procrustes():
    import roma

    return lambda m: roma.procrustes(m, gradient_eps=1e-8), randn(1, 4, 4)


@package.case("procrustes of 4x4, with singular values, first derivatives", seconds=20, second_order=False)
def _procrustes_values():
    import roma

    return lambda m: roma.procrustes(m, gradient_eps=1e-8, return_singular_values=True), randn(1, 4, 4)


@package.case("special_procrustes by svd, first derivatives", seconds=20, second_order=False)
def _special_first():
    import roma

    return lambda m: roma.special_procrustes(m, gradient_eps=1e-8, method="svd"), randn(2, 3, 3)


@package.case("special_procrustes by svd", seconds=20)
def _special():
    import roma

    return lambda m: roma.special_procrustes(m, gradient_eps=1e-8, method="svd"), randn(1, 3, 3)


@package.case("special_procrustes by Horn's method, both signs of the determinant", seconds=30)
def _horn():
    import roma
    import torch

    m = randn(1, 3, 3)
    return lambda m: roma.special_procrustes(m, gradient_eps=1e-8, method="horn"), torch.cat([m, -m])


@package.case("special_procrustes at a rotation", seconds=20, second_order=False)
def _rotation():
    import roma
    import torch

    a = 0.5 * randn(1, 3, 3)
    return lambda m: roma.special_procrustes(m, gradient_eps=1e-8), torch.linalg.matrix_exp(a - a.mT)


@package.case("special_procrustes near a tie of singular values", seconds=20, second_order=False)
def _tie():
    import roma
    import torch

    u, v = (torch.linalg.matrix_exp(a - a.mT) for a in randn(2, 3, 3))
    near = u @ torch.diag(torch.tensor([2.0, 1.0, -0.99], dtype=torch.float64)) @ v
    return lambda m: roma.special_procrustes(m, gradient_eps=1e-8), near[None]


@package.case("special_procrustes with the default gradient_eps", seconds=20, tolerance=1e-7)
def _default():
    import roma

    return roma.special_procrustes, randn(1, 3, 3)


@package.case("special_procrustes with regularization", seconds=20, second_order=False)
def _regularized():
    import roma

    return lambda m: roma.special_procrustes(m, regularization=0.1, gradient_eps=1e-8), randn(1, 3, 3)


@package.case("symmatrix_to_projective_point", seconds=20)
def _symmatrix():
    import roma

    return lambda a: roma.symmatrix_to_projective_point(a + a.mT, gradient_eps=1e-8), randn(1, 4, 4)


package.finding(
    "roma-second-derivative",
    kind="second derivative",
    where="roma/mappings.py:60",
    what="Second derivatives of procrustes and special_procrustes with method='svd' leave out how the factors of the decomposition change, without an "
    "error; those with method='horn' are right.",
    size="as large as the second derivative itself",
    cases=["procrustes of 4x4", "special_procrustes by svd"],
)
package.finding(
    "roma-regularization",
    kind="undeclared estimator",
    where="roma/mappings.py:367",
    what="With regularization, a term that does not depend on grad_output is added to the gradient.",
    size="0.1 of the gradient with regularization 0.1",
    cases=["special_procrustes with regularization"],
    documented="docstring of roma.procrustes: 'weight of a regularization term added to the gradient during backpropagation'",
)
